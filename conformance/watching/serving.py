# SPDX-License-Identifier: Apache-2.0
"""What serving requests does to a process: in two of their own, with other seeds.

What was loaded is what it was before the plugin was first used, so it shows as well what only the
first request does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch

from conformance.findings import Finding, failed, passed, unjudged
from conformance.watching import loading, process_effects
from conformance.watching.process_effects import Effect, Kind
from conformance.watching.untouched import Ended, Untouched

#: Seeds of the generators; a generator with the same state after both was seeded by the plugin.
SEEDS = (11, 12)

#: Threads of torch in these processes: a number that nobody asks for.
THREADS = 3

#: What others of the process go by.  A variable, a file, or an attribute that is other after a
#: request may be what some library does when it is first used.
_KINDS = (Kind.SETTING, Kind.SIGNAL, Kind.HOOK, Kind.WARNINGS, Kind.LOGGING)


@attrs.frozen
class Served:
    """What one process saw."""

    effects: tuple[Effect, ...]
    generators: dict[str, bytes]


@attrs.frozen
class Serving:
    """What serving does to a process."""

    requests: int
    harms: tuple[str, ...] = ()  #: that change what others get, or keep the process from ending
    other: tuple[str, ...] = ()
    problem: str | None = None  #: why nothing can be said


def served(seed: int, serve: Callable[[list[Effect]], object]) -> Served:
    """Have requests served with generators of some seed; this is the other process.

    Args:
        seed: of all generators.
        serve: notes in a list what is other than it was; see :func:`process_effects.noted`.

    """
    process_effects.seed(seed)
    torch.set_num_threads(THREADS)
    effects: list[Effect] = []
    serve(effects)
    return Served(tuple(effects), process_effects.generators())


def found(untouched: Untouched, errand: Callable[[int], Any], requests: int) -> Serving:
    """Have so many requests served in two processes, each with an errand for its seed."""
    try:
        first, second = (untouched.run(errand(seed)) for seed in SEEDS)
    except Ended:
        return Serving(requests, problem="the process that serves requests ends or hangs")
    states: dict[str, bytes] = second.generators
    harms = [
        f"seeds the global generator of {name} anew"
        for name, state in first.generators.items()
        if states[name] == state
    ]
    other: list[str] = []
    for effect in first.effects:
        if effect.kind in _KINDS:
            told = harms if loading.harmful(effect) else other
            told.append(process_effects.sentence(effect))
    # Each request may have done the same.
    return Serving(requests, tuple(dict.fromkeys(harms)), tuple(dict.fromkeys(other)))


def judged(serving: Serving, what: tuple[str, ...]) -> Finding:
    """Judge whether serving does nothing of some kind."""
    if serving.problem:
        return unjudged(serving.problem)
    if what:
        return failed(f"serving a request: {'; '.join(what)}", serving.requests)
    return passed(serving.requests, serving.requests)
