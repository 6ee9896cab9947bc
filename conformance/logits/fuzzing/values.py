# SPDX-License-Identifier: Apache-2.0
"""Values that a client may send in the place of those that work, and how a person reads them."""

from __future__ import annotations

import functools
import math
import re
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from conformance.counterexample.source import expression

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hypothesis.strategies import SearchStrategy

Keywords = dict[str, Any]

#: Where a value stands in the keywords of a request: keys and positions, the outermost first.
Position = tuple[Any, ...]

#: As many repetitions as make a regular expression that backtracks run for hours.
LONG_ENOUGH = 30

#: Items of a list, or characters of a string; what grows without a bound shows with fewer than a
#: body has room for.
HUGE = 10_000

#: Levels of a list in lists that vLLM still carries to its engine.
DEEP = 400

#: Positions of a working value that are replaced; those of a larger value are much alike.
MAX_PATHS = 16

#: What a key may take of which nobody knows a value that works.
LIKELY: tuple[Any, ...] = (1, 0.5, "x", [1])

#: What may be a token id in a text, or as a key.
_NUMBER = re.compile(r"[0-9]+")

#: Longer sentences are cut for the eye.
READABLE = 240


def nested(levels: int) -> object:
    """Return a list in a list, so many levels deep."""
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


@functools.cache
def edges(vocabulary: int, like: str = "int") -> tuple[Any, ...]:
    """Return values at the edges of what a parameter may be, the most telling first.

    Args:
        vocabulary: tokens of the model: ids begin at 0 and end before it.
        like: the name of the type of a value that works; there are two of it for one of others.

    """
    integers = [vocabulary, -1, 2**40, 0, 2**63, 2**63 - 1, vocabulary - 1, 2**31]
    integers += [-(2**31) - 1, 2, 1, -(2**63), 10**9, -vocabulary - 1, 64]
    floats = [math.nan, math.inf, -math.inf, 0.0, -0.5, 1.0, 1.5, 5e-324, 1e300, float(vocabulary)]
    texts = [
        "",
        "x",
        "0",
        str(vocabulary),
        "nan",
        "²",
        "\x00",
        "é中😀",
        "\ud800",
        " ",
        "%s{0}\\",
        "[",
        "{}",
        "1/0",
        "eHh4",  # three letters in base64
        "x" * HUGE,
    ]
    texts += [c * LONG_ENOUGH + end for c in ("a", "1", " ", "a,", "(") for end in ("!", "")]
    texts += ["9" * 5_000]
    items: list[Any] = [[], [vocabulary], nested(DEEP), [-1], [None], ["x"], [[]], [1] * HUGE]
    items += [[math.nan], [0, vocabulary], [2**63], [2**63 - 1], [0.5], [{}]]
    tables: list[Any] = [
        {},
        {"x": 1},
        {str(vocabulary): 1},
        {"": None},
        {"²": 1},
        {str(number): 0 for number in range(1_000)},
    ]
    kinds: dict[str, list[Any]] = {"int": integers, "bool": [True, False], "float": floats}
    kinds |= {"str": texts, "list": items, "dict": tables}
    rounds = [
        [*kinds.get(like, [])[2 * number : 2 * number + 2]]
        + [kind[number] for each, kind in kinds.items() if each != like and number < len(kind)]
        for number in range(max(map(len, kinds.values())))
    ]
    return (None, *chain.from_iterable(rounds))


def of_size(value: object, vocabulary: int) -> bool:
    """Tell whether a value has the first token id on either side that a model does not have.

    With a model of another size another id is the first.
    """
    beyond = (vocabulary, -vocabulary - 1)
    first: tuple[object, ...] = (*beyond, *map(str, beyond))
    left = [value]  # lists may be as deep as no recursion goes
    while left:
        each = left.pop()
        if isinstance(each, dict):
            left += [*each, *each.values()]
        elif isinstance(each, list | tuple):
            left += each
        elif each in first:
            return True
    return False


def paths(value: object, start: Position) -> Iterator[Position]:
    """Yield where the value stands and where its parts do, from the outside in."""
    yield start
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths(item, (*start, key))
    elif isinstance(value, list | tuple):
        # Items of a list are alike: the first and the last stand for them.
        for index in dict.fromkeys((0, len(value) - 1)) if value else ():
            yield from paths(value[index], (*start, index))


def at(value: Any, path: Position) -> Any:  # noqa: ANN401 - a part of a request
    """Return the part of a value at a path."""
    for step in path:
        value = value[step]
    return value


def replaced(value: Any, path: Position, new: object) -> Any:  # noqa: ANN401 - as above
    """Return a value with another part at a path; a key that is not there is added."""
    if not path:
        return new
    step, *rest = path
    if value is None or isinstance(value, dict):
        there = value or {}
        inner = replaced(there.get(step), tuple(rest), new) if rest else new
        return {**there, step: inner}
    items = list(value)
    items[step] = replaced(items[step], tuple(rest), new)
    return items


def removed(value: object, path: Position) -> Any:  # noqa: ANN401 - as above
    """Return a value without the part at a path."""
    *outer, last = path
    inner = at(value, tuple(outer))
    if isinstance(inner, dict):
        less: Any = {key: item for key, item in inner.items() if key != last}
    else:
        less = [item for index, item in enumerate(inner) if index != last]
    return replaced(value, tuple(outer), less)


def requests(
    bases: Sequence[Keywords], keys: Sequence[str], vocabulary: int
) -> Iterator[tuple[Keywords, Position]]:
    """Yield requests at the edges, each with the position of what is odd about it.

    The most telling value at every position comes before the next one at any.

    Args:
        bases: keywords of requests that work.
        keys: ``extra_args`` keys that the plugin reads.
        vocabulary: tokens of the model.

    """
    known = {key for base in bases for key in base.get("extra_args") or ()}
    streams = []
    for base in bases:
        arguments = base.get("extra_args") or {}
        new = [("extra_args", key) for key in keys if key not in arguments]
        streams += [_at_edges(base, path, vocabulary) for path in (*positions(base), *new)]
        streams.append(_fewer(base))
    # A key that no request that works has is tried alone, too.
    alone = [("extra_args", key) for key in keys if not bases or key not in known]
    streams += [_at_edges({}, path, vocabulary) for path in alone]
    # Of two of them one is as likely as not to be right, and the other one is odd.
    streams += [
        _paired([right for right in alone if right != wrong], wrong, vocabulary) for wrong in alone
    ]
    while streams:
        for stream in list(streams):
            if (drawn := next(stream, None)) is None:
                streams.remove(stream)
            else:
                yield drawn


def _at_edges(
    base: Keywords, path: Position, vocabulary: int
) -> Iterator[tuple[Keywords, Position]]:
    """Yield requests with odd values at a position."""
    like = "int"
    with suppress(LookupError):
        like = type(at(base, path)).__name__
    values_here = edges(vocabulary, like)
    yield replaced(base, path, values_here[0]), path
    with suppress(LookupError):
        # Fields of SamplingParams have defaults: without one of them it is another request.
        if path[0] == "extra_args":
            yield removed(base, path), path
            for value in _beyond(at(base, path), vocabulary):
                yield replaced(base, path, value), path
            yield from _grown(base, path)
    for value in values_here[1:]:
        yield replaced(base, path, value), path
    with suppress(LookupError):
        # Later than texts that a person reads at a glance.
        if path[0] == "extra_args" and isinstance(value := at(base, path), str) and value:
            for count in (LONG_ENOUGH, HUGE // len(value)):
                yield replaced(base, path, value * count + "!"), path


def _paired(
    rights: Sequence[Position], wrong: Position, vocabulary: int
) -> Iterator[tuple[Keywords, Position]]:
    """Yield requests with two keys: one has a likely value, and the other an odd one or none."""
    likely = [(replaced({}, right, value), right) for value in LIKELY for right in rights]
    yield from likely
    for value in edges(vocabulary):
        for base, _ in likely:
            yield replaced(base, wrong, value), wrong


#: Characters of a text that may be what is coded, and no word.
_CODED = 32

#: Keys of tables: digits that ``int`` does not take, other ways to write a number, and none.
_KEYS = ("²", "-1", "1.5", "9" * 5_000, " 5", "")


def _beyond(value: object, vocabulary: int) -> Iterator[object]:
    """Yield a text or a table with the first token id beyond the vocabulary, and odd keys.

    Of a text with a zero the last number may be what is divided by. One that is half as long may
    be whole all the same: four characters of base64 are three bytes.
    """
    if isinstance(value, str) and len(value) >= _CODED:
        yield value[: len(value) // 8 * 4]
    if isinstance(value, str) and (found := [*_NUMBER.finditer(value)]):
        yield _with(value, found[0], str(vocabulary))
        yield _with(value, found[-1], "0")
    elif isinstance(value, dict):
        keys = [key for key in value if isinstance(key, str)]
        numbers = [key for key in keys if _NUMBER.fullmatch(key)]
        for key in numbers[:1] or keys[:1]:
            for odd in [str(vocabulary)] * bool(numbers) + [*_KEYS]:
                yield {odd if one == key else one: it for one, it in value.items()}


def _with(text: str, found: re.Match[str], new: str) -> str:
    return f"{text[: found.start()]}{new}{text[found.end() :]}"


def _fewer(base: Keywords) -> Iterator[tuple[Keywords, Position]]:
    """Yield requests with one of several arguments."""
    arguments = base.get("extra_args") or {}
    if len(arguments) > 1:
        for key, value in arguments.items():
            yield {**base, "extra_args": {key: value}}, ("extra_args",)


def _grown(base: Keywords, path: Position) -> Iterator[tuple[Keywords, Position]]:
    """Yield requests with more of the same at a position."""
    value = at(base, path)
    if isinstance(value, list | tuple) and value:
        yield replaced(base, path, [*value, None]), path
        yield replaced(base, path, list(value) * (HUGE // len(value))), path
    elif isinstance(value, dict):
        yield replaced(base, path, {**value, "unknown": 1}), path


def positions(base: Keywords) -> list[Position]:
    """Return the positions of a request that a client chooses values for."""
    found = [
        path
        for field, value in base.items()
        for path in paths(value, (field,))
        if path != ("extra_args",)
    ]
    return list(islice(found, MAX_PATHS))


@functools.cache
def values() -> SearchStrategy[Any]:
    """Return a strategy for values of every type that JSON has, the simplest first."""
    scalars = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=LONG_ENOUGH)
    )
    return st.recursive(
        scalars,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=3)
        ),
        max_leaves=6,
    )


@functools.cache
def _odd(vocabulary: int) -> SearchStrategy[Any]:
    """Return a strategy for values of any kind, those at the edges as often as others."""
    return st.one_of(values(), st.sampled_from(edges(vocabulary)))


@st.composite
def mutations(
    draw: st.DrawFn, bases: Sequence[Keywords], keys: Sequence[str], vocabulary: int
) -> tuple[Keywords, Position]:
    """Generate requests with one or two values that are odd."""
    base = draw(st.sampled_from(list(bases))) if bases else {}
    odd = _odd(vocabulary)
    arguments = [("extra_args", key) for key in keys]
    places = [*positions(base), *(path for path in arguments if path not in positions(base))]
    path: Position = ()
    for _ in range(draw(st.integers(1, 2))):
        chosen = draw(st.sampled_from(places))
        try:
            base, path = replaced(base, chosen, draw(odd)), chosen
        except (TypeError, LookupError):
            continue  # what stood there is not there any more
    return base, path


def readable(keywords: Mapping[str, Any]) -> str:
    """Return keywords as a person reads them: ``extra_args={"boost": 500}``."""
    said = _written(keywords)
    return said if len(said) <= READABLE else said[:READABLE] + " ..."


def size(keywords: Mapping[str, Any]) -> tuple[bool, int, str]:
    """Order requests: those that HTTP can carry first, then by how much a person has to read."""
    said = _written(keywords)
    return not _flat(keywords.get("extra_args") or {}), len(said), said


def _written(keywords: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={expression(value)}" for name, value in keywords.items())


def _flat(arguments: Mapping[str, Any]) -> bool:
    """Tell whether arguments are strings and numbers, and lists of them."""
    items = [
        item
        for value in arguments.values()
        for item in (value if isinstance(value, list) else [value])
    ]
    return all(isinstance(item, str | int | float) and not isinstance(item, bool) for item in items)
