# SPDX-License-Identifier: Apache-2.0
"""Evidence ``simulator``: the rules of a batch logits processor, without an engine."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import attrs

from conformance import history
from conformance.logits_batch import checks, strata
from conformance.logits_batch.bench import (
    CALL_LIMIT,
    Bench,
    PluginHung,
    PluginMisshapen,
    PluginRaised,
)
from conformance.logits_batch.parameters import Parameters, starter
from conformance.logits_batch.play import Kind
from conformance.rules import Evidence
from conformance.verdict import RuleResult, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from vllm.v1.sample.logits_processor import LogitsProcessor

    from conformance.history import Shape
    from conformance.logits_batch.checks import Finding
    from conformance.logits_batch.play import Trouble
    from conformance.logits_batch.strata import Example
    from conformance.settings import Budget

CHECKS: Mapping[str, Callable[[Trial], Finding]] = {
    "LB-01": checks.loads,
    "LB-02": checks.constructs,
    "LB-05": checks.acts,
    "LB-10": checks.live_list,
    "LB-12": checks.claim_is_true,
    "LB-13": checks.claim_is_stable,
    "LB-15": checks.refuses,
    "LB-23": checks.deterministic,
    "LB-25": checks.does_without_prompt,
}

_SHAPE_OF_RULE = {
    rule: shape for shape, rule in strata.RULE_OF_SHAPE.items() if shape is not strata.EVERYTHING
} | {"LB-04": strata.PLAIN}

#: Kinds of trouble after which nothing else can be told about an example.
_BLOCKING = set(strata.RULE_OF_KIND) - {Kind.RAISED}

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
    _played: dict[Shape, list[Example]] = attrs.field(init=False, factory=dict)
    #: A rule that no other can be judged before, and how it is broken.
    _obstacle: tuple[str, str] | None = attrs.field(init=False, default=None)
    #: The history in which a call hung, if it was one.
    _hanging: dict[str, Any] | None = attrs.field(init=False, default=None)

    def check(self, rule: str) -> RuleResult:
        """Judge one rule."""
        started = time.perf_counter()
        finding, case = self._find(rule)
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
                return CHECKS[rule](self), None
            return self._judge(rule)
        except PluginHung as error:
            # Once is enough to wait for.
            self._obstacle = ("LB-24", str(error))
            return self._obstructed(rule)
        except PluginMisshapen as error:
            return self._elsewhere(rule, "LB-14", str(error)), None
        except PluginRaised as error:
            owner = _RULE_OF_CALL.get(error.call, "LB-16")
            return self._elsewhere(rule, owner, str(error)), None

    def _obstructed(self, rule: str) -> tuple[Finding, dict[str, Any] | None]:
        assert self._obstacle is not None
        owner, message = self._obstacle
        return self._elsewhere(rule, owner, message), self._hanging if rule == owner else None

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        return {"profile": self.parameters.document()}

    def examples(self) -> list[Example]:
        """All examples of the strata that isolate one thing."""
        return [
            example
            for shape in strata.RULE_OF_SHAPE
            if shape is not strata.EVERYTHING
            for example in self._stratum(shape)
        ]

    def blocking(self) -> frozenset[str]:
        """The rules about single calls that some example breaks."""
        return frozenset(
            rule
            for example in self.examples()
            for trouble in example.played.troubles
            if trouble.kind in _BLOCKING
            for rule in example.broken_by(trouble)
        )

    def blocked(self) -> str:
        """Say which rules must hold before this one can be judged."""
        return f"cannot be judged before {', '.join(sorted(self.blocking()))} holds"

    def unknown_switch(self) -> str:
        """Say that nobody knows how to switch the plugin on, and what to write."""
        keys = ", ".join(self.parameters.keys)
        saw = f"it reads extra_args {keys}" if keys else "it reads no extra_args"
        return f"nothing switched the plugin on ({saw}); give a profile such as\n" + starter(
            self.parameters.keys
        )

    def _stratum(self, shape: Shape) -> list[Example]:
        if not self._played:
            self._played = strata.sweep_all(self.bench, self.budget)
            for example in itertools.chain.from_iterable(self._played.values()):
                for trouble in example.played.troubles:
                    if trouble.kind is Kind.HUNG:
                        self._hanging = _case(self, example, trouble)
                        raise PluginHung(trouble.message.partition(" did")[0], CALL_LIMIT)
        return self._played[shape]

    def _judge(self, rule: str) -> tuple[Finding, dict[str, Any] | None]:
        shape = _SHAPE_OF_RULE.get(rule)
        if rule == "LB-04" and (not self.parameters.off or not self.parameters.on):
            why = "every request is treated alike: the plugin has no opt-in"
            return checks.Finding(Verdict.NOT_APPLICABLE, message=why), None
        examples = self._stratum(shape) if shape else self.examples()
        if rule == "LB-09":
            # The stratum makes it likely; trouble with None shows anywhere.
            examples = examples + [
                e for e in self.examples() if e.shape is not shape and rule in e.rules()
            ]
        failing = [example for example in examples if rule in example.rules()]
        if failing and shape and (simpler := self._simpler(strata.BUILT_ON.get(shape, ()))):
            acted = sum(bool(example.played.acted) for example in examples)
            why = f"cannot be judged before {simpler} holds"
            return checks.Finding(Verdict.NOT_VERIFIED, len(examples), acted, why), None
        if rule == "LB-03" and not failing and not self._anything_broken():
            examples = examples + self._stratum(strata.EVERYTHING)
            failing = [example for example in examples if rule in example.rules()]
        acted = sum(bool(example.played.acted) for example in examples)
        if failing:
            smallest = min(failing, key=lambda example: history.size(example.history))
            smallest = strata.minimise(self.bench, rule, smallest, self.budget)
            trouble = next(t for t in smallest.played.troubles if rule in smallest.broken_by(t))
            message = f"{trouble.message} ({smallest.shape.title})"
            parts = (strata.REPLACED, strata.ONE_WAY, strata.SWAP, strata.CHUNK, strata.REMOVED)
            if shape is strata.ORDER and (simpler := self._simpler(parts)):
                message += f"; {simpler} fails in a simpler history, look there first"
            case = _case(self, smallest, trouble)
            return checks.failed(message, len(examples), acted), case
        # In its own stratum any trouble stands in a rule's way; a rule about single calls looks
        # at what was called, and is only stopped by what nothing can be seen behind.
        obstacles = {trouble.kind for example in examples for trouble in example.played.troubles}
        if (obstacles if shape else obstacles & _BLOCKING) or not examples:
            # Not about this rule, yet nobody knows what would have come after.
            owners = ", ".join(sorted({owner for e in examples for owner in e.rules()}))
            why = f"cannot be judged before {owners} holds"
            return checks.Finding(Verdict.NOT_VERIFIED, len(examples), acted, why), None
        if not self.parameters.on:
            return checks.Finding(
                Verdict.NOT_VERIFIED, len(examples), 0, self.unknown_switch()
            ), None
        return checks.passed(len(examples), acted), None

    def _simpler(self, shapes: Iterable[Shape]) -> str:
        """Return the rules that are broken in strata which another one is made of."""
        return ", ".join(
            dict.fromkeys(
                rule
                for shape in shapes
                for example in self._stratum(shape)
                for rule in sorted(example.rules())
                if rule in (strata.RULE_OF_SHAPE[shape], "LB-04", "LB-09", "LB-16")
            )
        )

    def _anything_broken(self) -> bool:
        return any(example.played.troubles for example in self.examples())

    def _elsewhere(self, rule: str, owner: str, message: str) -> Finding:
        if rule == owner:
            return checks.failed(message)
        return checks.Finding(
            Verdict.NOT_VERIFIED, message=f"cannot be judged before {owner} holds: {message}"
        )


def _case(trial: Trial, example: Example, trouble: Trouble) -> dict[str, Any]:
    """Return a counterexample as data: enough to print it and to play it again."""
    used = {request.choice for step in example.history for request in step.join}
    return {
        "kind": "history",
        "stratum": example.shape.name,
        "seed": trial.bench.seed,
        "history": history.to_json(example.history),
        "parameters": [
            {"choice": list(choice), "keywords": keywords}
            for choice, keywords in trial.bench.parameters.items()
        ],
        "used": sorted(list(choice) for choice in used),
        "lines": [attrs.asdict(line) for line in example.played.lines],
        "trouble": attrs.asdict(trouble),
    }
