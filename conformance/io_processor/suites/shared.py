# SPDX-License-Identifier: Apache-2.0
"""What both generations do in a worker."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vllm.plugins.io_processors.interface import IOProcessor

from conformance.engine.pooling_models import named_model
from conformance.rules import Evidence
from conformance.settings import Budget, UsageError
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.settings import Settings
    from conformance.target import Plugin

#: The two generations, for what differs between them.
REQUEST, DATA = "io/request", "io/data"

BASE = "vllm.plugins.io_processors.interface.IOProcessor"

#: What a class that is meant to be a plugin defines, at the least.
_TELLING = frozenset(("pre_process", "post_process"))


def is_plugin(cls: type) -> bool:
    """Tell whether a class derives from vLLM's."""
    return issubclass(cls, IOProcessor) and cls is not IOProcessor


def defines(cls: type, name: str) -> bool:
    """Tell whether a class defines a method that vLLM's base class does not define for it."""
    return getattr(cls, name, None) is not getattr(IOProcessor, name, None)


def meant(cls: type) -> bool:
    """Tell whether the author plainly meant an IO processor."""
    return all(callable(vars(cls).get(name)) for name in _TELLING)


def open_trial(
    generation: str,
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
    """Open the trial of a plugin on one kind of evidence."""
    from conformance.io_processor.bench import Bench
    from conformance.io_processor.trial import Trial

    chosen = named_model(section["model"]) if "model" in section else model
    if evidence is Evidence.SIMULATOR:
        bench = Bench.open(cls, generation, chosen, settings.seed)
        return Trial(bench, section, origin, settings.budget)
    live = importlib.import_module(f"conformance.io_processor.{evidence.value}")
    return live.Trial.open(generation, cls, plugin, section, origin, chosen, settings, folder)


def replay(
    generation: str, cls: type, counterexample: Mapping[str, Any], *, model: str
) -> tuple[list[str], str]:
    """Play a counterexample again; return the kinds of trouble there are now, and a message."""
    from conformance.io_processor.bench import Bench
    from conformance.io_processor.trial import Trial

    try:
        section = {
            "valid": counterexample["valid"],
            "invalid": counterexample["invalid"],
        }
        bench = Bench.open(cls, generation, model, counterexample["seed"])
        trial = Trial(bench, section if section["valid"] else {}, "replay", Budget.STANDARD)
        result = trial.check(counterexample["rule"])
    except (LookupError, TypeError, ValueError, UsageError) as error:
        return ["unreadable"], f"{type(error).__name__}: {error}"
    if result.verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE):
        return [], ""
    # Where another fault stands in the way, nothing was shown to be mended.
    kind = counterexample["kind"] if result.verdict is Verdict.FAIL else result.verdict.value
    return [kind], result.message or ""
