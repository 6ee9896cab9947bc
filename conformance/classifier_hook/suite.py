# SPDX-License-Identifier: Apache-2.0
"""What workers ask: is a class a hook, open its trial, replay its case."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from conformance.classifier_hook.bench import Bench, Said
from conformance.counterexample.source import decoded
from conformance.rules import Evidence
from conformance.settings import Budget, UsageError
from conformance.suite import Opening, Replayed, Suite, Trial, replayed
from conformance.verdict import RuleResult, gravest
from conformance.watching.comparison import shortened
from conformance.watching.loading_process import Maker
from conformance.watching.untouched import Untouched

Arguments = Mapping[str, Any]


def told(opening: Opening) -> list[Arguments]:
    """Return the arguments that a profile names, or none at all, once.

    Raises:
        UsageError: they are no keywords.

    """
    found: list[Arguments] = list(opening.section.get("arguments", ())) or [{}]
    for each in found:
        if not isinstance(each, dict) or not all(isinstance(name, str) for name in each):
            raise UsageError(
                f"profile {opening.origin}: [classifier-hook] arguments must hold tables of "
                f'keywords such as {{ words = [ "a" ] }}, not {each!r}.'
            )
    return found


@attrs.define(eq=False)
class Variants:
    """The trials of one hook, one for each of its arguments: a rule holds where it holds in all."""

    arguments: Sequence[Arguments]
    open_trial: Callable[[int], Trial]  #: with which of the arguments
    #: Whether a trial ends before the next one is asked: engines do not run at the same time.
    in_turn: bool
    _trials: list[Trial] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Open the trials; only the first, which comes last, touches the hook at once."""
        numbers = range(len(self.arguments))
        self._trials = [self.open_trial(number) for number in reversed(numbers)][::-1]

    def check(self, rule: str) -> RuleResult:
        """Judge one rule: the worst of what is found speaks."""
        results = []
        for number, arguments in enumerate(self.arguments):
            result = self._trials[number].check(rule)
            if self.in_turn:
                self._trials[number].close()
            if result.message:
                with_it = f"with the arguments {shortened(arguments)}"
                said = f"{with_it if arguments else 'without arguments'}: {result.message}"
                result = attrs.evolve(result, message=said)
            results.append(result)
        return gravest(results)

    def context(self) -> Mapping[str, Any]:
        """Return what a certificate says about these trials."""
        found = dict(self._trials[0].context())
        return {**found, "profile": {**found["profile"], "arguments": list(self.arguments)}}

    def close(self) -> None:
        """End what the trials have started."""
        for trial in self._trials:
            trial.close()


#: What a class that is meant to be a hook defines besides ``score``, one of them at the least.
_TELLING = ("blocking", "timeout_ms")


def _recognises(cls: type) -> bool:
    """Tell whether a class is a hook: it has a score, and says that it is one."""
    score = getattr(cls, "score", None)
    return (callable(score) or isinstance(score, property)) and _tells(cls)


def _possible(cls: type) -> bool:
    """Tell whether instances may have a score: on the class, or found by ``__getattr__``."""
    return hasattr(cls, "score") or hasattr(cls, "__getattr__")


def _tells(cls: type) -> bool:
    """Tell whether a class says of itself what hooks say, on the class or in its constructor."""
    names = set(dir(cls))
    for each in cls.__mro__:
        names |= set(vars(each).get("__annotations__", {}))
        constructor = getattr(vars(each).get("__init__"), "__code__", None)
        names |= set(getattr(constructor, "co_names", ()))  # what it assigns to
    return any(name in names for name in _TELLING)


def _maker(_: str, section: Mapping[str, Any]) -> Maker:
    """Return what makes hooks as whoever registers them does."""
    first = _loading("", section)["arguments"]
    return lambda: lambda cls: cls(**first)


def _loading(_: str, section: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a program about loading makes instances with."""
    return {"arguments": next(iter(section.get("arguments", ())), {})}


def _open(opening: Opening) -> Trial:
    """Open the trial of a hook on one kind of evidence, or one for each of its arguments."""
    arguments = told(opening)
    simulated = opening.evidence is Evidence.SIMULATOR
    opened = _simulated if simulated else _live
    if opening.evidence is Evidence.SERVER and opening.settings.server_url:
        arguments = arguments[:1]  # it serves what it serves
    if len(arguments) == 1:
        return opened(opening, arguments[0], 0)
    return Variants(
        arguments, lambda number: opened(opening, arguments[number], number), in_turn=not simulated
    )


def _simulated(opening: Opening, arguments: Mapping[str, Any], _: int) -> Trial:
    from conformance.classifier_hook import checks

    bench = Bench.open(
        opening.cls,
        opening.section,
        origin=opening.origin,
        seed=opening.settings.seed,
        arguments=arguments,
    )
    # Before the class is touched for the first time.
    return checks.trial(bench, opening.settings.budget, Untouched.fork(opening.cls))


def _live(opening: Opening, arguments: Mapping[str, Any], number: int) -> Trial:
    module = importlib.import_module(f"conformance.classifier_hook.{opening.evidence.value}")
    if number:
        folder = Path(opening.folder) / f"arguments-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        opening = attrs.evolve(opening, folder=str(folder))
    trial: Trial = module.Trial(opening, arguments, first=not number)
    return trial


def _replay(cls: type, counterexample: Mapping[str, Any], _model: str) -> Replayed:
    """Make a check again."""
    from conformance.classifier_hook import checks

    section = {key: counterexample[key] for key in ("allowed", "blocked")}
    section["scores"] = [_said(each) for each in counterexample.get("scores", [])]
    untouched = Untouched.fork(cls)
    try:
        bench = Bench.open(
            cls,
            section,
            origin="replay",
            seed=counterexample["seed"],
            arguments=counterexample["arguments"],
        )
        trial = checks.trial(bench, Budget.STANDARD, untouched)
        return replayed(trial.check(counterexample["rule"]))
    finally:
        untouched.close()


def _said(entry: Mapping[str, Any]) -> Said:
    changes = {name: decoded(value) for name, value in entry.get("changes", {}).items()}
    return Said(entry["text"], entry["scores"], changes)


SUITE = Suite(
    base="reference_plugins.classifier_hook.ExternalClassifierHook (no base class, but name, "
    "blocking, timeout_ms and score)",
    recognises=_recognises,
    meant=_recognises,
    possible=_possible,
    open_trial=_open,
    replay=_replay,
    maker=_maker,
    shares=("CH-40", "CH-01"),
    loading=_loading,
    serves=True,
)
