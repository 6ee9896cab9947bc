# SPDX-License-Identifier: Apache-2.0
"""Calls before one: of a completion that is much like it, very many of one, or long ago.

Histories that are drawn have few calls of few texts.  A cache that looks at too little, what is
kept of the last request's fields, a circuit breaker and a deadline of the instance show here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations, islice
from typing import Any

import attrs

from conformance.classifier_hook.bench import Bench, plain
from conformance.classifier_hook.calls import Call, one
from conformance.classifier_hook.scoring import ODD
from conformance.inputs.lookalikes import LONG, OTHERS, Watching, long_pair, names_in, other_case
from conformance.watching.comparison import difference, shortened

#: How often one completion is scored before another: who counts failures counts to five or ten.
MANY = 24

#: The longest timeout, in seconds, after which a hook is asked again; a moment beyond it.
AGE, BEYOND = 1.0, 0.05

#: Texts of which others are made; pairs that differ in one way; ways, and texts, that are tried
#: whatever that takes; the length of texts that are all as long.
TEXTS, OF_EACH, WAYS, WIDTH = 5, 2, 4, 200

#: Characters of texts of a model that does not stop; how many of them are scored at once; the part
#: of its timeout that a hook may need for them: beyond it, it may have a deadline of its own.
LENGTH, AT_ONCE, PART = 100_000, (1, 4, 16), 0.5

#: A deadline of a busy machine is missed now and then, a fault is there each time.
TIMES = 3

#: Values that fields of a request may have.
_VALUES: tuple[Any, ...] = ("a", "b", 0, 1, 0.9, True, ["the"], {"a": 1})

#: Characters of each end of a long text that a message shows.
SHOWN = 34

#: Fields of a context in which clients and operators put fields of their own.
_TABLES = ("extra_fields", "request_metadata")

_NAME = "id-last"


@attrs.frozen
class Completion:
    """A text, and what else its context says."""

    text: str
    changes: Mapping[str, Any] = attrs.field(factory=dict)

    def __str__(self) -> str:
        said = ", ".join(f"{name} = {shortened(value)}" for name, value in self.changes.items())
        text = self.text
        if len(text) > LONG:  # what differs may be its end
            text = f"{text[:SHOWN]} ... {text[-SHOWN:]}"
        return f"{shortened(text)}{f' with {said}' if said else ''}"


Pair = tuple[Completion, Completion]


@attrs.frozen
class Seen:
    """A completion that did not get what it gets alone, and the calls that show it."""

    message: str
    case: dict[str, Any]


def looks_at_little(
    bench: Bench, late: Callable[[], bool], *, at_once: bool, same_id: bool = False
) -> Seen | None:
    """Return which completion got what another one gets, which differs from it in little."""
    word = "at the same time as" if at_once else "after"
    ids = " with the same request id" if same_id else ""

    def seen(before: Completion, last: Completion) -> Seen | None:
        said = f"{word} {before}{ids}"
        return _after(bench, [before], last, said, at_once=at_once, same_id=same_id)

    for pair in _pairs(bench, late):
        for before, last in (pair, pair[::-1]):
            if found := seen(before, last):
                smaller = (seen(each, last) for each in _smaller(before))
                return next(filter(None, smaller), found)
    return None


def _smaller(completion: Completion) -> Iterator[Completion]:
    """Yield completions with one of the many fields that a client has set."""
    tables = [(field, value) for field, value in completion.changes.items() if field in _TABLES]
    if sum(len(table) for _, table in tables) > 1:
        for field, table in tables:
            for name, value in table.items():
                yield Completion(completion.text, {field: {name: value}})


def wears_out(bench: Bench, late: Callable[[], bool]) -> Seen | None:
    """Return which completion is scored otherwise after very many calls of another one."""
    texts = bench.texts
    for number, text in enumerate((*texts, *ODD)):
        if number >= WAYS and late():
            break
        last = next(other for other in texts if other != text)
        many_times = Completion(text)
        said = f"after {many_times}, {MANY} times"
        if seen := _after(bench, [many_times] * MANY, Completion(last), said):
            return seen
    return None


def shares_room(bench: Bench) -> Seen | None:
    """Return which completion is scored otherwise beside long ones, as in one batch with them."""
    long = [(text * LENGTH)[:LENGTH] for text in bench.texts[:TEXTS]]
    timeout = bench.make().timeout_ms / 1000
    seconds = _alone(bench, Completion(long[0])).seconds
    for number in AT_ONCE:
        if (number + 1) * seconds > PART * timeout:
            break
        beside = [Completion(long[n % len(long)]) for n in range(1, number + 1)]
        said = f"at the same time as {number} of {LENGTH:,} characters each"
        for last in (Completion(bench.texts[0]), Completion(long[0])):
            seen = None
            for _ in range(TIMES):
                if not (seen := _after(bench, beside, last, said, at_once=True)):
                    break
            if seen:
                return seen
    return None


def grows_old(bench: Bench) -> Seen | None:
    """Return which text is scored otherwise when the hook is older than its timeout."""
    hook = bench.make()
    seconds = hook.timeout_ms / 1000 + BEYOND
    if seconds > AGE + BEYOND:
        return None
    text = bench.texts[0]
    context = bench.context(text, request_id=_NAME)

    async def main() -> Call:
        await one(hook, context, bench.patience)
        await asyncio.sleep(seconds)
        return await one(hook, context, bench.patience)

    call: Call = bench.run(main())
    if what := bench.apart(call, _alone(bench, Completion(text))):
        message = f"{shortened(text)}, scored again {seconds:.2f} s later, {what}"
        return Seen(message, {"aged": seconds, "text": text})
    return None


def _after(
    bench: Bench,
    before: list[Completion],
    last: Completion,
    said: str,
    *,
    at_once: bool = False,
    same_id: bool = False,
) -> Seen | None:
    """Have completions scored, and then the last one, by one instance; judge the last."""
    wanted = _alone(bench, last)
    if not wanted.good:
        return None
    named = [(_NAME if same_id else f"id-{n}", each) for n, each in enumerate(before)]
    named.append((_NAME, last))
    contexts = [_context(bench, each, name) for name, each in named]
    hook = bench.make()
    calls = bench.at_once(hook, contexts) if at_once else bench.in_turn(hook, contexts)
    if not (what := bench.apart(calls[-1], wanted)):
        return None
    told = [(each.text, name, 0, 0, dict(each.changes)) for name, each in named]
    return Seen(f"{last}, scored {said}, {what}", {"calls": told, "overlapping": at_once})


def _pairs(bench: Bench, late: Callable[[], bool]) -> Iterator[Pair]:
    """Yield completions that differ in little, each way once or twice."""
    for number, way in enumerate(_ways(bench)):
        if number >= WAYS and late():
            return
        yield from islice(way, OF_EACH)


def _told_apart(bench: Bench, way: Iterable[Pair]) -> Iterator[Pair]:
    """Yield those that get other scores: who remembers by too little would be right of others."""
    return (pair for pair in way if _differ(bench, *pair))


def _differ(bench: Bench, *pair: Completion) -> bool:
    calls = [_alone(bench, each) for each in pair]
    if not all(call.good for call in calls):
        return False
    one_value, other = (plain(call.value) for call in calls)
    return difference(one_value, other, bench.unsteady()) is not None


def _ways(bench: Bench) -> Iterator[Iterable[Pair]]:
    """Yield ways to differ in little, each with completions that differ so."""
    texts = bench.texts[:TEXTS]
    pairs = list(combinations(texts, 2))
    ends = (
        [_both(*long_pair(bench.texts[-1], *pair, ends=ends)) for pair in pairs]
        for ends in (True, False)
    )
    yield _told_apart(bench, (_both(text, other_case(text)) for text in texts))
    yield _told_apart(bench, next(ends))
    for text in dict.fromkeys((texts[0], *bench.blocked[:1])):
        yield from _fields(bench, text)
    yield _told_apart(bench, next(ends))
    for change in OTHERS[1:]:
        yield _told_apart(bench, [_both(text, change(text)) for text in texts])
    same_length = (_both(*(each.ljust(WIDTH, ".") for each in pair)) for pair in pairs)
    yield _told_apart(bench, same_length)
    for odd in (*ODD, "42"):  # what may be left out where several are scored together
        yield [_both(odd, texts[0])]


def _both(one_text: str, other: str) -> Pair:
    return Completion(one_text), Completion(other)


def _fields(bench: Bench, text: str) -> Iterator[Iterable[Pair]]:
    """Yield completions of one text that differ in another field of their contexts."""
    usual = Completion(text)
    for field in _TABLES:
        for key in keys_of(bench, text, field):
            forms = [Completion(text, {field: {key: value}}) for value in _VALUES]
            yield _told_apart(bench, combinations([usual, *forms], 2))
    for value in _VALUES:  # of what is found otherwise than by asking for it
        table = dict.fromkeys(names_in(bench.cls), value)
        yield [(usual, Completion(text, dict.fromkeys(_TABLES, table)))]
    others: tuple[dict[str, Any], ...] = (
        {"prompt": text},
        {"prompt": "", "prompt_token_ids": []},
        {"finish_reason": "length"},
        {"index": 1},
    )
    for changes in others:
        yield [(usual, Completion(text, changes))]


def keys_of(bench: Bench, text: str, field: str) -> list[str]:
    """Return which keys of a field of a context are asked for."""
    keys: list[str] = []
    for value in (None, *_VALUES):  # one key may be looked for only where another one is
        watching: dict[str, Any] = {field: Watching({}, keys, value)}
        bench.call(text, **watching)
    return keys


def _alone(bench: Bench, completion: Completion) -> Call:
    return bench.alone(completion.text, _NAME, **completion.changes)


def _context(bench: Bench, completion: Completion, name: str) -> Any:  # noqa: ANN401 - a ScoringContext
    return bench.context(completion.text, request_id=name, **completion.changes)
