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
from conformance.watching.process_effects import Effect, Kind

#: Data that are served to see what that does to the process.
MOST_SERVED = 3

#: How much of a tokenizer's setting a message shows.
SHOWN = 60


@attrs.frozen
class Serve:
    """Have requests served in a process in which nothing has been done with the plugin."""

    generation: str
    model: str
    data: tuple[Any, ...]
    seed: int
    what: str = f"{__name__}:serve"


@attrs.frozen
class _Watching:
    """A host that sees what is other after it has served a request than it was before."""

    online: Any
    told: list[serving.Served]
    seed: int
    tokenizer: Any  #: the renderer's, with which the prompts of all other requests are made, too

    async def serve(self, *asked: Any) -> Any:  # noqa: ANN401 - as hosts have it
        before = _settings(self.tokenizer)
        try:
            with serving.watched(self.told, self.seed):
                return await self.online.serve(*asked)
        finally:
            after = _settings(self.tokenizer)
            effects = tuple(
                Effect(Kind.TOKENIZER, name, repr(was)[:SHOWN], repr(after[name])[:SHOWN])
                for name, was in before.items()
                if was != after[name]
            )
            last = self.told[-1]
            self.told[-1] = attrs.evolve(last, effects=(*last.effects, *effects))


def _settings(tokenizer: object) -> dict[str, Any]:
    """Return what decides which tokens a text becomes, where a request does not say it."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    size = getattr(backend, "get_vocab_size", None)
    return {
        "truncation_side": getattr(tokenizer, "truncation_side", None),
        "chat_template": getattr(tokenizer, "chat_template", None),
        "backend_tokenizer.encode_special_tokens": getattr(backend, "encode_special_tokens", None),
        "backend_tokenizer.get_vocab_size()": size() if callable(size) else None,
    }


def serve(plugin: type[Any], errand: Serve) -> list[serving.Served]:
    """Have requests served, and see what is other than it was; this is the other process."""
    bench = Bench.open(plugin, errand.generation, errand.model, errand.seed)
    told: list[serving.Served] = []
    hosts = (bench.online, bench.waiting)
    tokenizer = getattr(bench.around.renderer, "tokenizer", None)
    bench.online, bench.waiting = (_Watching(each, told, errand.seed, tokenizer) for each in hosts)  # type: ignore[assignment]  # all of them that is used
    for data in errand.data:
        for awaited in (False, True):
            bench.try_online(data, awaited=awaited)
    return told


def served(trial: Trial) -> serving.Serving:
    """Find out what serving requests does to the process."""
    bench = trial.bench
    assert trial.untouched is not None
    model = bench.model
    return serving.found(trial.untouched, partial(Serve, bench.generation, model, _data(trial)))


def _data(trial: Trial) -> tuple[Any, ...]:
    stock = trial.bench.stock
    return stock.valid[: min(stock.given, MOST_SERVED)]


def which(trial: Trial, number: int) -> tuple[Any, bool]:
    """Return the data of a request that was served, and whether its hooks were awaited."""
    return _data(trial)[number // 2], bool(number % 2)


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
