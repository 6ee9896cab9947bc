# SPDX-License-Identifier: Apache-2.0
"""Verdicts of rules and of plugins, and the one function that decides.

Terminal, JSON, JUnit, exit status and badge all draw from :func:`decide`;
nothing else in this project turns rule results into a verdict.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, Self

import attrs

from conformance.rules import Evidence, Level


class Verdict(StrEnum):
    """What is known about one rule and one plugin."""

    PASS = "pass"
    FAIL = "fail"
    NOT_APPLICABLE = "not-applicable"  #: the plugin does not claim what the rule is about
    NOT_VERIFIED = "not-verified"  #: applies, but could not run, or the plugin never did anything
    ERROR = "error"  #: the harness's fault


class Conclusion(StrEnum):
    """What is known about one plugin as a whole."""

    CONFORMANT = "conformant"
    NON_CONFORMANT = "non-conformant"
    INCOMPLETE = "incomplete"
    ERROR = "error"


class ExitStatus(IntEnum):
    """Exit status of ``pytest --plugin-path`` and of ``vllm-conformance certify``."""

    CONFORMANT = 0
    NON_CONFORMANT = 1
    INCOMPLETE = 2
    HARNESS_FAILED = 3
    USAGE = 4


@attrs.frozen
class Waiting:
    """Why a rule cannot be judged: others are broken."""

    rules: tuple[str, ...]
    why: str | None = None  #: how they are

    def __str__(self) -> str:
        """Return the sentence for it."""
        hold = "holds" if len(self.rules) == 1 else "hold"
        sentence = f"cannot be judged before {', '.join(self.rules)} {hold}"
        return f"{sentence}: {self.why}" if self.why else sentence


@attrs.frozen
class Cause:
    """What keeps rules from being judged; it is known by its identity, and not by what it says.

    Several rules may have one cause, whatever the message of each goes on to tell, and two causes
    may say the same.
    """

    id: str
    says: str  #: a sentence that is true of all of the rules

    @classmethod
    def of(cls, error: BaseException, says: str) -> Self:
        """Return the cause that an exception is: its type, and where it was raised."""
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "nowhere"
        return cls(f"{type(error).__module__}.{type(error).__qualname__} at {where}", says)

    def __str__(self) -> str:
        """Return the sentence."""
        return self.says


#: Why a rule is not judged: it waits for others, has a cause that others have as well, or any other
#: reason, as a sentence.
Reason = str | Waiting | Cause


@attrs.frozen
class RuleResult:
    """One rule, judged on one kind of evidence."""

    rule: str
    verdict: Verdict
    evidence: Evidence
    examples: int = 0  #: examples run
    acted: int = 0  #: examples in which the plugin did something
    seconds: float = 0.0
    message: str | None = None  #: one sentence; None for a plain pass
    #: For a failure: the counterexample, in the form that ``counterexample`` reads.
    counterexample: dict[str, Any] | None = None
    #: Whether the plugin could not be tried for want of something on this machine.
    unavailable: bool = False
    #: Whether what fails is that an engine, or a server, does not start with the plugin.
    unstarted: bool = False
    #: Whether this kind of evidence cannot carry what would show the rule.
    out_of_reach: bool = False
    #: For a rule that cannot be judged before others hold: those.
    waits_for: tuple[str, ...] = ()
    cause: Cause | None = None  #: what keeps it, and maybe others, from being judged


@attrs.frozen
class RuleVerdict:
    """One rule, over all the evidence that was asked for."""

    rule: str
    level: Level
    verdict: Verdict
    evidence: tuple[Evidence, ...]  #: where the verdict was shown
    examples: int
    acted: int
    seconds: float
    message: str | None
    counterexample: dict[str, Any] | None
    #: What must hold before it can be judged; nothing where it is not judged for another reason.
    waits_for: tuple[str, ...] = ()
    cause: Cause | None = None  #: of the result whose message it has


#: The worst verdict of several pieces of evidence speaks for the rule.
#: ``pass`` outranks ``not-applicable``: shown somewhere is shown.
_SEVERITY = (
    Verdict.FAIL,
    Verdict.ERROR,
    Verdict.NOT_VERIFIED,
    Verdict.PASS,
    Verdict.NOT_APPLICABLE,
)


def combine(
    rule: str,
    level: Level,
    results: Sequence[RuleResult],
    *,
    missing: Sequence[Evidence] = (),
) -> RuleVerdict:
    """Combine the results of one rule.

    Evidence that cannot carry what would show a rule takes nothing from what other evidence has
    shown; the message says what that was.

    Args:
        rule: id of the rule.
        level: its level.
        results: one result for each kind of evidence that was gathered.
        missing: evidence that was asked for and not gathered; a rule that was shown in one
            place and not run in another is ``not-verified``, unless it failed.

    """
    results = [
        *results,
        *(unjudged(rule, evidence, _not_run(evidence)) for evidence in missing),
    ]
    within = [result for result in results if not result.out_of_reach] or results
    beyond = [result for result in results if result.out_of_reach]
    worst = min((result.verdict for result in within), key=_SEVERITY.index)
    speaking = [result for result in within if result.verdict is worst]
    told = next((each for each in (*speaking, *beyond) if each.message), None)
    return RuleVerdict(
        rule=rule,
        level=level,
        verdict=worst,
        evidence=tuple(dict.fromkeys(result.evidence for result in speaking)),
        examples=sum(result.examples for result in results),
        acted=sum(result.acted for result in results),
        seconds=sum(result.seconds for result in results),
        message=told.message if told else None,
        counterexample=next(
            (result.counterexample for result in speaking if result.counterexample), None
        ),
        waits_for=_waiting(speaking),
        cause=told.cause if told else None,
    )


def gravest(results: Sequence[RuleResult]) -> RuleResult:
    """Return one result for several of the same rule and evidence: the worst, with all counts."""
    speaking = min(results, key=lambda each: _SEVERITY.index(each.verdict))
    return attrs.evolve(
        speaking,
        examples=sum(each.examples for each in results),
        acted=sum(each.acted for each in results),
        seconds=sum(each.seconds for each in results),
    )


def _waiting(results: Sequence[RuleResult]) -> tuple[str, ...]:
    """Return what results wait for, if each of them does wait for a rule."""
    if not all(result.waits_for for result in results):
        return ()
    return tuple(dict.fromkeys(rule for result in results for rule in result.waits_for))


def must_wait(rules: Iterable[str], why: str | None = None) -> Waiting:
    """Return why a rule cannot be judged while others are broken."""
    return Waiting(tuple(rules), why)


def awaited(why: Reason | None) -> tuple[str, ...]:
    """Return the rules that must hold first, where that is why a rule is not judged."""
    return why.rules if isinstance(why, Waiting) else ()


def caused(why: Reason | None) -> Cause | None:
    """Return the cause, where that is why a rule is not judged."""
    return why if isinstance(why, Cause) else None


def unjudged(rule: str, evidence: Evidence, why: Reason) -> RuleResult:
    """Return the result of a rule that is not judged, with the reason."""
    return RuleResult(
        rule,
        Verdict.NOT_VERIFIED,
        evidence,
        message=str(why),
        waits_for=awaited(why),
        cause=caused(why),
    )


def _not_run(evidence: Evidence) -> Cause:
    return Cause(f"not run: {evidence}", f"not run with the evidence {evidence}")


def decide(verdicts: Iterable[RuleVerdict]) -> Conclusion:
    """Decide on a plugin: conformant iff every applicable MUST is ``pass``.

    A SHOULD never decides, save that an ``error`` anywhere is reported as such.
    A certificate in which no MUST passed shows nothing and is ``incomplete``.
    """
    verdicts = list(verdicts)
    musts = [verdict.verdict for verdict in verdicts if verdict.level is Level.MUST]
    if Verdict.FAIL in musts:
        return Conclusion.NON_CONFORMANT
    if any(verdict.verdict is Verdict.ERROR for verdict in verdicts):
        return Conclusion.ERROR
    if Verdict.NOT_VERIFIED in musts or Verdict.PASS not in musts:
        return Conclusion.INCOMPLETE
    return Conclusion.CONFORMANT


_EXIT_STATUS = {
    Conclusion.NON_CONFORMANT: ExitStatus.NON_CONFORMANT,
    Conclusion.ERROR: ExitStatus.HARNESS_FAILED,
    Conclusion.INCOMPLETE: ExitStatus.INCOMPLETE,
    Conclusion.CONFORMANT: ExitStatus.CONFORMANT,
}


def exit_status(conclusions: Iterable[Conclusion]) -> ExitStatus:
    """Return the exit status for a run over several plugins: the worst one speaks."""
    return worst(_EXIT_STATUS[conclusion] for conclusion in conclusions)


def worst(statuses: Iterable[ExitStatus]) -> ExitStatus:
    """Return the exit status that outranks the others; of nothing, nothing was shown."""
    ranks = list(_EXIT_STATUS.values())
    return min(statuses, key=ranks.index, default=ExitStatus.INCOMPLETE)
