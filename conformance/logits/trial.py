# SPDX-License-Identifier: Apache-2.0
"""One plugin in the simulator, rule by rule: what every generation of logits processors shares."""

from __future__ import annotations

import itertools
import time
from contextlib import suppress
from typing import Any, Self

import attrs

from conformance.checking import Asked
from conformance.findings import (
    LEAST_ACTED,
    Finding,
    failed,
    obstructed,
    passed,
    simulated,
    unjudged,
    waiting,
)
from conformance.inputs.history import Shape
from conformance.logits import alike, sweeps, unfilled
from conformance.logits.aside import Aside, answered
from conformance.logits.calls import PluginMisshapen, PluginRaised
from conformance.logits.cases import history_case
from conformance.logits.contract import Contract
from conformance.logits.findings import OFTENER, unknown_tokens, unreached, without_effect
from conformance.logits.fuzzing.exploration import Exploring, explore
from conformance.logits.fuzzing.explorer import Explored
from conformance.logits.fuzzing.values import readable
from conformance.logits.parameters import INERT, Parameters
from conformance.logits.played import Kind
from conformance.logits.sharing import shares_nothing
from conformance.logits.sweeps import Example
from conformance.settings import Budget
from conformance.suite import FEW_RULES, Opening
from conformance.verdict import Cause, RuleResult, Verdict, must_wait
from conformance.watching.interruption import CALL_LIMIT, PluginHung
from conformance.watching.loading import Observer
from conformance.watching.untouched import Errands


def _sharing(trial: Trial) -> Finding:
    contract = trial.contract
    return shares_nothing(trial.bench, contract.rows_alone, lambda: contract.raised_again(trial))


@attrs.define
class Trial(Asked):
    """One plugin in the simulator; strata are played when a rule first asks for them."""

    contract: Contract
    plugin: type[Any]
    fqcn: str
    parameters: Parameters
    bench: Any  #: the bench of the generation
    budget: Budget
    untouched: Errands
    #: One of many seeds: play only what a rule asks for, and leave its failures as they are.
    survey: bool = False
    only: str | None = None  #: in a survey, the rule whose first failure is enough
    #: Few rules are asked for: a stratum is played when one of them needs it.
    few: bool = False
    observer: Observer | None = None  #: the process in which the plugin is loaded by itself
    leaks: Finding | None = attrs.field(
        init=False, default=None
    )  #: what was found of them meanwhile
    _played: dict[Shape, list[Example]] = attrs.field(init=False, factory=dict)
    _without: dict[Shape, list[Example]] = attrs.field(init=False, factory=dict)
    _swept: bool = attrs.field(init=False, default=False)  #: whether all strata were played
    #: Whether the same request gets other rows again; None where nobody has asked.
    _unsteady: bool | None = attrs.field(init=False, default=None)
    #: Whether rows are drawn at random; None where nobody has asked.
    _random: bool | None = attrs.field(init=False, default=None)
    #: A rule that no other can be judged before, and how it is broken.
    _obstacle: tuple[str, Finding] | None = attrs.field(init=False, default=None)
    _exploring: Exploring | None = attrs.field(init=False, default=None)
    #: The trial that goes on after rows without a token, where that is what others wait for.
    _tolerant: Trial | None = attrs.field(init=False, default=None)
    #: The history in which a call hung, if it was one.
    _hanging: dict[str, Any] | None = attrs.field(init=False, default=None)

    @classmethod
    def of(
        cls,
        opening: Opening,
        contract: Contract,
        parameters: Parameters,
        untouched: Errands,
    ) -> Self:
        """Return the trial that was asked for."""
        settings = opening.settings
        return cls(
            contract,
            opening.cls,
            opening.plugin.fqcn,
            parameters,
            contract.stocked(opening.cls, opening.model, parameters, settings.seed),
            settings.budget,
            untouched,
            few=len(opening.rules) <= FEW_RULES,
            observer=opening.observer,
        )

    def check(self, rule: str) -> RuleResult:
        """Judge one rule."""
        started = time.perf_counter()
        trial, finding, case = self._searched(rule)
        self._begin_errands()
        if finding.waits_for and self.contract.unsampled.issuperset(finding.waits_for):
            # It is advice that a token is left; what must hold is judged all the same.
            return self._going_on().check(rule)
        if finding.verdict is Verdict.FAIL and self._cut_short(rule):
            again = self._going_on().check(rule)
            if again.waits_for:
                return again
        if finding.verdict is Verdict.FAIL and not self.survey:
            case = self.contract.show(trial, rule, finding, case)
        return simulated(rule, finding, time.perf_counter() - started, case)

    def _cut_short(self, rule: str) -> bool:
        """Tell whether a row without a token ended histories that might explain a failure."""
        if self._obstacle is not None:
            return False  # that explains it, and playing on would meet it again
        unsampled = self.contract.unsampled
        if self.bench.tolerant or rule in unsampled or rule not in self.contract.judged:
            return False
        return any(unsampled & example.rules() for example in self.examples())

    def _begin_errands(self) -> None:
        """Have done beside what checks ask of other processes: all of them will be judged."""
        many = self._swept and not (self.survey or self.few)
        if many and self._obstacle is None:
            self.once(self.contract.ahead)

    def _searched(self, rule: str) -> tuple[Trial, Finding, dict[str, Any] | None]:
        """Judge one rule, again with other logits and phrases while the plugin acted too rarely.

        Returns also the trial that found it.
        """
        finding, case = self._find(rule)
        least = LEAST_ACTED[self.budget]
        for number in range(1, least + 1):
            if not finding.scant(least) or not self.parameters.on:
                break
            again = self._turned(number)
            found, shown = again._find(rule)  # noqa: SLF001 - of the same class
            if found.verdict is Verdict.FAIL:
                return again, found, shown
            finding = passed(finding.examples + found.examples, finding.acted + found.acted)
        if finding.verdict is Verdict.NOT_VERIFIED and not finding.waits_for and self.inert:
            all_show = rule in self.contract.shown_by_all
            finding = without_effect(finding, self.unknown_switch(), INERT, shown=all_show)
        return self, self._advised(finding.enough(least, OFTENER)), case

    def _advised(self, finding: Finding) -> Finding:
        """Return a finding; where the plugin never did anything, with what to write for it."""
        idle = finding.verdict is Verdict.NOT_VERIFIED and finding.tried and not finding.acted
        if not idle or not self.parameters.on:
            return finding
        known = unknown_tokens(self.parameters.waits, self.bench.vocabulary)
        return finding.advised(unreached(self.bench) or known or OFTENER)

    def _turned(self, number: int) -> Trial:
        """Return the trial on other logits, with another of what is waited for coming first."""
        parameters = attrs.evolve(self.parameters, waits=self.parameters.waits.turned(number))
        bench = self.bench
        seed = bench.seed + number
        again = self.contract.stocked(self.plugin, bench.model, parameters, seed)
        again.tolerant = bench.tolerant
        trial = attrs.evolve(self, parameters=parameters, bench=again)
        # What histories showed need not be seen again; what is counted must be new.
        for name in ("_played", "_without", "_swept", "_random"):
            setattr(trial, name, getattr(self, name))
        return trial

    def _going_on(self) -> Trial:
        """Return the trial whose histories go on after rows without a token."""
        if self._tolerant is None:
            self._tolerant = attrs.evolve(self, bench=self.bench.going_on())
        return self._tolerant

    def _find(self, rule: str) -> tuple[Finding, dict[str, Any] | None]:
        """Judge one rule; what a check could not get over belongs to the rule that is about it."""
        if self._obstacle is None and (missing := undefined(self.plugin)):
            said = f"{self.plugin.__name__} does not define {missing}"
            self._obstacle = (self.contract.loads, failed(said))
        if self._obstacle is not None:
            return self._obstructed(rule)
        try:
            return self._decide(rule)
        except PluginHung as error:
            # Once is enough to wait for.
            self._obstacle = (self.contract.survives, failed(str(error)))
            return self._obstructed(rule)
        except PluginMisshapen as error:
            owner = self.contract.rule_of_error.get(type(error), self.contract.shape)
            return obstructed(rule, owner, str(error)), None
        except PluginRaised as error:
            owner = self.contract.rule_of_call.get(error.call, self.contract.raises)
            if owner not in (rule, *self.contract.checks) and self._holds(owner):
                said = f"cannot be judged: {error}, which no history of {owner} showed"
                return unjudged(said), None
            return obstructed(rule, owner, str(error)), None

    def _holds(self, rule: str) -> bool:
        """Tell whether a rule that histories decide is kept in them."""
        finding, _ = self.contract.judge(self, rule)
        return finding.verdict is Verdict.PASS

    def _decide(self, rule: str) -> tuple[Finding, dict[str, Any] | None]:
        if not self.bench.parameters and rule != self.contract.loads:
            # Every request that could be thought of is refused, and none other ever joins.
            return unjudged(self.unknown_switch()), None
        check = self.contract.checks.get(rule)
        if check is None:
            return self.contract.judge(self, rule)
        judged = self.contract.judge(self, rule) if rule in self.contract.both else None
        if judged is not None and judged[0].verdict is not Verdict.PASS:
            return judged
        found = self._steady(rule, self.once(check))
        # Some checks play histories of their own.
        played = found.case if found.case and "stratum" in found.case else None
        if judged is not None and found.verdict is Verdict.PASS:
            examples, acted = found.examples + judged[0].examples, found.acted + judged[0].acted
            return passed(examples, acted), None
        return found, played

    def sharing(self) -> Finding:
        """Tell whether instances share nothing."""
        return self.once(_sharing)

    @property
    def shares(self) -> bool:
        """Whether rows may be others because instances beside each other share state."""
        with suppress(PluginRaised, PluginMisshapen):
            found = self._steady(self.contract.apart, self.sharing())
            return found.verdict is Verdict.FAIL and not self.random
        return False

    def _steady(self, rule: str, finding: Finding) -> Finding:
        """Return what a check found, unless rows differ for a reason that another rule is about."""
        if rule not in self.contract.comparing or finding.verdict is not Verdict.FAIL:
            return finding
        if rule != self.contract.apart and self.shares:
            return unjudged(must_wait([self.contract.apart]))
        if self._unsteady is None:
            self._unsteady = False
            with suppress(PluginRaised, PluginMisshapen):
                found = self.contract.checks[self.contract.steady](self)
                self._unsteady = found.verdict is Verdict.FAIL
        return unjudged(must_wait([self.contract.steady])) if self._unsteady else finding

    def _obstructed(self, rule: str) -> tuple[Finding, dict[str, Any] | None]:
        assert self._obstacle is not None
        owner, found = self._obstacle
        return (found, self._hanging) if rule == owner else (waiting(owner, found.message), None)

    def close(self) -> None:
        """End the trial's other processes."""
        for trial in (self, *((self._tolerant,) if self._tolerant is not None else ())):
            if trial._exploring is not None:  # noqa: SLF001 - of the same class
                trial._exploring.close()  # noqa: SLF001 - of the same class
        self.untouched.close()

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        served = self._played and self._obstacle is None
        profile = self.parameters.document() | {"refused": self.refusals()}
        if not served:
            return {"profile": profile}
        more = self.contract.tells(self)
        declared = len(self.parameters.on) if self.parameters.declared else 0
        same = alike.notes(self.bench, self.contract.rows_alone, declared)
        same += unfilled.notes(self.plugin, self.parameters.off)
        return {"profile": profile, **more, "notes": [*more.get("notes", ()), *same]}

    def refusals(self) -> list[Any]:
        """Return the short requests that were refused; none where nobody has asked."""
        if self._tolerant is not None:
            return self._tolerant.refusals()
        found = self._exploring.found if self._exploring is not None else None
        return list(found.refusals) if found is not None else []

    def examples(self) -> list[Example]:
        """All examples of the strata that isolate one thing."""
        examples: list[Example] = []
        strata = self.contract.strata
        if not self.survey:
            self._sweep()
        for shape in strata.rule_of:
            if shape != strata.everything and shape not in strata.apart:
                examples += self.stratum(shape)
                if self.only and any(self.only in example.rules() for example in examples):
                    break
        return examples

    def _explore(self) -> Exploring:
        """Begin to explore the requests that any client may send, beside what else is done."""
        if self._exploring is None:
            contract, parameters = self.contract, self.parameters
            self._exploring = explore(
                contract.strata,
                contract.play,
                self.bench,
                parameters,
                self.budget,
                shrink=not self.survey,
            )
        return self._exploring

    @property
    def explored(self) -> Explored:
        """What became of the requests that any client may send."""
        return self._explore().result()

    @property
    def opts_in(self) -> bool:
        """Whether requests are known that opt in, or can be none, and others that do not."""
        return bool((self.parameters.on or self.parameters.inert) and self.parameters.off)

    @property
    def inert(self) -> bool:
        """Whether nothing switches the plugin on, as its author says, and nothing was seen to."""
        return self.parameters.inert and not self.explored.acted

    @property
    def random(self) -> bool:
        """Whether rows are drawn at random: then no two of them can be compared."""
        if self._random is None:
            self._random = False
            with suppress(PluginRaised, PluginMisshapen, PluginHung):
                self._random = self.contract.at_random(self)
        return self._random

    def unknown_switch(self) -> Cause:
        """Return the cause where no known request switches the plugin on, with what to write."""
        says = self.parameters.unknown_switch(self.plugin)
        if self.parameters.inert and (acting := self.explored.acting) is not None:
            says = f"{INERT}, and a request with {readable(acting)} does: name it in `on`"
        return Cause("not switched on", says)

    def stratum(self, shape: Shape) -> list[Example]:
        """Return the played examples of a stratum."""
        strata = self.contract.strata
        if any(shape == without for _, without in strata.without.values()):
            if shape not in self._without:
                self._without[shape] = sweeps.sweep(strata, self.bench, shape, self.budget)
            return self._without[shape]
        if not self.survey and not self.few:
            self._sweep()
        elif shape not in self._played:
            self._played[shape] = sweeps.sweep(strata, self.bench, shape, self.budget, self.only)
            self._see_hangs()
        return self._played[shape]

    def _sweep(self) -> None:
        """Play all strata, unless that was done."""
        if self._swept:
            return
        self._swept = True
        besides = Aside if self.few else self._beside
        if not self.few:
            self._explore()  # a rule will ask what became of them
        strata = self.contract.strata
        self._played, found = sweeps.sweep_all(strata, self.bench, self.budget, besides)
        self.leaks = found.leaks
        self._answers |= found.clean
        if self.leaks is not None and self.leaks.exhausts:
            self._obstacle = (self.contract.forgets, self.leaks)
        self._see_hangs()

    def _see_hangs(self) -> None:
        """Raise :class:`PluginHung` for a call that did not return in an example."""
        for example in itertools.chain.from_iterable(self._played.values()):
            for trouble in example.played.troubles:
                if trouble.kind is Kind.HUNG:
                    self._hanging = history_case(self.bench, example, trouble)
                    assert trouble.call is not None
                    raise PluginHung(trouble.call, CALL_LIMIT)

    def _beside(self) -> Aside:
        """Find out what can be found out beside the histories."""
        leaks = self._look()
        questions = self.contract.aside if leaks and leaks.clean else ()
        return Aside(leaks, answered(self, questions))

    def _look(self) -> Finding | None:
        """Look for leaks; None where a call goes wrong, for the rule that is about it to see."""
        with suppress(PluginRaised, PluginMisshapen, PluginHung):
            return self.contract.look(self.bench, self.budget)
        return None


def undefined(plugin: type) -> str:
    """Return the methods that the class leaves abstract, or an empty string."""
    return ", ".join(sorted(getattr(plugin, "__abstractmethods__", ())))
