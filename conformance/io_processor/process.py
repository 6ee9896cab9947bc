# SPDX-License-Identifier: Apache-2.0
"""Checks of what serving leaves in the process; about loading there is an observer."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs

from conformance.checking import checks
from conformance.findings import Finding
from conformance.io_processor.bench import Bench
from conformance.io_processor.trial import Trial
from conformance.watching import serving
from conformance.watching.process_effects import Effect, noted

#: Data that are served to see what that does to the process.
MOST_SERVED = 3


@attrs.frozen
class Serve:
    """Have requests served in a process in which nothing has been done with the plugin."""

    generation: str
    model: str
    data: tuple[Any, ...]
    seed: int
    what: str = f"{__name__}:serve"


@attrs.frozen
class _Noting:
    """A host that sees what is other after it has served a request than it was before."""

    online: Any
    effects: list[Effect]

    async def serve(self, *asked: Any) -> Any:  # noqa: ANN401 - as hosts have it
        with noted(self.effects):
            return await self.online.serve(*asked)


def serve(plugin: type[Any], errand: Serve) -> serving.Served:
    """Have requests served, and see what is other than it was; this is the other process."""
    bench = Bench.open(plugin, errand.generation, errand.model, errand.seed)
    hosts = (bench.online, bench.waiting)

    def every(effects: list[Effect]) -> None:
        bench.online, bench.waiting = (_Noting(host, effects) for host in hosts)  # type: ignore[assignment]  # all of them that is used
        for data in errand.data:
            for awaited in (False, True):
                bench.try_online(data, awaited=awaited)

    return serving.served(errand.seed, every)


def served(trial: Trial) -> serving.Serving:
    """Find out what serving requests does to the process."""
    bench = trial.bench
    assert trial.untouched is not None
    data = bench.stock.valid[: min(bench.stock.given, MOST_SERVED)]
    errand = partial(Serve, bench.generation, str(bench.around.config.model_config.model), data)
    return serving.found(trial.untouched, errand, len(data))


@checks("IO-39")
def leaves_others_alone(trial: Trial) -> Finding:
    """Serving changes nothing that others compute with; about loading there is an observer."""
    found = trial.once(served)
    return serving.judged(found, found.harms)


@checks("IO-42", after=("IO-39",))
def leaves_the_process(trial: Trial) -> Finding:
    """Serving changes nothing else of the process either."""
    found = trial.once(served)
    return serving.judged(found, found.other)
