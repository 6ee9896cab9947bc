# SPDX-License-Identifier: Apache-2.0
"""What serving requests does to a process: in two of their own, with other seeds.

What was loaded is what it was before the plugin was first used, so it shows as well what only the
first request does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import torch

from conformance.findings import Finding, failed, passed, unjudged
from conformance.watching import loading, loading_process, process_effects
from conformance.watching.process_effects import Effect, Kind
from conformance.watching.process_facts import generator_states, seed_generators
from conformance.watching.untouched import Ended, Errands

#: Seeds of the generators; a generator with the same state after both was seeded by the plugin.
SEEDS = (11, 12)

#: Threads of torch in these processes: a number that nobody asks for.
THREADS = 3

#: What others of the process go by.  A variable, a file, or an attribute that is other after a
#: request may be what some library does when it is first used.
_KINDS = (Kind.SETTING, Kind.SIGNAL, Kind.HOOK, Kind.WARNINGS, Kind.LOGGING, Kind.TOKENIZER)


@attrs.frozen
class Served:
    """What a process saw of one request."""

    effects: tuple[Effect, ...]
    generators: dict[str, bytes]
    amid: tuple[Effect, ...] = ()  #: what was other while the request waited for something


@attrs.frozen
class Serving:
    """What serving does to a process, each with the number of the request."""

    requests: int
    #: That change what others get, or keep the process from ending.
    harms: tuple[tuple[int, Effect], ...] = ()
    other: tuple[tuple[int, Effect], ...] = ()
    amid: tuple[tuple[int, Effect], ...] = ()  #: that change what others get meanwhile
    problem: str | None = None  #: why nothing can be said


@contextmanager
def watched(told: list[Served], seed: int) -> Iterator[Callable[[], None]]:
    """Have a request served with generators of some seed; this is in the other process.

    The block may call what it gets whenever the request waits for something.
    """
    seed_generators(seed)
    torch.set_num_threads(THREADS)
    loading_process.hand_on()
    effects: list[Effect] = []
    amid: list[Effect] = []
    try:
        with process_effects.noted(effects) as others:
            yield lambda: amid.extend(others())
    finally:
        seen = (tuple(map(loading_process.told, each)) for each in (effects, amid))
        told.append(Served(next(seen), generator_states(), next(seen)))


def found(untouched: Errands, errand: Callable[[int], Any]) -> Serving:
    """Have requests served in two processes, each with an errand for its seed.

    An errand returns what was :func:`watched`, request by request.
    """
    try:
        first, second = (untouched.run(errand(seed)) for seed in SEEDS)
    except Ended:
        return Serving(0, problem="the process that serves requests ends or hangs")
    harms: list[tuple[int, Effect]] = []
    other: list[tuple[int, Effect]] = []
    amid: list[tuple[int, Effect]] = []
    for number, (one, two) in enumerate(zip(first, second, strict=False)):
        harms += [
            (number, Effect(Kind.GENERATOR, name))
            for name, state in one.generators.items()
            if two.generators[name] == state
        ]
        for effect in one.effects:
            if effect.kind in _KINDS:
                (harms if loading.harmful(effect) else other).append((number, effect))
        amid += [(number, effect) for effect in one.amid if loading.harmful(effect)]
    return Serving(len(first), tuple(harms), tuple(other), tuple(dict.fromkeys(amid)))


def judged(
    serving: Serving, what: tuple[tuple[int, Effect], ...], request: str = "a request"
) -> Finding:
    """Judge whether serving does nothing of some kind.

    Args:
        serving: what it does.
        what: that part of it.
        request: what messages call the request that does it first.

    """
    if serving.problem:
        return unjudged(serving.problem)
    if not what:
        return passed(serving.requests, serving.requests)
    first = what[0][0]
    effects = [effect for number, effect in what if number == first]
    said = "; ".join(map(_sentence, effects))
    names = [effect.name for effect in effects if effect.kind is not Kind.TOKENIZER]
    case = {"served": first, "names": names}
    return failed(f"serving {request}: {said}", serving.requests, case=case)


def _sentence(effect: Effect) -> str:
    if effect.kind is Kind.GENERATOR:
        return f"seeds the global generator of {effect.name} anew"
    return process_effects.sentence(effect)
