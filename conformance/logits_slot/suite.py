# SPDX-License-Identifier: Apache-2.0
"""What a worker needs to know of ``logits/slot``: is a class one, and how is it judged.

What drives a plugin replaces parts of torch, so it is imported where a plugin is tried only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import attrs

from conformance import history
from conformance.counterexample.source import choices, decoded
from conformance.logits.configuration import vllm_config
from conformance.logits.parameters import Parameters
from conformance.logits.requests import Stock
from conformance.rules import Evidence
from conformance.settings import Budget, UsageError
from conformance.untouched import Untouched
from conformance.verdict import RuleResult, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.settings import Settings
    from conformance.target import Plugin

BASE = "vllm.v1.worker.gpu.sample.logits_processor.LogitsProcessor"

#: Methods that only a slot logits processor has.
_METHODS = ("add_request", "apply_staged_writes")


def recognises(cls: type) -> bool:
    """Tell whether a class is a slot logits processor."""
    try:
        from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor
    except ImportError:
        return False  # a vLLM before 0.31
    return issubclass(cls, LogitsProcessor) and cls is not LogitsProcessor


def meant(cls: type) -> bool:
    """Tell whether the author plainly meant a slot logits processor."""
    return any(callable(getattr(cls, name, None)) for name in _METHODS)


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
    """Open the trial of a plugin on one kind of evidence."""
    vllm_config(model)  # takes a while, and every process needs it
    # Before the class is touched for the first time.
    untouched = Untouched.fork(cls)
    # Rows of engines are judged in the simulator, too.
    if problem := untouched.run(_Fits()):
        return _Unknown(
            f"this release of vLLM has a Model Runner V2 that is not known here: {problem}",
            evidence,
        )
    if evidence is Evidence.SIMULATOR:
        from conformance.logits.trial import Trial
        from conformance.logits_slot import parameters
        from conformance.logits_slot.bench import Bench
        from conformance.logits_slot.simulator import CONTRACT

        found = parameters.find(cls, section, origin=origin, model=model, seed=settings.seed)
        bench = Bench(cls, model, found.choices(), settings.seed)
        return Trial(CONTRACT, cls, plugin.fqcn, found, bench, settings.budget, untouched)
    # Not in this process: it is going to run an engine, maybe on a GPU.
    found = untouched.run(_Find(section, origin, model, settings.seed))
    if isinstance(found, UsageError):
        raise found
    stock = Stock(cls, model, found.choices(), settings.seed)
    opening = importlib.import_module("conformance.logits.live")
    live = importlib.import_module("conformance.logits_slot.live")
    return opening.open_trial(
        evidence,
        live.ROLES,
        lambda: live.Watch(untouched, model),
        plugin=plugin,
        parameters=found,
        bench=stock,
        model=model,
        settings=settings,
        folder=folder,
    )


@attrs.frozen
class _Unknown:
    """A trial on a host that is not known: nothing can be shown."""

    why: str
    evidence: Evidence

    def check(self, rule: str) -> RuleResult:
        return RuleResult(rule, Verdict.NOT_VERIFIED, self.evidence, message=self.why)


@attrs.frozen
class _Fits:
    """An errand: find out whether the kernels of this release have stand-ins that fit."""

    what: str = "conformance.logits_slot.suite:fits"


def fits(_cls: type, _errand: _Fits) -> str | None:
    """Say which kernel has none, if one has not; not in a process that may run an engine."""
    from conformance.engine import kernels

    return kernels.install()


@attrs.frozen
class _Find:
    """An errand: find out what switches a plugin on."""

    section: Mapping[str, Any]
    origin: str | None
    model: str
    seed: int
    what: str = "conformance.logits_slot.suite:find"


def find(cls: type, errand: _Find) -> Parameters | UsageError:
    """Return the parameters that a plugin is tried with, or what is wrong with its profile."""
    from conformance.logits_slot import parameters

    try:
        return parameters.find(
            cls, errand.section, origin=errand.origin, model=errand.model, seed=errand.seed
        )
    except UsageError as error:
        return error


def replay(cls: type, counterexample: Mapping[str, Any], *, model: str) -> tuple[list[str], str]:
    """Play a counterexample again; return the kinds of trouble there are now, and a message.

    A failure without a history is shown by its check again, and its trouble is ``check``.
    Where the counterexample is none that this version could have written, it is ``unreadable``.
    """
    from conformance.logits_slot.bench import Bench
    from conformance.logits_slot.play import play
    from conformance.logits_slot.strata import STRATA

    try:
        if counterexample["kind"] == "check":
            return _check_again(cls, counterexample, model)
        parameters_of = choices(counterexample["parameters"])
        bench = Bench(cls, model, parameters_of, counterexample["seed"])
        shape = STRATA.named(counterexample["stratum"])
        steps = history.from_json(counterexample["history"])
    except (LookupError, TypeError, ValueError, UsageError) as error:
        return ["unreadable"], f"{type(error).__name__}: {error}"
    played = play(bench, steps, shape)
    kinds = [trouble.kind.value for trouble in played.troubles]
    return kinds, "; ".join(trouble.message for trouble in played.troubles)


def _check_again(cls: type, counterexample: Mapping[str, Any], model: str) -> tuple[list[str], str]:
    from conformance.logits.trial import Trial
    from conformance.logits_slot.bench import Bench
    from conformance.logits_slot.simulator import CONTRACT

    untouched = Untouched.fork(cls)
    entries = counterexample["parameters"]
    on, off = (
        tuple(decoded(entry["keywords"]) for entry in entries if entry["choice"][0] == kind)
        for kind in ("on", "off")
    )
    invalid = tuple(decoded(keywords) for keywords in counterexample["invalid"])
    parameters = Parameters("replay", True, on, off, invalid)  # noqa: FBT003 - as declared
    bench = Bench(cls, model, parameters.choices(), counterexample["seed"])
    fqcn = f"{cls.__module__}:{cls.__qualname__}"
    trial = Trial(CONTRACT, cls, fqcn, parameters, bench, Budget.STANDARD, untouched, survey=True)
    result = trial.check(counterexample["rule"])
    trial.close()
    if result.verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE):
        return [], ""
    # Where another fault stands in the way, nothing was shown to be mended.
    kind = "check" if result.verdict is Verdict.FAIL else result.verdict.value
    return [kind], result.message or ""
