# SPDX-License-Identifier: Apache-2.0
"""Checks of many requests at a time: each must get what it gets alone."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs
import hypothesis
from hypothesis import HealthCheck, Phase

from conformance.findings import Finding, failed, passed
from conformance.io_processor import traffic
from conformance.io_processor.answers import Kind, difference, shortened
from conformance.io_processor.calling import overridden
from conformance.io_processor.outcomes import one_prompt
from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.io_processor.bench import Bench
    from conformance.io_processor.traffic import History, Played, Shape
    from conformance.io_processor.trial import Trial

EXAMPLES = {Budget.QUICK: 8, Budget.STANDARD: 20, Budget.DEEP: 100}
SHRINK_EXAMPLES = {Budget.QUICK: 60, Budget.STANDARD: 150, Budget.DEEP: 600}

SEQUENCE = traffic.Shape("sequence", "IO-26", overlapping=False)
INTERLEAVED = traffic.Shape("interleaved", "IO-27")
SAME_IDS = traffic.Shape("same-ids", "IO-28", same_ids=True)
TROUBLED = traffic.Shape("troubled", "IO-30", invalid=True, trouble=True)
ORDER = traffic.Shape("order", "IO-17", single=True)
SHAPES = (SEQUENCE, INTERLEAVED, SAME_IDS, TROUBLED, ORDER)

#: Shapes that must be clean before trouble in another one says anything about its own rule.
BUILT_ON = {INTERLEAVED: (SEQUENCE,), SAME_IDS: (SEQUENCE, INTERLEAVED),
            TROUBLED: (SEQUENCE, INTERLEAVED)}  # fmt: skip


@attrs.frozen
class Broken:
    """A history in which a request did not get what it gets alone."""

    history: History
    played: Played
    request: int
    message: str
    awaited: bool


def shape(trial: Trial, wanted: Shape) -> Finding:
    """Judge the rule that a shape is about."""
    bench = trial.bench
    if wanted is ORDER and not bench.stock.several():
        return one_prompt()
    if wanted is not ORDER and not tells_apart(bench):
        why = (
            "every valid request gets the same answer: give at least two in [io-processor] valid "
            "that do not"
        )
        return Finding(Verdict.NOT_VERIFIED, message=why)
    count, broken = search(trial, wanted)
    if broken is None:
        return passed(count, count)
    return failed(broken.message, count, case=case(bench, wanted, broken))


def tells_apart(bench: Bench) -> bool:
    """Tell whether any two valid requests get different answers."""
    answers = [bench.alone(index, "id-0") for index in range(len(bench.stock.valid))]
    good = [answer.data for answer in answers if answer.kind is Kind.ANSWERED]
    return any(difference(other, good[0], bench.hidden) for other in good[1:])


def search(trial: Trial, wanted: Shape) -> tuple[int, Broken | None]:
    """Play histories of a shape; return how many, and the smallest that shows something."""
    bench = trial.bench
    awaited = wanted is ORDER
    forms = [awaited] if awaited or not overridden(bench) else [False, True]
    if bench.online is bench.waiting:
        forms = [True]
    best: Broken | None = None
    played = 0
    budget = EXAMPLES[trial.budget]

    def run(history: History) -> None:
        nonlocal best, played
        played += 1
        if best is not None and played > budget + SHRINK_EXAMPLES[trial.budget]:
            return
        for form in forms:
            broken = judge(bench, history, awaited=form)
            if broken is not None:
                if best is None or history.size < best.history.size:
                    best = broken
                raise _Found

    several = bench.stock.several()
    valid = several if wanted is ORDER else list(range(len(bench.stock.valid)))
    drawn = traffic.strategy(wanted, len(valid), len(bench.stock.invalid)).map(
        lambda history: _renumbered(history, valid)
    )

    @hypothesis.seed(bench.seed)
    @hypothesis.settings(
        max_examples=budget,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(drawn)
    def body(history: History) -> None:
        run(history)

    # Running out of examples in the middle of shrinking looks flaky to Hypothesis; what it found
    # so far has been played here and stands.
    with suppress(_Found):
        try:
            body()
        except hypothesis.errors.HypothesisException:
            if best is None:
                raise
    return min(played, budget), best


class _Found(Exception):
    """The history shows something."""


def _renumbered(history: History, valid: list[int]) -> History:
    asked = tuple(
        attrs.evolve(each, data=valid[each.data]) if each.valid else each for each in history.asked
    )
    return attrs.evolve(history, asked=asked)


def judge(bench: Bench, history: History, *, awaited: bool) -> Broken | None:
    """Play a history and compare each request with itself alone."""
    played = bench.play(history, awaited=awaited)
    for request in sorted(played.untouched):
        asked = history.asked[request]
        got = played.answers[request]
        wanted = bench.alone(asked.data, asked.id, awaited=awaited, valid=asked.valid)
        what = None
        if got.kind is not wanted.kind:
            what = f"{got.describe()}; alone it {wanted.describe()}"
        elif got.kind is Kind.ANSWERED and (
            found := difference(got.data, wanted.data, bench.hidden)
        ):
            what = f"was answered {found}"
        if what:
            name = traffic._name(request)  # noqa: SLF001 - a friend
            return Broken(history, played, request, f"request {name} {what}", awaited)
    return None


def case(bench: Bench, wanted: Shape, broken: Broken) -> dict[str, Any]:
    """Return a history as data: enough to print it and to play it again."""
    stock = bench.stock
    return {
        "shape": wanted.name,
        "awaited": broken.awaited,
        "requests": [
            {
                "name": traffic._name(index),  # noqa: SLF001 - a friend
                "id": asked.id,
                "valid": asked.valid,
                "data": (stock.valid if asked.valid else stock.invalid)[asked.data],
            }
            for index, asked in enumerate(broken.history.asked)
        ],
        "moves": [[m.do.value, m.request, m.pick] for m in broken.history.moves],
        "lines": [attrs.asdict(step) for step in broken.played.steps],
        "request": broken.request,
    }


def without_ids(trial: Trial) -> Finding:
    """Offline requests, one after the other, each get what they get alone."""
    bench = trial.bench
    if not tells_apart(bench):
        return Finding(Verdict.NOT_VERIFIED, message="every valid request gets the same answer")
    stock = bench.stock
    alone = [bench.try_offline(data)[0] for data in stock.valid]
    count = 0
    for failing in (False, True):
        for first in range(len(stock.valid)):
            for second in range(len(stock.valid)):
                plugin = bench.make()
                bench.ask_offline(plugin, stock.valid[first], failing=failing)
                got = bench.ask_offline(plugin, stock.valid[second])
                count += 1
                wanted = alone[second]
                after = f"after {shortened(stock.valid[first])}" + (
                    ", which the engine failed," if failing else ""
                )
                if got.kind is not wanted.kind:
                    return failed(
                        f"offline, {after} the request {shortened(stock.valid[second])} "
                        f"{got.describe()}; alone it {wanted.describe()}"
                    )
                if got.kind is Kind.ANSWERED and (
                    what := difference(got.data, wanted.data, bench.hidden)
                ):
                    return failed(
                        f"offline, {after} the request {shortened(stock.valid[second])} was "
                        f"answered {what}"
                    )
    return passed(count, count)
