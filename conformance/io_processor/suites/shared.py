# SPDX-License-Identifier: Apache-2.0
"""What both generations do in a worker."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vllm.plugins.io_processors.interface import IOProcessor

from conformance.counterexample.source import decoded
from conformance.engine.pooling_models import named_model
from conformance.rules import Evidence
from conformance.settings import Budget, UsageError
from conformance.untouched import Untouched
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.io_processor.bench import Bench
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
    from conformance.io_processor.host import surroundings
    from conformance.io_processor.trial import Trial

    chosen = named_model(section["model"]) if "model" in section else model
    if evidence is Evidence.SIMULATOR:
        surroundings(chosen)  # takes a while, and every process needs them
        # Before the class is touched for the first time.
        untouched = Untouched.fork(cls)
        bench = Bench.open(cls, generation, chosen, settings.seed)
        return Trial(bench, section, origin, settings.budget, untouched)
    live = importlib.import_module(f"conformance.io_processor.{evidence.value}")
    return live.Trial.open(generation, cls, plugin, section, origin, chosen, settings, folder)


def replay(
    generation: str, cls: type, counterexample: Mapping[str, Any], *, model: str
) -> tuple[list[str], str]:
    """Play a counterexample again; return the kinds of trouble there are now, and a message.

    A history is played as it is; a failure without one is shown by its check again.  Where the
    counterexample is none that this version could have written, it is ``unreadable``.
    """
    del model  # the case has its own
    from conformance.io_processor import cases
    from conformance.io_processor.bench import Bench

    if counterexample.get("objects"):
        return ["unreadable"], "its requests carry Python objects, which no file can hold"
    try:
        chosen, seed = named_model(counterexample["model"]), int(counterexample["seed"])
        saved = cases.read(counterexample) if counterexample["kind"] == "traffic" else None
        section = {name: _listed(counterexample[name]) for name in ("valid", "invalid")}
        rule = str(counterexample["rule"])
    except UsageError as error:
        return ["unreadable"], str(error).rstrip(".")
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        return ["unreadable"], f"{type(error).__name__}: {error}"
    bench = Bench.open(cls, generation, chosen, seed)
    return cases.again(bench, saved) if saved else _check_again(bench, section, rule)


def _listed(values: object) -> list[Any]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is no list of requests")
    return [decoded(value) for value in values]


def _check_again(bench: Bench, section: Mapping[str, Any], rule: str) -> tuple[list[str], str]:
    from conformance.io_processor.trial import CHECKS, Trial

    if rule not in CHECKS:
        return ["unreadable"], f"no check is for the rule {rule}"
    trial = Trial(bench, section if section["valid"] else {}, "replay", Budget.STANDARD)
    result = trial.check(rule)
    if result.verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE):
        return [], ""
    # Where another fault stands in the way, nothing was shown to be mended.
    kind = "check" if result.verdict is Verdict.FAIL else result.verdict.value
    return [kind], result.message or ""
