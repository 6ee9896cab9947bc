# SPDX-License-Identifier: Apache-2.0
"""Checks of what scoring leaves in the process; about loading there is an observer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs

from conformance.checking import checks
from conformance.classifier_hook.bench import STEADY, Bench
from conformance.classifier_hook.calls import one, turns
from conformance.classifier_hook.timing import LONG
from conformance.classifier_hook.trial import Trial
from conformance.findings import Finding
from conformance.watching import serving

#: After so many turns of the event loop it is looked at what a call on a long text has changed.
TURNS = 4


@attrs.frozen
class Errand:
    """Have texts scored in a process in which nothing has been done with the hook."""

    arguments: Mapping[str, Any]
    texts: tuple[str, ...]
    seed: int
    what: str = f"{__name__}:score"


def score(hook: type[Any], errand: Errand) -> list[serving.Served]:
    """Have texts scored, and see what is other than it was; this is the other process.

    What a call sets while it waits all others have meanwhile, and may have ever after: of two that
    overlap, the second one restores what the first one set.
    """
    bench = Bench.open(hook, {}, origin=None, seed=errand.seed, arguments=errand.arguments)
    made = bench.make()
    told: list[serving.Served] = []

    async def main() -> None:
        for text in errand.texts:
            with serving.watched(told, errand.seed) as look:
                call = asyncio.create_task(one(made, bench.context(text), bench.patience))
                for _ in range(TURNS):
                    await turns(1)
                    if text == LONG[0] and not call.done():
                        look()
                await call

    bench.run(main())
    return told


def served(trial: Trial) -> serving.Serving:
    """Find out what scoring does to the process."""
    assert trial.untouched is not None
    errand = partial(Errand, dict(trial.bench.arguments), texts(trial))
    return serving.found(trial.untouched, errand)


def texts(trial: Trial) -> tuple[str, ...]:
    """Return the texts that are scored for that, in their order."""
    bench = trial.bench
    few = (*bench.allowed[:1], *bench.blocked[:1], *bench.texts[:STEADY])
    return tuple(dict.fromkeys((*few, LONG[0])))


@checks("CH-40")
def leaves_others_alone(trial: Trial) -> Finding:
    """Scoring changes nothing that others compute with; about loading there is an observer."""
    found = trial.once(served)
    if found.amid and not found.harms:
        amid = serving.judged(found, found.amid, "a long text, before it is done")
        return attrs.evolve(amid, case={**(amid.case or {}), "turns": TURNS})
    return serving.judged(found, found.harms)


@checks("CH-42", after=("CH-40",))
def leaves_the_process(trial: Trial) -> Finding:
    """Scoring changes nothing else of the process either."""
    found = trial.once(served)
    return serving.judged(found, found.other)
