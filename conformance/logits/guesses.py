# SPDX-License-Identifier: Apache-2.0
"""Parameters that may switch a plugin on, made of what it reads of a request.

Values of likely types are tried under each key, under all of them, and in tables under a key.
A plugin that looks at a key only where another one has a value that it takes is led on from key
to key; and where nothing switches it on, what it says as it refuses is worth reading.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import attrs

from conformance.logits.tried import UNRELATED, Keywords, Reaction, Tried
from conformance.logits.watching import LIKELY_FIELDS, Read

#: Parameter sets that are enough, when they have to be found out.
MOST_FOUND = 3

#: Keys that a plugin is led on to, at most, each by a value of the one before.
MOST_KEYS = 6

#: Values of likely types for an ``extra_args`` key whose meaning is unknown.
LIKELY: tuple[Any, ...] = (67, 5, 1, 0.5, 2.0, True, "a", [5, 67], [[5, 67]], ["a"])

#: Values that lead on to the next key: small ones, with which an answer need not be long, and two
#: texts, which may have to differ.
LEADING: tuple[Any, ...] = (1, "a", "b", 0.5, True, [5, 67], [[5, 67]])

#: Values of the last key.
ENDING: tuple[Any, ...] = (*LEADING, *(value for value in LIKELY if value not in LEADING))


@attrs.frozen
class Guessed:
    """What was found out about a plugin that came without parameters."""

    on: tuple[Keywords, ...]  #: switch it on; none where none did
    tables: Mapping[str, Sequence[str]]  #: keys that it reads of a table under a key
    keys: tuple[str, ...]  #: that it reads
    tried: Tried  #: how it is tried by then
    refused: str | None = None  #: the most telling refusal, where nothing switched it on


def guess(read: Read, tried: Tried) -> Guessed:
    """Return what switches a plugin on."""
    on, tables = _discover(read, tried)
    if on:
        tried = attrs.evolve(tried, waits=tried.waiting(on))
        return Guessed(tuple(on), tables, _keys_with(on, read.keys, tried), tried)
    further, led = _led_on(read, tried)
    before = tried.waits.tokens, tried.waits.phrases
    unknown = [*_unknown(read), *further]
    tried = attrs.evolve(tried, waits=tried.waiting(unknown))
    tried = attrs.evolve(tried, waits=tried.branching(unknown))
    if (tried.waits.tokens, tried.waits.phrases) != before:
        on, tables = _discover(read, tried)
    on = on or [*islice(filter(tried.acts, further), MOST_FOUND)]
    refused = None if on else _most_telling(_alone(read), [*_within(tables)], tried)
    keys = _keys_with(on, (*read.keys, *led), tried)
    return Guessed(tuple(on), tables, keys, tried, refused)


def _keys_with(on: Sequence[Keywords], keys: Sequence[str], tried: Tried) -> tuple[str, ...]:
    """Return keys that a plugin reads, with those that it reads only of requests that opt in."""
    known = {*keys}
    for keywords in on:
        arguments: Keywords = dict(keywords.get("extra_args") or {})
        for _ in range(MOST_KEYS):
            if not (new := {*tried.watch(arguments).keys} - known):
                break
            known |= new
            arguments |= dict.fromkeys(new, 1)  # it may look at others where this one is there
    return (*keys, *sorted(known.difference(keys)))


def _alone(read: Read) -> list[Keywords]:
    """Return each likely value under each key."""
    return [{"extra_args": {key: value}} for key in read.keys for value in LIKELY]


def _discover(read: Read, tried: Tried) -> tuple[list[Keywords], dict[str, list[str]]]:
    """Return parameters that switch a plugin on, made of what it reads, and its tables.

    Those are the keys that it reads of a table under a key.  Where a few parameters are found
    without tables, none is looked for.
    """
    if tried.acts({}):
        return [{}], {}
    candidates = [entry for field in read.fields for entry in LIKELY_FIELDS.get(field, ())]
    candidates += _alone(read)
    if len(read.keys) > 1:
        candidates += [{"extra_args": dict.fromkeys(read.keys, value)} for value in LIKELY]
    found = [*islice(filter(tried.acts, candidates), MOST_FOUND)]
    if len(found) == MOST_FOUND:
        return found, {}
    tables = {key: inner for key in read.keys if (inner := tried.within(key))}
    within = filter(tried.acts, _within(tables))
    return [*islice(chain(found, within), MOST_FOUND)], tables


def _within(tables: Mapping[str, Sequence[str]]) -> Iterator[Keywords]:
    """Yield tables with what is read of them, which has a likely value each."""
    for key, inner in tables.items():
        for value in LIKELY:
            yield {"extra_args": {key: dict.fromkeys(inner, value)}}


def _led_on(read: Read, tried: Tried) -> tuple[list[Keywords], tuple[str, ...]]:
    """Return arguments of several keys that are not refused, and the keys that came to light."""
    found: list[Keywords] = []
    known = {*read.keys, *UNRELATED}
    for first in read.keys:
        arguments: Keywords = {}
        key = first
        for _ in range(MOST_KEYS):
            step = next(_further(arguments, key, known, tried), None)
            if step is None:
                break
            value, new = step
            arguments[key], key = value, min(new)
            known |= new
        if arguments:
            ends = ({"extra_args": {**arguments, key: value}} for value in ENDING)
            served = (each for each in ends if tried.reaction(each) is not Reaction.RAISES)
            found += islice(served, MOST_FOUND)
    return found, tuple(sorted(known - {*read.keys, *UNRELATED}))


def _further(
    arguments: Keywords, key: str, known: set[str], tried: Tried
) -> Iterator[tuple[Any, set[str]]]:
    """Yield values of a key with which a plugin reads others, and those."""
    for value in LEADING:
        if new := {*tried.watch({**arguments, key: value}).keys} - known:
            yield value, new


def _unknown(read: Read) -> list[Keywords]:
    """Return parameters for what a plugin reads, where nobody knows any that switch it on."""
    keys = [dict.fromkeys(read.keys, value) for value in LIKELY[:MOST_FOUND]] if read.keys else []
    return [{}, *({"extra_args": arguments} for arguments in keys)]


def _most_telling(
    alone: Sequence[Keywords], within: Sequence[Keywords], tried: Tried
) -> str | None:
    """Return the refusal that is said least often, and of what: the others came less far.

    A table that was looked into came further than all else, unless the same is said of it.  Where
    nothing is refused, it is what the plugin raises as it serves a request.
    """
    said = _said(alone, tried.refusal)
    known = {refusal for _, refusal in said}
    further = [one for one in _said(within, tried.refusal) if one[1] not in known]
    if said := further or said:
        keywords, refusal = _rarest(said)
        return f"extra_args={keywords['extra_args']!r} is refused: {refusal}"
    if said := _said(alone, tried.raises):
        keywords, raised = _rarest(said)
        return f"with extra_args={keywords['extra_args']!r}, {raised}"
    return None


def _said(
    sets: Sequence[Keywords], asked: Callable[[Keywords], str | None]
) -> list[tuple[Keywords, str]]:
    """Return what is said of each parameter set of which anything is."""
    return [(keywords, said) for keywords in sets if (said := asked(keywords))]


def _rarest(said: Sequence[tuple[Keywords, str]]) -> tuple[Keywords, str]:
    counts = Counter(text for _, text in said)
    return min(said, key=lambda one: counts[one[1]])
