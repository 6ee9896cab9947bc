# SPDX-License-Identifier: Apache-2.0
"""Checks that need a second process: the front end's, and another rank's.

Whatever the trial does to the class meanwhile (making instances, asking ``validate_params``) has
not happened in the untouched process.
"""

from __future__ import annotations

import builtins
import copy
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import attrs
import numpy as np
import torch
from vllm.sampling_params import SamplingParams

from conformance.findings import Finding, failed, passed, unjudged
from conformance.inputs.history import Choice, label
from conformance.logits.calls import PluginMisshapen, PluginRaised, call
from conformance.logits.findings import may_act, switched_on
from conformance.logits.keywords import admissible, sampling_params
from conformance.logits.requests import Stock
from conformance.logits.rows import RowsAlone, differing, same
from conformance.logits.trial import Trial
from conformance.logits.waiting import Found
from conformance.verdict import Verdict, must_wait
from conformance.watching import loading, serving
from conformance.watching.interruption import limited
from conformance.watching.process_facts import generator_states, seed_generators
from conformance.watching.untouched import ERRANDS

#: Steps for which a request runs alone: some effects come late. More would be past vLLM's default
#: of ``max_tokens``.
STEPS = 16

#: Rows of one request, step by step, ``[vocabulary]`` each; or what was raised. Arrays, since
#: torch hands tensors to other processes by reference, and these processes end.
Rows = list[np.ndarray[Any, Any]] | str


@attrs.frozen
class Errand:
    """What a second process is asked to do."""

    what: str  #: a key of :data:`conformance.watching.untouched.ERRANDS`
    model: str
    parameters: Mapping[Choice, Mapping[str, Any]]
    invalid: tuple[Mapping[str, Any], ...]
    seed: int
    waits: Found
    bench: Callable[..., Stock]  #: that of the generation
    rows_alone: RowsAlone
    generators: int = 0  #: seed of the generators that all share, where that is what it is about

    def bench_of(self, plugin: type[Any]) -> Stock:
        """Make what a plugin is tried on."""
        return self.bench(plugin, self.model, self.parameters, self.seed, self.waits)


@attrs.frozen
class Admitted:
    """What ``validate_params`` did where nothing had been done with the class before."""

    answers: tuple[str | None, ...]  #: for every ``on`` and ``off``, then every ``invalid``
    changed: tuple[str, ...]  #: names of the parameter sets that it wrote to


def _admit(plugin: type[Any], errand: Errand) -> Admitted:
    answers: list[str | None] = []
    changed = []
    for name, params in _named(errand):
        kept = copy.deepcopy(params)
        answer = None
        try:
            with limited():
                call("validate_params", plugin.validate_params, params)
        except PluginRaised as error:
            answer = str(error)
        answers.append(answer)
        if params != kept:
            changed.append(name)
    return Admitted(tuple(answers), tuple(changed))


def _named(errand: Errand) -> Iterator[tuple[str, SamplingParams]]:
    """Yield the requests that ``validate_params`` gets to see, each with its name."""
    for (kind, index), keywords in errand.parameters.items():
        name = f"{kind}[{index}]"
        yield name, sampling_params(keywords, name)
    for name, _, params in admissible(errand.invalid):
        yield name, params


def _rank(plugin: type[Any], errand: Errand) -> dict[Choice, Rows]:
    """Return the rows that another rank computes: what differs from rank to rank, differs."""
    os.environ |= {"RANK": "1", "LOCAL_RANK": "1"}
    seed_generators(errand.seed + 1)
    return _unasked(_imported_again(plugin), errand)


def _imported_again(plugin: type[Any]) -> type[Any]:
    """Return the class of a second import of its module, as another interpreter would have it."""
    module = sys.modules[plugin.__module__]
    if module.__name__.startswith("vllm."):
        return plugin
    # Every interpreter has a seed of its own for the hashes of strings; this one is forked.
    if not hasattr(module, "hash"):
        module.hash = lambda value: builtins.hash((value, "another rank"))  # type: ignore[attr-defined] # shadows the built-in one
    try:
        again: Any = importlib.reload(module)
        for name in plugin.__qualname__.split("."):
            again = getattr(again, name)
    except Exception:  # noqa: BLE001 - some modules cannot be imported twice, and need not
        return plugin
    return again if isinstance(again, type) else plugin


def _unasked(plugin: type[Any], errand: Errand) -> dict[Choice, Rows]:
    """Return the rows where ``validate_params`` has never been called."""
    return rows_of(errand.bench_of(plugin), errand.rows_alone)


def _asked(plugin: type[Any], errand: Errand) -> dict[Choice, Rows]:
    """Return the rows where ``validate_params`` has just been called for each parameter set."""
    _admit(plugin, errand)
    return _unasked(plugin, errand)


def _serve(plugin: type[Any], errand: Errand) -> list[serving.Served]:
    """Serve each request that opts in, and see what is other than it was."""
    bench = errand.bench_of(plugin)
    told: list[serving.Served] = []
    for choice in switched_on(bench):
        with serving.watched(told, errand.generators):
            rows_for(bench, choice, errand.rows_alone, STEPS)  # what is raised is other rules'
    return told


ERRANDS |= {"admit": _admit, "unasked": _unasked, "asked": _asked, "rank": _rank, "serve": _serve}


def rows_of(bench: Stock, rows_alone: RowsAlone) -> dict[Choice, Rows]:
    """Return the rows that each parameter set gets alone, or what was raised."""
    return {choice: rows_for(bench, choice, rows_alone, STEPS) for choice in bench.parameters}


def rows_for(bench: Stock, choice: Choice, rows_alone: RowsAlone, steps: int) -> Rows:
    """Return the rows that one parameter set gets alone, or what was raised.

    Args:
        bench: the plugin.
        choice: the parameter set.
        rows_alone: serves a request alone.
        steps: of it, behind what it says first.

    """
    try:
        with limited():
            rows = rows_alone(bench, choice, bench.behind(steps, choice))
            return [after[0].numpy().copy() for _, after in rows]
    except (PluginRaised, PluginMisshapen) as error:
        return str(error)


def needs_no_instance(trial: Trial) -> Finding:
    """A class or static method that works in a process without instances."""
    method = inspect.getattr_static(trial.plugin, "validate_params")
    if not isinstance(method, classmethod | staticmethod):
        return failed(
            "validate_params is an ordinary method: vLLM calls it on the class, with the "
            "parameters as its only argument"
        )
    errands = trial.once(_first)
    try:
        admitted: Admitted = trial.untouched.run(errand := errands["admit"])
        unasked: dict[Choice, Rows] = trial.untouched.run(errands["unasked"])
        asked: dict[Choice, Rows] = trial.untouched.run(errands["asked"])
    except EOFError:
        return _ended()
    if admitted.changed:
        return failed(f"validate_params wrote to the SamplingParams of {admitted.changed[0]}")
    trial.bench.new()  # here an instance has been made before
    later = _admit(trial.plugin, errand)
    for (name, _), before, after in zip(
        _named(errand), admitted.answers, later.answers, strict=True
    ):
        if before != after:
            return failed(
                f"where no instance has been made, {name} is {_answer(before)}; "
                f"afterwards it is {_answer(after)}"
            )
    for choice, rows in asked.items():
        if not (what := apart(unasked[choice], rows)):
            continue
        # Two processes that were asked alike may disagree as well: that is another rule's.
        again: dict[Choice, Rows] = trial.untouched.run(asking(trial, "unasked"))
        if not apart(unasked[choice], again[choice]):
            return failed(
                f"{label(choice)}: where validate_params was not called, as in the "
                f"engine's own process, {what}"
            )
    return Finding(Verdict.PASS, len(admitted.answers), len(admitted.answers))


def at_random(trial: Trial) -> bool:
    """Tell whether the same requests get other rows again, whatever was asked before them.

    Either a global generator is drawn from, or two processes that were forked alike disagree.
    Rows that differ for another reason depend on what the plugin was asked before: it keeps
    something, which is no chance.
    """
    rows_alone = trial.contract.rows_alone
    before = generator_states()
    mine, again = (rows_of(trial.bench, rows_alone) for _ in range(2))
    if not any(apart(again[choice], rows) for choice, rows in mine.items()):
        return False
    if generator_states() != before:
        return True
    try:
        first, second = (trial.untouched.run(asking(trial, "unasked")) for _ in range(2))
    except EOFError:
        return False
    return any(apart(second[choice], rows) for choice, rows in first.items())


def raised_again(trial: Trial) -> str | None:
    """Say what is raised for a request that an instance before has served; None if nothing is.

    A process in which no instance has been serves the same request.
    """
    try:
        fresh: dict[Choice, Rows] = trial.untouched.run(asking(trial, "unasked"))
    except EOFError:
        return None
    for choice, rows in rows_of(trial.bench, trial.contract.rows_alone).items():
        if isinstance(rows, str) and not isinstance(fresh[choice], str):
            return f"{label(choice)}, which an instance before has served: {rows}"
    return None


def same_on_every_rank(trial: Trial) -> Finding:
    """Another process, with other seeds and another rank, computes the same rows."""
    mine, again = (rows_of(trial.bench, trial.contract.rows_alone) for _ in range(2))
    if any(apart(again[choice], rows) for choice, rows in mine.items()):
        return unjudged(must_wait([trial.contract.steady]))
    try:
        theirs: dict[Choice, Rows] = trial.untouched.run(trial.once(_first)["rank"])
    except EOFError:
        return _ended()
    examples = acted = 0
    counted, given = may_act(trial.bench), trial.bench.given
    strata = trial.contract.strata
    alone = strata.rule_of[strata.plain]
    for choice, rows in mine.items():
        if what := apart(theirs[choice], rows):
            where = "in another process, such as a second rank's"
            with suppress(EOFError):
                fresh: dict[Choice, Rows] = trial.untouched.run(asking(trial, "unasked"))
                if apart(fresh[choice], rows):
                    if trial.once(trial.contract.checks[alone]).verdict is Verdict.FAIL:
                        return unjudged(must_wait([alone]), examples)
                    where = "what requests before it left behind changes its row: without them"
            return failed(f"{label(choice)}: {where}, {what}", examples)
        if choice in counted:
            steps = [] if isinstance(rows, str) else list(enumerate(rows))
            examples += max(len(steps), 1)
            acted += sum(not np.array_equal(row, given(step)[0].numpy()) for step, row in steps)
    return passed(examples, acted)


def leaves_others_alone(trial: Trial) -> Finding:
    """Nothing changes that others compute with, and the process ends as it would."""
    contract = trial.contract
    found = loading.judged(trial.observer, contract.rule_of_call["__init__"], contract.survives)
    if found.verdict is not Verdict.PASS or not (harms := trial.once(served).harms):
        return found
    choice = switched_on(trial.bench)[harms[0][0]]
    serves = serving.judged(trial.once(served), harms, label(choice))
    steps = trial.bench.behind(STEPS, choice)
    return attrs.evolve(serves, case={**(serves.case or {}), "choice": choice, "steps": steps})


def served(trial: Trial) -> serving.Serving:
    """Find out what serving requests that opt in does to the process."""
    errands = trial.once(_first)
    return serving.found(trial.untouched, lambda seed: errands[f"serve {seed}"])


def begin(trial: Trial) -> None:
    """Have errands run which the checks here ask for, while others are judged."""
    trial.untouched.begin(trial.once(_first).values())


def _first(trial: Trial) -> dict[str, Errand]:
    """Return the errands whose answers each check here asks for first, in that order."""
    serve = asking(trial, "serve")
    return {
        **{what: asking(trial, what) for what in ("rank", "admit", "unasked", "asked")},
        **{f"serve {seed}": attrs.evolve(serve, generators=seed) for seed in serving.SEEDS},
    }


def asking(trial: Trial, what: str) -> Errand:
    """Return the errand of a name, with what the bench of a trial is made of."""
    bench = trial.bench
    invalid = tuple(trial.parameters.invalid)
    contract = trial.contract
    return Errand(
        what,
        bench.model,
        bench.parameters,
        invalid,
        bench.seed,
        bench.waits,
        contract.bench,
        contract.rows_alone,
    )


def _ended() -> Finding:
    return Finding(
        Verdict.NOT_VERIFIED,
        message="a second process ended or hung: see the rules about refusing, raising and hanging",
    )


def _answer(answer: str | None) -> str:
    return "accepted" if answer is None else f"refused ({answer})"


def apart(got: Rows, expected: Rows) -> str | None:
    """Say in what two runs of a request differ, if they do."""
    if isinstance(got, str) or isinstance(expected, str):
        says = got if isinstance(got, str) else "nothing is raised"
        return None if got == expected else f"it goes otherwise: {says}"
    for step, (first, second) in enumerate(zip(got, expected, strict=True)):
        if not same(a := torch.from_numpy(first), b := torch.from_numpy(second)):
            token, there, here = differing(a, b)[0]
            return f"step {step} gives token {token} a logit of {there:.5g} instead of {here:.5g}"
    return None
