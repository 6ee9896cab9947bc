# SPDX-License-Identifier: Apache-2.0
"""One plugin in the simulator: what each rule waits for, and what ends all judging."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import attrs

from conformance.checking import Judging
from conformance.findings import Finding, obstructed, unjudged, waiting
from conformance.io_processor import discovery
from conformance.io_processor.bench import Bench, ConstructorRaised
from conformance.io_processor.engine import UNKNOWN, made_up
from conformance.io_processor.meaning import Meaning
from conformance.io_processor.watched import AFTER_OUTPUTS, Watched
from conformance.settings import Budget
from conformance.verdict import Cause, Verdict
from conformance.watching.comparison import shortened
from conformance.watching.interruption import PluginExited, PluginHung, place_in
from conformance.watching.raised import said
from conformance.watching.untouched import Untouched

LOADS, CONSTRUCTOR, SURVIVES, ANSWERS, STEADY, SEQUENCE, ENDURES = (
    "IO-01", "IO-02", "IO-37", "IO-07", "IO-24", "IO-26", "IO-38",
)  # fmt: skip

#: Rules that need no request.
_WITHOUT_DATA = frozenset(
    ("IO-01", "IO-02", "IO-03", "IO-05", "IO-06", "IO-14", "IO-15", "IO-16", "IO-43")
)

#: Those, and whether requests are answered at all.
_BEFORE_ANSWERS = _WITHOUT_DATA | {ANSWERS}

#: Rules that are judged where valid requests are answered by the plain hooks at least.
_ADMISSION = frozenset(("IO-08", "IO-09", "IO-10", "IO-32", "IO-33", ENDURES))

#: Rules that compare answers.
_COMPARING = frozenset(
    ("IO-17", "IO-18", "IO-25", "IO-26", "IO-27", "IO-28", "IO-29", "IO-30", "IO-31", "IO-40")
)


@attrs.frozen(kw_only=True)
class Questions:
    """What the trial itself asks, beside the checks."""

    #: What must be right before anything else can be judged, nearest to the cause first: a rule,
    #: and what says how it is not, if it is not.
    basic: tuple[tuple[str, Callable[[Bench], object]], ...]
    #: Whether valid requests are answered, whatever else is broken.
    answers: Callable[[Trial], Finding]
    #: Which valid request is answered no more, though it was.
    no_longer: Callable[[Trial], Finding | None]
    #: That prompts depend on earlier requests, though every request has a new instance.
    outliving: Callable[[Trial], Finding | None]
    #: Which model the prompts of data need, if the harness has none that will do.
    needs: Callable[[Bench, Any], str | None]
    #: The method that gives the parameters of a request.
    asks: Callable[[Watched, Bench], Callable[[], object]]
    #: Makes a counterexample that stands by itself.
    show: Callable[[Trial, str, Finding], dict[str, Any]]


@attrs.define
class Trial(Judging):
    """One plugin and its bench."""

    bench: Bench
    section: Mapping[str, Any]
    origin: str | None
    budget: Budget
    #: A process in which nothing has been done with the plugin, for programs of failures.
    untouched: Untouched | None = None
    questions: Questions = attrs.field(kw_only=True)
    #: A rule that no other can be judged before, and how it is broken.
    _obstacle: tuple[str, str] | None = attrs.field(init=False, default=None)
    _case: dict[str, Any] | None = attrs.field(init=False, default=None)  #: of that failure
    #: What stands in the way where a call did not return, and may do so on a model's own outputs.
    _guessed: Finding | None = attrs.field(init=False, default=None)
    _ready: bool = attrs.field(init=False, default=False)

    def answered(self) -> Finding:
        """Judge once whether valid requests are answered, whatever else is broken."""
        return self.once(self.questions.answers)

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        host = f"{self.bench.online.name}, without an engine"
        if not self._ready:
            return {"host_simulator": host}
        meant = Meaning.of(self.section)
        said = meant.document() if meant else {}
        return {"host_simulator": host, "profile": {**self.bench.stock.document(), **said}}

    def close(self) -> None:
        """End the trial's second process."""
        if self.untouched is not None:
            self.untouched.close()

    def judge(self, rule: str) -> Finding:
        """Judge a rule, or return what it waits for."""
        cls = self.bench.cls
        if missing := ", ".join(sorted(getattr(cls, "__abstractmethods__", ()))):
            self._obstacle = (LOADS, f"{cls.__name__} does not define {missing}")
        if not self._ended:
            try:
                found = self._decide(rule)
                if not self._ended:  # by another rule that it has asked for
                    return found
            except ConstructorRaised as error:
                self._obstacle = (CONSTRUCTOR, f"making an instance raised {error}")
                if rule == CONSTRUCTOR:
                    return self.checks[rule].judge(self)
            except PluginHung as error:
                if self._may_return(rule, error):
                    self._guessed = made_up(str(error))
                else:
                    self._obstacle = (SURVIVES, str(error))
            except PluginExited as error:
                self._obstacle = (SURVIVES, str(error))
        if self._obstacle is not None:
            return attrs.evolve(obstructed(rule, *self._obstacle), case=self._case)
        assert self._guessed is not None
        return self._guessed if rule == ANSWERS else waiting(ANSWERS, UNKNOWN)

    @property
    def _ended(self) -> bool:
        """Whether no further rule can be judged."""
        return self._obstacle is not None or self._guessed is not None

    def _may_return(self, rule: str, hung: PluginHung) -> bool:
        """Tell whether a call that did not return might, were its outputs not made up."""
        if hung.call not in AFTER_OUTPUTS:
            return False
        if rule not in _ADMISSION and self._were_answered():
            return False  # it did, with the same outputs
        plugin = self.bench.make()
        with suppress(Exception):
            self.questions.asks(plugin, self.bench)()
        return plugin.guessing

    def case(self, rule: str, finding: Finding) -> dict[str, Any]:
        """Return the counterexample of a failure, with a program wherever one shows it."""
        return self.questions.show(self, rule, finding)

    def _were_answered(self) -> bool:
        found = self._answers.get(self.questions.answers)
        return found is not None and found.verdict is Verdict.PASS

    def _decide(self, rule: str) -> Finding:
        if rule in _WITHOUT_DATA:
            return self._made(rule)
        self.prepare()
        if not self.bench.stock.valid:
            return unjudged(Cause("no data", self._unknown_data()))
        if rule == SEQUENCE and (found := self.questions.outliving(self)):
            return found
        if why := self._waits(rule):
            return why
        return self._made(rule)

    def _made(self, rule: str) -> Finding:
        """Make a check; what goes wrong may be what earlier checks have left in the process.

        Raises:
            Exception: something went wrong that is not the plugin's affair.

        """
        found, raised = None, None
        try:
            found = self.checks[rule].judge(self)
        except (ConstructorRaised, PluginExited):
            raise
        except Exception as error:  # noqa: BLE001 - raised again unless the plugin is to blame
            raised = error
        if found is not None and (found.verdict is not Verdict.FAIL or rule in _BEFORE_ANSWERS):
            return found
        if rule not in _BEFORE_ANSWERS and (late := self.questions.no_longer(self)):
            assert late.message is not None
            self._obstacle = (rule if SEQUENCE in self._findings else SEQUENCE, late.message)
            self._case = late.case
            return attrs.evolve(obstructed(rule, *self._obstacle), case=self._case)
        if raised is None:
            assert found is not None
            return found
        if place_in(raised, self.bench.path) is None:
            raise raised
        why = f"a call raised {said(raised, self.bench.path)}"
        return unjudged(why)

    def prepare(self) -> None:
        """Find out what the plugin is tried with."""
        if not self._ready:
            self.bench.stock = discovery.find(self.bench, self.section, origin=self.origin)
            self._ready = True
            self.bench.hidden = self.bench.unsteady()

    def _waits(self, rule: str) -> Finding | None:
        """Return the finding that a rule must wait for another one, or None."""
        before, owner = list(self.checks[rule].after), None
        if rule not in _ADMISSION and rule != SURVIVES:
            owner = self.once(Trial._first_trouble)
            if owner == rule:
                before.clear()  # others wait for it
            elif owner is not None:
                before.insert(0, owner)
        for other in before:
            found = self.find(other)
            if found.verdict is Verdict.FAIL:
                return waiting(other)
            if found.verdict is Verdict.NOT_VERIFIED and other in (owner, ANSWERS):
                return waiting(other, UNKNOWN if other == ANSWERS else found.message)
        if rule in _COMPARING and () in self.bench.hidden:
            return waiting(STEADY)
        return None

    def _first_trouble(self) -> str | None:
        """Return the rule that must hold before others can be judged, and does not."""
        for rule, trouble in self.questions.basic:
            if rule in self.checks and trouble(self.bench):
                return rule
        return None if self.answered().verdict is Verdict.PASS else ANSWERS

    def _unknown_data(self) -> str:
        stock = self.bench.stock
        keys = ", ".join(stock.keys)
        saw = f"it asks for {keys}" if keys else "nothing that was tried was answered"
        if stock.furthest is not None:
            data, ended = stock.furthest
            if need := self.questions.needs(self.bench, data):
                return f"{need}, such as\n{discovery.starter((), taken=data, model=True)}"
            saw += f"; {shortened(data)} {ended}"
        elif stock.complaint is not None:
            data, ended = stock.complaint
            # Data with none of the keys that it asks for are not what it complains about.
            saw += f"; {shortened(data)} {ended}" if not keys or {*stock.keys} & {*data} else ""
        return f"no request is known that the plugin answers ({saw}); give a profile such as\n" + (
            discovery.starter(stock.keys)
        )
