# SPDX-License-Identifier: Apache-2.0
"""Executing the program of a counterexample in a process in which the plugin is untouched."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from conformance.logits.processes import ERRANDS

if TYPE_CHECKING:
    from collections.abc import Mapping


@attrs.frozen
class Execute:
    """An errand: execute a program."""

    source: str
    what: str = "execute"


def document(rule: str, fqcn: str, case: Mapping[str, Any], generation: str) -> dict[str, Any]:
    """Return a case document for a plugin that this process has imported."""
    module, _, qualname = fqcn.partition(":")
    plugin = {"module": module, "qualname": qualname, "root": None}
    return {
        "rule": rule,
        "generation": generation,
        "target": fqcn,
        "plugin": plugin,
        "counterexample": case,
    }


def execute(_: type, errand: Execute) -> tuple[int, str]:
    """Execute a program here; return its exit status, -1 for an exception, and what it said."""
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(errand.source, encoding="utf-8")
        # As for a program that Python starts with, also where it starts another one.
        sys.argv = [str(path)]
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        names = {"__name__": "__main__", "__file__": str(path)}
        # What dumps a stack needs the real error stream.
        with contextlib.redirect_stdout(said):
            try:
                exec(compile(errand.source, str(path), "exec"), names)  # noqa: S102 - our program
                status = 0
            except SystemExit as leaving:
                status = leaving.code if isinstance(leaving.code, int) else 1
            except BaseException as error:  # noqa: BLE001 - whatever the plugin raises
                traceback.print_exc()
                print(f"{type(error).__name__}: {error}")  # noqa: T201 - to what is returned
                status = -1
    return status, said.getvalue()


ERRANDS["execute"] = execute
