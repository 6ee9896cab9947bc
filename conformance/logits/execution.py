# SPDX-License-Identifier: Apache-2.0
"""Executing the program of a counterexample in a process in which the plugin is untouched."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from conformance import counterexample
from conformance.counterexample.source import encoded
from conformance.logits.processes import ERRANDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from conformance.logits.processes import Untouched
    from conformance.logits.requests import Stock
    from conformance.logits.trial import Trial


#: A call that hung before is given up sooner the second time.
HANGS_AGAIN = 3.0


def hurry() -> None:
    """Interrupt what hangs, as :func:`limited` does, before its time is over."""
    alarm = threading.Timer(HANGS_AGAIN, os.kill, (os.getpid(), signal.SIGALRM))
    alarm.daemon = True
    alarm.start()


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


def parameters(bench: Stock) -> list[dict[str, Any]]:
    """Return the parameter sets of a bench as counterexamples have them."""
    return [
        {"choice": list(choice), "keywords": encoded(keywords)}
        for choice, keywords in bench.parameters.items()
    ]


def variants(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each part twice: with plain ``SamplingParams``, and with those of vLLM's front end."""
    return [{**part, "bare": bare} for part in parts for bare in (True, False)]


def first_failing(
    trial: Trial,
    rule: str,
    generation: str,
    kept: Mapping[str, Any],
    candidates: Sequence[dict[str, Any]],
) -> dict[str, Any] | None:
    """Return the first candidate whose program fails where the plugin is untouched.

    Args:
        trial: the plugin.
        rule: the rule that is broken.
        generation: the generation of the rule.
        kept: what all candidates have of the counterexample.
        candidates: what their programs are made of, the shortest first.

    Raises:
        EOFError, OSError: the plugin ended the process that it was in.

    """
    untouched: Untouched = trial.untouched
    for candidate in candidates:
        case = document(rule, trial.fqcn, {**kept, **candidate}, generation)
        status, _ = untouched.run(Execute(counterexample.program(case)))
        if status == 1:
            return candidate
    return None


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
