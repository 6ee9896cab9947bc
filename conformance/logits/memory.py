# SPDX-License-Identifier: Apache-2.0
"""Ten thousand requests through one instance, and what is left of them.

Two ways to look: nobody but the check itself may still hold what a finished request handed over;
and all that can be reached from the plugin must not grow without end.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

from conformance.logits.calls import limited
from conformance.logits.configuration import MAX_REQUESTS
from conformance.logits.findings import Finding, failed, passed
from conformance.settings import Budget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.logits.trial import Trial

#: What a request hands over to the plugin.
Given = tuple[Any, ...]

#: Serves so many requests, all finished in the end, with ``apply`` or without; notes what each
#: handed over; returns in how many steps rows changed.
Serve = Callable[[int, list[Given], bool], int]

REQUESTS = {Budget.QUICK: 2_000, Budget.STANDARD: 10_000, Budget.DEEP: 10_000}

#: One part in so many of the requests in each round without ``apply``.
IDLE = 10

#: How often the plugin is measured, with no request in it.
MEASUREMENTS = 5

#: In each of the last intervals it must have grown by this much to be said to grow: a cache fills
#: up some time, and a list that gets one small number for each request takes eight bytes for it.
LAST = 3
BYTES_PER_REQUEST = 4

#: A plugin may keep what it was last given until something else takes its place.
KEPT = 2 * MAX_REQUESTS

#: A constant larger than this is not walked through again and again.
MOST_OBJECTS = 200_000

#: Seconds for all of it: each call is as long as in any other check, there are only more.
LIMIT = 60.0


def forgets(trial: Trial) -> Finding:
    """Nothing of finished requests is kept, and nothing grows."""
    return trial.leaks or trial.contract.look(trial.bench, trial.budget)


def look(plugin: object, serve: Serve, names: tuple[str, ...], budget: Budget) -> Finding:
    """Return what is found of an instance.

    Args:
        plugin: the instance.
        serve: takes requests through it.
        names: what a request hands over, for messages.
        budget: how many requests.

    """
    count = REQUESTS[budget]
    given: list[Given] = []
    sizes: list[int] = []
    acted = 0
    with limited(LIMIT):
        for _ in range(MEASUREMENTS):
            acted += serve(count // MEASUREMENTS, given, True)  # noqa: FBT003 - with apply
            sizes.append(size_of(plugin))
        if what := _kept(given, names) or _growing(sizes, count // MEASUREMENTS):
            return failed(f"after {count} requests {what}", count, acted)
        # Ranks of a pipeline but the last, and batches of greedy requests, never get to ``apply``.
        given, sizes = [], sizes[-1:]
        for _ in range(LAST):
            serve(count // IDLE, given, False)  # noqa: FBT003 - without apply
            sizes.append(size_of(plugin))
        if what := _kept(given, names) or _growing(sizes, count // IDLE):
            return failed(f"after {len(given)} requests without apply {what}", count, acted)
    return passed(count, acted)


def _kept(given: list[Given], names: tuple[str, ...]) -> str | None:
    """Say of how many finished requests something is held by anybody but the list."""
    gc.collect()
    for index, what in enumerate(names):
        held = sum(_references(entry[index]) > _ALONE for entry in given)
        if held > KEPT:
            return f"the {what} of {held} of them, all finished, are still held somewhere"
    return None


def _growing(sizes: list[int], requests: int) -> str | None:
    """Say by how much the plugin grew in the slowest of the last times."""
    least = min(after - before for before, after in pairwise(sizes[-LAST - 1 :])) / requests
    if least < BYTES_PER_REQUEST:
        return None
    return (
        f"the plugin holds {sizes[-1]} bytes with no request in it, and it grows by {least:.0f} "
        "bytes with every request"
    )


def _references(value: object) -> int:
    return sys.getrefcount(value)


_CONTROL: tuple[list[int]] = ([],)

#: What is counted for a value that only a tuple refers to.
_ALONE = _references(_CONTROL[0])


def size_of(plugin: object) -> int:
    """Return how many bytes can be reached from a plugin.

    Its attributes, its classes and the globals of the modules that define them are followed;
    modules, the engine configuration and other people's classes and functions are not.
    """
    seen: set[int] = set()
    total = 0
    stack: list[Any] = list(_roots(plugin))
    while stack and len(seen) < MOST_OBJECTS:
        value = stack.pop()
        if id(value) in seen or isinstance(value, ModuleType | type):
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            total += value.untyped_storage().nbytes()
            continue
        total += sys.getsizeof(value)
        if isinstance(value, FunctionType):
            stack += [value.__closure__, value.__defaults__, value.__kwdefaults__]
        elif isinstance(value, MethodType | partial) or not _foreign(value):
            stack += gc.get_referents(value)
    return total


def _roots(plugin: object) -> Iterator[object]:
    yield plugin
    for cls in type(plugin).__mro__:
        if cls is not object and not cls.__module__.startswith("vllm."):
            yield dict(vars(cls))
            yield dict(vars(sys.modules[cls.__module__]))


def _foreign(value: object) -> bool:
    """Tell whether a value is the engine's: its configuration knows a whole engine."""
    return type(value).__module__.startswith(("vllm.config", "transformers."))
