# SPDX-License-Identifier: Apache-2.0
"""Items that differ from a valid one in as little as can be: a hash may miss it.

What an own modality is made of nobody knows, so these are made of the items of its profile:
numbers, texts and lists in other orders, of other types, and with other borders between them.
A plugin may refuse any of them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import partial
from itertools import chain, islice, pairwise, permutations
from typing import Any

import attrs
import numpy as np

from conformance.inputs import lookalikes, places
from conformance.multimodal.modality.stock import KNOWN, Sample
from conformance.watching.comparison import shortened

#: Valid items that others are made of, places in each, and items that are made of it.
ITEMS, PLACES, MOST = 4, 12, 240

#: Lengths of what is shortened are less than this: of several frames, whatever one is made of.
SHORT = 26

#: A change of a number that rounding to a few digits loses, and that arrays show.
SLIGHT = 4e-4

#: What is no finite number, also written as a text, and what is none in an array of 32 bits.
BEYOND = (math.nan, math.inf, -math.inf, "nan", "inf", "1e999", 1e39, -1e39)


def near(modality: str, samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Return items beside the valid ones of an own modality; none where the harness knows it."""
    if modality in KNOWN:
        return ()
    beside = (each for sample in samples[:ITEMS] for each in islice(_beside(sample), MOST))
    return (*islice(_crossed(samples), MOST), *beside)


def shorter(modality: str, samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Return the beginnings of lists, arrays and texts in items of an own modality.

    The profile's may all be of even lengths, or of whole frames; these are of one and the next.
    """
    if modality in KNOWN:
        return ()
    return tuple(each for sample in samples[:ITEMS] for each in islice(_shorter(sample), 2 * SHORT))


def _shorter(sample: Sample) -> Iterator[Sample]:
    made = sample.make()
    for place, value in islice(places.places(made), PLACES):
        rows = isinstance(value, np.ndarray) and value.ndim
        if rows or isinstance(value, list | tuple | str | bytes):
            where = places.subscripts(place)
            for length in dict.fromkeys((*range(1, SHORT), len(value) - 1)):
                if 0 < length < len(value):
                    name = f"{sample}, the first {length} of {len(value)} of data{where}"
                    make = partial(places.changed, made, place, value[:length])
                    yield attrs.evolve(sample, name=name, make=make, same_as="")


def _crossed(samples: Sequence[Sample]) -> Iterator[Sample]:
    """Yield objects with what another valid one has in a field: a unit, say, is one of a few."""
    objects = [(sample, sample.make()) for sample in samples if not sample.encoding]
    known = [(sample, made) for sample, made in objects if isinstance(made, dict)]
    for (one, made), (_, other) in permutations(known, 2):
        for name in (name for name in made if name in other):
            if shortened(made[name]) != shortened(other[name]):
                what = f"{one} with {shortened(other[name])} at data[{name!r}]"
                yield Sample(what, partial(places.changed, made, (name,), other[name]))


def unbounded(modality: str, samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Return items of an own modality with a number that is not finite, or is not in an array."""
    if modality in KNOWN:
        return ()
    return tuple(each for sample in samples[:ITEMS] for each in _beyond(sample))


def _beyond(sample: Sample) -> Iterator[Sample]:
    made = sample.make()
    if isinstance(made, np.ndarray) and made.size and made.dtype.kind == "f":
        for number in (np.nan, np.inf):
            other = made.copy()
            other.flat[-1] = number
            yield Sample(f"{sample}, its last number {number}", other.copy)
        return
    for place, value in islice(places.places(made), PLACES):
        if isinstance(value, int | float) and not isinstance(value, bool):
            where = places.subscripts(place)
            for beyond in BEYOND:
                name = f"{sample} with {beyond!r} at data{where}"
                yield Sample(name, partial(places.changed, made, place, beyond))


def _beside(sample: Sample) -> Iterator[Sample]:
    made = sample.make()
    if isinstance(made, bytes | np.ndarray):
        yield from _of_values(sample, made)
    elif isinstance(made, list | tuple | dict | str | int | float):
        data = [*made] if isinstance(made, tuple) else made
        for place, value in islice(places.places(data), PLACES):
            where = places.subscripts(place)
            for what, other in _others(value):
                told = what or shortened(other)
                name = f"{sample} with {told} at data{where}" if place else f"{told} for {sample}"
                yield Sample(name, partial(places.changed, data, place, other))


def _of_values(sample: Sample, made: Any) -> Iterator[Sample]:  # noqa: ANN401 - bytes, or an array
    """Yield bytes of which one is another, and arrays of one change, or of another shape."""
    if isinstance(made, bytes):
        for at in dict.fromkeys((len(made) - 1, len(made) // 2)) if made else ():
            other = made[:at] + bytes([made[at] ^ 1]) + made[at + 1 :]
            name = f"{sample}, its byte {at} changed"
            yield Sample(name, partial(bytes, other), sample.encoding, sample.mime)
    elif made.size and made.dtype.kind in "iuf":
        slightly = made.copy()
        slightly.flat[-1] += 1 if made.dtype.kind in "iu" else SLIGHT
        yield Sample(f"{sample}, its last number changed", slightly.copy)
        for what, other in (("backwards", made[::-1]), ("transposed", made.T)):
            yield Sample(f"{sample}, {what}", np.ascontiguousarray(other).copy)
        for shape in dict.fromkeys(((-1,), (1, -1), (-1, 1), made.shape[::-1])):
            name = f"the same bytes as {sample}, of shape {made.reshape(shape).shape}"
            yield Sample(name, made.reshape(shape).copy)


def _others(value: object) -> Iterator[tuple[str, Any]]:
    """Yield what is easily taken for a value: how it is called, or nothing, and the value."""
    if isinstance(value, bool):
        yield from (("", not value), ("", int(value)), ("", str(value)))
    elif isinstance(value, int | float):
        yield from ((_typed(each), each) for each in _numbers(value))
    elif isinstance(value, str):
        for one, other in lookalikes.of_text(value):
            yield from (("", one), ("", other))
        yield from (("", f"{value} "), ("", f"{value}\x00"))
    elif isinstance(value, list):
        yield from (("", other) for other in _lists(value))
    elif isinstance(value, dict):
        yield from (("", other) for other in _objects(value))


def _typed(number: object) -> str:
    """Return how a number is called whose type is not one of JSON's."""
    return f"{type(number).__name__}({number})" if isinstance(number, Decimal | np.generic) else ""


def _numbers(number: float) -> Iterator[Any]:
    """Yield numbers beside one: of -1 and -2, which Python hashes alike, both."""
    yield from (-number, -1, -2, number + 1, number * (1 + SLIGHT))
    yield from (float(number), str(number), Decimal(str(number)), np.float32(number))
    if number == int(number):
        yield from (int(number), np.int64(number))
    if number in (0, 1):
        yield bool(number)


def _lists(entries: list[Any]) -> Iterator[list[Any]]:
    """Yield lists of the same entries in other orders, numbers, and depths."""
    yield from (entries[::-1], entries[1:], entries[:-1], [*entries, *entries[-1:]])
    yield from (entries * 2, [*entries[1:], *entries[:1]], [entries])
    if all(isinstance(each, list) for each in entries):
        rows: list[list[Any]] = entries
        flat = [each for row in rows for each in row]
        yield from (flat, [flat], [[each] for each in flat])
        for width in dict.fromkeys((len(rows), *map(len, rows))):
            if width and len(flat) % width == 0:
                yield [flat[start : start + width] for start in range(0, len(flat), width)]
        if len(rows) > 1 and rows[0] and rows[1]:
            yield [rows[0][:-1], [rows[0][-1], *rows[1]], *rows[2:]]
    elif all(type(each) in (int, float) for each in entries):  # no bool
        alike = [[*map(type(entries[0]), each)] for each in ([1, 12], [11, 2], [112], [1, 1, 2])]
        for pair in (*alike, *chain.from_iterable(lookalikes.NUMBERS)):
            yield [*pair, *entries[2:]]
    elif all(isinstance(each, str) for each in entries):
        for texts in (["ab", "c"], ["a", "bc"], ["abc"]):
            yield [*texts, *entries[2:]]
        joined = "".join(entries)
        yield from ([joined[:at], joined[at:]] for at in (1, len(joined) // 2))
    else:
        for at in range(min(3, len(entries))):
            yield [[each] if place == at else each for place, each in enumerate(entries)]


def _objects(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield objects with the values of two fields exchanged, or without one."""
    names = list(fields)
    for one, other in pairwise(names):
        yield {**copy.deepcopy(fields), one: fields[other], other: fields[one]}
    for name in names:
        yield {each: value for each, value in fields.items() if each != name}
