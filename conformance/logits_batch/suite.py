# SPDX-License-Identifier: Apache-2.0
"""What a worker needs to know of ``logits/batch``: is a class one, and how is it judged."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor

from conformance.counterexample.logits_checks import ON_GPU
from conformance.counterexample.source import choices
from conformance.logits import devices as on_device
from conformance.logits import errands, execution
from conformance.logits.calls import PluginMisshapen, PluginRaised
from conformance.logits.configuration import forget, vllm_config
from conformance.logits.fuzzing.explorer import Explored
from conformance.logits.live import open_live
from conformance.logits.parameters import Parameters
from conformance.logits.replays import played_again
from conformance.logits.trial import Trial as Simulation
from conformance.logits_batch import devices
from conformance.logits_batch.bench import Bench
from conformance.logits_batch.simulator import CONTRACT
from conformance.rules import Evidence
from conformance.settings import UsageError
from conformance.suite import Opening, Replayed, Suite, Trial
from conformance.verdict import Verdict
from conformance.watching.loading_process import Maker
from conformance.watching.untouched import Errands, Untouched

#: Methods that only a batch logits processor has together.
_METHODS = ("update_state", "apply", "is_argmax_invariant")


def _recognises(cls: type) -> bool:
    """Tell whether a class is a batch logits processor."""
    return issubclass(cls, LogitsProcessor) and cls is not LogitsProcessor


def _meant(cls: type) -> bool:
    """Tell whether the author plainly meant a batch logits processor."""
    methods = sum(callable(getattr(cls, name, None)) for name in _METHODS)
    return methods >= (1 if cls.__name__.endswith("LogitsProcessor") else 2)


def maker(model: str, _: Mapping[str, Any]) -> Maker:
    """Return what gets ready to make instances as the engine does."""
    config = vllm_config(model)
    return lambda: lambda cls: cls(config, torch.device("cpu"), False)  # noqa: FBT003 - as vLLM does


def _open(opening: Opening) -> Trial:
    """Open the trial of a plugin on one kind of evidence."""
    vllm_config(opening.model)  # takes a while, and every process needs it
    # Before the class is touched for the first time.
    untouched: Errands = opening.elsewhere or Untouched.fork(opening.cls)
    asked = errands.Find.of(opening, __name__)
    if opening.evidence is Evidence.SIMULATOR:
        found = CONTRACT.found(opening.cls, asked)
        return Simulation.of(opening, CONTRACT, found, untouched)
    # Not in this process: engines are to be the first that the plugin meets.
    try:
        found = errands.found(untouched, asked)
    except EOFError:  # as it does here, which shows whose fault that is
        found = CONTRACT.found(opening.cls, asked)
    live = importlib.import_module("conformance.logits_batch.live")
    return open_live(
        opening,
        untouched,
        found,
        suite=__name__,
        stock=Bench,
        roles=live.ROLES,
        watch=live.Watch,
    )


def find(cls: type, errand: errands.Find) -> Parameters | UsageError:
    """Answer what switches a plugin on."""
    return errand.answered(CONTRACT.found, cls)


def explored(cls: type, errand: errands.Explore) -> Explored:
    """Answer what becomes of the requests that any client may send."""
    return CONTRACT.explored(cls, errand)


def _replay(cls: type[LogitsProcessor], counterexample: Mapping[str, Any], model: str) -> Replayed:
    """Play a history again; a failure without one is shown by its own program, as ``calls``."""
    if counterexample["kind"] != "calls":
        return played_again(CONTRACT, cls, counterexample, model)
    parameters_of = choices(counterexample["parameters"])
    if counterexample["rule"] in ON_GPU:
        return _on_device(Bench(cls, model, parameters_of, counterexample["seed"]))
    return execution.again(cls, counterexample["rule"], CONTRACT.generation, counterexample)


def _on_device(bench: Bench) -> Replayed:
    """Look again whether a plugin keeps to a device that its program, but not this machine, has."""
    try:
        found = on_device.keeps_to_device(bench, devices.serve)
    except (PluginRaised, PluginMisshapen) as error:
        return ["raised"], str(error)
    kinds = {Verdict.PASS: [], Verdict.FAIL: ["calls"]}
    return kinds.get(found.verdict, [found.verdict.value]), found.message or ""


SUITE = Suite(
    base="vllm.v1.sample.logits_processor.LogitsProcessor",
    recognises=_recognises,
    meant=_meant,
    open_trial=_open,
    replay=_replay,
    runner="v1",
    imports_in_server=True,
    maker=maker,
    forget=forget,
)
