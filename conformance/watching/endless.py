# SPDX-License-Identifier: Apache-2.0
"""Telling a cache without an end by a few requests: it is filled up, and must let something go.

A plugin that takes a second for each request cannot be asked for thousands of them, and none for
the hundred thousand after which a large cache is full.
"""

from __future__ import annotations

import gc
import io
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, MutableMapping
from contextlib import suppress
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

from conformance.watching.interruption import PluginHung
from conformance.watching.leaks import (
    LAST,
    STRAIGHT,
    growing,
    modules_of,
    name_of,
    reached,
    size_of,
)

#: A container that takes in something with so many of the requests grows with them.
SHARE = 0.5

#: Entries that a container is filled with: a cache that has an end is full by then. So many
#: characters a text has that is written.
ENTRIES = 300_000
CHARACTERS = 16 << 20

#: By how much more a number is said to be that grows with a container, as where bytes are counted.
FULL = 1 << 40

#: A plugin with more growing containers than this is not said to have an end; how often requests
#: are served while everything else is measured.
MANY, AGAIN = 8, 20

#: Seconds from now within which a number may be when something was done.
NEAR = 1_000.0

_Lru = type(lru_cache(len))
_PLAIN = (dict, OrderedDict, list, set, deque)
_BUFFERS = (io.StringIO, io.BytesIO, bytearray)


def endless(plugin: object, serve: Callable[[], int]) -> str | None:
    """Say which container of a plugin grows with every request even where it is very full.

    Args:
        plugin: what has served requests.
        serve: serves some more, each unlike all others, and returns how many were answered.

    """
    try:
        return _endless(plugin, serve)
    except (Exception, PluginHung):  # noqa: BLE001 - it may do anything with entries not its own
        return None


def _endless(plugin: object, serve: Callable[[], int]) -> str | None:
    first = _lengths(plugin)
    if not (count := serve()):
        return None  # nothing is to be seen of what is not served
    second = _lengths(plugin)
    grown = [
        (value, length)
        for key, (value, length) in second.items()
        if key in first and length - first[key][1] >= count * SHARE
    ]
    attributes = list(getattr(plugin, "__dict__", {}).values())
    if any(map(_timed, (*attributes, *(value for value, _ in grown)))) or _counts(plugin, serve):
        return None  # it may let go after some time, or some number of requests
    for value, length in grown:
        if isinstance(value, _Lru) and value.cache_info().maxsize is None:
            return f"a cache without maxsize, of {value.__qualname__}, holds {length} entries"
    more, _ = _more_when_full(plugin, [value for value, _ in grown], serve, SHARE)
    if not more:
        return None
    value, before = more[0]
    length = next(length for each, length in grown if each is value)
    holds = f"{_described(plugin, value)} holds {length} entries"
    return f"{holds}, and with {before} it takes one more each time"


def ends(plugin: object, serve: Callable[[], int]) -> bool:
    """Tell whether a plugin that grows does so only in containers that have an end.

    They say which end they have, or let something go when they are filled.

    Args:
        plugin: what has served so many requests that most caches would be full.
        serve: serves some more, each unlike all others, and returns how many were answered.

    """
    try:
        return _ends(plugin, serve)
    except (Exception, PluginHung):  # noqa: BLE001 - it may do anything, as above
        return False


def _ends(plugin: object, serve: Callable[[], int]) -> bool:
    found: dict[int, Any] = {}
    # What is large hides others, so these are looked for again without it.
    while more := _grown(plugin, serve, found):
        found |= more
        if len(found) > MANY:
            return False
    sizes, count = [size_of(plugin, found)], 0
    for _ in range(LAST):
        count = sum(serve() for _ in range(AGAIN))
        sizes.append(size_of(plugin, found))
    if not found or not count or growing(sizes, count):
        return False
    rest = [value for value in found.values() if not _apart(value)]
    grow_on, unknown = _more_when_full(plugin, rest, serve, 0.0)
    return not grow_on and not unknown


def _grown(plugin: object, serve: Callable[[], int], without: dict[int, Any]) -> dict[int, Any]:
    """Return the containers that grow, and those that are large and say their end, by id."""
    first = _lengths(plugin, every=True, without=without)
    serve()
    second = _lengths(plugin, every=True, without=without)
    return {
        key: value
        for key, (value, length) in second.items()
        if (key in first and length > first[key][1]) or (_apart(value) and length >= STRAIGHT)
    }


def _more_when_full(
    plugin: object, values: list[Any], serve: Callable[[], int], share: float
) -> tuple[list[tuple[Any, int]], bool]:
    """Return which containers take in more where they are very full, with how full that is.

    The second is whether there are others of which that is not known.
    """
    # All at once: one of them may tell what goes out of another one.
    undo = [(value, empty) for value in values if (empty := _filled(value))]
    full = [_length(value) for value, _ in undo]
    try:
        serve()
        # One that is made anew takes in the request with which that is done.
        after = [_length(value) for value, _ in undo]
        count = serve()
        more = [
            (value, before)
            for (value, _), before, then in zip(undo, full, after, strict=True)
            if then >= before and _length(value) - then >= max(count * share, 1)
        ]
    finally:
        for _, empty in undo:
            with suppress(Exception):
                empty()
    if not count:  # nothing is to be seen of what is not served
        return [], True
    if more:
        less = _less_by_number(plugin, [value for value, _ in more], serve)
        more = [(value, before) for value, before in more if id(value) not in less]
    return more, len(undo) < len(values)


def _less_by_number(plugin: object, values: list[Any], serve: Callable[[], int]) -> set[int]:
    """Return the ids of what lets go where a number that grows with it, as of bytes, is large."""
    before = {(id(of), name): number for of, name, number in _numbers(plugin, values)}
    count = serve()
    rising = [
        (of, name)
        for of, name, number in _numbers(plugin, values)
        if number - before.get((id(of), name), number) >= max(count, 1)
    ]
    lengths = [_length(value) for value in values]
    for of, name in rising:
        setattr(of, name, getattr(of, name) + FULL)
    try:
        # It may go wrong when everything is out, and the number is still large.
        with suppress(Exception, PluginHung):
            serve()
    finally:
        for of, name in rising:
            if (number := getattr(of, name)) > FULL // 2:
                setattr(of, name, number - FULL)
    return {
        id(value) for value, length in zip(values, lengths, strict=True) if _length(value) < length
    }


def _numbers(plugin: object, without: list[Any]) -> Iterator[tuple[Any, str, int]]:
    """Yield the whole numbers that are attributes or globals: of what, the name, and the number."""
    modules = modules_of(plugin)
    classes = (
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    )
    for of in (*modules, *classes, *reached(plugin, {id(value) for value in without})):
        names = getattr(of, "__dict__", None)
        if isinstance(names, dict | MappingProxyType):
            for name, number in list(names.items()):
                if type(number) is int:
                    yield of, name, number


def taking(plugin: object, serve: Callable[[], object], count: int) -> str:
    """Say which container of a plugin that grows takes in most; empty where none is seen.

    What the plugin raises then is nothing new.

    Args:
        plugin: what has served requests.
        serve: serves some more.
        count: how many.

    """
    before = _lengths(plugin, every=True)
    with suppress(Exception):
        serve()
    after = _lengths(plugin, every=True)
    grown = {
        key: length - before[key][1]
        for key, (_, length) in after.items()
        if key in before and length > before[key][1]
    }
    if not grown:
        return ""
    most = max(grown, key=lambda key: grown[key])
    value, _ = after[most]
    noun = "characters" if isinstance(value, io.StringIO) else "entries"
    more = f"has {grown[most]} more {noun} after the next {count} requests"
    return f"; {_described(plugin, value)} {more}"


def _described(plugin: object, value: object) -> str:
    kind = "cache" if isinstance(value, _Lru) else type(value).__name__
    name = name_of(plugin, value)
    return f"a {kind} ({name})" if name else f"a {kind}"


def _lengths(
    plugin: object, *, every: bool = False, without: Collection[int] = ()
) -> dict[int, tuple[Any, int]]:
    """Return the containers that can be reached, each with how many entries it has.

    Those of derived classes, and buffers, only where ``every`` is true: their entries may not be
    anybody's.
    """
    values = list(reached(plugin, without))
    if apart := {id(value): value for value in values if _apart(value)}:
        # What is in one is its own affair, as in those of functools: nothing could be added.
        values = [*apart.values(), *reached(plugin, {*without, *apart})]
    inside = {
        id(inner)
        for value in values
        if isinstance(value, _Lru)
        for inner in gc.get_referents(value)
    }
    found: dict[int, tuple[Any, int]] = {}
    for value in values:
        known = isinstance(value, (*_PLAIN, *_BUFFERS)) if every else type(value) in _PLAIN
        if id(value) in apart or isinstance(value, _Lru) or (known and id(value) not in inside):
            found[id(value)] = (value, _length(value))
    return found


def _length(value: Any) -> int:  # noqa: ANN401 - a container
    if isinstance(value, _Lru):
        return int(value.cache_info().currsize)
    if isinstance(value, io.StringIO):
        return 0 if value.closed else len(value.getvalue())
    if isinstance(value, io.BytesIO):
        return 0 if value.closed else value.getbuffer().nbytes
    return len(value)


def _apart(value: Any) -> bool:  # noqa: ANN401 - anything
    """Tell whether a container says how large it may become, and is not yet, or is large."""
    held: Any
    most: Any
    if isinstance(value, _Lru):
        held, most = value.cache_info().currsize, value.cache_info().maxsize
    elif isinstance(value, deque):
        held, most = len(value), value.maxlen
    elif isinstance(value, MutableMapping) and not isinstance(value, dict):
        # As those of cachetools; `currsize` may be bytes.
        most = getattr(value, "maxsize", None)
        held = getattr(value, "currsize", None) if most else None
        held = len(value) if most and type(held) not in (int, float) else held
    else:
        return False
    # One that is full of little is followed: its entries may grow.
    return (
        type(most) in (int, float)
        and most < sys.maxsize
        and (held < most or STRAIGHT <= held <= most)
    )


def _counts(plugin: object, serve: Callable[[], int]) -> bool:
    """Tell whether an attribute counts requests."""
    before = dict(getattr(plugin, "__dict__", {}))
    count = serve()
    after = getattr(plugin, "__dict__", {})
    return any(type(was) is int and after.get(name) == was + count for name, was in before.items())


def _timed(value: Any, depth: int = 3) -> bool:  # noqa: ANN401 - anything
    """Tell whether a time of not long ago stands in an object, or in the last entry of one."""
    if type(value) is float:
        now = (time.time(), time.monotonic(), time.perf_counter())
        return value > 1 and any(0 <= each - value < NEAR for each in now)
    if not depth:
        return False
    if isinstance(value, dict) and value:
        parts: list[Any] = [*next(reversed(value.items()))]
    elif isinstance(value, tuple):
        parts = list(value)
    elif isinstance(value, list | deque) and value:
        parts = [value[-1]]
    else:
        parts = list(getattr(value, "__dict__", {}).values())
    return any(_timed(part, depth - 1) for part in parts)


def _filled(value: Any) -> Callable[[], object] | None:  # noqa: ANN401 - a container
    """Fill a container with copies of what it holds; return what empties it, if that is done."""
    if not value or isinstance(value, _Lru) or _apart(value):
        return None
    if isinstance(value, _BUFFERS):
        return _written(value)
    if isinstance(value, dict):
        key, entry = next(reversed(value.items()))
        keys = _others(key)
        for other in keys:  # those that are derived may have an `update` of their own
            value[other] = entry
        return (lambda: [value.pop(other, None) for other in keys]) if keys else None
    if isinstance(value, set):
        keys = _others(next(iter(value)))
        value.update(keys)
        return (lambda: value.difference_update(keys)) if keys else None
    if getattr(value, "maxlen", None) is not None:
        return None
    length = len(value)
    value.extend(_others(value[-1]) or [value[-1]] * ENTRIES)

    def emptied() -> None:
        if len(value) > ENTRIES:
            left = list(value)
            del left[length : length + ENTRIES]
            value.clear()
            value.extend(left)

    return emptied


def _written(value: Any) -> Callable[[], object] | None:  # noqa: ANN401 - a buffer
    """Write very much to a buffer; return what takes it out again."""
    length = _length(value)
    if isinstance(value, bytearray):
        value.extend(bytes(CHARACTERS))
        return partial(value.__delitem__, slice(length, length + CHARACTERS))
    if value.tell() != length:  # who writes elsewhere writes over it
        return None
    value.write(value.getvalue()[:1] * CHARACTERS)

    def emptied() -> None:
        if _length(value) > CHARACTERS:
            value.seek(length)
            value.truncate()

    return emptied


def _others(key: Any) -> list[Any]:  # noqa: ANN401 - whatever is a key
    """Return keys of the same type, if that is one of which others can be made."""
    numbers = range(ENTRIES)
    if type(key) is str:
        return [f"{key} {number}" for number in numbers]
    if type(key) is bytes:
        return [key + str(number).encode() for number in numbers]
    if type(key) in (int, float):
        return [-1 - number - abs(key) for number in numbers]
    if type(key) is tuple and key:
        return [(*key[:-1], last) for last in _others(key[-1])]
    return []
