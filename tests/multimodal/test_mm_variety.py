# SPDX-License-Identifier: Apache-2.0
"""Prompts and items that are drawn for multi-modal plugins have the variety they are meant to."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import pytest

from conformance.multimodal.modality import stock as samples
from conformance.multimodal.modality.hostile import mutated
from conformance.multimodal.processor.boundaries import SIDES, _Side
from conformance.multimodal.processor.prompts import ANY, MOST_ITEMS, SEVERAL, Shape, strategy
from conformance.multimodal.processor.stock import USUAL, Item, Stock, alike, item
from conformance.search import examples

DRAWN, SEED = 300, 88

STOCK = Stock(
    {name: tuple(Item(name, text) for text in texts) for name, texts in USUAL.items()},
    ({}, {"size": 1}, {"size": 2}),
)
LIMITS = {"image": 4, "audio": 4, "video": 2}


@pytest.mark.parametrize("shape", [ANY, SEVERAL], ids=["any", "several"])
def test_prompts_vary(shape: Shape) -> None:
    """Prompts have every item and option, few and many, repeated, unlike, and side by side."""
    prompts = examples(strategy(STOCK, LIMITS, shape), DRAWN, SEED)
    counts = Counter(len(prompt.items) for prompt in prompts)
    items = Counter(item for prompt in prompts for item in prompt.items)
    options = Counter(prompt.options for prompt in prompts)

    assert set(counts) == set(range(shape.least, MOST_ITEMS + 1))
    assert min(counts.values()) >= 0.08 * DRAWN
    assert set(items) == set(STOCK.everything)
    assert min(items.values()) >= 0.05 * DRAWN
    assert set(options) == set(range(len(STOCK.options)))
    assert min(options.values()) >= 0.15 * DRAWN
    assert len(set(prompts)) >= 0.7 * DRAWN
    for share, found in (
        (0.3, [len(prompt.modalities) > 1 for prompt in prompts]),
        (0.3, [prompt.backwards for prompt in prompts]),
        (0.3, [len(set(prompt.items)) < len(prompt.items) for prompt in prompts]),
        (0.2, [any(len({*prompt.of(m)}) > 1 for m in prompt.modalities) for prompt in prompts]),
        (0.2, [isinstance(prompt.parts[0], int) for prompt in prompts]),
        (0.2, [isinstance(prompt.parts[-1], int) for prompt in prompts]),
        (0.3, [any(_two_items(*pair) for pair in pairwise(prompt.parts)) for prompt in prompts]),
    ):
        assert share * DRAWN <= sum(found) <= 0.95 * DRAWN


def _two_items(one: int | Item, other: int | Item) -> bool:
    return not isinstance(one, int) and not isinstance(other, int)


def test_one_item_is_no_bar_to_variety() -> None:
    """Where one of each modality is all that is allowed, they still come alone and together."""
    limits = dict.fromkeys(LIMITS, 1)
    prompts = examples(strategy(STOCK, limits, ANY), DRAWN, SEED)
    counts = Counter(len(prompt.items) for prompt in prompts)

    assert set(counts) == {1, 2, 3}
    assert min(counts.values()) >= 0.15 * DRAWN
    assert len({prompt.modalities for prompt in prompts}) == 3 + 6 + 6


@pytest.mark.parametrize(
    ("modality", "encodings", "largest"),
    [
        ("image", ("PNG", "JPEG"), samples.SIDE),
        ("audio", ("WAV",), samples.SAMPLES),
        ("video", ("GIF",), samples.FRAMES),
        ("point_cloud", ("PLY",), samples.POINTS),
    ],
)
def test_items_vary(modality: str, encodings: tuple[str, ...], largest: int) -> None:
    """Items are of every encoding, the smallest and nearly the largest, most between."""
    strategy = samples.drawn(modality, encodings)
    assert strategy is not None
    drawn = examples(strategy, DRAWN, SEED)
    sizes = [_size(sample.name) for sample in drawn]
    known = Counter(sample.encoding for sample in drawn)

    assert {*encodings} <= set(known)
    assert min(known.values()) >= 0.15 * DRAWN
    assert 0.01 * DRAWN <= sum(size == 1 for size in sizes) <= 0.4 * DRAWN
    assert max(sizes) >= 0.9 * largest
    assert sum(1 < size < 0.3 * largest for size in sizes) >= 0.04 * DRAWN
    assert sum(size > 0.3 * largest for size in sizes) >= 0.1 * DRAWN
    assert len(set(sizes)) >= min(50, 0.8 * largest)


def _size(name: str) -> int:
    """Return the first number in the name of a sample, its extent."""
    return int(
        next(part for part in name.replace("[", " ").replace(",", " ").split() if part.isdigit())
    )


def test_damage_varies() -> None:
    """Damaged files are shorter, longer and as long as before; some bytes are of no file."""
    whole = samples.Sample("a file", lambda: bytes(range(200)), "PNG", "image/png")
    damaged = examples(mutated([whole]), DRAWN, SEED)
    lengths = [len(sample.make()) for sample in damaged if sample.encoding == "PNG"]

    assert 0.3 * DRAWN <= len(lengths) <= 0.9 * DRAWN
    for holds in (lambda n: n < 200, lambda n: n == 200, lambda n: n > 200):
        assert sum(map(holds, lengths)) >= 0.05 * len(lengths)
    assert len({sample.make() for sample in damaged}) >= 0.8 * DRAWN


def test_steps_are_found_in_every_range_of_sizes() -> None:
    """Where large items have more steps than are looked at, those of small ones are found too."""

    class Counted(_Side):
        def count(self, value: int) -> int:
            return value // 16

    side = Counted(None, "image", str, 0)  # type: ignore[arg-type] # nothing is processed
    steps = list(side.steps(SIDES, 12, until=math.inf))

    assert 12 <= len(steps) < 12 + len(SIDES)
    assert all(value % 16 == 0 for value in steps)
    for low, high in pairwise(SIDES):
        assert any(low < value <= high for value in steps) == (low // 16 < high // 16)


def test_lists_of_numbers_have_others_of_their_length() -> None:
    """Messages show what is in them; a list of lists, and a single number, have none."""
    curve = item("curve", [1.0, 2.0, 3], None, 4)
    others = [pair[1] for pair in alike(curve)]

    assert curve.text == "number 4, [1.0, 2.0, 3]"
    assert [other.value for other in others] == [[2.0, 4.0, 6], [3, 2.0, 1.0], [1.0, 3.0, 3]]
    assert len({other.text for other in others}) == len(others)
    for value in ([[1.0, 2.0]], [1.0], [True, False], {"x": 1}):
        assert not list(alike(item("curve", value, None)))
