# SPDX-License-Identifier: Apache-2.0
"""Finding what requests carry: in the profile, or by watching what the plugin reads."""

from __future__ import annotations

import copy
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import attrs
from hypothesis.strategies import SearchStrategy

from conformance.inputs import lookalikes
from conformance.inputs.places import changed, places
from conformance.io_processor.answers import Answer, Kind
from conformance.io_processor.bench import Bench
from conformance.io_processor.complaints import QUOTED, TEXT, declared, mended, missing
from conformance.io_processor.stock import Stock, fewer, near, varied
from conformance.io_processor.traffic import Do
from conformance.plugin.toml import inline
from conformance.search import examples
from conformance.settings import UsageError
from conformance.watching.comparison import difference

#: Data of a profile's strategy that are tried, and variations that are kept.
DRAWN = 8

KEPT = 8

#: Pairs of data that differ in little, each in another way.
MOST_TWINS = 16

#: Words of a refusal that are tried as values.
NAMED = 4

#: How often something is repeated to make many prompts, and how many are many: their numbers have
#: two digits.
REPEATED, MANY = 24, 13

#: Requests in which the harness looks for what the plugin takes, and keys that it tries together.
ATTEMPTS = 60

MOST_KEYS = 3

#: Data that were refused that a profile is told of.
REFUSED = 4

#: The calls that read data: what was refused in another one, or by vLLM, has got past these.
_READING = frozenset({"parse_request", "parse_data"})

#: A key that is quoted.
_QUOTED_KEY = re.compile(r"['\"`]([A-Za-z_]\w*)['\"`]")

_KEY = re.compile(r"['\"\[(<` ]([A-Za-z_]\w*)['\"\])>`, ]")


def find(bench: Bench, section: Mapping[str, Any], *, origin: str | None) -> Stock:
    """Return what the plugin is tried with.

    Raises:
        UsageError: the profile gives no valid data.

    """
    if section and not section.get("valid"):
        raise UsageError(
            f"profile {origin}: [io-processor] valid must hold at least one request's data."
        )
    if section:
        told = _distinct(_drawn(section["valid"], bench.seed))
        tried = Tried(told, read_of(bench, told))
    else:
        tried = discover(bench)
    given = tried.answered
    objects = [data for data in given if isinstance(data, dict)]
    others = chain.from_iterable(declared(bench.cls, data) for data in objects)
    keys = tuple(dict.fromkeys((*tried.keys, *others)))
    invalid = _distinct(_drawn(section.get("invalid", []), bench.seed))
    valid, counts = _with_variations(bench, given)
    pairs = tuple(_twins(bench, given, valid, counts, keys))
    return Stock(
        tuple(valid),
        tuple(invalid),
        origin,
        len(given),
        keys=keys,
        prompts=tuple(counts),
        twins=pairs,
        refused=tuple(tried.refused),
        furthest=_told(tried.furthest),
        complaint=_told(tried.complaint),
    )


def _told(found: tuple[Any, Answer] | None) -> tuple[Any, str] | None:
    return found and (found[0], found[1].describe())


def read_of(bench: Bench, given: Iterable[Any]) -> tuple[str, ...]:
    """Return the keys that are looked for in data, also where they, or others, are not there."""
    keys: list[str] = []
    whole = [data for data in given if type(data) is dict]
    less = [each for data in whole[:1] for each in (*fewer(data), {})]
    for data in (*whole, *less):
        bench.try_online(lookalikes.Watching(data, keys))
    return tuple(keys)


def starter(keys: Iterable[str], *, taken: object = None, model: bool = False) -> str:
    """Return a profile to start from.

    Args:
        keys: what the plugin looks for.
        taken: data that it made prompts of, where some are known.
        model: whether it needs a model of its own.

    """
    if isinstance(taken, dict) and taken:
        keys = taken
    data = inline(dict.fromkeys(keys, "...") or {"text": "..."}).as_string()
    # What TOML does not have is to be filled in.
    first = data if taken is None else inline(taken, null="...").as_string()
    named = 'model = "FOLDER"\n' if model else ""
    return f"[io-processor]\n{named}valid = [ {first}, {data} ]\ninvalid = [ {{}} ]\n"


def _drawn(values: Any, seed: int) -> list[Any]:  # noqa: ANN401 - a list or a strategy
    """Return values of a profile, those of a strategy drawn."""
    if not isinstance(values, SearchStrategy):
        return list(values)
    return examples(values, DRAWN, seed)


def _distinct(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not any(_same(value, other) for other in found):
            found.append(value)
    return found


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401 - any value
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # noqa: BLE001 - arrays have no truth
        return one is other


def _with_variations(bench: Bench, given: list[Any]) -> tuple[list[Any], list[int]]:
    """Return valid data with variations of them that the plugin takes, and their prompts.

    Short ones make small counterexamples, long ones more prompts, the last one many if it can.
    """
    valid = list(given)
    counts = [_prompts(bench, data)[0] for data in given]
    for other in chain.from_iterable(map(varied, given)):
        if len(valid) >= len(given) + KEPT:
            break
        if not any(_same(other, known) for known in valid):
            count, answered = _prompts(bench, other)
            if answered:
                valid.append(other)
                counts.append(count)
    for other in chain.from_iterable(map(_repeated, given)):
        count, answered = _prompts(bench, other)
        if answered and count >= MANY:
            return [*valid, other], [*counts, count]
    return valid, counts


def _twins(
    bench: Bench, given: list[Any], valid: list[Any], counts: list[int], keys: Iterable[str]
) -> Iterator[tuple[int, int]]:
    """Yield the places of two valid data that differ in little; add those that are not there."""
    seen: set[object] = set()
    ways = ((near(data, keys), _named(bench, data, keys)) for data in given)
    for kind, pair in chain.from_iterable(chain.from_iterable(ways)):
        if kind in seen or len(seen) >= MOST_TWINS:
            continue
        made = [_prompts(bench, data) for data in pair]
        # Who answers both alike may take one for the other.
        answers = [answer for _, answer in made if answer]
        if len(answers) == len(pair) and _apart(*answers):
            seen.add(kind)
            places = []
            for data, (count, _) in zip(pair, made, strict=True):
                # Python takes objects for equal whose keys come in another order.
                known = [n for n, o in enumerate(valid) if _same(data, o) and repr(data) == repr(o)]
                if not known:
                    valid.append(data)
                    counts.append(count)
                places.append(known[0] if known else len(valid) - 1)
            yield places[0], places[1]


def _apart(one: Answer, other: Answer) -> bool:
    """Tell whether two requests are not served alike."""
    return bool(difference(one.data, other.data)) or one.salts != other.salts


def _named(
    bench: Bench,
    data: Any,  # noqa: ANN401 - JSON values
    keys: Iterable[str],
) -> Iterator[tuple[object, tuple[Any, Any]]]:
    """Yield data with another key, and a value that the plugin names when it refuses one."""
    for key in keys if isinstance(data, dict) else ():
        if key in data:
            continue
        wrong = {**data, key: "a"}
        answer = bench.answer_to(wrong)
        if answer.complaints:
            yield key, (data, mended(wrong, answer.complaints))
        for word in QUOTED.findall(answer.error)[:NAMED]:
            yield key, (data, {**data, key: word})


def _repeated(data: Any) -> Iterator[Any]:  # noqa: ANN401 - JSON values
    """Yield data like these, with what one string or list holds again and again."""
    for place, value in places(data):
        if isinstance(value, str) and value:
            yield changed(data, place, " ".join([value] * REPEATED))
        elif isinstance(value, list) and value:
            yield changed(data, place, copy.deepcopy(value * REPEATED)[:REPEATED])


def _prompts(bench: Bench, data: Any) -> tuple[int, Answer | None]:  # noqa: ANN401 - JSON values
    """Return how many prompts data become, and what is answered, if anything is."""
    played = bench.try_online(data)
    waits = [step.waits for step in played.steps if step.do is Do.ARRIVE]
    answer = played.answers[0]
    return waits[0] if waits else 0, answer if answer.kind is Kind.ANSWERED else None


@attrs.frozen
class Tried:
    """The data that a plugin answers, and what came of looking for them."""

    answered: list[Any]  #: those of the profile; else two, or none
    keys: tuple[str, ...]  #: that it read
    refused: list[Any] = attrs.field(factory=list)  #: a few
    #: Where it answered none: what came of the data that got furthest, and of those of most keys
    #: that it refused as it read them.
    furthest: tuple[Any, Answer] | None = None
    complaint: tuple[Any, Answer] | None = None


def discover(bench: Bench) -> Tried:
    """Look for data that the plugin answers, by what it reads and what it complains about."""
    keys: list[str] = []
    mentioned: dict[str, None] = {}  # by what it says as it refuses, where it copied the data
    # Nothing tells as much as what is looked for in an empty object.  Beside each candidate is how
    # many keys were looked for in what it was made of.
    begin: tuple[Any, ...] = ({}, TEXT, [TEXT], [1, 2, 3])
    candidates: deque[tuple[Any, int]] = deque((each, 0) for each in begin)
    seen: list[Any] = []
    refused: list[Any] = []
    furthest: tuple[Any, Answer] | None = None
    complaint: tuple[dict[str, Any], Answer] | None = None
    for _ in range(ATTEMPTS):
        if not candidates:
            break
        data, before = candidates.popleft()
        if any(_same(data, other) for other in seen):
            continue
        seen.append(data)
        read: list[str] = []
        watching = lookalikes.Watching(data, read) if isinstance(data, dict) else data
        answer = bench.answer_to(watching)
        if answer.kind is Kind.ANSWERED and data != {}:
            keys.extend(key for key in dict.fromkeys(read) if key not in keys)
            return Tried([data, *_another(bench, data)], tuple(keys), refused)
        # What vLLM refuses has got past every hook that comes before it.
        if answer.call not in _READING and (not furthest or (furthest[1].call and not answer.call)):
            furthest = data, answer
        if answer.kind is Kind.REFUSED and len(refused) < REFUSED:
            refused.append(data)
        known, looked = data if isinstance(data, dict) else {}, len(read)
        complaint = _complaint(known, answer, complaint)
        new = (*read, *missing(answer.complaints))
        found = [key for key in dict.fromkeys(new) if key not in keys]
        keys.extend(found)
        # What was looked for comes before what the message may only mention; behind a key that
        # keeps the others from being looked for, as one around them, nothing is near.
        # Where other keys are refused, it takes none but those that it looks for.
        alone = _filled({}, found) if known else []
        more = [(each, looked) for each in (*alone, *_filled(known, keys))]
        candidates.extend(more) if looked < before else candidates.extendleft(reversed(more))
        if answer.kind is Kind.REFUSED and not seen[1:]:
            mentioned |= dict.fromkeys(_QUOTED_KEY.findall(answer.error))
        said = _KEY.findall(f"{answer.error} ")
        candidates.extend((each, looked) for each in _filled(known, said))
        if isinstance(data, dict) and answer.complaints:
            candidates.appendleft((mended(data, answer.complaints), looked))
    if seen and bench.answer_to({}).kind is Kind.ANSWERED:
        return Tried([{}], tuple(keys))
    # Without one that is answered nobody knows whether that was why.
    return Tried([], tuple(keys or mentioned), furthest=furthest, complaint=complaint)


def _complaint(
    data: dict[str, Any], answer: Answer, before: tuple[dict[str, Any], Answer] | None
) -> tuple[dict[str, Any], Answer] | None:
    """Return which refusal of data as they were read tells more: the one before, or this one."""
    more = answer.call in _READING and (before is None or len(data) >= len(before[0]))
    return (data, answer) if more else before


def _filled(data: dict[str, Any], keys: Iterable[str]) -> list[dict[str, Any]]:
    """Return data with another one of the keys, with values of likely types."""
    return [
        {**data, key: value}
        for value in (TEXT, [TEXT, "and so on"], 4, [1, 2, 3], 0.5)
        for key in keys
        if key not in data and len(data) < MOST_KEYS
    ]


def _another(bench: Bench, data: Any) -> list[Any]:  # noqa: ANN401 - JSON values
    """Return other data that the plugin answers, or none."""
    for other in varied(data):
        if bench.answer_to(other).kind is Kind.ANSWERED:
            return [other]
    return []
