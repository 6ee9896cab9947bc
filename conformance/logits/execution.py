# SPDX-License-Identifier: Apache-2.0
"""What the programs of logits processors are made of, and whether they show the fault."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from conformance import counterexample
from conformance.counterexample import execution
from conformance.counterexample.source import encoded
from conformance.logits.requests import Stock
from conformance.logits.trial import Trial

#: A call that hung before is given up sooner the second time.
HANGS_AGAIN = 3.0


def hurry() -> None:
    """Interrupt what hangs, as :func:`limited` does, before its time is over."""
    alarm = threading.Timer(HANGS_AGAIN, os.kill, (os.getpid(), signal.SIGALRM))
    alarm.daemon = True
    alarm.start()


def parameters(bench: Stock) -> list[dict[str, Any]]:
    """Return the parameter sets of a bench as counterexamples have them."""
    return [
        {"choice": list(choice), "keywords": encoded(keywords)}
        for choice, keywords in bench.parameters.items()
    ]


def variants(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each part twice: with plain ``SamplingParams``, and with those of vLLM's front end."""
    return [{**part, "bare": bare} for part in parts for bare in (True, False)]


def again(
    plugin: type, rule: str, generation: str, case: Mapping[str, Any]
) -> tuple[list[str], str]:
    """Execute the program of a counterexample; return kinds of trouble and a message."""
    fqcn = f"{plugin.__module__}:{plugin.__qualname__}"
    source = counterexample.program(execution.document(rule, fqcn, case, generation))
    status, said = execution.execute(plugin, execution.Execute(source))
    failures = [line for line in said.splitlines() if line.startswith("FAILS: ")]
    message = failures[0].removeprefix("FAILS: ") if failures else said.strip().splitlines()[-1]
    return {0: [], 1: ["calls"]}.get(status, ["raised"]), message


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
        Ended: the plugin ended the process that it was in.

    """
    case = execution.document(rule, trial.fqcn, kept, generation)
    return execution.first_failing(trial.untouched, case, candidates)
