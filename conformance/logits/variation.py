# SPDX-License-Identifier: Apache-2.0
"""Variations of histories: what else the same requests might be told, and less of the same.

A history behind which lines of a plugin ran that never ran before is worth another look: what is
next to it may reach further lines, step by step, which no chance would put together.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import attrs

from conformance.inputs.history import Choice, History, Request, Step
from conformance.inputs.words import Words
from conformance.logits.trails import Trail

#: Outputs that are said of a request, at most; further ones come from the first on again.
MOST_OUTPUTS = 24

#: Steps that are added at once, at most.
MOST_STEPS = 8

#: How often something is changed before a variation is tried.
_CHANGES = (1, 1, 2, 3)


@attrs.frozen
class Material:
    """What variations are made of."""

    words: Words
    choices: Sequence[Choice]
    longest: int  #: steps that a history may have
    others: Sequence[History]  #: those that are varied, too


def varied(history: History, material: Material, chance: random.Random) -> History:
    """Return a history with other outputs, parameters or tokens of requests, or with more steps.

    What the scheduler orders stays as it is.
    """
    changes: Sequence[Callable[[History, Material, random.Random], History]] = (
        _told_otherwise,
        _told_otherwise,
        _told_otherwise,
        _longer,
        _asked_otherwise,
        _prompted_otherwise,
    )
    for _ in range(chance.choice(_CHANGES)):
        history = chance.choice(changes)(history, material, chance)
    return history


def _told_otherwise(history: History, material: Material, chance: random.Random) -> History:
    """Change the outputs of a request, with what others are told at times."""
    every = material.words.every
    others = [request.outputs for each in material.others for request in _requests(each)]

    def change(request: Request) -> Request:
        told = list(request.outputs or material.words.script)[:MOST_OUTPUTS]
        place = chance.randrange(len(told) + 1)
        match chance.randrange(5):
            case 0:
                told[place:place] = [chance.choice(every)]
            case 1:
                told[place : place + 1] = [chance.choice(every)]
            case 2:
                told[place : place + 1] = []
            case 3:
                told[place:place] = told[max(0, place - chance.randint(1, 4)) : place]
            case _:
                told[place:] = chance.choice(others)[chance.randrange(4) :]
        return attrs.evolve(request, outputs=tuple(told[:MOST_OUTPUTS]) or request.outputs)

    return _one_changed(history, change, chance)


def _asked_otherwise(history: History, material: Material, chance: random.Random) -> History:
    """Give a request other parameters."""
    return _one_changed(
        history,
        lambda request: attrs.evolve(request, choice=chance.choice(material.choices)),
        chance,
    )


def _prompted_otherwise(history: History, material: Material, chance: random.Random) -> History:
    """Replace tokens of a prompt: what is computed of it in a step stays as long."""
    every = material.words.every

    def change(request: Request) -> Request:
        prompt = tuple(chance.choice((token, chance.choice(every))) for token in request.prompt)
        return attrs.evolve(request, prompt=prompt)

    return _one_changed(history, change, chance)


def _longer(history: History, material: Material, chance: random.Random) -> History:
    """Let those that are left advance for some more steps."""
    more = min(MOST_STEPS, material.longest - sum(step.repeat for step in history))
    return (*history, Step(repeat=chance.randint(1, more))) if more > 0 else history


def _one_changed(
    history: History, change: Callable[[Request], Request], chance: random.Random
) -> History:
    return _replaced(history, change(chance.choice(_requests(history))))


def led(history: History, trails: Sequence[Trail], *, chunks: bool) -> History:
    """Return a history whose requests are told what leads to lines that never ran.

    Every other one has the parameters that lead there, too; the others keep theirs.

    Args:
        history: what is to happen.
        trails: what leads there, for requests in turn.
        chunks: whether prompts are computed in parts: steps in between would change the parts.

    """
    numbers = count()
    longest = Step(repeat=max(len(trail.outputs) for trail in trails) + 1)
    steps: list[Step] = []
    for step in history:
        join: list[Request] = []
        for request in step.join:
            turn, other = divmod(next(numbers), 2)
            trail = trails[(turn + other) % len(trails)]
            choice = request.choice if other else trail.choice
            join.append(attrs.evolve(request, choice=choice, outputs=trail.outputs))
        steps.append(attrs.evolve(step, join=tuple(join)))
        steps += [longest] if join and not chunks else []
    return (*steps, longest)


def smaller(history: History) -> Iterator[History]:
    """Yield histories with less in them: fewer steps, requests, outputs, each in its turn."""
    yield from (history[:most] for most in sorted({len(history) // 2, len(history) - 1}) if most)
    yield from _undisturbed(history)
    for request in _requests(history):
        if (less := _without(history, request.name)) is not None:
            yield less
    for place, step in enumerate(history):
        for repeat in sorted({1, step.repeat // 2, step.repeat - 1}):
            if 0 < repeat < step.repeat:
                yield (*history[:place], attrs.evolve(step, repeat=repeat), *history[place + 1 :])
    for request in _requests(history):
        told = request.outputs
        for outputs in (told[: len(told) // 2], told[:-1], told[1:]):
            if outputs and len(outputs) < len(told):
                yield _replaced(history, attrs.evolve(request, outputs=outputs))


def _undisturbed(history: History) -> Iterator[History]:
    """Yield histories without preemptions before the last one: it comes at as many outputs."""
    pauses = [
        at for at, step in enumerate(history) if step.pause and step == Step(pause=step.pause)
    ]
    for fewer in (pauses[:-1], pauses[:-1][-1:]):
        if fewer:
            yield tuple(step for place, step in enumerate(history) if place not in fewer)


def _requests(history: History) -> list[Request]:
    return [request for step in history for request in step.join]


def _replaced(history: History, request: Request) -> History:
    return tuple(
        attrs.evolve(step, join=tuple(request if r.name == request.name else r for r in step.join))
        for step in history
    )


def _without(history: History, name: str) -> History | None:
    """Return a history without one of its requests; None where no scheduler would order that."""
    steps: list[Step] = []
    live: set[str] = set()
    for step in history:
        less = attrs.evolve(
            step,
            finish=tuple(each for each in step.finish if each != name),
            join=tuple(request for request in step.join if request.name != name),
            pause=tuple(each for each in step.pause if each != name),
            chunk=tuple(each for each in step.chunk if each[0] != name),
            rest=tuple(each for each in step.rest if each != name),
            draft=tuple(each for each in step.draft if each[0] != name),
            lost=tuple(each for each in step.lost if each != name),
        )
        live = live.difference(less.finish).union(request.name for request in less.join)
        if not live and not steps:
            continue  # it was there before all others
        if not live - {*less.pause, *less.rest} and (less.pause or less.rest):
            return None
        steps.append(less)
    return tuple(steps) or None
