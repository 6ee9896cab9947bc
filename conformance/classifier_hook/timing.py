# SPDX-License-Identifier: Apache-2.0
"""Checks of the event loop, timeouts and cancellation."""

from __future__ import annotations

import asyncio
import operator
import statistics
from collections.abc import Callable, Iterator

from conformance.checking import checks
from conformance.classifier_hook.bench import Bench
from conformance.classifier_hook.calls import Call, cancelled, one, turns
from conformance.classifier_hook.trial import Trial
from conformance.findings import Finding, failed, inapplicable, passed
from conformance.watching.clocks import beyond, shortest, undelayed
from conformance.watching.comparison import shortened
from conformance.watching.stretches import regarding_threads

#: Seconds for which a step of ``score`` may wait, or work, on the event loop, and for which it may
#: go on after it was cancelled.
STEP = ENDING = 0.05

#: A busy machine holds anybody up now and then, a fault every time: the shortest of so many counts.
TIMES = 4

#: How late timers are on this machine is seen by so many, of so many seconds each.
NAPS, NAP = 5, 0.002

#: What a model writes that does not stop: hooks that score short texts at once have work with it.
LONG = ("word " * 20_000, "x" * 100_000, f"word{' ' * 20_000}word", "1" * 20_000)

#: Ordinary texts of which calls are cancelled.
TEXTS = 3

#: At which waits calls are cancelled, the first being 1, and how many turns of the loop later.
POINTS = ((1, 0), (1, 3), (1, 6), (2, 0), (2, 3), (3, 0), (4, 0))

#: Calls after each of which one more task is left: the tasks are the calls', not the hook's own.
ROW = 8


@checks("CH-20")
def waits(trial: Trial) -> Finding:
    """No step waits on the event loop."""
    with regarding_threads():
        return _step(trial, trial.bench.texts, "waited", lambda call: call.waited)


@checks("CH-21")
def works(trial: Trial) -> Finding:
    """No step computes for long on the event loop."""
    return _step(trial, (*trial.bench.texts, *LONG), "worked", lambda call: call.worked, beyond)


def _step(
    trial: Trial,
    texts: tuple[str, ...],
    what: str,
    seconds: Callable[[Call], float],
    exceeds: Callable[[float, float], bool] = operator.gt,
) -> Finding:
    for text in texts:
        took = _shortest(trial.bench, text, seconds, STEP)
        if exceeds(took, STEP):
            return failed(
                f"score {what} {took * 1000:.0f} ms on the event loop, for {shortened(text)} "
                f"(at most {STEP * 1000:.0f} ms)",
                case={"text": text},
            )
    return passed(len(texts))


def _shortest(bench: Bench, text: str, seconds: Callable[[Call], float], limit: float) -> float:
    """Return the shortest time for a text, or the first that is short enough."""
    return shortest(lambda: seconds(bench.call(text)), limit, TIMES)


def endless(bench: Bench) -> Finding | None:
    """Return which ordinary text never gets its scores, or None."""
    for text in bench.texts:
        if not bench.alone(text).ended:
            why = f"score of {shortened(text)} did not end within {bench.patience:.0f} s"
            return failed(why, case={"text": text})
    return None


@checks("CH-22", after=("CH-04",))
def in_time(trial: Trial) -> Finding:
    """Ordinary texts are scored within the hook's own timeout."""
    bench = trial.bench
    if found := endless(bench):
        return found
    limit = bench.make().timeout_ms / 1000
    for text in bench.texts:
        # Timers of a busy machine are late, which is no fault of the hook.
        took = _shortest(bench, text, lambda call: call.seconds - call.waits * _late(), limit)
        if took > limit:
            return failed(
                f"score took {took * 1000:.0f} ms for {shortened(text)}, and its timeout_ms is "
                f"{limit * 1000:.0f}",
                case={"text": text},
            )
    return passed(len(bench.texts))


def _late() -> float:
    """Return for how many seconds a timer is late here and now, at the median."""

    async def main() -> list[float]:
        found = []
        for _ in range(NAPS):
            started = undelayed()
            await asyncio.sleep(NAP)
            found.append(undelayed() - started - NAP)
        return found

    return max(0.0, statistics.median(asyncio.run(main())))


@checks("CH-23")
def ends(trial: Trial) -> Finding:
    """A call that is cancelled ends at once."""
    count = 0
    for text, point, call in _cancelled(trial.bench):
        count += 1
        again = 1
        while (what := _ending(call)) and again < TIMES:
            again += 1
            call = _cancel(trial.bench, text, point) or call  # noqa: PLW2901 - the last one counts
        if what:
            return failed(
                f"score of {shortened(text)}, cancelled at its wait number {point[0]}, {what}",
                count,
                case={"text": text, "wait": point[0]},
            )
    if not count:
        return inapplicable("score never waits: it cannot be cancelled")
    return passed(count)


def _ending(call: Call) -> str | None:
    """Say how a call that was cancelled did not end as it must, or return None."""
    if not call.ended:
        return "went on for more than a second"
    if not call.cancelled:
        if call.error is not None:
            return f"raised {type(call.error).__name__} instead"
        return "returned scores instead"
    if call.seconds > ENDING:
        return f"took {call.seconds * 1000:.0f} ms to end (at most {ENDING * 1000:.0f} ms)"
    return None


@checks("CH-24")
def leaves_nothing(trial: Trial) -> Finding:
    """No task is left of calls, whether they end by themselves or are cancelled."""
    bench = trial.bench
    for text in bench.texts:
        left = [call.left for call in bench.row(bench.make(), [f"{text} {n}" for n in range(ROW)])]
        # A task that is made once, for all calls, is the hook's own.
        if all(left):
            why = f"score of {shortened(text)} left {left[-1]} task(s) behind"
            return failed(why, ROW, case={"text": text})
    count = 0
    for text, point, call in _cancelled(bench):
        count += 1
        if call.left and call.ended:
            return failed(
                f"score of {shortened(text)}, cancelled at its wait number {point[0]}, left "
                f"{call.left} task(s) behind",
                count,
                case={"text": text, "wait": point[0]},
            )
    return passed(count + len(bench.texts))


def _cancelled(bench: Bench) -> Iterator[tuple[str, tuple[int, int], Call]]:
    """Yield calls that were cancelled, each with its text and where."""
    for text in (*bench.texts[:TEXTS], LONG[0]):
        over = len(POINTS)  # no call gets to this wait
        for point in POINTS:
            if point[0] >= over:
                continue
            call = _cancel(bench, text, point)
            if call is None:
                over = point[0] if not point[1] else over
            else:
                yield text, point, call


def _cancel(bench: Bench, text: str, point: tuple[int, int]) -> Call | None:
    hook = bench.make()
    context, first = bench.context(text), bench.context(f"{bench.texts[0]} first")

    async def main() -> Call | None:
        # What a hook keeps for all calls it has made by then.
        await one(hook, first, bench.patience)
        await turns(1)
        return await cancelled(hook, context, point, bench.patience)

    found: Call | None = bench.run(main())
    return found
