# SPDX-License-Identifier: Apache-2.0
"""Evidence ``simulator``: the rules of a batch logits processor, without an engine."""

from __future__ import annotations

import itertools
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from conformance import history
from conformance.counterexample.source import encoded
from conformance.logits_batch import (
    batches,
    checks,
    demonstrations,
    effects,
    judgement,
    memory,
    processes,
    strata,
)
from conformance.logits_batch.bench import (
    CALL_LIMIT,
    Bench,
    PluginHung,
    PluginMisshapen,
    PluginRaised,
)
from conformance.logits_batch.findings import Finding, failed
from conformance.logits_batch.parameters import Parameters, starter
from conformance.logits_batch.played import Kind
from conformance.rules import Evidence
from conformance.verdict import RuleResult, Verdict, must_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vllm.v1.sample.logits_processor import LogitsProcessor

    from conformance.history import Shape
    from conformance.logits_batch.played import Trouble
    from conformance.logits_batch.processes import Untouched
    from conformance.logits_batch.strata import Example
    from conformance.settings import Budget

CHECKS: Mapping[str, Callable[[Trial], Finding]] = {
    "LB-01": checks.loads,
    "LB-02": checks.constructs,
    "LB-05": effects.acts,
    "LB-10": effects.live_list,
    "LB-12": checks.claim_is_true,
    "LB-13": checks.claim_is_stable,
    "LB-15": checks.refuses,
    "LB-23": effects.deterministic,
    "LB-25": effects.does_without_prompt,
    "LB-27": memory.forgets,
    "LB-28": batches.comes_back,
    "LB-29": batches.takes_views,
    "LB-30": batches.serves_full_batches,
    "LB-31": processes.needs_no_instance,
    "LB-33": processes.same_on_every_rank,
    "LB-34": effects.keeps_masks,
}

#: Rules that compare rows under two conditions.
_COMPARING = frozenset(("LB-02", "LB-29", "LB-30", "LB-31"))

#: The rules about calls that a check may fail to get over.
_RULE_OF_CALL = {
    "__init__": "LB-02",
    "is_argmax_invariant()": "LB-13",
    "update_state(None)": "LB-09",
}


@attrs.define
class Trial:
    """One plugin in the simulator; strata are played when a rule first asks for them."""

    plugin: type[LogitsProcessor]
    fqcn: str
    parameters: Parameters
    bench: Bench
    budget: Budget
    untouched: Untouched
    #: One of many seeds: play only what a rule asks for, and leave its failures as they are.
    survey: bool = False
    only: str | None = None  #: in a survey, the rule whose first failure is enough
    looked: Finding | None = attrs.field(init=False, default=None)  #: LB-27's, found meanwhile
    _played: dict[Shape, list[Example]] = attrs.field(init=False, factory=dict)
    _looked: bool = attrs.field(init=False, default=False)  #: for examples that hung
    #: Whether the same request gets other rows again; None where nobody has asked.
    _unsteady: bool | None = attrs.field(init=False, default=None)
    #: A rule that no other can be judged before, and how it is broken.
    _obstacle: tuple[str, str] | None = attrs.field(init=False, default=None)
    #: The history in which a call hung, if it was one.
    _hanging: dict[str, Any] | None = attrs.field(init=False, default=None)

    def check(self, rule: str) -> RuleResult:
        """Judge one rule."""
        started = time.perf_counter()
        finding, case = self._find(rule)
        if finding.verdict is Verdict.FAIL and not self.survey:
            case = demonstrations.shown(self, rule, finding, case)
        return RuleResult(
            rule=rule,
            verdict=finding.verdict,
            evidence=Evidence.SIMULATOR,
            examples=finding.examples,
            acted=finding.acted,
            seconds=time.perf_counter() - started,
            message=finding.message,
            counterexample=case,
        )

    def _find(self, rule: str) -> tuple[Finding, dict[str, Any] | None]:
        """Judge one rule; what a check could not get over belongs to the rule that is about it."""
        if self._obstacle is None and (missing := checks.undefined(self.plugin)):
            self._obstacle = ("LB-01", f"{self.plugin.__name__} does not define {missing}")
        if self._obstacle is not None:
            return self._obstructed(rule)
        try:
            if rule in CHECKS:
                return self._steady(rule, CHECKS[rule](self)), None
            return judgement.judge(self, rule)
        except PluginHung as error:
            # Once is enough to wait for.
            self._obstacle = ("LB-24", str(error))
            return self._obstructed(rule)
        except PluginMisshapen as error:
            return self._elsewhere(rule, "LB-14", str(error)), None
        except PluginRaised as error:
            owner = _RULE_OF_CALL.get(error.call, "LB-16")
            return self._elsewhere(rule, owner, str(error)), None

    def _steady(self, rule: str, finding: Finding) -> Finding:
        """Return what a check found, unless rows differ where nothing at all is different."""
        if rule in _COMPARING and finding.verdict is Verdict.FAIL:
            if self._unsteady is None:
                self._unsteady = False
                with suppress(PluginRaised, PluginMisshapen):
                    self._unsteady = effects.deterministic(self).verdict is Verdict.FAIL
            if self._unsteady:
                return Finding(Verdict.NOT_VERIFIED, message=must_wait(["LB-23"]))
        return finding

    def _obstructed(self, rule: str) -> tuple[Finding, dict[str, Any] | None]:
        assert self._obstacle is not None
        owner, message = self._obstacle
        return self._elsewhere(rule, owner, message), self._hanging if rule == owner else None

    def close(self) -> None:
        """End the trial's second process."""
        self.untouched.close()

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        return {"profile": self.parameters.document()}

    def examples(self) -> list[Example]:
        """All examples of the strata that isolate one thing."""
        examples: list[Example] = []
        for shape in strata.RULE_OF_SHAPE:
            if shape != strata.EVERYTHING:
                examples += self.stratum(shape)
                if self.only and any(self.only in example.rules() for example in examples):
                    break
        return examples

    def blocking(self) -> frozenset[str]:
        """The rules about single calls that some example breaks."""
        return frozenset(
            rule
            for example in self.examples()
            for trouble in example.played.troubles
            if trouble.kind in judgement.BLOCKING
            for rule in example.broken_by(trouble)
        )

    def blocked(self) -> str:
        """Say which rules must hold before this one can be judged."""
        return must_wait(sorted(self.blocking()))

    def unknown_switch(self) -> str:
        """Say that nobody knows how to switch the plugin on, and what to write."""
        keys = ", ".join(self.parameters.keys)
        saw = f"it reads extra_args {keys}" if keys else "it reads no extra_args"
        return f"nothing switched the plugin on ({saw}); give a profile such as\n" + starter(
            self.parameters.keys
        )

    def stratum(self, shape: Shape) -> list[Example]:
        """Return the played examples of a stratum."""
        if self.survey and shape not in self._played:
            self._played[shape] = strata.sweep(self.bench, shape, self.budget, self.only)
        elif not self._played:
            self._played, self.looked = strata.sweep_all(
                self.bench, self.budget, partial(memory.look_apart, self.bench, self.budget)
            )
        if not self._looked:
            self._looked = not self.survey
            for example in itertools.chain.from_iterable(self._played.values()):
                for trouble in example.played.troubles:
                    if trouble.kind is Kind.HUNG:
                        self._hanging = _case(self, example, trouble)
                        raise PluginHung(trouble.message.partition(" did")[0], CALL_LIMIT)
        return self._played[shape]

    def case(self, example: Example, trouble: Trouble) -> dict[str, Any]:
        """Return a counterexample as data."""
        return _case(self, example, trouble)

    def _elsewhere(self, rule: str, owner: str, message: str) -> Finding:
        if rule == owner:
            return failed(message)
        return Finding(Verdict.NOT_VERIFIED, message=must_wait([owner], message))


def _case(trial: Trial, example: Example, trouble: Trouble) -> dict[str, Any]:
    """Return a counterexample as data: enough to print it and to play it again."""
    used = {request.choice for step in example.history for request in step.join}
    return {
        "kind": "history",
        "stratum": example.shape.name,
        "seed": trial.bench.seed,
        "history": history.to_json(example.history),
        "parameters": [
            {"choice": list(choice), "keywords": encoded(keywords)}
            for choice, keywords in trial.bench.parameters.items()
        ],
        "used": sorted(list(choice) for choice in used),
        "lines": [attrs.asdict(line) for line in example.played.lines],
        "trouble": attrs.asdict(trouble),
    }
