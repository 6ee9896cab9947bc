# SPDX-License-Identifier: Apache-2.0
"""Runs in workers: what the items of a multi-modal prompt cost, before the engine and in it.

Each figure is of two things that take turns, the first once more to tell the machine's noise:
text of as many tokens and the prompt with its items; the items without a cache and with one that
has them; the items encoded one by one and all at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import attrs

from conformance.benchmark.figures import TURNS, Overhead, Round, compare
from conformance.benchmark.in_turns import Measuring
from conformance.multimodal.processor.answers import CannotBuild
from conformance.multimodal.processor.bench import Bench
from conformance.multimodal.processor.checkpoint import chosen, folder_of, remove
from conformance.multimodal.processor.prompts import Prompt, side_by_side
from conformance.multimodal.processor.stock import Item
from conformance.plugin.profile import of_plugin
from conformance.plugin.target import Plugin
from conformance.settings import Budget, Settings, UsageError
from conformance.worker.jobs import class_of

#: Sizes of each modality that are measured.
SIZES = {Budget.QUICK: 1, Budget.STANDARD: 3, Budget.DEEP: 6}

#: Seconds that a round takes at least: what is short is done several times.
ROUND = 0.02

#: Bytes of a cache that has room for all items.
ROOM = 1 << 30

_FIGURES = ("seconds per item",)


@attrs.frozen
class Items:
    """Items of one size in a prompt."""

    modality: str
    size: str  #: as a profile describes it
    count: int

    @property
    def name(self) -> str:
        """What progress says."""
        return f"{self.modality} {self.size}"

    def prompt(self) -> Prompt:
        """Return a prompt with as many, each drawn for itself."""
        each = [Item(self.modality, f"{self.size}#{n + 1}") for n in range(self.count)]
        return side_by_side(each)


@contextmanager
def opened(plugin: Plugin, settings: Settings) -> Iterator[Measuring[Items]]:
    """Open a plugin, and return all its loads with what measures one.

    Raises:
        UsageError: no model of the class is known, or no item that it accepts.

    """
    try:
        bench = _bench(plugin, settings)
    except CannotBuild as error:
        raise UsageError(str(error)) from None
    try:
        yield _loads(bench, settings), partial(_measured, bench, settings=settings)
    finally:
        remove(bench.host.folder)


def _bench(plugin: Plugin, settings: Settings) -> Bench:
    """Open what processes prompts, and encodes items.

    Raises:
        UsageError: no model of the class is known, or no item that it accepts.
        CannotBuild: vLLM cannot make a processor, or a model, of the class.

    """
    cls = class_of(plugin)
    profile = of_plugin(plugin, settings)
    section = profile.section(plugin.interface) if profile else {}
    name = chosen(plugin, section, settings, cls)
    if name is None:
        raise UsageError("no tiny model of the class is known; give a profile with one.")
    origin = profile.origin if profile else None
    bench = Bench.open(cls, folder_of(name), name, section, origin=origin, seed=settings.seed)
    bench.prepare(section)
    if not any(item.value is None for item in bench.stock.everything):
        raise UsageError(bench.broken or "no item of any size is known that its processor takes.")
    bench.host.model()
    return bench


def _loads(bench: Bench, settings: Settings) -> list[Items]:
    found: dict[Items, None] = {}
    for modality, items in bench.stock.items.items():
        sizes = dict.fromkeys(one.text.partition("#")[0] for one in items if one.value is None)
        for size in list(sizes)[: SIZES[settings.budget]]:
            for count in (1, bench.limits[modality]):
                found[Items(modality, size, count)] = None
    return list(found)


def _measured(bench: Bench, load: Items, settings: Settings) -> Iterator[Overhead]:
    prompt = load.prompt()
    processed = bench.process(prompt)
    if not processed.good:
        return
    tokens, words = bench.tokens(prompt), bench.texts.words()
    text = [words[n % len(words)] for n in range(len(processed.value.tokens))]
    processor, host = bench.processor(), bench.host
    cache = host.cache(ROOM)

    def process(cached: object = None) -> Callable[[], object]:
        return lambda: host.process(processor, tokens, prompt.data(), {}, cached)

    def compared(
        where: str, without: Callable[[], object], with_it: Callable[[], object]
    ) -> list[Overhead]:
        first, second = _rounds(without, load.count), _rounds(with_it, load.count)
        turns = [(first(), second(), first()) for _ in range(TURNS[settings.budget])]
        told = f"{where}, {load.name}"
        return compare(told, load.count, turns, figures=_FIGURES, seed=settings.seed)

    yield from compared("items for text", lambda: host.process(processor, text, {}, {}), process())
    yield from compared("cached", process(), process(cache))
    if load.count > 1:
        data = [(name, processed.value.data[name][index]) for name, index in prompt.places()]
        one_by_one = lambda: [host.encode([one]) for one in data]  # noqa: E731 - like the other
        yield from compared("encoded at once", one_by_one, lambda: host.encode(data))


def _rounds(call: Callable[[], object], count: int) -> Callable[[], Round]:
    """Return what makes a round of calls, after one that is not counted."""
    call()
    shortest = ROUND
    for _ in range(3):
        started = time.perf_counter()
        call()
        shortest = min(shortest, time.perf_counter() - started)
    times = max(1, round(ROUND / max(shortest, 1e-6)))

    def turn() -> Round:
        began = time.perf_counter()
        for _ in range(times):
            call()
        return Round(0, times * count, time.perf_counter() - began)

    return turn
