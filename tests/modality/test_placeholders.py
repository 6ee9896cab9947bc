# SPDX-License-Identifier: Apache-2.0
"""Placeholders and embeddings fit exactly, item for item and in order, or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_plugins.modality import (
    ItemEmbeddings,
    PlaceholderMismatch,
    PlaceholderRange,
    PluginError,
    replace,
)
from reference_plugins.modality.placeholders import expand

TOKENS = {"image": 101, "audio": 102}
IMAGES = (PlaceholderRange("image", 0, 1, 3), PlaceholderRange("image", 1, 6, 2))


def text(tokens: int = 9, hidden_size: int = 4) -> np.ndarray:
    """Return text embeddings, all minus one."""
    return np.full((tokens, hidden_size), -1, dtype=np.float32)


def embedded(index: int, rows: int, modality: str = "image", width: int = 4) -> ItemEmbeddings:
    """Return embeddings of an item, all its index and one."""
    return ItemEmbeddings(modality, index, np.full((rows, width), index + 1, dtype=np.float32))


def test_embeddings_take_the_places_of_their_placeholders() -> None:
    """Rows of text stay, and the text that was handed over is left as it is."""
    before = text()
    replaced = replace(before, IMAGES, [embedded(0, 3), embedded(1, 2)])

    assert replaced[:, 0].tolist() == [-1, 1, 1, 1, -1, -1, 2, 2, -1]
    assert (before == -1).all()


@pytest.mark.parametrize(
    ("embeddings", "index", "expected", "actual"),
    [
        pytest.param([embedded(0, 3), embedded(1, 1)], 1, 2, 1, id="one row, which would spread"),
        pytest.param([embedded(0, 2), embedded(1, 2)], 0, 3, 2, id="too few"),
        pytest.param([embedded(0, 4), embedded(1, 2)], 0, 3, 4, id="too many"),
        pytest.param([embedded(0, 2), embedded(1, 3)], 0, 3, 2, id="right in total only"),
        pytest.param([embedded(0, 3), embedded(1, 0)], 1, 2, 0, id="none"),
        pytest.param([embedded(0, 3, width=5), embedded(1, 2)], 0, 4, 5, id="another width"),
        pytest.param([embedded(0, 3)], 1, "embeddings", "none", id="an item is missing"),
        pytest.param(
            [embedded(0, 3), embedded(1, 2), embedded(2, 7)], 2, 0, 7, id="an item too many"
        ),
        pytest.param(
            [embedded(1, 3), embedded(0, 2)],
            0,
            "the embeddings of image[0]",
            "those of image[1]",
            id="swapped",
        ),
        pytest.param(
            [embedded(0, 3, "audio"), embedded(1, 2)],
            0,
            "the embeddings of image[0]",
            "those of audio[0]",
            id="of another modality",
        ),
    ],
)
def test_a_mismatch_names_item_expected_and_actual(
    embeddings: list[ItemEmbeddings], index: int, expected: object, actual: object
) -> None:
    """In fields for a program and in a sentence for a person; nothing has been written."""
    before = text()
    with pytest.raises(PlaceholderMismatch) as raised:
        replace(before, IMAGES, embeddings)
    error = raised.value

    assert (error.modality, error.index) == ("image", index)
    assert (error.expected, error.actual) == (expected, actual)
    for part in (f"image[{index}]", str(expected or "no"), str(actual)):
        assert part in str(error)
    assert (before == -1).all()


def test_the_sentence_about_a_mismatch() -> None:
    """It says where in the prompt the placeholders are."""
    with pytest.raises(PlaceholderMismatch) as raised:
        replace(text(), IMAGES, [embedded(0, 3), embedded(1, 1)])

    assert str(raised.value) == (
        "image[1], placeholders 6 to 7: expected 2, got 1 embeddings, one for each placeholder"
    )


def test_rows_of_more_dimensions_are_a_mismatch() -> None:
    """An encoder that keeps a batch dimension of one is not spread over the placeholders."""
    batched = ItemEmbeddings("image", 0, np.zeros((1, 3, 4), dtype=np.float32))
    with pytest.raises(
        PlaceholderMismatch, match=r"expected shape \(3, 4\), got shape \(1, 3, 4\)"
    ):
        replace(text(), IMAGES[:1], [batched])


@pytest.mark.parametrize(
    "ranges",
    [
        pytest.param((PlaceholderRange("image", 0, 8, 3),), id="behind the prompt"),
        pytest.param((PlaceholderRange("image", 0, -1, 3),), id="before the prompt"),
        pytest.param(
            (PlaceholderRange("image", 0, 1, 3), PlaceholderRange("image", 1, 3, 2)), id="overlap"
        ),
        pytest.param(
            (PlaceholderRange("image", 0, 5, 3), PlaceholderRange("image", 1, 0, 2)), id="backwards"
        ),
    ],
)
def test_placeholders_lie_in_the_prompt_one_behind_the_other(
    ranges: tuple[PlaceholderRange, ...],
) -> None:
    """A slice beyond the end would be shorter, and two that overlap would be written twice."""
    embeddings = [embedded(place.index, place.length) for place in ranges]
    with pytest.raises(PlaceholderMismatch, match="behind those of the item before it"):
        replace(text(), ranges, embeddings)


@given(st.lists(st.tuples(st.sampled_from(["image", "audio"]), st.integers(1, 6)), max_size=6))
def test_a_prompt_grows_by_its_items(items: list[tuple[str, int]]) -> None:
    """Text stays in order, and every range holds its own placeholder and nothing else."""
    prompt = [0]
    for number, (modality, _) in enumerate(items, start=1):
        prompt += [TOKENS[modality], number]
    modalities, lengths = [each for each, _ in items], [length for _, length in items]
    tokens, ranges = expand(prompt, modalities, lengths, TOKENS)

    assert [token for token in tokens if token < 100] == list(range(len(items) + 1))
    assert len(tokens) == len(items) + 1 + sum(lengths)
    assert [place.length for place in ranges] == lengths
    for place, modality in zip(ranges, modalities, strict=True):
        assert set(tokens[place.offset : place.end]) == {TOKENS[modality]}


def test_an_item_without_tokens_is_the_plugins_error() -> None:
    """It would vanish from the prompt, and its embeddings would have nowhere to go."""
    with pytest.raises(PluginError, match=r"image\[0\] must take a token or more .got 0."):
        expand([101], ["image"], [0], TOKENS)
