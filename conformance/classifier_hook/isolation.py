# SPDX-License-Identifier: Apache-2.0
"""Checks of many calls: each must get what it gets alone, and nothing is left of them."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs
import hypothesis
from hypothesis import HealthCheck, Phase

from conformance.classifier_hook import traffic
from conformance.classifier_hook.bench import plain
from conformance.classifier_hook.calls import many, run
from conformance.comparison import difference, shortened
from conformance.findings import Finding, failed, passed
from conformance.leaks import Given, growing, kept, size_of
from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.classifier_hook.bench import Bench
    from conformance.classifier_hook.traffic import History, Shape
    from conformance.classifier_hook.trial import Trial

EXAMPLES = {Budget.QUICK: 10, Budget.STANDARD: 30, Budget.DEEP: 150}
CALLS = {Budget.QUICK: 2_000, Budget.STANDARD: 10_000, Budget.DEEP: 10_000}

SEQUENCE = traffic.Shape("sequence", "CH-30", overlapping=False)
TOGETHER = traffic.Shape("together", "CH-31")
SAME_IDS = traffic.Shape("same-ids", "CH-32", same_ids=True)
LEAVING = traffic.Shape("leaving", "CH-33", leaving=True)

#: How often the hook is measured, and of how many calls it may still hold something.
MEASUREMENTS = 5
KEPT = 16

#: Seconds for all of it.
LIMIT = 60.0


@attrs.frozen
class _Seen:
    history: History
    message: str


class _Found(Exception):
    """The history shows something."""


def shape(trial: Trial, wanted: Shape) -> Finding:
    """Judge the rule that a shape is about."""
    bench = trial.bench
    if not tells_apart(bench):
        why = "every text gets the same scores: give some in [classifier-hook] that do not"
        return Finding(Verdict.NOT_VERIFIED, message=why)
    best: list[_Seen] = []
    count = 0

    @hypothesis.seed(bench.seed)
    @hypothesis.settings(
        max_examples=EXAMPLES[trial.budget],
        database=None,
        phases=(Phase.generate, Phase.shrink),
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(traffic.strategy(wanted, len(bench.texts)))
    def body(history: History) -> None:
        nonlocal count
        count += 1
        if what := judge(bench, history, overlapping=wanted.overlapping):
            best.append(_Seen(history, what))
            raise _Found

    with suppress(_Found):
        try:
            body()
        except hypothesis.errors.HypothesisException:
            if not best:
                raise
    if best:
        smallest = min(best, key=lambda seen: seen.history.size)
        return failed(smallest.message, min(count, EXAMPLES[trial.budget]))
    return passed(count, count)


def tells_apart(bench: Bench) -> bool:
    """Tell whether any two texts get different scores."""
    calls = [bench.alone(index, "id-0") for index in range(len(bench.texts))]
    good = [plain(call.value) for call in calls if call.error is None]
    return any(difference(other, good[0], bench.unsteady()) for other in good[1:])


def judge(bench: Bench, history: History, *, overlapping: bool) -> str | None:
    """Play a history with one instance, and compare each call with itself alone."""
    hook = bench.make()
    ids = ["id" if history.same_ids else f"id-{call}" for call in range(len(history.texts))]
    contexts = [
        bench.context(bench.texts[text], request_id=name)
        for text, name in zip(history.texts, ids, strict=True)
    ]
    if overlapping:
        calls = run(many(hook, contexts, history.moves))
    else:
        calls = [
            bench.call(bench.texts[text], hook, request_id=name)
            for text, name in zip(history.texts, ids, strict=True)
        ]
    left = history.left()
    for index, (text, call) in enumerate(zip(history.texts, calls, strict=True)):
        if index in left:
            continue
        wanted = bench.alone(text, ids[index])
        if what := _different(call, wanted, bench):
            others = ", ".join(
                shortened(bench.texts[other]) + (" (cancelled)" if place in left else "")
                for place, other in enumerate(history.texts)
                if place != index
            )
            when = "at the same time as" if overlapping else "in a row with"
            return f"{shortened(bench.texts[text])}, scored {when} {others}, {what}"
    return None


def _different(call: Any, wanted: Any, bench: Bench) -> str | None:  # noqa: ANN401 - Calls
    if not call.ended:
        return "never got its scores"
    if call.error is not None or call.cancelled:
        if wanted.error is not None:
            return None
        return (
            f"raised {type(call.error).__name__}: {call.error}" if call.error else "was cancelled"
        )
    what = difference(plain(call.value), plain(wanted.value), bench.unsteady())
    return what and f"got {what}"


def own_scores(trial: Trial) -> Finding:
    """Later calls do not change what was returned."""
    bench = trial.bench
    hook = bench.make()
    returned: list[tuple[str, Any, Any]] = []
    for text in bench.texts:
        value = bench.call(text, hook).value
        returned.append((text, value, copy.deepcopy(value)))
    for text, value, was in returned:
        if what := difference(plain(value), plain(was)):
            return failed(f"after later calls the scores of {shortened(text)} were {what}")
    return passed(len(returned), len(returned))


def forgets(trial: Trial) -> Finding:
    """After ten thousand calls nothing is held of them."""
    bench = trial.bench
    hook = bench.make()
    count = CALLS[trial.budget]
    given: list[Given] = []
    sizes: list[int] = []

    async def work() -> None:
        for number in range(count):
            text = f"{bench.texts[number % len(bench.texts)]} {number}"
            context = bench.context(text, request_id=f"id-{number}")
            given.append((context,))
            await hook.score(context)
            if (number + 1) % (count // MEASUREMENTS) == 0:
                sizes.append(size_of(hook))

    run(work(), LIMIT)
    if what := kept(given, ("context",), KEPT) or growing(sizes, count // MEASUREMENTS):
        return failed(f"after {count} calls {what}", count)
    return passed(count, count)


def other_loop(trial: Trial) -> Finding:
    """The hook scores on the next event loop as on the first."""
    bench = trial.bench
    hook = bench.make()
    for index, text in enumerate(bench.texts):
        call = bench.call(text, hook)
        what = _different(call, bench.alone(index, "id-0"), bench)
        if what and index:
            return failed(f"on another event loop {shortened(text)} {what}")
    return passed(len(bench.texts), len(bench.texts))
