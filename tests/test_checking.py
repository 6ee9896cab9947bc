# SPDX-License-Identifier: Apache-2.0
"""Rules are judged once, after those that they build on, and none after the trial has ended."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import pytest

from conformance.checking import Check, Simulation, checks, collected
from conformance.findings import Finding, failed, passed
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping


class Ended(Exception):
    """The plugin ended its process."""


@attrs.define
class Trial(Simulation):
    """A trial of nothing."""

    survives: ClassVar[str] = "XX-09"
    breaks: ClassVar[Mapping[type[BaseException], tuple[str, str]]] = {
        Ended: ("XX-09", "the process ended: {}")
    }
    asked: list[str] = attrs.field(factory=list)

    def attempt(self, rule: str) -> Finding:
        """Judge a rule, or return what it waits for."""
        self.asked.append(rule)
        return self.broken(self.checks[rule].after) or self.checks[rule].judge(self)

    def case(self, rule: str, finding: Finding) -> dict[str, Any]:
        """Return the counterexample of a failure."""
        return {"rule": rule, "said": finding.message}


def good(_: Trial) -> Finding:
    """Pass."""
    return passed(2, 2)


def bad(_: Trial) -> Finding:
    """Fail."""
    return failed("it is bad")


def ends(_: Trial) -> Finding:
    """End the trial."""
    raise Ended("status 3")


def _trial(**judges: tuple[Any, tuple[str, ...]]) -> Trial:
    found = {rule: Check(rule, judge, after) for rule, (judge, after) in judges.items()}
    return Trial(checks={rule.replace("_", "-"): check for rule, check in found.items()})


def test_checks_are_found_by_their_rules() -> None:
    """A function may be the check of several rules, and a rule has one check."""
    module, other = ModuleType("one"), ModuleType("other")
    module.twice = checks("XX-01")(checks("XX-02", after=("XX-01",))(lambda _: passed(1, 1)))  # type: ignore[attr-defined]
    other.again = checks("XX-01")(lambda _: passed(1, 1))  # type: ignore[attr-defined]

    found = collected(module)
    assert {rule: check.after for rule, check in found.items()} == {
        "XX-01": (),
        "XX-02": ("XX-01",),
    }
    with pytest.raises(ValueError, match="XX-01 has two checks"):
        collected(module, other)


def test_a_rule_waits_for_those_it_builds_on() -> None:
    """What is broken first is named; a rule that holds is asked once."""
    trial = _trial(XX_01=(good, ()), XX_02=(bad, ("XX-01",)), XX_03=(good, ("XX-01", "XX-02")))
    waiting, failing = trial.check("XX-03"), trial.check("XX-02")

    assert waiting.verdict is Verdict.NOT_VERIFIED
    assert waiting.message == "cannot be judged before XX-02 holds: it is bad"
    assert waiting.waits_for == ("XX-02",)
    assert failing.counterexample == {"rule": "XX-02", "said": "it is bad"}
    assert trial.asked == ["XX-03", "XX-01", "XX-02"]


def test_nothing_is_judged_after_the_end() -> None:
    """The rule about survival is broken, and all others wait for it; what held before stays."""
    trial = _trial(XX_01=(good, ()), XX_02=(ends, ()), XX_03=(good, ()))
    found = {rule: trial.check(rule) for rule in ("XX-01", "XX-02", "XX-03", "XX-09")}

    assert found["XX-01"].verdict is Verdict.PASS
    assert found["XX-09"].verdict is Verdict.FAIL
    assert found["XX-09"].message == "the process ended: status 3"
    assert [found[rule].waits_for for rule in ("XX-02", "XX-03")] == [("XX-09",)] * 2
    assert trial.asked == ["XX-01", "XX-02"]


def test_what_survives_has_been_through_everything() -> None:
    """The rule about survival holds when all others have been judged, and counts their examples."""
    trial = _trial(XX_01=(good, ()), XX_02=(good, ()))
    found = trial.check("XX-09")

    assert (found.verdict, found.examples) == (Verdict.PASS, 4)
    assert trial.asked == ["XX-01", "XX-02"]


def test_a_question_is_asked_once() -> None:
    """Whatever several checks want to know of a plugin is found out once."""
    trial, asked = _trial(), []

    def question(of: Trial) -> int:
        asked.append(of)
        return 7

    assert (trial.once(question), trial.once(question)) == (7, 7)
    assert asked == [trial]


@pytest.mark.parametrize(
    ("examples", "acted", "verdict"),
    [
        (30, 4, Verdict.NOT_VERIFIED),  # rarely, among many
        (30, 6, Verdict.PASS),
        (6, 4, Verdict.PASS),  # most of a few that are always the same
        (2, 2, Verdict.PASS),
        (5, 0, Verdict.NOT_VERIFIED),
    ],
)
def test_a_plugin_that_acts_rarely_shows_little(
    examples: int, acted: int, verdict: Verdict
) -> None:
    """A pass rests on some examples in which the plugin acted, or on most of a few."""
    assert passed(examples, acted).enough(6).verdict is verdict
