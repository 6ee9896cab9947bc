# SPDX-License-Identifier: Apache-2.0
"""What a worker needs to know of ``logits/batch``: is a class one, and how is it judged."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vllm.v1.sample.logits_processor import LogitsProcessor

from conformance import history
from conformance.counterexample.source import choices
from conformance.logits.configuration import vllm_config
from conformance.logits.trial import Trial
from conformance.logits_batch import demonstrations, parameters, strata
from conformance.logits_batch.bench import Bench
from conformance.logits_batch.play import play
from conformance.logits_batch.simulator import CONTRACT
from conformance.rules import Evidence
from conformance.settings import UsageError
from conformance.untouched import Untouched

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.settings import Settings
    from conformance.target import Plugin

BASE = "vllm.v1.sample.logits_processor.LogitsProcessor"

#: Methods that only a batch logits processor has together.
_METHODS = ("update_state", "apply", "is_argmax_invariant")
_ENOUGH_METHODS = 2


def recognises(cls: type) -> bool:
    """Tell whether a class is a batch logits processor."""
    return issubclass(cls, LogitsProcessor) and cls is not LogitsProcessor


def meant(cls: type) -> bool:
    """Tell whether the author plainly meant a batch logits processor."""
    methods = sum(callable(getattr(cls, name, None)) for name in _METHODS)
    return methods >= (1 if cls.__name__.endswith("LogitsProcessor") else 2)


def open_trial(
    evidence: Evidence,
    cls: type[LogitsProcessor],
    plugin: Plugin,
    section: Mapping[str, Any],
    *,
    origin: str | None,
    model: str,
    settings: Settings,
    folder: str,
) -> Any:  # noqa: ANN401 - a trial: has check(rule) and may have close()
    """Open the trial of a plugin on one kind of evidence."""
    vllm_config(model)  # takes a while, and every process needs it
    # Before the class is touched for the first time.
    untouched = Untouched.fork(cls) if evidence is Evidence.SIMULATOR else None
    found = parameters.find(cls, section, origin=origin, model=model, seed=settings.seed)
    bench = Bench(cls, model, found.choices(), settings.seed)
    if untouched is not None:
        return Trial(CONTRACT, cls, plugin.fqcn, found, bench, settings.budget, untouched)
    opening = importlib.import_module("conformance.logits.live")
    live = importlib.import_module("conformance.logits_batch.live")
    return opening.open_trial(
        evidence,
        live.ROLES,
        live.Watch,
        plugin=plugin,
        parameters=found,
        bench=bench,
        model=model,
        settings=settings,
        folder=folder,
    )


def replay(
    cls: type[LogitsProcessor], counterexample: Mapping[str, Any], *, model: str
) -> tuple[list[str], str]:
    """Play a counterexample again; return the kinds of trouble there are now, and a message.

    A failure without a history is shown again by its own program, and its trouble is ``calls``.
    Where the counterexample is none that this version could have written, it is ``unreadable``.
    """
    try:
        if counterexample["kind"] == "calls":
            return demonstrations.again(cls, counterexample)
        parameters_of = choices(counterexample["parameters"])
        bench = Bench(cls, model, parameters_of, counterexample["seed"])
        shape = strata.STRATA.named(counterexample["stratum"])
        steps = history.from_json(counterexample["history"])
    except (LookupError, TypeError, ValueError, UsageError) as error:
        return ["unreadable"], f"{type(error).__name__}: {error}"
    played = play(bench, steps, shape)
    kinds = [trouble.kind.value for trouble in played.troubles]
    return kinds, "; ".join(trouble.message for trouble in played.troubles)
