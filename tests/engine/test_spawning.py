# SPDX-License-Identifier: Apache-2.0
"""Spawned processes that are forks: what they have seen, what they are given, how they end."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import multiprocessing, os, sys
import mailbox  # as the host is imported
from conformance.engine import spawning

sys.path.insert(0, os.path.dirname(__file__))
import work

if __name__ == "__main__":
    spawning.fork_instead()
    import poplib  # as the plugin is
    os.environ["SAID"] = "since"
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work.tell, args=(theirs, "mailbox", "poplib"))
    process.start()
    print(*ours.recv(), process.pid != os.getpid())
    ours.send(3)
    process.join(20)
    print(process.exitcode)
    killed = context.Process(target=work.tell, args=(theirs,))
    killed.start()
    ours.recv()
    killed.kill()
    killed.join(20)
    print(killed.exitcode)
"""

WORK = """
import os, sys

def tell(connection, *modules):
    connection.send([*(name in sys.modules for name in modules), os.environ.get("SAID")])
    raise SystemExit(connection.recv())
"""


def test_a_spawned_process_is_a_fork_of_what_was_there(tmp_path: Path) -> None:
    """It has what was imported before and not since, the variables of now, and its own end."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    (tmp_path / "work.py").write_text(WORK)

    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=120, check=False
    )

    assert done.stdout.splitlines() == ["True False since True", "3", "-9"], done.stderr
