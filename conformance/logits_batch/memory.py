# SPDX-License-Identifier: Apache-2.0
"""Check LB-27: ten thousand requests through one instance, and what is left of them.

Two ways to look: nobody but the check itself may still hold a finished request's parameters,
prompt or outputs; and all that can be reached from the plugin must not grow without end.
"""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from functools import partial
from itertools import pairwise
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor

from conformance.logits_batch.bench import (
    LAST_SPECIAL,
    PluginHung,
    PluginMisshapen,
    PluginRaised,
    limited,
)
from conformance.logits_batch.findings import Finding, failed, passed
from conformance.logits_batch.host import MAX_REQUESTS
from conformance.settings import Budget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm.sampling_params import SamplingParams

    from conformance.logits_batch.bench import Bench, Watched
    from conformance.logits_batch.simulator import Trial

    #: What a request hands over: parameters, prompt and outputs.
    Given = tuple[SamplingParams, list[int], list[int]]

REQUESTS = {Budget.QUICK: 2_000, Budget.STANDARD: 10_000, Budget.DEEP: 10_000}

#: Most of the rows change hands in every step. The others stay for as many steps as it takes to
#: have an effect that comes late.
LEAVING = MAX_REQUESTS - 2
LONG = 12

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
LIMIT = 120.0


def forgets(trial: Trial) -> Finding:
    """LB-27: nothing of finished requests is kept, and nothing grows."""
    return trial.looked or _look(trial.bench, trial.budget)


def look_apart(bench: Bench, budget: Budget) -> Finding | None:
    """Return what is found in this process; None where a call goes wrong, for others to see."""
    with suppress(PluginRaised, PluginMisshapen, PluginHung):
        return _look(bench, budget)
    return None


def _look(bench: Bench, budget: Budget) -> Finding:
    count = REQUESTS[budget]
    instance = bench.new()
    given: list[Given] = []
    sizes: list[int] = []
    acted = 0
    with limited(LIMIT):
        for _ in range(MEASUREMENTS):
            acted += _serve(bench, instance, count // MEASUREMENTS, given)
            sizes.append(size_of(instance.plugin))
        if what := _kept(given) or _growing(sizes, count // MEASUREMENTS):
            return failed(f"after {count} requests {what}", count, acted)
        # Ranks of a pipeline but the last, and batches of greedy requests, never get to ``apply``.
        given, sizes = [], sizes[-1:]
        for _ in range(LAST):
            _serve(bench, instance, count // IDLE, given, applied=False)
            sizes.append(size_of(instance.plugin))
        if what := _kept(given) or _growing(sizes, count // IDLE):
            return failed(f"after {len(given)} requests without apply {what}", count, acted)
    return passed(count, acted)


def _kept(given: list[Given]) -> str | None:
    """Say of how many finished requests something is held by anybody but the list."""
    gc.collect()
    for index, what in enumerate(("SamplingParams", "prompt token ids", "output token ids")):
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


def _serve(
    bench: Bench, instance: Watched, count: int, given: list[Given], *, applied: bool = True
) -> int:
    """Take requests through an empty batch and out again; return in how many steps rows changed.

    All rows are kept busy: those that leave are replaced at once, as an engine with a queue does.
    """
    acted = 0
    live: list[Given] = []
    for step in range(count // LEAVING + 1):
        added = []
        for index in range(LEAVING if step % LONG else MAX_REQUESTS):
            request = _request(bench, len(given))
            given.append(request)
            live[index : index + 1] = [request]
            added.append((index, *request))
        instance.update_state(BatchUpdate(MAX_REQUESTS, [], added, []))
        if applied:
            start = step * 3 % (len(bench.table) - MAX_REQUESTS)
            logits = bench.table[start : start + MAX_REQUESTS]
            acted += not torch.equal(instance.apply(logits.clone()), logits)
        for _, _, outputs in live:
            outputs.append(bench.tokens[step % len(bench.tokens)])
    instance.update_state(BatchUpdate(0, list(range(MAX_REQUESTS - 1, -1, -1)), [], []))
    instance.update_state(None)
    return acted


def _request(bench: Bench, number: int) -> Given:
    """Return what the request with a number hands over: no two have the same prompt."""
    params = bench.params(bench.choices[number % len(bench.choices)])
    if params.max_tokens is not None:
        params.max_tokens += number
    high, low = divmod(number, bench.vocabulary - LAST_SPECIAL - 1)
    token = bench.tokens[number % len(bench.tokens)]
    return params, [token, LAST_SPECIAL + 1 + low, LAST_SPECIAL + 1 + high], []


def _references(value: object) -> int:
    return sys.getrefcount(value)


_CONTROL: tuple[list[int]] = ([],)

#: What is counted for a value that only a tuple refers to.
_ALONE = _references(_CONTROL[0])


def size_of(plugin: LogitsProcessor) -> int:
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


def _roots(plugin: LogitsProcessor) -> Iterator[object]:
    yield plugin
    for cls in type(plugin).__mro__:
        if cls is not object and not cls.__module__.startswith("vllm."):
            yield dict(vars(cls))
            yield dict(vars(sys.modules[cls.__module__]))


def _foreign(value: object) -> bool:
    """Tell whether a value is the engine's: its configuration knows a whole engine."""
    return type(value).__module__.startswith(("vllm.config", "transformers."))
