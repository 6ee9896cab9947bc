# SPDX-License-Identifier: Apache-2.0
"""What both generations do in a worker."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vllm.plugins.io_processors.interface import IOProcessor

from conformance.counterexample.source import decoded
from conformance.engine.pooling import server_options
from conformance.engine.pooling_models import MODELS, named_model
from conformance.io_processor import DATA
from conformance.rules import Evidence
from conformance.settings import Budget
from conformance.suite import OwnHost, Replayed, replayed, unreadable
from conformance.watching.untouched import Untouched

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.io_processor.bench import Bench
    from conformance.suite import Opening, Trial
    from conformance.watching.loading_process import Maker

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


def maker(generation: str, model: str, section: Mapping[str, Any]) -> Maker:
    """Return what makes instances as the front end does.

    Raises:
        UsageError: the profile names no model that there is.

    """
    from conformance.io_processor.host import surroundings

    around = surroundings(_model(section, model))  # takes a while, and every process needs them
    arguments = (around.config, around.renderer)[: 2 if generation == DATA else 1]
    return lambda: lambda cls: cls(*arguments)


def loading(model: str, section: Mapping[str, Any]) -> dict[str, str]:
    """Return what a program about loading makes instances with."""
    return {"model": _model(section, model)}


def forget() -> None:
    """Have what surrounds plugins made anew: vLLM's code must stand what a plugin replaced."""
    from conformance.io_processor.host import surroundings

    surroundings.cache_clear()


def _model(section: Mapping[str, Any], model: str) -> str:
    return named_model(section["model"]) if "model" in section else model


def own_host(section: Mapping[str, Any]) -> OwnHost | None:
    """Return a pooling server of the model that a profile names, without the plugin."""
    if "model" not in section or section["model"] in MODELS:
        return None
    from conformance.io_processor.host import length_of

    model = named_model(section["model"])
    options = server_options(model, length_of(model))
    told = '--hf-overrides={"io_processor_plugin": null}'
    return OwnHost(model, ("--runner=pooling", *options, told), of_plugin=True)


def open_trial(generation: str, opening: Opening) -> Trial:
    """Open the trial of a plugin on one kind of evidence."""
    from conformance.io_processor.bench import Bench
    from conformance.io_processor.checks import trial as simulation
    from conformance.io_processor.host import surroundings
    from conformance.io_processor.meaning import Meaning

    section, settings = opening.section, opening.settings
    Meaning.of(section, opening.origin)  # where it is wrong, nothing starts
    chosen = _model(section, opening.model)
    if opening.evidence is Evidence.SIMULATOR:
        surroundings(chosen)  # takes a while, and every process needs them
        # Before the class is touched for the first time.
        untouched = Untouched.fork(opening.cls)
        bench = Bench.open(opening.cls, generation, chosen, settings.seed)
        return simulation(bench, section, opening.origin, settings.budget, untouched)
    module = importlib.import_module(f"conformance.io_processor.{opening.evidence.value}")
    trial: Trial = module.Trial(opening, generation, chosen)
    return trial


def replay(generation: str, cls: type, counterexample: Mapping[str, Any], _model: str) -> Replayed:
    """Play a history as it is, or show a failure without one by its check again."""
    from conformance.io_processor import cases
    from conformance.io_processor.bench import Bench

    if counterexample.get("objects"):
        return unreadable("its requests carry Python objects, which no file can hold")
    chosen, seed = named_model(counterexample["model"]), int(counterexample["seed"])
    saved = cases.read(counterexample) if counterexample["kind"] == "traffic" else None
    section = {name: _listed(counterexample[name]) for name in ("valid", "invalid")}
    said = ("told", "tolerance")
    section |= {name: counterexample[name] for name in said if name in counterexample}
    rule = str(counterexample["rule"])
    untouched = Untouched.fork(cls)
    try:
        bench = Bench.open(cls, generation, chosen, seed)
        if saved:
            return cases.again(bench, saved)
        late = bool(counterexample.get("late"))
        return _check_again(bench, section, rule, untouched, late=late)
    finally:
        untouched.close()


def _listed(values: object) -> list[Any]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is no list of requests")
    return [decoded(value) for value in values]


def _check_again(
    bench: Bench, section: Mapping[str, Any], rule: str, untouched: Untouched, *, late: bool
) -> Replayed:
    from conformance.io_processor import checks

    if rule not in checks.CHECKS:
        return unreadable(f"no check is for the rule {rule}")
    section = section if section["valid"] else {}
    trial = checks.trial(bench, section, "replay", Budget.STANDARD, untouched)
    if late:  # what other rules left in the process has broken it
        for other in trial.checks:
            trial.find(other)
    return replayed(trial.check(rule))
