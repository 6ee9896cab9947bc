# SPDX-License-Identifier: Apache-2.0
"""Draws have the constants of the plugin, and none of the harness."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

JOB = """
from hypothesis.internal.conjecture import providers

from conformance.inputs import constants

def collects(connection):
    constants.leave_out_host()
    import conformance.watching.comparison, plugin
    connection.recv()
    found = providers._get_local_constants()
    connection.send((sorted(found.integers), sorted(found.strings)))
"""


def test_constants_of_the_plugin_are_drawn(zygote: Zygote, tmp_path: Path) -> None:
    """Its source is read; the harness's is not, wherever it is installed."""
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "plugin.py").write_text('TOKEN, KEY = 424242, "a key of the plugin"\n')
    job = zygote.fork(
        "job:collects",
        {},
        log=tmp_path / "log",
        directory=tmp_path,
        python_path=[str(tmp_path)],
    )
    try:
        integers, strings = job.ask(None, limit=60.0)
    finally:
        job.close()

    assert integers == [424242]
    assert strings == ["a key of the plugin"]
