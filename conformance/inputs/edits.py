# SPDX-License-Identifier: Apache-2.0
"""Histories that are made of others: with other requests, shorter, or plainer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, cycle
from typing import Any

import attrs

from conformance.inputs.history import History, Step
from conformance.inputs.words import Words


def saying(history: History, words: Words) -> History:
    """Return the same history with requests that say the phrases before anything else happens."""
    numbers = count()
    steps: list[Step] = []
    for step in history:
        join = [attrs.evolve(request, outputs=words.saying(next(numbers))) for request in step.join]
        steps.append(attrs.evolve(step, join=tuple(join)))
        if join:
            steps.append(Step(repeat=words.longest + 1))
    return tuple(steps)


def prompted(history: History, words: Words) -> History:
    """Return the same history, in which every other request has one of the whole prompts."""
    prompts = cycle(words.prompts)
    numbers = count()
    steps: list[Step] = []
    for step in history:
        join = [
            attrs.evolve(request, prompt=next(prompts)) if next(numbers) % 2 == 0 else request
            for request in step.join
        ]
        steps.append(attrs.evolve(step, join=tuple(join)))
    return tuple(steps)


def until(history: History, steps: int) -> History:
    """Return the first steps, with as many outputs as a request can get in them."""
    return tuple(
        attrs.evolve(
            step,
            join=tuple(
                attrs.evolve(request, outputs=request.outputs[:steps]) for request in step.join
            ),
        )
        for step in history[:steps]
    )


def plainer(history: History) -> Iterator[History]:
    """Yield the same history without one of the things that a scheduler does, those that it has.

    What is left is one that a scheduler can order: chunks follow from what was computed before.
    """
    if any(step.pause for step in history):
        # Nobody comes back any more.
        yield tuple(
            attrs.evolve(
                step,
                pause=(),
                chunk=(),
                lost=tuple(r.name for r in step.join if r.name in step.lost),
            )
            for step in history
        )
    losing = [index for index, step in enumerate(history) if step.lost]
    if len(losing) > 1:
        # Without one of them the others may come too late for what a request has computed.
        yield without(history, "chunk", "lost")
    for index, step in enumerate(history):
        if step.lost:
            whole = [*without(history, "chunk")]
            whole[index] = attrs.evolve(whole[index], lost=())
            yield tuple(whole)
    for name in ("chunk", "rest", "draft"):
        if any(getattr(step, name) for step in history):
            yield without(history, name)


def without(history: History, *events: str) -> History:
    """Return a history in whose steps none of these things happens, such as ``chunk``."""
    changes: dict[str, Any] = dict.fromkeys(events, ())
    return tuple(attrs.evolve(step, **changes) for step in history)


def unordered(history: History, most: int) -> History:
    """Return the first requests of a history, which join and advance, and nothing else happens."""
    steps: list[Step] = []
    for step in history:
        join = tuple(attrs.evolve(request, greedy=False) for request in step.join[:most])
        most -= len(join)
        steps.append(Step(join=join, repeat=step.repeat))
    return tuple(steps)
