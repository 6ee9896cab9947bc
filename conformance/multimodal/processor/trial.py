# SPDX-License-Identifier: Apache-2.0
"""One processor in the simulator: what each rule waits for, and what ends all judging."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import attrs

from conformance.checking import Simulation
from conformance.findings import Finding, inapplicable, waiting
from conformance.multimodal.processor import cases
from conformance.multimodal.processor.answers import CannotBuild
from conformance.multimodal.processor.bench import Bench
from conformance.multimodal.processor.boundaries import items_at_steps
from conformance.multimodal.processor.checkpoint import remove
from conformance.multimodal.processor.host import Exited
from conformance.multimodal.processor.prompts import ANY, Prompt, Shape, alone
from conformance.multimodal.processor.running import raw_alone
from conformance.multimodal.processor.search import Judge, search
from conformance.multimodal.processor.stock import Item
from conformance.settings import Budget
from conformance.verdict import Verdict
from conformance.watching.interruption import PluginHung
from conformance.watching.untouched import Untouched

LOADS, SURVIVES, SERVED, MODEL = "MM-01", "MM-09", "MM-11", "MM-02"

#: Large items.
LARGE: Mapping[str, tuple[str, ...]] = {
    "image": ("700x700", "1400x28", "28x1400", "333x500", "1024x60", "2048x1536"),
    "audio": ("31s",),
    "video": ("84x84x12", "28x28x40"),
}

#: Items that are allowed almost everywhere, and small: what grows with their long side, or with the
#: square of their length, does not.
EXTREME: Mapping[str, tuple[str, ...]] = {
    "image": ("60000x1", "1x60000", "1600x1200"),
    "audio": ("0.0001s", "120s"),
    "video": ("2000x1x1", "1x2000x2", "28x28x90"),
}

#: Rules that need no item.
_WITHOUT_ITEMS = frozenset((LOADS, MODEL, "MM-03", SERVED, "MM-06", SURVIVES))

#: Rules about rows of embeddings.  Where nothing can be encoded they find no fault in any prompt,
#: so each waits for whatever one that it is built on waits for.
_WITH_ROWS = frozenset((*(f"MM-{number}" for number in range(20, 29)), "MM-39", "MM-82"))

#: Rules about items that stand in a text.
_WITH_TEXT = frozenset(("MM-13", "MM-14", "MM-15", "MM-16", "MM-17", "MM-18", "MM-28"))

#: Rules about embeddings, their places in a prompt, and how many there are.
_WITH_PLACES = _WITH_TEXT | _WITH_ROWS | {"MM-29", "MM-35", "MM-84"}


@attrs.define
class Trial(Simulation):
    """One class and its bench."""

    survives: ClassVar[str] = SURVIVES
    breaks: ClassVar[Mapping[type[BaseException], tuple[str, str]]] = {
        CannotBuild: (LOADS, "{}"),
        PluginHung: (SURVIVES, "{}"),
        Exited: (SURVIVES, "{}"),
    }

    bench: Bench
    section: Mapping[str, Any]
    budget: Budget
    untouched: Untouched  #: in which nothing was processed yet
    _ready: bool = attrs.field(init=False, default=False)
    _at_steps: tuple[Prompt, ...] | None = attrs.field(init=False, default=None)

    def look(self, judge: Judge, shape: Shape = ANY) -> Finding:
        """Judge prompts of a shape."""
        return search(self.bench, self.budget, judge, shape)

    def at_steps(self) -> tuple[Prompt, ...]:
        """Return items of the sizes at which numbers of placeholders change, with any options."""
        if self._at_steps is None:
            self._at_steps = items_at_steps(self.bench, self.budget)
        return self._at_steps

    def each_alone(self) -> Iterator[Prompt]:
        """Yield every item that is known, alone: with no options first, then with any."""
        items = (*self.bench.stock.everything, *self.bench.unusual)
        yield from map(alone, self.large())
        for options in range(len(self.bench.stock.options)):
            yield from (alone(item, options) for item in items)
        yield from self.at_steps()

    def extreme(self) -> list[Item]:
        """Return items that are small and have an extreme shape, or length."""
        return self._known(EXTREME)

    def large(self) -> list[Item]:
        """Return large items."""
        return self._known(LARGE)

    def _known(self, texts: Mapping[str, tuple[str, ...]]) -> list[Item]:
        return [
            self.bench.as_taken(Item(modality, text))
            for modality in self.bench.stock.items
            for text in texts.get(modality, ())
        ]

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        return {"profile": self.bench.document()} if self._ready else {}

    def close(self) -> None:
        """Remove what was written for this trial, and end what waits for it."""
        self.untouched.close()
        remove(self.bench.host.folder)

    def attempt(self, rule: str) -> Finding:
        """Judge a rule, or return what it waits for."""
        if not self._ready:
            self.bench.prepare(self.section)
            self._ready = True
        if self.bench.broken:
            raise CannotBuild(self.bench.broken)
        return self._decide(rule)

    def case(self, rule: str, finding: Finding) -> dict[str, Any]:
        """Return a failure as data."""
        return cases.written(self.bench, rule, finding)

    def _decide(self, rule: str) -> Finding:
        if rule in _WITH_TEXT and self.bench.host.encoder_decoder:
            why = "items of an encoder-decoder model are not in the prompt with the text"
            return inapplicable(why)
        if rule in _WITH_PLACES and raw_alone(self.bench.host):
            why = "the model runs on raw items: it has no embeddings, and no places for them"
            return inapplicable(why)
        for other in self.checks[rule].after:
            found = self.find(other)
            if found.verdict is Verdict.FAIL:
                return waiting(other, found.message)
            if found.waits_for and (rule in _WITH_ROWS or other not in _WITH_ROWS):
                return attrs.evolve(found, examples=0, acted=0)
        if rule not in _WITHOUT_ITEMS and not self.bench.stock.items:
            return waiting(SERVED, self.find(SERVED).message)
        return self.checks[rule].judge(self)
