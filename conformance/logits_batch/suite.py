# SPDX-License-Identifier: Apache-2.0
"""What a worker needs to know of ``logits/batch``: is a class one, and how is it judged."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor

from conformance import history
from conformance.counterexample.logits_checks import ON_GPU
from conformance.counterexample.source import choices
from conformance.loading import Maker
from conformance.logits import devices as on_device
from conformance.logits import errands
from conformance.logits.calls import PluginMisshapen, PluginRaised
from conformance.logits.configuration import vllm_config
from conformance.logits.fuzzing.exploration import Explored, explore
from conformance.logits.fuzzing.serving import refused
from conformance.logits.live import open_live
from conformance.logits.parameters import Parameters
from conformance.logits.played import UNSAMPLED, Kind
from conformance.logits.trial import Trial as Simulation
from conformance.logits.waiting import Found
from conformance.logits_batch import demonstrations, devices, parameters, strata
from conformance.logits_batch.bench import Bench
from conformance.logits_batch.play import play
from conformance.logits_batch.simulator import CONTRACT
from conformance.rules import Evidence
from conformance.settings import Budget, UsageError
from conformance.suite import Opening, Suite, Trial
from conformance.untouched import Untouched
from conformance.verdict import Verdict

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


def _forget() -> None:
    """Have the configuration made anew: vLLM's code must stand what a plugin replaced."""
    vllm_config.cache_clear()


def _open(opening: Opening) -> Trial:
    """Open the trial of a plugin on one kind of evidence."""
    cls, model, seed = opening.cls, opening.model, opening.settings.seed
    vllm_config(model)  # takes a while, and every process needs it
    # Before the class is touched for the first time.
    untouched = Untouched.fork(cls)
    if opening.evidence is Evidence.SIMULATOR:
        found = parameters.find(cls, opening.section, origin=opening.origin, model=model, seed=seed)
        return Simulation.of(opening, CONTRACT, found, untouched)
    # Not in this process: engines are to be the first that the plugin meets.
    asked = errands.Find(opening.section, opening.origin, model, seed, f"{__name__}:find")
    try:
        found = errands.found(untouched, asked)
    except EOFError:  # as it does here, which shows whose fault that is
        found = parameters.find(cls, opening.section, origin=opening.origin, model=model, seed=seed)
    bench = Bench(cls, model, found.choices(), seed, found.waits)
    bench.meaning = found.meaning
    sent = errands.Explore(found, model, seed, f"{__name__}:explored")
    live = importlib.import_module("conformance.logits_batch.live")
    return open_live(
        opening,
        live.ROLES,
        live.Watch,
        found,
        bench,
        explored=lambda: errands.explored(untouched, sent, opening),
    )


def find(cls: type, errand: errands.Find) -> Parameters | UsageError:
    """Answer what switches a plugin on."""
    return errand.answered(parameters.find, cls)


def explored(cls: type, errand: errands.Explore) -> Explored:
    """Answer what becomes of the requests that any client may send."""
    bench = Bench(
        cls, errand.model, errand.parameters.choices(), errand.seed, errand.parameters.waits
    )
    return explore(strata.STRATA, play, bench, errand.parameters, Budget.QUICK)


def _replay(
    cls: type[LogitsProcessor], counterexample: Mapping[str, Any], model: str
) -> tuple[list[str], str]:
    """Play a counterexample again; return the kinds of trouble there are now, and a message.

    A failure without a history is shown again by its own program, and its trouble is ``calls``.
    Where the counterexample is none that this version could have written, it is ``unreadable``.
    """
    try:
        parameters_of = choices(counterexample["parameters"])
        if counterexample["kind"] == "calls":
            if counterexample["rule"] in ON_GPU:
                return _on_device(Bench(cls, model, parameters_of, counterexample["seed"]))
            return demonstrations.again(cls, counterexample["rule"], counterexample)
        if counterexample["trouble"]["kind"] == Kind.MEANING:
            # What its author says stands in the program: the profile may not be here.
            found, said = demonstrations.again(cls, CONTRACT.means, counterexample)
            return [Kind.MEANING.value if kind == "calls" else kind for kind in found], said
        waits = Found.of(counterexample.get("waits", {}))
        bench = Bench(cls, model, parameters_of, counterexample["seed"], waits)
        bench.tolerant = counterexample["trouble"]["kind"] not in UNSAMPLED
        shape = strata.STRATA.named(counterexample["stratum"])
        steps = history.from_json(counterexample["history"])
    except (LookupError, TypeError, ValueError, UsageError) as error:
        return ["unreadable"], f"{type(error).__name__}: {error}"
    if "request" in counterexample and refused(cls, parameters_of[history.SENT]):
        return [], ""
    played = play(bench, steps, shape)
    kinds = [trouble.kind.value for trouble in played.troubles]
    return kinds, "; ".join(trouble.message for trouble in played.troubles)


def _on_device(bench: Bench) -> tuple[list[str], str]:
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
    forget=_forget,
)
