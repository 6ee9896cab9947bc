# SPDX-License-Identifier: Apache-2.0
"""Checks of the event loop, timeouts and cancellation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.classifier_hook.calls import cancelled, run
from conformance.comparison import shortened
from conformance.findings import Finding, failed, passed
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.classifier_hook.calls import Call
    from conformance.classifier_hook.trial import Trial

#: Seconds for which a step of ``score`` may wait, or work, on the event loop, and for which it may
#: go on after it was cancelled.
STEP = ENDING = 0.05

#: A busy machine holds anybody up now and then, a fault every time: the shortest of so many counts.
TIMES = 4

#: Hooks that score short texts at once may have to wait for this one.
LONG = "word " * 20_000

#: After how many turns of the event loop calls are cancelled.
TURNS = (1, 2, 3, 5)


def waits(trial: Trial) -> Finding:
    """No step waits on the event loop."""
    return _step(trial, "waited", lambda call: max(0.0, call.wall - call.cpu))


def works(trial: Trial) -> Finding:
    """No step computes for long on the event loop."""
    return _step(trial, "worked", lambda call: call.cpu)


def _step(trial: Trial, what: str, seconds: Callable[[Call], float]) -> Finding:
    bench = trial.bench
    for text in bench.texts:
        shortest = STEP + 1
        for _ in range(TIMES):
            shortest = min(shortest, seconds(bench.call(text)))
            if shortest <= STEP:
                break
        else:
            return failed(
                f"score {what} {shortest * 1000:.0f} ms on the event loop, for {shortened(text)} "
                f"(at most {STEP * 1000:.0f} ms)"
            )
    return passed(len(bench.texts), len(bench.texts))


def in_time(trial: Trial) -> Finding:
    """Ordinary texts are scored within the hook's own timeout."""
    bench = trial.bench
    limit = bench.make().timeout_ms / 1000
    for text in bench.texts:
        shortest = limit + 1
        for _ in range(TIMES):
            shortest = min(shortest, bench.call(text).seconds)
            if shortest <= limit:
                break
        else:
            return failed(
                f"score took {shortest * 1000:.0f} ms for {shortened(text)}, and its timeout_ms is "
                f"{limit * 1000:.0f}"
            )
    return passed(len(bench.texts), len(bench.texts))


def ends(trial: Trial) -> Finding:
    """A call that is cancelled ends at once."""
    return _cancelled(trial, _ending)


def _ending(call: Call) -> str | None:
    if not call.ended:
        return "went on for more than a second"
    if not call.cancelled:
        return (
            f"raised {type(call.error).__name__} instead"
            if call.error
            else "returned scores instead"
        )
    if call.seconds > ENDING:
        return f"took {call.seconds * 1000:.0f} ms to end (at most {ENDING * 1000:.0f} ms)"
    return None


def _cancelled(trial: Trial, judge: Callable[[Call], str | None]) -> Finding:
    bench = trial.bench
    count = 0
    for text in (*bench.texts, LONG):
        for turns in TURNS:
            what = None
            for _ in range(TIMES):
                call = run(cancelled(bench.make(), bench.context(text), turns))
                if call is None:
                    break
                count += 1
                what = judge(call)
                if what is None:
                    break
            if what is not None:
                return failed(
                    f"score of {shortened(text)}, cancelled after {turns} turns of the event loop, "
                    + what,
                    count,
                )
    if not count:
        return Finding(Verdict.NOT_APPLICABLE, message="score never waits: it cannot be cancelled")
    return passed(count, count)


def leaves_nothing(trial: Trial) -> Finding:
    """No task is left of calls, whether they end by themselves or are cancelled."""
    bench = trial.bench
    for text in bench.texts:
        if left := bench.call(text).left:
            return failed(f"score of {shortened(text)} left {left} task(s) behind")
    found = _cancelled(
        trial, lambda call: f"left {call.left} task(s) behind" if call.left else None
    )
    if found.verdict is Verdict.FAIL:
        return found
    return passed(len(bench.texts) + found.examples, len(bench.texts) + found.acted)
