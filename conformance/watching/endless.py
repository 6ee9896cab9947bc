# SPDX-License-Identifier: Apache-2.0
"""Telling a cache without an end by a few requests: it is filled up, and must let something go.

A plugin that takes a second for each request cannot be asked for thousands of them.
"""

from __future__ import annotations

import gc
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from conformance.watching.leaks import STRAIGHT, name_of, reached

#: A container that takes in something with so many of the requests grows with them.
SHARE = 0.5

#: Entries that a container is filled with: a cache that has an end is full by then.
ENTRIES = 2 * STRAIGHT

#: Seconds from now within which a number may be when something was done.
NEAR = 1_000.0

_Lru = type(lru_cache(len))
_PLAIN = (dict, OrderedDict, list, set, deque)


def endless(plugin: object, serve: Callable[[], int]) -> str | None:
    """Say which container of a plugin grows with every request even where it is very full.

    Args:
        plugin: what has served requests.
        serve: serves some more, each unlike all others, and returns how many were answered.

    """
    try:
        return _endless(plugin, serve)
    except Exception:  # noqa: BLE001 - it may do anything with entries that are not its own
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
    # All at once: one of them may tell what goes out of another one.
    filled = [(value, length) for value, length in grown if _fill(value)]
    full = [len(value) for value, _ in filled]
    if not (count := serve()):
        return None
    for (value, length), before in zip(filled, full, strict=True):
        if len(value) - before >= count * SHARE:
            holds = f"{_described(plugin, value)} holds {length} entries"
            return f"{holds}, and with {before} it takes one more each time"
    return None


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
    what = _described(plugin, after[most][0])
    return f"; {what} has {grown[most]} more entries after the next {count} requests"


def _described(plugin: object, value: object) -> str:
    kind = "cache" if isinstance(value, _Lru) else type(value).__name__
    name = name_of(plugin, value)
    return f"a {kind} ({name})" if name else f"a {kind}"


def _lengths(plugin: object, *, every: bool = False) -> dict[int, tuple[Any, int]]:
    """Return the containers that can be reached, each with how many entries it has.

    Those of derived classes only where ``every`` is true: their entries may not be anybody's.
    """
    values = list(reached(plugin))
    # What is in one is its own affair: no entry could be added from outside.
    inside = {
        id(inner)
        for value in values
        if isinstance(value, _Lru)
        for inner in gc.get_referents(value)
    }
    found: dict[int, tuple[Any, int]] = {}
    for value in values:
        known = isinstance(value, _PLAIN) if every else type(value) in _PLAIN
        if isinstance(value, _Lru):
            found[id(value)] = (value, value.cache_info().currsize)
        elif known and id(value) not in inside:
            found[id(value)] = (value, len(value))
    return found


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


def _fill(value: Any) -> bool:  # noqa: ANN401 - a container
    """Fill a container with copies of what it holds; tell whether that is possible."""
    if not value or isinstance(value, _Lru):
        return False
    if isinstance(value, dict):
        key, entry = next(reversed(value.items()))
        keys = _others(key)
        value.update((other, entry) for other in keys)
    elif isinstance(value, set):
        keys = _others(next(iter(value)))
        value.update(keys)
    elif getattr(value, "maxlen", None) is None:
        value.extend(_others(value[-1]) or [value[-1]] * ENTRIES)
        return True
    else:
        return False
    return bool(keys)


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
