# SPDX-License-Identifier: Apache-2.0
"""What workers ask: is a class a hook, open its trial, replay its case."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from conformance.rules import Evidence
from conformance.settings import Budget, UsageError
from conformance.untouched import Untouched
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.settings import Settings
    from conformance.target import Plugin

BASE = (
    "reference_plugins.classifier_hook.ExternalClassifierHook (no base class, but name, blocking, "
    "timeout_ms and score)"
)

#: What a class that is meant to be a hook defines besides ``score``, one of them at the least.
_TELLING = ("blocking", "timeout_ms")


def recognises(cls: type) -> bool:
    """Tell whether a class is a hook: it has a score, and says that it is one."""
    return callable(getattr(cls, "score", None)) and _tells(cls)


def meant(cls: type) -> bool:
    """Tell whether the author plainly meant a hook."""
    return recognises(cls)


def _tells(cls: type) -> bool:
    """Tell whether a class says of itself what hooks say, on the class or in its constructor."""
    names = set(dir(cls))
    for each in cls.__mro__:
        names |= set(vars(each).get("__annotations__", {}))
        constructor = getattr(vars(each).get("__init__"), "__code__", None)
        names |= set(getattr(constructor, "co_names", ()))  # what it assigns to
    return any(name in names for name in _TELLING)


def open_trial(
    evidence: Evidence,
    cls: type,
    plugin: Plugin,
    section: Mapping[str, Any],
    *,
    origin: str | None,
    model: str,
    settings: Settings,
    folder: str,
) -> Any:  # noqa: ANN401 - a trial: has check(rule) and may have close()
    """Open the trial of a hook on one kind of evidence."""
    from conformance.classifier_hook.bench import Bench
    from conformance.classifier_hook.trial import Trial

    if evidence is not Evidence.SIMULATOR:
        live = importlib.import_module(f"conformance.classifier_hook.{evidence.value}")
        return live.Trial.open(cls, plugin, section, origin, model, settings, folder)
    # Before the class is touched for the first time.
    untouched = Untouched.fork(cls)
    bench = Bench.open(cls, section, origin=origin, seed=settings.seed)
    return Trial(bench, settings.budget, untouched)


def replay(cls: type, counterexample: Mapping[str, Any], *, model: str) -> tuple[list[str], str]:
    """Make a check again; return the kinds of trouble there are now, and a message."""
    from conformance.classifier_hook.bench import Bench
    from conformance.classifier_hook.trial import Trial

    del model
    try:
        section = {key: counterexample[key] for key in ("arguments", "allowed", "blocked")}
        bench = Bench.open(cls, section, origin="replay", seed=counterexample["seed"])
        result = Trial(bench, Budget.STANDARD).check(counterexample["rule"])
    except (LookupError, TypeError, UsageError) as error:
        return ["unreadable"], f"{type(error).__name__}: {error}"
    if result.verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE):
        return [], ""
    kind = "check" if result.verdict is Verdict.FAIL else result.verdict.value
    return [kind], result.message or ""
