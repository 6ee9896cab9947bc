# SPDX-License-Identifier: Apache-2.0
"""What requests carry, and what else they might."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from itertools import chain, islice, pairwise, zip_longest
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from conformance.inputs import bombs, lookalikes, oddities
from conformance.inputs.places import Path, changed, places, subscripts, without
from conformance.watching.comparison import shortened

#: Requests that name a pattern, or a template, at most.
PATTERNS = TEMPLATES = 60

#: Numbers that may be too large together.
LARGE = (100, 1_000, 10_000, 100_000, 1_000_000)

#: How many prompts are few.
FEW = 6

#: What messages call as much as a packed text becomes.
BOMB = f"{bombs.PART * bombs.PARTS >> 30} GiB"


@attrs.frozen
class Stock:
    """What requests carry."""

    valid: tuple[Any, ...]  #: those of the profile first, each answered otherwise than the others
    invalid: tuple[Any, ...]
    origin: str | None  #: the profile, or None where the harness found out by itself
    given: int  #: how many of the valid are the profile's
    keys: tuple[str, ...] = ()  #: what was read of the data, when nobody told
    #: How many prompts each valid one becomes; 0 where it was not answered.
    prompts: tuple[int, ...] = ()
    #: Valid ones, by place, that differ where a plugin that remembers by too little does not look.
    twins: tuple[tuple[int, int], ...] = ()

    #: Some that were refused while valid ones were looked for.
    refused: tuple[Any, ...] = ()
    #: The data that got furthest, where none was answered, and what came of them.
    furthest: tuple[Any, str] | None = None
    #: The data of most keys that were refused as they were read, where none got any further.
    complaint: tuple[Any, str] | None = None

    @property
    def originals(self) -> tuple[Any, ...]:
        """The valid data of the profile, or those found in its place, without variations."""
        return self.valid[: self.given]

    def document(self) -> dict[str, Any]:
        """Return the effective profile, for the certificate."""
        found = {
            "origin": self.origin or "found by the harness",
            "valid": list(self.originals),
            "invalid": list(self.invalid),
        }
        if self.origin is None:
            found |= {"refused": list(self.refused), "keys": list(self.keys)}
        return found

    def called(self, index: int) -> str:
        """Return what messages call a valid request: of a variation, what is its own."""
        data = self.valid[index]
        if index < self.given:
            return f"the valid request {shortened(data)}"
        apart = (_apart(data, other) for other in self.originals)
        number, own = min(enumerate(apart), key=lambda pair: len(repr(pair[1])))
        return f"a variation of valid[{number}], {shortened(own)},"

    def sizes(self) -> Iterator[Any]:
        """Yield data like the valid ones of most prompts, of every small size."""
        most = max(range(len(self.valid)), key=lambda index: self.prompts[index], default=None)
        if most is not None:
            yield from shorter(self.valid[most], self.prompts[most])

    def several(self) -> list[int]:
        """Return the valid data that become more than one prompt, fewest prompts first."""
        found = [index for index, count in enumerate(self.prompts) if count > 1]
        return sorted(found, key=lambda index: (self.prompts[index], index))


def _apart(data: object, other: object) -> object:
    """Return what of an object is not the same in another one, and of anything else all."""
    if not isinstance(data, dict) or not isinstance(other, dict) or other.keys() - data.keys():
        return data
    return {
        key: value
        for key, value in data.items()
        if key not in other or repr(value) != repr(other[key])
    }


def varied(data: Any) -> Iterator[Any]:  # noqa: ANN401 - JSON values
    """Yield data like these, with one string or list cut short, turned around or made longer."""
    for place, value in places(data):
        if isinstance(value, str) and len(value) > 1:
            words = value.split(" ")
            longer = [value[::-1] if len(words) == 1 else " ".join(words[::-1])]
            shorter = [" ".join(words[: len(words) // 2])] if len(words) > 1 else []
            for text in (*shorter, *longer, f"{value} {value}"):
                yield changed(data, place, text)
        elif isinstance(value, list) and value:
            for items in (value[: max(1, len(value) // 2)], value[::-1], [*value, *value]):
                yield changed(data, place, copy.deepcopy(items))


def shorter(data: Any, prompts: int) -> Iterator[Any]:  # noqa: ANN401 - JSON values
    """Yield data like these, which become so many prompts, with few or short ones: of each number.

    Only the longest text and the longest list are cut.
    """
    for kind, divided in ((str, prompts), (list, 0)):
        found = [(place, value) for place, value in places(data) if isinstance(value, kind)]
        place, whole = max(found, key=lambda each: len(each[1]), default=((), ""))
        parts = range(1, FEW + 1) if divided > 1 else ()
        sizes = {*range(1, FEW), *(int(len(whole) * (part - 0.5) / divided) for part in parts)}
        for size in sorted(size for size in sizes if 0 < size < len(whole)):
            yield changed(data, place, copy.deepcopy(whole[:size]))


#: What may be looked for beside what is there, of likely types.
_ABSENT: tuple[Any, ...] = ("a", 2, True, False, 0.5, ["a"])


def near(data: Any, keys: Iterable[str]) -> Iterator[tuple[object, tuple[Any, Any]]]:  # noqa: ANN401 - JSON values
    """Yield pairs of data that differ in little: in one text, one number, or one key of those.

    Each comes with what is other in it; pairs of which that is the same tell the same.
    """
    for place, value in places(data):
        if isinstance(value, str):
            for way, pair in enumerate(lookalikes.of_text(value)):
                yield way, (changed(data, place, pair[0]), changed(data, place, pair[1]))
        elif isinstance(value, int | float):
            for _, other in lookalikes.of_number(value):
                yield place, (data, changed(data, place, other))
            # Python takes these for equal, and dictionaries for the same key.
            yield "truth", (changed(data, place, 1), changed(data, place, value=True))
    yield from _cut_elsewhere(data)
    yield from _turned(data)
    if isinstance(data, dict):
        for key in data:
            yield key, (data, without(data, (key,)))
        for key in keys:
            for value in _ABSENT if key not in data else ():
                yield key, (data, {**data, key: value})


def _cut_elsewhere(data: Any) -> Iterator[tuple[object, tuple[Any, Any]]]:  # noqa: ANN401 - JSON values
    """Yield data in which a text and the next one are the same when they are joined."""
    texts = [(place, value) for place, value in places(data) if isinstance(value, str)]
    for (one, text), (other, following) in pairwise(texts):
        if one[:-1] == other[:-1] and one:
            for way, pair in enumerate(lookalikes.of_neighbours(text, following)):
                made = [changed(changed(data, one, a), other, b) for a, b in pair]
                # Items of a list stand for one another, as keys do not.
                key = one[-1] if isinstance(one[-1], str) else ""
                yield ("joined", way, key), (made[0], made[1])


def _turned(data: Any) -> Iterator[tuple[object, tuple[Any, Any]]]:  # noqa: ANN401 - JSON values
    """Yield data with the same whose keys, or items, come in the other order."""
    for place, value in places(data):
        if isinstance(value, dict) and len(value) > 1:
            yield ("keys", *place), (data, changed(data, place, dict(reversed(value.items()))))
        elif isinstance(value, list) and len(value) > 1:
            yield ("items", *place), (data, changed(data, place, value[::-1]))


#: What a hostile client sends in place of something honest.
_ODD: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 1e308, "", " ", "\x00", "\ud7ff\U0001f600", [], {}, [None], {"": {}},
    [[]], "x" * 20_000, [0] * 5_000,
)  # fmt: skip


def hostile(valid: tuple[Any, ...]) -> SearchStrategy[Any]:
    """Return JSON that a hostile or mistaken client may send: something is missing or odd."""
    leaves = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=20),
        st.sampled_from(_ODD),
    )
    anything = st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
        ),
        max_leaves=6,
    )
    mended = [(data, place) for data in valid for place, _ in places(data)]
    if not mended:
        return anything
    spoilt = st.tuples(st.sampled_from(mended), st.one_of(anything, st.none())).map(
        lambda drawn: changed(drawn[0][0], drawn[0][1], drawn[1])
    )
    removable = [(data, place) for data, place in mended if place]
    choices = [spoilt, anything]
    if removable:
        fewer = st.sampled_from(removable).map(lambda drawn: without(*drawn))
        both = st.builds(_changed_somewhere, fewer, st.integers(0, 20), anything)
        choices = [fewer, spoilt, both, anything]
    return st.one_of(*choices)


def _changed_somewhere(data: Any, number: int, value: Any) -> Any:  # noqa: ANN401 - JSON values
    every = [place for place, _ in places(data)]
    return changed(data, every[number % len(every)], value)


def bodies(
    valid: tuple[Any, ...], invalid: tuple[Any, ...], keys: tuple[str, ...] = ()
) -> Iterator[tuple[str, Any, object]]:
    """Yield requests with one place each that is odd or long, the small ones first.

    Each comes with its name, empty where the request says all, and what it is a longer form of.
    """
    for data in invalid:
        yield "", data, None
    grown = list(_each_place(valid))
    for place, value, data in grown:
        if place and isinstance(place[-1], str):
            yield "", without(data, place), None
        for other in oddities.instead_of(value):
            yield "", changed(data, place, other), None
    known = {place for place, _, _ in grown}
    whole: dict[str, Any] | None = next((data for data in valid if isinstance(data, dict)), None)
    if whole is not None:
        for key in (key for key in keys if (key,) not in known):
            grown += [((key,), "x", base) for base in _alone_too(whole)]
            yield from (("", data, None) for data in _with_key(whole, key))
    yield from (("", data, None) for data in islice(_patterns(valid, keys), PATTERNS))
    yield from _growing(valid, keys, grown)
    for place, value, data in grown:
        for form in oddities.forms(value):
            for size in oddities.SIZES:
                where = subscripts(place)
                alone = ", alone" if place and not data else ""
                name = f"a request with {size:,} characters {form.name} at data{where}{alone}"
                yield name, changed(data, place, form.make(size)), (place, form.name)
    yield from chain.from_iterable(map(_together, valid))


def _together(data: Any) -> Iterator[tuple[str, Any, object]]:  # noqa: ANN401 - JSON values
    """Yield a request with all of its numbers large, or all of its texts long.

    What is bounded place by place may be too much where the places are multiplied.
    """
    found = list(places(data))
    numbers = [place for place, value in found if type(value) is int]
    texts = [place for place, value in found if isinstance(value, str)]
    for number in LARGE if len(numbers) > 1 else ():
        yield "", _with_all(data, numbers, number), None
    for form in oddities.texts("x") if len(texts) > 1 else ():
        for size in oddities.SIZES:
            name = f"a request with {size:,} characters {form.name} in its {len(texts)} texts"
            long = _with_all(data, texts, form.make(size // len(texts)))
            yield name, long, ("texts", form.name)


def _with_all(data: Any, where: Iterable[Path], value: object) -> Any:  # noqa: ANN401 - JSON values
    for place in where:
        data = changed(data, place, value)
    return data


def _patterns(valid: tuple[Any, ...], keys: tuple[str, ...]) -> Iterator[Any]:
    """Yield data in which one text is a pattern, and another one what it backtracks over."""
    for data in valid:
        texts = [place for place, value in places(data) if isinstance(value, str)]
        absent = [(key,) for key in keys if isinstance(data, dict) and key not in data]
        for place in (*texts, *absent):
            for other in texts:
                if other != place:
                    searched = changed(data, other, oddities.MATCHED)
                    yield changed(searched, place, oddities.PATTERN)


def _growing(
    valid: tuple[Any, ...], keys: tuple[str, ...], grown: list[tuple[Path, Any, Any]]
) -> Iterator[tuple[str, Any, object]]:
    """Yield short requests, of which a plugin may make something very long."""
    yield from (("", data, None) for data in islice(_templates(valid, keys), TEMPLATES))
    for place, value, data in grown:
        if isinstance(value, str) and (bomb := bombs.bomb(value, bombs.PARTS)):
            where = subscripts(place)
            size = f"{len(bomb.value):,} characters that unpack to {BOMB}"
            name = f"a request with {size} at data{where}"
            yield name, changed(data, place, bomb.value), None


def _templates(valid: tuple[Any, ...], keys: tuple[str, ...]) -> Iterator[Any]:
    """Yield data in which one text is a template that asks for very much, place by place."""
    for data in valid[:1]:
        texts = {place: text for place, text in places(data) if isinstance(text, str)}
        known = data if isinstance(data, dict) else {}
        texts |= {(key,): "" for key in keys if key not in known and known}
        each = [
            (place, bombs.templates((*bombs.names_in(text), *known, *keys)))
            for place, text in texts.items()
        ]
        for made in zip_longest(*(templates for _, templates in each)):
            for (place, _), template in zip(each, made, strict=True):
                if template is not None:
                    yield changed(data, place, template)


def _with_key(whole: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    """Yield data with a key that is looked for: beside all others, alone, or instead of one."""
    for base in _alone_too(whole):
        for value in (*oddities.instead_of(4), *oddities.instead_of("x")):
            yield changed(base, (key,), value)
    for base in fewer(whole):
        for value in (*oddities.TYPES, 4):
            yield changed(base, (key,), value)


def _alone_too(whole: dict[str, Any]) -> list[dict[str, Any]]:
    return [whole, {}] if whole else [whole]


def fewer(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield an object without one of its keys, where others are left."""
    if len(whole) > 1:
        yield from (without(whole, (key,)) for key in whole)


def _each_place(valid: tuple[Any, ...]) -> Iterator[tuple[Path, Any, Any]]:
    """Yield every place that any of some data has, with its value and the first such data."""
    seen: set[Path] = set()
    for data in valid:
        for place, value in places(data):
            # The first of a list that has it stands for the others.
            first = tuple(0 if isinstance(part, int) else part for part in place)
            if first not in seen:
                seen.add(first)
                yield place, value, data
