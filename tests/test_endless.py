# SPDX-License-Identifier: Apache-2.0
"""Caches with and without an end, told apart by a few requests."""

from __future__ import annotations

import io
import time
from collections import Counter, OrderedDict, deque
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from cachetools import LRUCache  # type: ignore[import-untyped] # it has no types

from conformance.watching.endless import endless, ends, taking

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 100


class Keeps:
    """Keeps everything."""

    def __init__(self) -> None:
        self.kept: dict[str, list[int]] = {}

    def take(self, number: int) -> None:  # noqa: D102 - a request
        self.kept[f"request {number}"] = [number]


class KeepsAList(Keeps):
    """Keeps everything in a list."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def take(self, number: int) -> None:  # noqa: D102 - a request
        self.all.append(f"request {number}")


class KeepsInCache(Keeps):
    """Has a cache of functools without an end."""

    def __init__(self) -> None:
        self.known = lru_cache(maxsize=None)(str)

    def take(self, number: int) -> None:  # noqa: D102 - a request
        self.known(number)


class LetsGo(Keeps):
    """Keeps the last hundred."""

    def __init__(self) -> None:
        self.kept: OrderedDict[str, list[int]] = OrderedDict()

    def take(self, number: int) -> None:  # noqa: D102 - a request
        super().take(number)
        while len(self.kept) > MOST:
            self.kept.popitem(last=False)


class LetsGoInOrder(Keeps):
    """Keeps the last hundred, which are named in a queue."""

    def __init__(self) -> None:
        super().__init__()
        self.order: deque[str] = deque()

    def take(self, number: int) -> None:  # noqa: D102 - a request
        super().take(number)
        self.order.append(f"request {number}")
        while len(self.order) > MOST:
            self.kept.pop(self.order.popleft(), None)


class IsFull(Keeps):
    """Takes no more than a hundred."""

    def take(self, number: int) -> None:  # noqa: D102 - a request
        if len(self.kept) < MOST:
            super().take(number)


class ClearsByNumber(Keeps):
    """Is emptied after every thousandth request."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = 0

    def take(self, number: int) -> None:  # noqa: D102 - a request
        super().take(number)
        self.requests += 1
        if self.requests % 1000 == 0:
            self.kept.clear()


class ClearsByTime(Keeps):
    """Is emptied after ten minutes."""

    def __init__(self) -> None:
        super().__init__()
        self.since = time.monotonic()

    def take(self, number: int) -> None:  # noqa: D102 - a request
        super().take(number)
        if time.monotonic() - self.since > 600:
            self.kept.clear()


class HasASmallCache(KeepsInCache):
    """Has a cache of functools with an end."""

    def __init__(self) -> None:
        self.known = lru_cache(maxsize=MOST)(str)


def _server(plugin: Keeps) -> Callable[[], int]:
    numbers = iter(range(10**6))

    def serve() -> int:
        for _ in range(6):
            plugin.take(next(numbers))
        return 6

    return serve


@pytest.mark.parametrize("cls", [Keeps, KeepsAList, KeepsInCache])
def test_what_takes_in_more_when_it_is_full_has_no_end(cls: type[Any]) -> None:
    """A few requests tell."""
    plugin = cls()

    assert endless(plugin, _server(plugin))


@pytest.mark.parametrize(
    "cls", [LetsGo, LetsGoInOrder, IsFull, ClearsByNumber, ClearsByTime, HasASmallCache]
)
def test_what_may_have_an_end_is_not_said_to_have_none(cls: type[Any]) -> None:
    """It lets something go when it is full, or may after some number of requests or some time."""
    plugin = cls()

    assert endless(plugin, _server(plugin)) is None


def test_what_answers_nothing_is_left_as_it_is() -> None:
    """Nothing grows where nothing is served, and nothing is put into what can be reached."""
    plugin = SimpleNamespace(kept={"request 1": [1]})

    assert endless(plugin, lambda: 0) is None
    assert plugin.kept == {"request 1": [1]}


#: Held by a module, as a plugin's may be.
SERVED: list[int] = []


class KeepsInModule(Keeps):
    """Keeps everything in its module."""

    def take(self, number: int) -> None:  # noqa: D102 - a request
        SERVED.append(number)


class KeepsWithin(Keeps):
    """Keeps everything in what one of its attributes refers to."""

    def __init__(self) -> None:
        self.inner = SimpleNamespace(parts=[set()])

    def take(self, number: int) -> None:  # noqa: D102 - a request
        self.inner.parts[0].add(number)


class CountsAll(Keeps):
    """Keeps a count of each, in a class derived from dict."""

    def __init__(self) -> None:
        self.counts = Counter[int]()

    def take(self, number: int) -> None:  # noqa: D102 - a request
        self.counts[number] += 1


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (Keeps, "a dict (self.kept) has 3 more entries"),
        (KeepsAList, "a list (self.all) has 3 more entries"),
        (KeepsInCache, "a cache (self.known) has 3 more entries"),
        (KeepsInModule, "a list (SERVED) has 3 more entries"),
        (KeepsWithin, "a set (in self.inner) has 3 more entries"),
        (CountsAll, "a Counter (self.counts) has 3 more entries"),
    ],
)
def test_what_takes_in_most_is_named(kind: type[Keeps], named: str) -> None:
    """A message names the attribute or the global, whatever container it is."""
    plugin = kind()

    def serve(numbers: range) -> None:
        for number in numbers:
            plugin.take(number)

    serve(range(3))

    told = taking(plugin, lambda: serve(range(3, 6)), 3)
    assert told == f"; {named} after the next 3 requests"
    assert not taking(plugin, lambda: None, 0)


class CountsBytes(Keeps):
    """Keeps ten megabytes of the last, by its own account."""

    def __init__(self) -> None:
        self.kept: OrderedDict[str, list[int]] = OrderedDict()
        self.size = 0

    def take(self, number: int) -> None:  # noqa: D102 - a request
        super().take(number)
        self.size += len(f"request {number}")
        while self.size > 10_000_000:
            key, _ = self.kept.popitem(last=False)
            self.size -= len(key)


class KeepsVeryMany(LetsGo):
    """Keeps the last hundred thousand."""

    def take(self, number: int) -> None:  # noqa: D102 - a request
        Keeps.take(self, number)
        while len(self.kept) > 100_000:
            self.kept.popitem(last=False)


class BeginsAnew(Keeps):
    """Has a new dict when there are a hundred thousand in it."""

    def take(self, number: int) -> None:  # noqa: D102 - a request
        super().take(number)
        if len(self.kept) > 100_000:
            self.kept = {}


class HasALargeCache(KeepsInCache):
    """Has a cache of functools with a distant end."""

    def __init__(self) -> None:
        self.known = lru_cache(maxsize=100_000)(str)


class HasACacheOfAnother(Keeps):
    """Has a cache of cachetools with a distant end."""

    def __init__(self) -> None:
        self.kept = LRUCache(100_000)


class KeepsTimes(Keeps):
    """Keeps the last hundred thousand times."""

    def __init__(self) -> None:
        self.times: deque[float] = deque(maxlen=100_000)

    def take(self, number: int) -> None:  # noqa: D102, ARG002 - a request
        self.times.append(time.monotonic())


class WritesAndBeginsAnew(Keeps):
    """Writes to a buffer that is cut when it is large."""

    def __init__(self) -> None:
        self.log = io.StringIO()

    def take(self, number: int) -> None:  # noqa: D102 - a request
        self.log.write(f"request {number}\n")
        if self.log.tell() > 10_000_000:
            self.log.seek(0)
            self.log.truncate()


@pytest.mark.parametrize(
    "cls",
    [
        CountsBytes,
        KeepsVeryMany,
        BeginsAnew,
        HasALargeCache,
        HasACacheOfAnother,
        KeepsTimes,
        WritesAndBeginsAnew,
    ],
)
def test_a_distant_end_is_found(cls: type[Any]) -> None:
    """It is declared, or something goes out of what is filled, or counted as very much."""
    plugin = cls()
    serve = _server(plugin)

    for _ in range(500):
        serve()
    assert ends(plugin, serve)
    assert endless(plugin, serve) is None
    assert len(getattr(plugin, "kept", ())) <= 10_000  # nothing is left of what filled it


class CountsBytesInVain(Keeps):
    """Keeps everything, and knows how much."""

    size = 0

    def take(self, number: int) -> None:  # noqa: D102 - a request
        super().take(number)
        self.size += len(f"request {number}")


class KeepsBeside(HasALargeCache):
    """Has a cache with an end, and a list that has none."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[str] = []

    def take(self, number: int) -> None:  # noqa: D102 - a request
        super().take(number)
        self.all.append(f"request {number}")


class KeepsInFewEntries(Keeps):
    """Has a cache that is nearly empty, and whose only entry grows."""

    def __init__(self) -> None:
        self.known = lru_cache(maxsize=100)(self.made)

    @staticmethod
    def made(_: str) -> dict[int, str]:  # noqa: D102 - an entry
        return {}

    def take(self, number: int) -> None:  # noqa: D102 - a request
        self.known("only")[number] = f"request {number}"


class Writes(Keeps):
    """Writes to a buffer."""

    def __init__(self) -> None:
        self.log = io.StringIO()

    def take(self, number: int) -> None:  # noqa: D102 - a request
        self.log.write(f"request {number}\n")


@pytest.mark.parametrize(
    "cls",
    [
        Keeps,
        KeepsAList,
        KeepsInCache,
        CountsAll,
        CountsBytesInVain,
        KeepsBeside,
        KeepsInFewEntries,
        Writes,
    ],
)
def test_what_has_no_end_has_none_beside_one_that_has(cls: type[Any]) -> None:
    """Neither a number that grows with it nor a cache that has an end makes up for it."""
    plugin = cls()
    serve = _server(plugin)

    for _ in range(500):
        serve()
    assert not ends(plugin, serve)
