# SPDX-License-Identifier: Apache-2.0
"""Checks of many requests at a time, of which some fail: each must get what it gets alone."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, product
from typing import Any

import attrs

from conformance.checking import checks
from conformance.findings import Finding, failed, passed, unjudged, waiting
from conformance.inputs.places import changed, places
from conformance.io_processor import traffic
from conformance.io_processor.answers import Answer, Kind
from conformance.io_processor.bench import Bench
from conformance.io_processor.calling import none_awaited, overridden
from conformance.io_processor.classics import classics
from conformance.io_processor.lasting import remembered
from conformance.io_processor.outcomes import one_prompt
from conformance.io_processor.traffic import Asked, Do, History, Move, Played, Shape
from conformance.io_processor.trial import Trial
from conformance.search import IO_HISTORIES, smallest
from conformance.watching.comparison import Place, difference, letter, shortened

#: Data of which every two are served one after the other, offline.
MOST_OFFLINE = 6

SEQUENCE = Shape("sequence", overlapping=False)
INTERLEAVED = Shape("interleaved")
SAME_IDS = Shape("same-ids", same_ids=True)
TROUBLED = Shape("troubled", invalid=True, trouble=True)
ORDER = Shape("order", single=True)
SHAPES = (SEQUENCE, INTERLEAVED, SAME_IDS, TROUBLED, ORDER)

#: Two outputs that arrive in the other order.
TURNED = (Move(Do.ARRIVE, 0), Move(Do.DELIVER, 0, 1), Move(Do.DELIVER, 0))

#: Requests that wait at the same time, in turn: tables with a fixed size are full by then.
#: Seconds that they may take.
CROWDS, CROWDING = (36, 70, 140, 200), 5.0

#: How many cut data are tried for it.
CUTS = 60

#: After how many outputs an engine fails or a client disconnects, at most.
MOST_OUTPUTS = 3


@attrs.frozen
class Broken:
    """A history in which a request did not get what it gets alone."""

    history: History
    played: Played
    request: int
    message: str
    awaited: bool

    @property
    def size(self) -> tuple[int, int]:
        """How much there is to read, and how early in the profile its data are."""
        asked = self.history.asked
        steps = len(self.played.steps)
        return 4 * len(asked) + steps, sum(each.data for each in asked)


def _judge(wanted: Shape, trial: Trial) -> Finding:
    """Judge the rule that a shape is about."""
    bench = trial.bench
    if wanted is ORDER and not bench.stock.several():
        return one_prompt()
    if wanted is not ORDER and (why := alike(bench)):
        return why
    count, broken = search(trial, wanted)
    if broken is None and wanted is INTERLEAVED:
        broken = _crowded(bench)
    if broken is None:
        return (wanted is SEQUENCE and remembered(trial)) or passed(count)
    if wanted is ORDER:
        bench, broken = of_two(bench, broken)
    found = {"shape": wanted.name, "broken": broken, "stock": bench.stock}
    return failed(broken.message, count, case=found)


order = checks("IO-17", after=("IO-06",))(partial(_judge, ORDER))
sequence = checks("IO-26")(partial(_judge, SEQUENCE))
interleaved = checks("IO-27", after=("IO-26",))(partial(_judge, INTERLEAVED))
same_ids = checks("IO-28", after=("IO-26", "IO-27"))(partial(_judge, SAME_IDS))
troubled = checks("IO-30", after=("IO-38", "IO-26", "IO-27"))(partial(_judge, TROUBLED))


def alike(bench: Bench) -> Finding | None:
    """Return why mixed answers could not be told, as a finding; None where they could."""
    if tells_apart(bench, bench.hidden):
        return None
    if bench.hidden and tells_apart(bench, frozenset()):
        why = "what tells the answers to valid requests apart is left to chance in some of them"
        return waiting("IO-24", why)
    why = "every valid request gets the same answer: give at least two in [io-processor] valid "
    return unjudged(f"{why}that do not")


def tells_apart(bench: Bench, hidden: frozenset[Place]) -> bool:
    """Tell whether any two valid requests get different answers."""
    answers = [bench.alone(index) for index in range(len(bench.stock.valid))]
    good = [answer.data for answer in answers if answer.kind is Kind.ANSWERED]
    return any(difference(other, good[0], hidden) for other in good[1:])


def search(trial: Trial, wanted: Shape) -> tuple[int, Broken | None]:
    """Play histories of a shape; return how many, and the smallest that shows something."""
    bench = trial.bench
    forms = _forms(bench, wanted)
    several = bench.stock.several()
    valid = several if wanted is ORDER else list(range(len(bench.stock.valid)))
    classic = tuple(classics(wanted, valid, len(bench.stock.invalid), bench.stock.twins))
    drawn = traffic.strategy(wanted, len(valid), len(bench.stock.invalid)).map(
        lambda history: _renumbered(history, valid)
    )

    def look(history: History) -> Broken | None:
        tried = (
            judge(bench, history, awaited=form) for form in forms if form or not history.hurried
        )
        return next(filter(None, tried), None)

    count, best = smallest(
        drawn,
        look,
        IO_HISTORIES,
        budget=trial.budget,
        seed=bench.seed,
        first=classic,
        size=lambda broken: broken.size,
    )
    return min(count, len(classic) + IO_HISTORIES.most(trial.budget)), best


def _crowded(bench: Bench) -> Broken | None:
    """Return the smallest crowd that waits at a time, and of which one gets another's answer."""
    began = time.monotonic()
    _of_many(bench, traffic.MOST)
    each = (time.monotonic() - began) / traffic.MOST
    fewest = 0
    for most in CROWDS:
        if most * each > CROWDING:
            break  # a plugin that takes its time does not hang
        if broken := _of_many(bench, most):
            return _fewer(bench, fewest, most, broken)
        fewest = most
    return None


def _fewer(bench: Bench, right: int, wrong: int, broken: Broken) -> Broken:
    """Return the smallest crowd that is broken, between one that is not and one that is."""
    while wrong - right > 1:
        half = (wrong + right) // 2
        if found := _of_many(bench, half):
            wrong, broken = half, found
        else:
            right = half
    return broken


def _of_many(bench: Bench, most: int) -> Broken | None:
    """Have so many requests wait at a time, and return what is wrong with an answer, or None."""
    data = len(bench.stock.valid)
    asked = tuple(Asked(place % data, f"id-{place}") for place in range(most))
    history = History(asked, tuple(Move(Do.ARRIVE, place) for place in range(most)))
    broken = judge(bench, history, awaited=False, crowd=True)
    told = f"of {most} requests that wait at a time, "
    return broken and attrs.evolve(broken, message=told + broken.message)


def _forms(bench: Bench, wanted: Shape) -> list[bool]:
    """Return whether histories are played with the awaited hooks, without, or both ways."""
    if wanted is ORDER or bench.online is bench.waiting:
        return [True]
    return [False, True] if overridden(bench) else [False]


def _renumbered(history: History, valid: list[int]) -> History:
    asked = tuple(
        attrs.evolve(each, data=valid[each.data]) if each.valid else each for each in history.asked
    )
    return attrs.evolve(history, asked=asked)


def judge(bench: Bench, history: History, *, awaited: bool, crowd: bool = False) -> Broken | None:
    """Play a history and compare each request with itself alone.

    In a *crowd* a plugin may turn requests down, before they wait for the engine.
    """
    played = bench.play(history, awaited=awaited)
    for request in sorted(played.untouched):
        asked = history.asked[request]
        got = played.answers[request]
        wanted = bench.by_itself(asked, awaited=awaited)
        if got.kind is Kind.REFUSED and _in_use(played, history, request):
            continue
        if crowd and got.kind is not Kind.ANSWERED and not got.call.startswith("post_process"):
            continue
        what = _apart(bench, got, wanted)
        if what is None and got.request_id != wanted.request_id:
            what = f"was answered as request {got.request_id!r}; alone, as {wanted.request_id!r}"
        if what := what or _salted(bench, history, request, got, wanted):
            name = letter(request)
            return Broken(history, played, request, f"request {name} {what}", awaited)
    return None


def _apart(bench: Bench, got: Answer, wanted: Answer, *, served: bool = True) -> str | None:
    """Say in what an answer is not the one to the same request alone, or return None."""
    if got.kind is not wanted.kind:
        return f"{got.describe(served=served)}; alone it {wanted.describe(served=served)}"
    if got.kind is not Kind.ANSWERED:
        return None
    what = difference(got.data, wanted.data, bench.hidden)
    return what and f"was answered {what}"


def _salted(
    bench: Bench, history: History, request: int, got: Answer, wanted: Answer
) -> str | None:
    """Say that a request came to the engine with the salt of another one, or return None.

    Salts that are counted, or drawn, are nobody's.
    """
    own = set(wanted.salts)
    for number, asked in enumerate(history.asked if got.salts else ()):
        if number == request or not asked.valid:
            continue
        others = set(bench.by_itself(asked).salts)
        if not own & others and (taken := others.intersection(got.salts)):
            alone = f"with {min(own)!r}" if own else "without one"
            return (
                f"came to the engine with the cache_salt {min(taken)!r} of request "
                f"{letter(number)}; alone, {alone}"
            )
    return None


def _in_use(played: Played, history: History, request: int) -> bool:
    """Tell whether another request had the id of one when it arrived, and was not over."""
    own = letter(request)
    others = {
        letter(number)
        for number, asked in enumerate(history.asked)
        if number != request and asked.id == history.asked[request].id
    }
    under_way: set[str] = set()
    for step in played.steps:
        if step.request == own:
            return bool(under_way)
        if step.request in others:
            (under_way.discard if step.over else under_way.add)(step.request)
    return False


def of_two(bench: Bench, broken: Broken) -> tuple[Bench, Broken]:
    """Return a history about order with two outputs, if the data can be cut to so many.

    The bench that is returned with it has the data.
    """
    data = bench.stock.valid[broken.history.asked[0].data]
    outputs = sum(move.do is Do.DELIVER for move in TURNED)
    if sum(step.do is Do.DELIVER for step in broken.played.steps) <= outputs:
        return bench, broken
    history = History((Asked(0, "id-0"),), TURNED)
    for smaller in islice(_cut(data), CUTS):
        small = copy.copy(bench)
        small.stock = attrs.evolve(bench.stock, valid=(smaller,), given=1, prompts=(outputs,))
        small._alone = {}  # noqa: SLF001 - a friend
        played = small.play(history, awaited=True)
        if played.steps[0].waits == outputs and (found := judge(small, history, awaited=True)):
            return small, found
    return bench, broken


def _cut(data: object) -> Iterator[Any]:
    """Yield data with one list or text cut short, the shortest first."""
    for place, value in places(data):
        if isinstance(value, str):
            words = value.split(" ")
            for count in range(2, len(words)):
                yield changed(data, place, " ".join(words[:count]))
        elif isinstance(value, list):
            for count in range(1, len(value)):
                yield changed(data, place, value[:count])


@checks("IO-29", after=("IO-26",))
def without_ids(trial: Trial) -> Finding:
    """Offline requests, one after the other, each get what they get alone."""
    bench = trial.bench
    if why := alike(bench):
        return why
    stock = bench.stock
    few: Sequence[int] = range(min(len(stock.valid), MOST_OFFLINE))
    if len(stock.valid) > len(few):  # the last may have many prompts
        few = [*few, len(stock.valid) - 1]
    alone = {index: bench.try_offline(stock.valid[index]) for index in few}
    every = list(product((False, True), few, few))
    for failing, first, second in every:
        plugin = bench.make()
        bench.ask_offline(plugin, stock.valid[first], failing=failing)
        got = bench.ask_offline(plugin, stock.valid[second])
        if what := _apart(bench, got, alone[second], served=False):
            after = f"after {shortened(stock.valid[first])}"
            after += ", which the engine failed," if failing else ""
            return failed(
                f"offline, {after} the request {shortened(stock.valid[second])} {what}",
                case={"first": first, "second": second, "failing": failing},
            )
    return passed(len(every))


@checks("IO-20", after=("IO-06", "IO-18"))
def errors(trial: Trial) -> Finding:
    """An engine that fails reaches the client, and every generator is closed."""
    bench = trial.bench
    if "post_process_async" not in overridden(bench):
        return none_awaited()
    return _judged(bench, Do.FAIL, Kind.FAILED, "the engine failed output {place} of {data}")


@checks("IO-34", after=("IO-06", "IO-18"))
def cancelled(trial: Trial) -> Finding:
    """A client that leaves ends its request, whatever it waits for."""
    bench = trial.bench
    if not overridden(bench):
        return none_awaited()
    said = "the client of {data} disconnected after {place} outputs"
    return _judged(bench, Do.LEAVE, Kind.CANCELLED, said)


def _judged(bench: Bench, what: Do, end: Kind, said: str) -> Finding:
    """Judge that requests to which something happens end in a way, and leave nothing open."""
    count = 0
    for count, (history, data, place) in enumerate(_histories(bench, what), 1):
        played = bench.play(history, awaited=True)
        answer = played.answers[0]
        wrong = None
        if played.late:
            wrong = "the request went on"
        elif answer.kind is not end:
            wrong = f"the request {answer.describe()}"
        elif played.open:
            wrong = "outputs that it waited for were left open"
        if wrong:
            happened = said.format(data=shortened(data), place=place)
            case = {"data": data, "place": place}
            return failed(f"{happened}, and {wrong}", count, case=case)
    return passed(count)


def _histories(bench: Bench, what: Do) -> Iterator[tuple[History, Any, int]]:
    """Yield histories of one request to which something happens, its data, and after what."""
    stock = bench.stock
    for index in stock.several() or range(stock.given):
        for place in range(min(max(stock.prompts[index], 1), MOST_OUTPUTS)):
            moves = (Move(Do.ARRIVE, 0), *[Move(Do.DELIVER, 0)] * place, Move(what, 0))
            yield History((Asked(index, "id-0"),), moves), stock.valid[index], place
