# SPDX-License-Identifier: Apache-2.0
"""How verdicts combine, and who decides what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance.rules import Evidence, Level
from conformance.verdict import (
    Cause,
    Conclusion,
    ExitStatus,
    RuleResult,
    RuleVerdict,
    Verdict,
    combine,
    decide,
    exit_status,
    must_wait,
    unjudged,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PASS, FAIL, ERROR = Verdict.PASS, Verdict.FAIL, Verdict.ERROR
NOT_APPLICABLE, NOT_VERIFIED = Verdict.NOT_APPLICABLE, Verdict.NOT_VERIFIED
MUST, SHOULD = Level.MUST, Level.SHOULD


def combined(*verdicts: Verdict, missing: tuple[Evidence, ...] = ()) -> RuleVerdict:
    """Combine one result for each kind of evidence, in the order of the kinds."""
    kinds = list(Evidence)[: len(verdicts)]
    results = [
        RuleResult("LB-06", verdict, kind, 10, 4, 0.5, f"by {kind}")
        for verdict, kind in zip(verdicts, kinds, strict=True)
    ]
    return combine("LB-06", MUST, results, missing=missing)


def decided(*verdicts: Verdict, should: Verdict = PASS) -> Conclusion:
    """Decide on MUST rules with these verdicts, and one SHOULD rule."""
    levels = [(verdict, MUST) for verdict in verdicts] + [(should, SHOULD)]
    return decide(
        [
            RuleVerdict(f"LB-{number:02}", level, verdict, (), 0, 0, 0.0, None, None)
            for number, (verdict, level) in enumerate(levels, 1)
        ]
    )


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ((PASS,), PASS),
        ((PASS, PASS), PASS),
        ((PASS, FAIL), FAIL),
        ((ERROR, FAIL), FAIL),
        ((PASS, ERROR), ERROR),
        ((NOT_VERIFIED, ERROR), ERROR),
        ((PASS, NOT_VERIFIED), NOT_VERIFIED),
        ((PASS, NOT_APPLICABLE), PASS),
        ((NOT_APPLICABLE, NOT_APPLICABLE), NOT_APPLICABLE),
        ((NOT_APPLICABLE, NOT_VERIFIED), NOT_VERIFIED),
    ],
)
def test_the_worst_evidence_speaks(verdicts: tuple[Verdict, ...], expected: Verdict) -> None:
    """Of several kinds of evidence the worst decides on a rule."""
    assert combined(*verdicts).verdict is expected


def test_a_rule_tells_where_its_verdict_was_shown() -> None:
    """Evidence and message are those of the verdict; counts are those of all evidence."""
    rule = combined(PASS, FAIL)

    assert rule.evidence == (Evidence.OFFLINE,)
    assert rule.message == "by offline"
    assert (rule.examples, rule.acted, rule.seconds) == (20, 8, 1.0)


def test_evidence_that_was_not_gathered_is_missed() -> None:
    """A rule that passed in one place and was not run in another is not verified."""
    rule = combined(PASS, missing=(Evidence.SERVER,))

    assert rule.verdict is NOT_VERIFIED
    assert rule.message == "not run with the evidence server"


def test_evidence_that_cannot_carry_a_rule_takes_nothing_away() -> None:
    """What was shown stands, and what could not be carried is told; alone it shows nothing."""
    shown = RuleResult("LB-06", PASS, Evidence.SIMULATOR, 10, 4)
    beyond = RuleResult(
        "LB-06", NOT_VERIFIED, Evidence.SERVER, message="on[0] is no JSON", out_of_reach=True
    )
    missed = RuleResult("LB-06", NOT_VERIFIED, Evidence.OFFLINE, message="no engine")
    both = combine("LB-06", MUST, [shown, beyond])

    assert (both.verdict, both.evidence) == (PASS, (Evidence.SIMULATOR,))
    assert both.message == "on[0] is no JSON"
    assert combine("LB-06", MUST, [beyond]).verdict is NOT_VERIFIED
    assert combine("LB-06", MUST, [shown, beyond, missed]).verdict is NOT_VERIFIED


def test_a_failure_needs_no_more_evidence() -> None:
    """A rule that failed in one place has failed, whatever was not run."""
    assert combined(FAIL, missing=(Evidence.SERVER,)).verdict is FAIL


@pytest.mark.parametrize(
    ("musts", "should", "expected"),
    [
        ((PASS, PASS), PASS, Conclusion.CONFORMANT),
        ((PASS, NOT_APPLICABLE), PASS, Conclusion.CONFORMANT),
        ((PASS, NOT_VERIFIED), PASS, Conclusion.INCOMPLETE),
        ((PASS, FAIL), PASS, Conclusion.NON_CONFORMANT),
        ((NOT_VERIFIED, FAIL), PASS, Conclusion.NON_CONFORMANT),
        ((ERROR, FAIL), PASS, Conclusion.NON_CONFORMANT),
        ((PASS, ERROR), PASS, Conclusion.ERROR),
        ((NOT_VERIFIED, ERROR), PASS, Conclusion.ERROR),
        ((PASS,), FAIL, Conclusion.CONFORMANT),
        ((PASS,), NOT_VERIFIED, Conclusion.CONFORMANT),
        ((PASS,), ERROR, Conclusion.ERROR),
        ((NOT_APPLICABLE,), PASS, Conclusion.INCOMPLETE),
        ((), PASS, Conclusion.INCOMPLETE),
    ],
)
def test_a_plugin_is_conformant_iff_every_applicable_must_passes(
    musts: tuple[Verdict, ...], should: Verdict, expected: Conclusion
) -> None:
    """A SHOULD never decides, and nothing shown is nothing certified."""
    assert decided(*musts, should=should) is expected


@pytest.mark.parametrize(
    ("conclusions", "expected"),
    [
        ([Conclusion.CONFORMANT], ExitStatus.CONFORMANT),
        ([Conclusion.CONFORMANT, Conclusion.INCOMPLETE], ExitStatus.INCOMPLETE),
        ([Conclusion.INCOMPLETE, Conclusion.ERROR], ExitStatus.HARNESS_FAILED),
        ([Conclusion.ERROR, Conclusion.NON_CONFORMANT], ExitStatus.NON_CONFORMANT),
        ([], ExitStatus.INCOMPLETE),
    ],
)
def test_the_worst_plugin_sets_the_exit_status(
    conclusions: list[Conclusion], expected: ExitStatus
) -> None:
    """Over several plugins the worst verdict is the exit status."""
    assert exit_status(conclusions) is expected


def test_exit_statuses_are_fixed() -> None:
    """Scripts depend on these numbers."""
    numbers = {status.name: status.value for status in ExitStatus}

    assert numbers == {
        "CONFORMANT": 0,
        "NON_CONFORMANT": 1,
        "INCOMPLETE": 2,
        "HARNESS_FAILED": 3,
        "USAGE": 4,
    }


def test_the_cause_is_that_of_the_message() -> None:
    """What is told of a rule, and what it is known by, come from one result."""
    first, second = Cause("a", "it was not there"), Cause("b", "it was not there")
    results = [
        unjudged("LB-06", Evidence.SIMULATOR, first),
        unjudged("LB-06", Evidence.OFFLINE, second),
    ]

    found = combine("LB-06", MUST, results)
    assert (found.message, found.cause) == ("it was not there", first)
    passed = RuleResult("LB-06", PASS, Evidence.SIMULATOR, 1, 1)
    assert combine("LB-06", MUST, [passed, results[1]]).cause == second
    assert combine("LB-06", MUST, [passed]).cause is None
    waits = unjudged("LB-06", Evidence.SIMULATOR, must_wait(["LB-01"]))
    assert (waits.waits_for, waits.cause) == (("LB-01",), None)


def test_an_exception_is_a_cause_by_its_type_and_place() -> None:
    """Neither what it says nor the rule at which it was raised tells it from others."""
    assert _raised("x").id == _raised("y").id
    assert _raised("x").id != _raised_elsewhere("x").id
    assert _raised("x").id.startswith("builtins.KeyError at test_verdict.py:")
    assert Cause.of(ValueError(), "never raised").id == "builtins.ValueError at nowhere"


def _raised(says: str) -> Cause:
    def fail() -> None:
        raise KeyError(says)

    return _cause_of(fail, says)


def _raised_elsewhere(says: str) -> Cause:
    def fail() -> None:
        raise KeyError(says)

    return _cause_of(fail, says)


def _cause_of(fail: Callable[[], None], says: str) -> Cause:
    try:
        fail()
    except KeyError as error:
        return Cause.of(error, says)
    raise AssertionError
