# SPDX-License-Identifier: Apache-2.0
"""What a worker needs to know of ``logits/slot``: is a class one, and how is it judged.

What drives a plugin replaces parts of torch, so it is imported where a plugin is tried only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import attrs

from conformance.counterexample.source import decoded
from conformance.logits import errands
from conformance.logits.configuration import forget, vllm_config
from conformance.logits.live import open_live
from conformance.logits.parameters import Parameters
from conformance.logits.requests import Stock
from conformance.logits.waiting import Found
from conformance.rules import Evidence
from conformance.settings import Budget
from conformance.suite import Suite, Unopened, replayed
from conformance.watching.untouched import Errands, Untouched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.logits.fuzzing.explorer import Explored
    from conformance.settings import UsageError
    from conformance.suite import Opening, Replayed, Trial
    from conformance.watching.loading_process import Maker

#: What simulates Model Runner V2; it replaces parts of torch, as workers on a CPU do.
_SIMULATOR = (
    "conformance.logits_slot.bench",
    "conformance.logits_slot.parameters",
    "conformance.logits_slot.simulator",
)

#: Methods that only a slot logits processor has.
_METHODS = ("add_request", "apply_staged_writes")


def _recognises(cls: type) -> bool:
    """Tell whether a class is a slot logits processor."""
    try:
        from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor
    except ImportError:
        return False  # a vLLM before 0.31
    return issubclass(cls, LogitsProcessor) and cls is not LogitsProcessor


def _meant(cls: type) -> bool:
    """Tell whether the author plainly meant a slot logits processor."""
    return any(callable(getattr(cls, name, None)) for name in _METHODS)


def maker(model: str, _: Mapping[str, Any]) -> Maker:
    """Return what gets ready to make instances as the engine does."""
    vllm_config(model)  # once, and not in each process

    def ready() -> Callable[[type], object]:
        from conformance.logits_slot.bench import Bench
        from conformance.logits_slot.host import request_states

        def make(cls: type) -> object:
            bench = Bench(cls, model, {}, 0)
            return bench.construct(request_states(bench.vocabulary))

        return make

    return ready


def _prepare() -> None:
    """Import what simulates Model Runner V2, in a process that is to run no engine."""
    for module in _SIMULATOR:
        importlib.import_module(module)


def beforehand() -> tuple[str, ...]:
    """Return what the process imports that trials are forks of.

    On another device than the CPU it is half of what Model Runner V2 imports, and nothing that
    takes the place of kernels.
    """
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return ("vllm.model_executor.layers.fused_moe",)
    return _SIMULATOR


def _open(opening: Opening) -> Trial:
    """Open the trial of a plugin on one kind of evidence."""
    vllm_config(opening.model)  # takes a while, and every process needs it
    # Before the class is touched for the first time.
    untouched: Errands = opening.elsewhere or Untouched.fork(opening.cls)
    # Rows of engines are judged in the simulator, too.
    if problem := untouched.run(_Fits()):
        return Unopened(
            f"this release of vLLM has a Model Runner V2 that is not known here: {problem}",
            opening.evidence,
        )
    asked = errands.Find.of(opening, __name__)
    if opening.evidence is Evidence.SIMULATOR:
        from conformance.logits.trial import Trial as Simulation
        from conformance.logits_slot.simulator import CONTRACT

        found = CONTRACT.found(opening.cls, asked)
        return Simulation.of(opening, CONTRACT, found, untouched)
    # Not in this process: it is going to run an engine, maybe on a GPU.
    live = importlib.import_module("conformance.logits_slot.live")
    return open_live(
        opening,
        untouched,
        errands.found(untouched, asked),
        suite=__name__,
        stock=Stock,
        roles=live.ROLES,
        watch=lambda: live.Watch(untouched, opening.model),
    )


@attrs.frozen
class _Fits:
    """An errand: find out whether the kernels of this release have stand-ins that fit."""

    what: str = "conformance.logits_slot.suite:fits"


def fits(_cls: type, _errand: _Fits) -> str | None:
    """Say which kernel has none, if one has not; not in a process that may run an engine."""
    from conformance.engine import kernels

    return kernels.install()


def find(cls: type, errand: errands.Find) -> Parameters | UsageError:
    """Answer what switches a plugin on."""
    from conformance.logits_slot.simulator import CONTRACT

    return errand.answered(CONTRACT.found, cls)


def explored(cls: type, errand: errands.Explore) -> Explored:
    """Answer what becomes of the requests that any client may send."""
    from conformance.logits_slot.simulator import CONTRACT

    return CONTRACT.explored(cls, errand)


def _replay(cls: type, counterexample: Mapping[str, Any], model: str) -> Replayed:
    """Play a history again; a failure without one is shown by its check, as ``check``."""
    from conformance.logits.replays import played_again
    from conformance.logits_slot.simulator import CONTRACT

    if counterexample["kind"] == "check":
        return _check_again(cls, counterexample, model)
    return played_again(CONTRACT, cls, counterexample, model)


def _check_again(cls: type, counterexample: Mapping[str, Any], model: str) -> Replayed:
    from conformance.logits.trial import Trial
    from conformance.logits_slot.simulator import CONTRACT

    untouched = Untouched.fork(cls)
    entries = counterexample["parameters"]
    on, off, near = (
        tuple(decoded(entry["keywords"]) for entry in entries if entry["choice"][0] == kind)
        for kind in ("on", "off", "near")
    )
    invalid = tuple(decoded(keywords) for keywords in counterexample["invalid"])
    parameters = Parameters(
        origin="replay",
        declared=True,
        on=on,
        off=off,
        invalid=invalid,
        near=near,
        waits=Found.of(counterexample.get("waits", {})),
    )
    bench = CONTRACT.stocked(cls, model, parameters, counterexample["seed"])
    fqcn = f"{cls.__module__}:{cls.__qualname__}"
    trial = Trial(CONTRACT, cls, fqcn, parameters, bench, Budget.STANDARD, untouched, survey=True)
    result = trial.check(counterexample["rule"])
    trial.close()
    return replayed(result)


SUITE = Suite(
    base="vllm.v1.worker.gpu.sample.logits_processor.LogitsProcessor",
    recognises=_recognises,
    meant=_meant,
    open_trial=_open,
    replay=_replay,
    runner="v2",
    imports_in_server=True,
    prepare=_prepare,
    maker=maker,
    forget=forget,
)
