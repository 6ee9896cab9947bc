# SPDX-License-Identifier: Apache-2.0
"""What workers ask: is a class a hook, open its trial, replay its case."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from conformance.classifier_hook import variants
from conformance.classifier_hook.bench import Said
from conformance.counterexample.source import decoded
from conformance.loading import Maker
from conformance.rules import Evidence
from conformance.settings import Budget, UsageError
from conformance.suite import Opening, Suite, Trial
from conformance.untouched import Untouched
from conformance.verdict import Verdict

#: What a class that is meant to be a hook defines besides ``score``, one of them at the least.
_TELLING = ("blocking", "timeout_ms")


def _recognises(cls: type) -> bool:
    """Tell whether a class is a hook: it has a score, and says that it is one."""
    return callable(getattr(cls, "score", None)) and _tells(cls)


def _meant(cls: type) -> bool:
    """Tell whether the author plainly meant a hook."""
    return _recognises(cls)


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
    first: Mapping[str, Any] = next(iter(section.get("arguments", ())), {})
    return lambda: lambda cls: cls(**first)


def _open(opening: Opening) -> Trial:
    """Open the trial of a hook on one kind of evidence, or one for each of its arguments."""
    arguments = variants.told(opening)
    simulated = opening.evidence is Evidence.SIMULATOR
    opened = _simulated if simulated else _live
    if opening.evidence is Evidence.SERVER and opening.settings.server_url:
        arguments = arguments[:1]  # it serves what it serves
    if len(arguments) == 1:
        return opened(opening, arguments[0], 0)
    return variants.Variants(
        arguments, lambda number: opened(opening, arguments[number], number), in_turn=not simulated
    )


def _simulated(opening: Opening, arguments: Mapping[str, Any], _: int) -> Trial:
    from conformance.classifier_hook import checks
    from conformance.classifier_hook.bench import Bench

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


def _replay(cls: type, counterexample: Mapping[str, Any], _model: str) -> tuple[list[str], str]:
    """Make a check again; return the kinds of trouble there are now, and a message."""
    from conformance.classifier_hook import checks
    from conformance.classifier_hook.bench import Bench

    untouched: Untouched | None = None
    try:
        section = {key: counterexample[key] for key in ("allowed", "blocked")}
        section["scores"] = [_said(each) for each in counterexample.get("scores", [])]
        untouched = Untouched.fork(cls)
        bench = Bench.open(
            cls,
            section,
            origin="replay",
            seed=counterexample["seed"],
            arguments=counterexample["arguments"],
        )
        result = checks.trial(bench, Budget.STANDARD, untouched).check(counterexample["rule"])
    except (LookupError, TypeError, UsageError) as error:
        return ["unreadable"], f"{type(error).__name__}: {error}"
    finally:
        if untouched is not None:
            untouched.close()
    if result.verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE):
        return [], ""
    kind = "check" if result.verdict is Verdict.FAIL else result.verdict.value
    return [kind], result.message or ""


def _said(entry: Mapping[str, Any]) -> Said:
    from conformance.classifier_hook.bench import Said

    changes = {name: decoded(value) for name, value in entry.get("changes", {}).items()}
    return Said(entry["text"], entry["scores"], changes)


SUITE = Suite(
    base="reference_plugins.classifier_hook.ExternalClassifierHook (no base class, but name, "
    "blocking, timeout_ms and score)",
    recognises=_recognises,
    meant=_meant,
    open_trial=_open,
    replay=_replay,
    maker=_maker,
    shares=("CH-40", "CH-01"),
)
