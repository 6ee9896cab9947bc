# SPDX-License-Identifier: Apache-2.0
"""What the programs of logits processors are made of, and whether they show the fault."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from conformance import counterexample
from conformance.counterexample import execution
from conformance.counterexample.logits_checks import FILES_ONLY
from conformance.engine.models import end_of_sequence
from conformance.logits.parameters import DEPLOYED
from conformance.logits.trial import Trial

#: A call that hung before is given up sooner the second time.
HANGS_AGAIN = 3.0


def hurry() -> None:
    """Interrupt what hangs, as :func:`limited` does, before its time is over."""
    alarm = threading.Timer(HANGS_AGAIN, os.kill, (os.getpid(), signal.SIGALRM))
    alarm.daemon = True
    alarm.start()


def logits(trial: Trial) -> dict[str, Any]:
    """Return what a plugin is made with, and logits are made of, as counterexamples have it."""
    bench = trial.bench
    found = {
        "vocabulary": bench.vocabulary,
        "tokens": list(bench.favourites),
        "prompt": bench.prompt,
        "said": [*bench.words.phrase(0)],
    }
    deployment = trial.parameters.deployment
    said = {key: deployment[key] for key in DEPLOYED if deployment.get(key)}
    if "tokenizer" in said:
        # As the tokenizer of a model says where its answers end.
        ends = ("bos_token_id", "eos_token_id", "pad_token_id")
        config = said.get("config", {})
        said["config"] = dict.fromkeys(ends, end_of_sequence(bench.model)) | config
    return found | ({"deployed": said} if said else {})


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


def shortest(
    trial: Trial,
    rule: str,
    kept: Mapping[str, Any],
    parts: Iterable[Mapping[str, Any]],
    *,
    hangs: bool,
) -> dict[str, Any] | None:
    """Return the first part of a failure whose program fails where the plugin is untouched.

    Each is tried with plain ``SamplingParams``, and with those of vLLM's front end.

    Args:
        trial: the plugin.
        rule: the rule that is broken.
        kept: what all parts have of the counterexample.
        parts: what their programs are made of, the shortest first.
        hangs: whether a call does not return; then the first part is taken as it is.

    Raises:
        Ended: the plugin ended the process that it was in.

    """
    candidates = [{**part, "bare": bare} for part in parts for bare in (True, False)]
    if candidates and (hangs or rule in FILES_ONLY):
        return candidates[0]
    case = execution.document(rule, trial.fqcn, kept, trial.contract.generation)
    return execution.first_failing(trial.untouched, case, candidates)
