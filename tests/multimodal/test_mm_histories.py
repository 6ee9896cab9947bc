# SPDX-License-Identifier: Apache-2.0
"""Prompts are ones that clients can send, and items are what their descriptions say."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from conformance.multimodal.processor import prompts
from conformance.multimodal.processor.prompts import ANY, SEVERAL, Prompt, Shape, strategy
from conformance.multimodal.processor.stock import USUAL, Item, Stock, item, offered
from conformance.settings import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

STOCK = Stock(
    {name: tuple(Item(name, text) for text in USUAL[name]) for name in ("image", "audio")},
    ({}, {"side": 2}),
)
LIMITS = {"image": 4, "audio": 2}


@pytest.mark.parametrize("shape", [ANY, SEVERAL], ids=["any", "several"])
@settings(deadline=None)  # other tests share the machine
@given(data=st.data())
def test_a_prompt_keeps_to_its_limits(shape: Shape, data: st.DataObject) -> None:
    """No more items than are allowed, no fewer than the shape has, and no text after a text."""
    drawn = data.draw(strategy(STOCK, LIMITS, shape))

    assert shape.least <= len(drawn.items) <= prompts.MOST_ITEMS
    for modality, limit in LIMITS.items():
        assert len(drawn.of(modality)) <= limit
        assert set(drawn.of(modality)) <= set(STOCK.items[modality])
    texts = [isinstance(part, int) for part in drawn.parts]
    assert not any(one and other for one, other in pairwise(texts))
    assert all(1 <= part <= prompts.MOST_WORDS for part in drawn.parts if isinstance(part, int))
    assert 0 <= drawn.options < len(STOCK.options)


@given(strategy(STOCK, LIMITS, SEVERAL))
def test_items_are_found_where_they_stand(drawn: Prompt) -> None:
    """The place of each item leads to it, in whatever order modalities are handed over."""
    found = [drawn.of(modality)[index] for modality, index in drawn.places()]

    assert tuple(found) == drawn.items
    assert sorted(drawn.data()) == sorted({one.modality for one in drawn.items})
    turned = attrs.evolve(drawn, backwards=not drawn.backwards)
    assert turned.modalities == drawn.modalities[::-1]
    assert turned.places() == drawn.places()


def _measure(prompt: Prompt) -> tuple[int, ...]:
    """Return numbers of which none grows, and one falls, when a prompt becomes smaller."""
    words = sum(part for part in prompt.parts if isinstance(part, int))
    ranks = sum(STOCK.items[one.modality].index(one) for one in prompt.items)
    return len(prompt.items), len(prompt.parts), words, prompt.options, prompt.backwards, ranks


@given(strategy(STOCK, LIMITS, ANY))
def test_a_smaller_prompt_is_smaller(drawn: Prompt) -> None:
    """Making prompts smaller ends, and never leaves one without an item."""
    for smaller in prompts.smaller(drawn, STOCK):
        pairs = zip(_measure(smaller), _measure(drawn), strict=True)
        assert all(one <= other for one, other in pairs)
        assert _measure(smaller) != _measure(drawn)
        assert smaller.items


def test_the_smallest_prompt_is_one_item() -> None:
    """A prompt that is made as small as can be is its modality's first item."""
    prompt = Prompt((3, STOCK.items["image"][4], 2, STOCK.items["audio"][2], 1), 1, backwards=True)
    while following := next(iter(prompts.smaller(prompt, STOCK)), None):
        prompt = following

    assert prompt == Prompt((STOCK.items["audio"][0],))


@pytest.mark.parametrize("modality", USUAL)
def test_an_item_is_what_it_says(modality: str) -> None:
    """Data have the size of the description, are the same each time, and shared with nobody."""
    seen = []
    for text in USUAL[modality]:
        one, other = (_array(Item(modality, text).make()) for _ in range(2))
        assert np.array_equal(one, other)
        assert not np.shares_memory(one, other)
        seen.append(one.tobytes())
    assert len(set(seen)) == len(seen)
    sizes: Mapping[str, tuple[int, ...]] = {
        "image": (28, 84, 3),
        "audio": (4960,),
        "video": (4, 28, 56, 3),
    }
    assert _array(Item(modality, USUAL[modality][1]).make()).shape == sizes[modality]


def _array(data: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401 - whatever vLLM takes
    if isinstance(data, Image.Image):
        assert data.mode == "RGB"
        return np.array(data)
    array: np.ndarray[Any, Any] = data[0] if isinstance(data, tuple) else data
    return array


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"items": {"image": ["big"]}}, "items.image has 'big'"),
        ({"items": {"image": ["0.5s"]}}, "as in '84x28#2:L'"),
        ({"items": {"audio": ["28x28"]}}, "as in '0.5s@8000#2:stereo'"),
        ({"items": {"hologram": ["bright"]}}, "a Python profile may hold objects"),
        ({"items": {"image": "28x28"}}, "items.image must be a list"),
        ({"options": ["fast"]}, "options must hold tables"),
    ],
    ids=["size", "image", "audio", "modality", "list", "options"],
)
def test_a_profile_that_is_none_is_refused(section: dict[str, Any], said: str) -> None:
    """One sentence says where the mistake is and what would be right."""
    with pytest.raises(UsageError) as caught:
        offered(section, ("image",), "mine.toml")

    assert said in str(caught.value)
    assert "mine.toml" in str(caught.value)


def test_a_profile_may_hold_objects() -> None:
    """What a Python profile gives is handed over as it is, and new each time."""
    value = [[0.0, 1.0], [2.0, 3.0]]
    one = item("point", value, None, 1)

    assert one.text == "number 1, [[0.0, 1.0], [2.0, 3.0]]"
    assert one.make() == value
    assert one.make() is not value
