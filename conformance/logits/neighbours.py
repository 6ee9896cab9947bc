# SPDX-License-Identifier: Apache-2.0
"""Parameter sets near those of a profile: another number, or a list of another length.

A profile often has one number under a key. A plugin that keeps one number for a whole batch does
what it should until two requests differ in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from conformance.logits.calls import PluginMisshapen, PluginRaised
from conformance.logits.fuzzing.values import Keywords, Position, at, positions, replaced
from conformance.settings import UsageError
from conformance.watching.interruption import PluginHung

#: Parameter sets that are derived from a profile, at most, beside twins.
MOST = 2

#: Two numbers of which ``hash`` makes one: a cache whose key is a hash takes one for the other.
TWINS = (-1, -2)


def neighbours(on: Sequence[Keywords], acts: Callable[[Keywords], bool]) -> tuple[Keywords, ...]:
    """Return parameter sets that differ from the given ones where these are all the same.

    Two that differ as :data:`TWINS` do come last, where there are any.

    Args:
        on: those of the profile; numbers that they differ in already are left as they are.
        acts: tells whether a request is admitted, gets a changed row and raises in no step, alone;
            one that raises is what any client may send, and no neighbour of what the author names.

    """
    found: list[Keywords] = []
    for base, path in _agreed(on):
        for keywords in near(base, path):
            with suppress(PluginRaised, PluginHung, PluginMisshapen, UsageError):
                if keywords not in found and acts(keywords):
                    found.append(keywords)
                    break
        if len(found) == MOST:
            break
    return (*found, *_twins(on, acts))


def _twins(on: Sequence[Keywords], acts: Callable[[Keywords], bool]) -> tuple[Keywords, ...]:
    for base in on:
        for path in positions(base):
            if type(value := at(base, path)) in (int, float):
                pair = [replaced(base, path, type(value)(twin)) for twin in TWINS]
                with suppress(PluginRaised, PluginHung, PluginMisshapen, UsageError):
                    if all(map(acts, pair)):
                        return (*pair,)
    return ()


def _agreed(on: Sequence[Keywords]) -> Iterator[tuple[Keywords, Position]]:
    """Yield where all parameter sets have the same value, with the first that has one there."""
    values: dict[Position, list[Any]] = {}
    first: dict[Position, Keywords] = {}
    for keywords in on:
        for path in positions(keywords):
            values.setdefault(path, []).append(at(keywords, path))
            first.setdefault(path, keywords)
    for path, there in values.items():
        if all(value == there[0] for value in there):
            yield first[path], path


def near(base: Keywords, path: Position) -> Iterator[Keywords]:
    """Yield parameter sets with another number, list or text at a position, much like the first."""
    value = at(base, path)
    others: list[Any] = []
    if isinstance(value, int) and not isinstance(value, bool):
        others = [value + 1, value - 1, 2 * value]
    elif isinstance(value, float):
        others = [value / 2, 2 * value, value + 1.0]
    elif isinstance(value, list) and value:
        others = [value[:-1]] * (len(value) > 1) + [[*value, value[0]]]
    elif isinstance(value, str) and value:
        others = [value.swapcase(), value + value[-1]]
    for other in others:
        if other != value:
            yield replaced(base, path, other)
