# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: one plugin judged for many seeds, without vLLM being imported again."""

from __future__ import annotations

import importlib
import os
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.coverage import lines
from conformance.logits import judgement
from conformance.logits.configuration import vllm_config
from conformance.logits.errands import Find
from conformance.logits.trial import Trial
from conformance.plugin import files, loader
from conformance.plugin.expectation import located
from conformance.verdict import Verdict
from conformance.watching import loading
from conformance.watching.loading import Observer
from conformance.watching.untouched import Untouched

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.connection import Connection

    from conformance.logits.contract import Contract
    from conformance.plugin.target import Target
    from conformance.settings import Budget

#: Exit status of a process that has answered; a plugin may end it with any of the usual ones.
ANSWERED = 97


def survey(
    connection: Connection,
    *,
    generation: str,
    target: Target,
    profile: Mapping[str, Any],
    model: str,
    budget: Budget,
) -> None:
    """Answer each (seed, rules) with what was found of each rule.

    That is the verdict, the message, the examples to the first failure, and those played;
    None where the plugin ended the process.
    """
    if source := files.find_source(target):  # searches use them
        lines.watch(lines.Sheet.laid(Path("lines").absolute(), files.sources(source)))
    suite = importlib.import_module(f"{generation}.suite")
    observer = Observer.fork(target, suite.maker(model, profile))
    cls = loader.load_class(target)
    vllm_config(model)
    untouched = Untouched.fork(cls)
    # After the fork: what drives slot plugins replaces parts of torch.
    contract: Contract = importlib.import_module(f"{generation}.simulator").CONTRACT
    section = located(profile, Path.cwd(), "the gallery's profile")
    parameters = contract.found(cls, Find(section, None, model, 0, f"{generation}.suite:find"))
    name = f"{target.module}:{target.qualname}"
    observer.found(loading.LOADING_LIMIT)  # once, for all seeds
    with suppress(EOFError):
        while True:
            seed, rules = connection.recv()
            # Each seed in a process of its own: what a class remembers is the fault of some.
            if (pid := os.fork()) == 0:
                status = 1
                try:
                    bench = contract.stocked(cls, model, parameters, seed)
                    only = rules[0] if len(rules) == 1 else None
                    trial = Trial(
                        contract,
                        cls,
                        name,
                        parameters,
                        bench,
                        budget,
                        untouched,
                        survey=True,
                        only=only,
                        observer=observer,
                    )
                    connection.send({rule: _judge(trial, rule) for rule in rules})
                    status = ANSWERED
                except BaseException:
                    traceback.print_exc()  # the owner hears only that there is no answer
                    raise
                finally:
                    os._exit(status)
            if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != ANSWERED:
                connection.send(None)
    untouched.close()
    observer.close()


def _judge(trial: Trial, rule: str) -> tuple[str, str | None, int | None, int]:
    result = trial.check(rule)
    first = None
    if result.verdict is Verdict.FAIL:
        first = _first_failure(trial, rule) if rule in trial.contract.judged else result.examples
    return result.verdict.value, result.message, first, result.examples


def _first_failure(trial: Trial, rule: str) -> int | None:
    """Return how many examples it took until one broke the rule; None if none did."""
    examples = judgement._examples(trial, rule, judgement._shape(trial, rule))
    broken = (number for number, e in enumerate(examples, 1) if rule in e.rules())
    return next(broken, None)
