# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: a program, as ``python program.py`` would run it."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from conformance.counterexample.logits_host_player import logits_table

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def execute(connection: Connection, path: str) -> None:
    """Answer with the exit status of a program; what it says is in the log."""
    connection.recv()
    status: object = 0
    # Tests change a plugin within a second; byte code outlives a change that keeps the size.
    sys.dont_write_bytecode = True
    sys.argv = [path]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as leaving:
        status = leaving.code or 0
    except BaseException:  # noqa: BLE001 - an interpreter would print it and exit with 1
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    connection.send(status)


def logits(
    connection: Connection,
    *,
    source: str,
    vocabulary: int,
    tokens: Sequence[int],
    seed: int,
    padding: int,
) -> None:
    """Answer whether the function of a program gives the very rows of the bench."""
    connection.recv()
    names = {"torch": torch, "Sequence": Sequence}
    exec(source, names)  # noqa: S102 - the program under test
    table = logits_table(vocabulary, tokens, seed)
    rows = names["rows"](*range(len(table)), **({"padding": padding} if padding else {}))
    connection.send((torch.equal(rows, table), rows.stride()))
