# SPDX-License-Identifier: Apache-2.0
"""Prompts with items in them, as Hypothesis strategies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from conformance.multimodal.processor.stock import Item, Stock

#: Tokens of text in a row; parts and items of a prompt.
MOST_WORDS = 3
MOST_PARTS = 8
MOST_ITEMS = 5


@attrs.frozen
class Prompt:
    """Text and items in their order; a number stands for so many tokens of text."""

    parts: tuple[int | Item, ...]
    options: int = 0  #: which of the stock's options
    backwards: bool = False  #: whether modalities are handed over in the reverse order

    @property
    def items(self) -> tuple[Item, ...]:
        """The items, in the order of the prompt."""
        return tuple(part for part in self.parts if not isinstance(part, int))

    @property
    def modalities(self) -> tuple[str, ...]:
        """The modalities, in the order in which they are handed over."""
        found = tuple(dict.fromkeys(item.modality for item in self.items))
        return found[::-1] if self.backwards else found

    def of(self, modality: str) -> tuple[Item, ...]:
        """Return the items of one modality."""
        return tuple(item for item in self.items if item.modality == modality)

    def places(self) -> list[tuple[str, int]]:
        """Return modality and index in it of each item."""
        counts: Counter[str] = Counter()
        found = []
        for item in self.items:
            found.append((item.modality, counts[item.modality]))
            counts[item.modality] += 1
        return found

    def data(self) -> dict[str, list[Any]]:
        """Return new data of the items, by modality."""
        return {name: [item.make() for item in self.of(name)] for name in self.modalities}


def alone(item: Item, options: int = 0) -> Prompt:
    """Return a prompt with one item between two texts."""
    return Prompt((2, item, 1), options)


def side_by_side(items: Sequence[Item]) -> Prompt:
    """Return a prompt with items, a token of text before each."""
    return Prompt(tuple(part for item in items for part in (1, item)))


def crowded(items: Sequence[Item], count: int) -> Prompt:
    """Return a prompt with so many items, again from the first where there are fewer."""
    return Prompt((2, *islice(cycle(items), count), 1))


@attrs.frozen
class Shape:
    """What prompts of a family have."""

    least: int = 1  #: items
    share: float = 1.0  #: of the examples that others get


ANY = Shape()
SEVERAL = Shape(least=2)
CACHED = Shape(share=0.4)


def smaller(prompt: Prompt, stock: Stock) -> Iterator[Prompt]:
    """Yield prompts that are a little smaller than one, those with fewer items first."""
    parts = prompt.parts
    for place in sorted(range(len(parts)), key=lambda place: isinstance(parts[place], int)):
        rest = (*parts[:place], *parts[place + 1 :])
        if any(not isinstance(part, int) for part in rest):
            yield attrs.evolve(prompt, parts=_joined(rest))
    if prompt.options:
        yield attrs.evolve(prompt, options=0)
    if prompt.backwards:
        yield attrs.evolve(prompt, backwards=False)
    for place, part in enumerate(parts):
        others: tuple[int | Item, ...]
        if isinstance(part, int):
            others = (1,) if part > 1 else ()
        else:
            known = stock.items.get(part.modality, ())
            others = known[: known.index(part)] if part in known else ()
        for other in others:
            yield attrs.evolve(prompt, parts=(*parts[:place], other, *parts[place + 1 :]))


def _joined(parts: Sequence[int | Item]) -> tuple[int | Item, ...]:
    """Return parts without a text that follows another."""
    found: list[int | Item] = []
    for part in parts:
        if not (isinstance(part, int) and found and isinstance(found[-1], int)):
            found.append(part)
    return tuple(found)


def unlike(stock: Stock, limits: Mapping[str, int]) -> Iterator[Prompt]:
    """Yield a prompt of each modality with as many items as are allowed, each of another size.

    By chance they are drawn too seldom: what goes wrong with items of one modality that differ in
    one dimension is seen in few prompts of several modalities.
    """
    for name, items in stock.items.items():
        several = items[: min(limits.get(name, 0), MOST_ITEMS)]
        if len(several) > 1:
            yield side_by_side(several)


def strategy(stock: Stock, limits: Mapping[str, int], shape: Shape) -> SearchStrategy[Prompt]:
    """Return prompts of a shape that the model allows."""
    usable = [one for name, items in stock.items.items() for one in items if limits.get(name, 0)]
    part = st.one_of(st.sampled_from(usable), st.sampled_from(usable), st.integers(1, MOST_WORDS))
    parts = st.lists(part, min_size=shape.least, max_size=MOST_PARTS)
    drawn = st.builds(
        lambda parts, options, backwards: Prompt(_allowed(parts, limits), options, backwards),
        parts,
        st.integers(0, len(stock.options) - 1),
        st.booleans(),
    )
    return drawn.filter(lambda prompt: len(prompt.items) >= shape.least)


def _allowed(parts: Sequence[int | Item], limits: Mapping[str, int]) -> tuple[int | Item, ...]:
    """Return the parts without items that are too many, and without texts that follow texts."""
    found: list[int | Item] = []
    counts: Counter[str] = Counter()
    for part in parts:
        if not isinstance(part, int):
            if counts[part.modality] >= limits[part.modality] or counts.total() >= MOST_ITEMS:
                continue
            counts[part.modality] += 1
        found.append(part)
    return _joined(found)
