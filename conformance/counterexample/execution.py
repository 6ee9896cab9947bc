# SPDX-License-Identifier: Apache-2.0
"""Executing the program of a counterexample in a process in which the plugin is untouched."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from conformance.counterexample import program
from conformance.watching.interruption import in_call, limited
from conformance.watching.untouched import Ended, Errands

#: The status of a program that ended with an exception of the plugin.
_RAISED = -1

#: The status of a program for which there was no time.
_NO_TIME = -2


@attrs.frozen
class Execute:
    """An errand: execute a program."""

    source: str
    limit: float | None = None  #: seconds after which it is given up
    what: str = "conformance.counterexample.execution:execute"


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


def first_failing(
    untouched: Errands,
    case: Mapping[str, Any],
    candidates: Sequence[dict[str, Any]],
    *,
    limit: float | None = None,
) -> dict[str, Any] | None:
    """Return the first candidate whose program fails where the plugin is untouched.

    Args:
        untouched: that process.
        case: a case document with what all candidates have of the counterexample.
        candidates: what their programs are made of, the shortest first.
        limit: seconds for all of them; a program that hangs shows nothing.

    Raises:
        Ended: the plugin ended the process that it was in.

    """
    end = None if limit is None else time.monotonic() + limit

    def played(candidate: dict[str, Any]) -> int:
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            return _NO_TIME
        shown = {**case["counterexample"], **candidate}
        errand = Execute(program({**case, "counterexample": shown}), left)
        status: int = untouched.run(errand)[0]
        return status

    idle = []
    for candidate in candidates:
        # A plugin that raises, or does nothing, may want the tokenizer of its model.
        wanting = {**candidate, "tokenizer": True}
        status = played(candidate)
        if status == 1:
            return candidate
        if not {**case["counterexample"], **candidate}.get("logits"):
            continue
        if status == _RAISED and played(wanting) == 1:
            return wanting
        idle += [wanting] if status == 0 else []
    return next((wanting for wanting in idle if played(wanting) == 1), None)


def demonstrated(
    untouched: Errands,
    case: Mapping[str, Any],
    candidates: Iterable[dict[str, Any]],
    *,
    limit: float,
) -> dict[str, Any]:
    """Return a failure with the first candidate whose program fails, as it is where none does.

    It is reported all the same where the plugin ends the process that it is in, or where something
    is raised while candidates are made.
    """
    found = None
    try:
        found = first_failing(untouched, case, list(candidates), limit=limit)
    except Ended:
        pass
    except Exception:  # noqa: BLE001 - a failure is reported, with or without a program
        traceback.print_exc()
    return {**case["counterexample"], **(found or {})}


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
                with _limited(errand.limit):
                    exec(compile(errand.source, str(path), "exec"), names)  # noqa: S102 - our own
                status = 0
            except SystemExit as leaving:
                status = leaving.code if isinstance(leaving.code, int) else 1
            except BaseException as error:  # noqa: BLE001 - whatever the plugin raises
                traceback.print_exc()
                print(f"{type(error).__name__}: {error}")  # noqa: T201 - to what is returned
                status = _RAISED
    return status, said.getvalue()


@contextlib.contextmanager
def _limited(seconds: float | None) -> Iterator[None]:
    """Interrupt a program that takes longer."""
    if seconds is None:
        yield
        return
    with limited(seconds), in_call("the program"):
        yield
