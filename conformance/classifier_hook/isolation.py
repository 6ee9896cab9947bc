# SPDX-License-Identifier: Apache-2.0
"""Checks of many calls: each must get what it gets alone, and nothing is left of them."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs

from conformance.checking import checks
from conformance.classifier_hook import neighbours, traffic
from conformance.classifier_hook.bench import Bench, plain
from conformance.classifier_hook.calls import Call, begun, ended, one
from conformance.classifier_hook.scoring import logprobs
from conformance.classifier_hook.traffic import Arrival, History, Shape
from conformance.classifier_hook.trial import Trial
from conformance.findings import Finding, failed, passed, unjudged
from conformance.search import CALLS as HISTORIES
from conformance.search import NEIGHBOURS, smallest
from conformance.verdict import Cause, Verdict
from conformance.watching.comparison import difference, shortened

SEQUENCE = Shape("sequence", overlapping=False)
TOGETHER = Shape("together")
SAME_IDS = Shape("same-ids", same_ids=True)
LEAVING = Shape("leaving", leaving=True)

#: How many calls leave before the hook is asked whether it still scores; at which of their waits.
CROWD = 64
CROWD_LEAVES = (1, 2)

#: A call of a crowd counts that took no longer than alone, but for this: so many times, and seconds
#: more.  What a hook says because its own time was over comes later.
AS_FAST, MORE = 1.25, 0.02

#: Calls of one text of which the first leaves, early and later: who has it scored once for both
#: must not let the other one go with it.  Few histories that are drawn have the same text twice.
ALIKE = tuple(
    History((Arrival(0, turns, leaves), Arrival(0)), same_ids=False)
    for turns in (0, 1)
    for leaves in (1, 2, 3)
)

#: Seconds for them to go.
GONE = 2.0


#: How much lower log probabilities are of texts of which a model is not sure.
LOW = 6

#: Fields of a text's context that those of others do not have.
Own = dict[str, Any]


@attrs.frozen
class _Seen:
    """A history in which a call did not get what it gets alone."""

    history: History
    message: str
    endless: bool  #: whether a call never ended


@attrs.frozen
class _Crowd:
    """A crowd in which, or after which, a call did not get what it gets alone."""

    leaves: int  #: at which of their waits the others were cancelled, 0 for at none
    text: str
    message: str


def _judge(wanted: Shape, trial: Trial) -> Finding:
    """Judge the rule that a shape is about."""
    # The smallest history of a few ordinary texts says most.
    found = _drawn(trial, wanted)
    if found.verdict is not Verdict.FAIL and (seen := _neighbours(trial, wanted)):
        return failed(seen.message, found.examples + 1, case=seen.case)
    return found


sequence = checks("CH-30")(partial(_judge, SEQUENCE))
together = checks("CH-31", after=("CH-30",))(partial(_judge, TOGETHER))
same_ids = checks("CH-32", after=("CH-30", "CH-31"))(partial(_judge, SAME_IDS))
leaving = checks("CH-33", after=("CH-30", "CH-31"))(partial(_judge, LEAVING))


def _drawn(trial: Trial, wanted: Shape) -> Finding:
    """Judge the rule that a shape is about by histories of the bench's texts."""
    bench = trial.bench
    if (own := trial.once(_own)) is None:
        why = (
            "every text gets the same scores, with log probabilities of its own too: give some in "
            "[classifier-hook] that do not"
        )
        return unjudged(Cause("texts alike", why))
    leaving = CROWD_LEAVES if wanted.leaving else (0,)
    if wanted.overlapping and (crowd := crowded(bench, leaving, own)):
        return failed(crowd.message, case={"crowd": crowd.leaves, "text": crowd.text})
    for number, history in enumerate(ALIKE if wanted.leaving else (), 1):
        # Beside those that are drawn, of which a run of little budget has few.
        if seen := _judge_history(bench, history, own, overlapping=True):
            return failed(seen.message, number, case=_case(bench, history, own, wanted))
    endless = False
    acted = 0

    def judge(history: History) -> _Seen | None:
        nonlocal endless, acted
        acted += not wanted.leaving or any(each.leaves for each in history.arrivals)
        # Each history in which a call never ends takes seconds: the first must do.
        if endless:
            return None
        seen = _judge_history(bench, history, own, overlapping=wanted.overlapping)
        endless = seen is not None and seen.endless
        return seen

    count, best = smallest(
        traffic.strategy(wanted, len(bench.texts)),
        judge,
        HISTORIES,
        budget=trial.budget,
        seed=bench.seed,
        size=lambda seen: seen.history.size,
    )
    if best is not None:
        case = _case(bench, best.history, own, wanted)
        return failed(best.message, min(count, HISTORIES.most(trial.budget)), case=case)
    return passed(count, acted)


def _case(bench: Bench, history: History, own: Sequence[Own], wanted: Shape) -> dict[str, Any]:
    """Return the calls of a history, from which a program makes them again."""
    calls = [
        (bench.texts[each.text], name, each.turns, each.leaves, own[each.text])
        for each, name in zip(history.arrivals, history.ids(), strict=True)
    ]
    return {"calls": calls, "overlapping": wanted.overlapping}


def _own(trial: Trial) -> list[Own] | None:
    """Return what each text's context has of its own, so that not all scores are the same.

    Most hooks score the text alone; None if log probabilities do not tell texts apart either.
    """
    bench = trial.bench
    kinds = ([Own() for _ in bench.texts], [_unsure(bench, n) for n in range(len(bench.texts))])
    return next((own for own in kinds if tells_apart(bench, own)), None)


def _unsure(bench: Bench, number: int) -> Own:
    """Return log probabilities that no other text has; of every other text they are low."""
    context = bench.context(bench.texts[number])
    return logprobs(context, -(number + 1) / 16 - (LOW if number % 2 else 0))


def tells_apart(bench: Bench, own: Sequence[Own]) -> bool:
    """Tell whether any two texts get different scores."""
    pairs = zip(bench.texts, own, strict=True)
    calls = [bench.alone(text, **more) for text, more in pairs]
    good = [plain(call.value) for call in calls if call.good]
    return any(difference(other, good[0], bench.unsteady()) for other in good[1:])


def _judge_history(
    bench: Bench, history: History, own: Sequence[Own], *, overlapping: bool
) -> _Seen | None:
    """Play a history with one instance, and compare each call with itself alone."""
    hook = bench.make()
    ids = history.ids()
    texts = [bench.texts[arrival.text] for arrival in history.arrivals]
    contexts = [
        bench.context(text, request_id=name, **own[arrival.text])
        for text, name, arrival in zip(texts, ids, history.arrivals, strict=True)
    ]
    if overlapping:
        calls = bench.at_once(hook, contexts, history.arrivals)
    else:
        calls = bench.in_turn(hook, contexts)
    for index, (arrival, call) in enumerate(zip(history.arrivals, calls, strict=True)):
        if arrival.leaves:
            continue
        wanted = bench.alone(texts[index], ids[index], **own[arrival.text])
        if what := bench.apart(call, wanted):
            others = ", ".join(
                shortened(texts[place]) + (" (cancelled)" if other.leaves else "")
                for place, other in enumerate(history.arrivals)
                if place != index
            )
            when = "at the same time as" if overlapping else "in a row with"
            more = ", each with log probabilities of its own" if own[arrival.text] else ""
            message = f"{shortened(texts[index])}, scored {when} {others}{more}, {what}"
            return _Seen(history, message, endless=not call.ended)
    return None


def _neighbours(trial: Trial, wanted: Shape) -> neighbours.Seen | None:
    """Return what the calls show that no drawn history has."""
    bench, late = trial.bench, NEIGHBOURS.clock(trial.budget)
    if wanted is LEAVING:
        return None
    together = (False, True) if wanted.same_ids else (wanted.overlapping,)
    for at_once in together:
        found = neighbours.looks_at_little(bench, late, at_once=at_once, same_id=wanted.same_ids)
        if found is not None:
            return found
    if wanted is TOGETHER:
        return neighbours.shares_room(bench)
    if wanted is not SEQUENCE:
        return None
    return neighbours.wears_out(bench, late) or neighbours.grows_old(bench)


def crowded(bench: Bench, leaving: Sequence[int], own: Sequence[Own]) -> _Crowd | None:
    """Say what a call gets among many at once or after them, if that is not what it gets alone.

    Args:
        bench: the hook.
        leaving: at which of their waits they are cancelled, 0 for at none; one after the other.
        own: what each text's context has of its own.

    """
    alone = bench.alone(bench.texts[0], **own[0])
    if (alone.waited + alone.worked) * CROWD > bench.patience:
        # One turn of the event loop takes too long by itself: CH-20 and CH-21 are about that.
        return None
    for leaves in leaving:
        hook = bench.make()
        # Each has an id of its own, and so has the one after them.
        crowd = [
            bench.context(bench.texts[which], request_id=f"id-{number}", **own[which])
            for number in range(1, CROWD + 1)
            for which in [number % len(bench.texts)]
        ]
        last = bench.context(bench.texts[0], **own[0])
        calls = bench.run(_after(hook, crowd, leaves, last, bench))
        if calls is None:
            continue
        *among, after = calls
        if what := bench.apart(after, alone):
            how = f"that were cancelled at their wait number {leaves}" if leaves else "at once"
            said = f"{shortened(bench.texts[0])}, scored after {CROWD} calls {how}"
            return _Crowd(leaves, bench.texts[0], f"{said}, {what}")
        if not leaves and (found := _among(bench, among, own)):
            return found
    return None


def _among(bench: Bench, calls: Sequence[Call], own: Sequence[Own]) -> _Crowd | None:
    """Say what a call of a crowd got that is as fast as alone, and got something else.

    One that raises, or comes later, may be turned down because there are so many.
    """
    for number, call in enumerate(calls, 1):
        which = number % len(bench.texts)
        text, name = bench.texts[which], f"id-{number}"
        if not call.good or not bench.apart(call, bench.alone(text, **own[which])):
            continue
        # The first call of a process may take longer than others do.
        alone = bench.call(text, request_id=name, **own[which])
        if call.seconds <= alone.seconds * AS_FAST + MORE and (what := bench.apart(call, alone)):
            said = f"{shortened(text)}, scored among {CROWD} calls at once"
            return _Crowd(0, text, f"{said}, {what}")
    return None


async def _after(
    hook: Any,  # noqa: ANN401 - a hook
    crowd: list[Any],
    leaves: int,
    last: Any,  # noqa: ANN401 - a context
    bench: Bench,
) -> list[Call] | None:
    """Return the calls of the crowd and one after them; None if they take too long by themselves.

    Of calls that are cancelled only the one after them is returned.
    """
    tasks = [begun(hook, context, leaves) for context in crowd]
    # Those that wait for others do not come to a later wait soon; all are to be gone.
    _, pending = await asyncio.wait(tasks, timeout=GONE if leaves else bench.patience)
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(tasks, timeout=GONE)
    if pending and not leaves:
        return None
    among = [] if leaves else [ended(task) for task in tasks]
    return [*among, await one(hook, last, bench.patience)]


@checks("CH-34")
def own_scores(trial: Trial) -> Finding:
    """Later calls do not change what was returned."""
    bench = trial.bench
    hook = bench.make()
    returned: list[tuple[str, Any, Any]] = []

    async def main() -> None:
        for text in bench.texts:
            call = await one(hook, bench.context(text), bench.patience)
            returned.append((text, call.value, copy.deepcopy(call.value)))

    bench.run(main())
    for text, value, was in returned:
        if what := difference(plain(value), plain(was)):
            return failed(f"after later calls the scores of {shortened(text)} were {what}")
    return passed(len(returned))


@checks("CH-36", after=("CH-30", "CH-31"))
def other_loop(trial: Trial) -> Finding:
    """The hook scores on the next event loop as on the first, several texts at once."""
    bench = trial.bench
    hook = bench.make()
    calls: list[Call] = []
    for turn in ("first", "id"):  # each call has an id of its own
        contexts = [
            bench.context(text, request_id=f"{turn}-{index}")
            for index, text in enumerate(bench.texts)
        ]
        calls = bench.at_once(hook, contexts)
    for index, (text, call) in enumerate(zip(bench.texts, calls, strict=True)):
        if what := bench.apart(call, bench.alone(text, f"id-{index}")):
            return failed(f"on another event loop {shortened(text)} {what}")
    return passed(len(calls))
