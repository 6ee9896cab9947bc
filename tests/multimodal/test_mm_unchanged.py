# SPDX-License-Identifier: Apache-2.0
"""Data that a client handed over are compared with others that were made like them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from PIL import Image

from conformance.multimodal.modality import hostile
from conformance.multimodal.unchanged import unchanged


class _Incomparable:
    def __eq__(self, other: object) -> bool:
        raise TypeError

    __hash__ = None  # type: ignore[assignment] # as of what defines __eq__ alone


@pytest.mark.parametrize(
    "data",
    [
        Image.new("RGB", (3, 2), "red"),
        np.array([1.0, np.nan], np.float32),
        np.array([["a"], [None]], dtype=object),
        torch.tensor([1.0, 2.0]),
        ({"data": [1, "two"]}, _Incomparable()),
    ],
    ids=lambda data: type(data).__name__,
)
def test_a_copy_is_unchanged(data: object) -> None:
    """Whatever an item is made of, data that nobody touched are the same."""
    assert unchanged(data, copy.deepcopy(data))


@pytest.mark.parametrize(
    ("data", "before"),
    [
        (Image.new("RGB", (3, 2), "red"), Image.new("RGB", (3, 2), "blue")),
        (Image.new("RGB", (3, 2)), Image.new("RGB", (2, 3))),
        (np.zeros(3, np.float32), np.zeros(3, np.float64)),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (torch.zeros(3), torch.tensor([0.0, 0.0, 1.0])),
        ([1, 2], (1, 2)),
        ([1, [2]], [1, [3]]),
        ({"a": 1}, {"b": 1}),
    ],
)
def test_what_was_written_over_is_another(data: object, before: object) -> None:
    """A pixel, a number, a type, a shape or an entry: one other is enough."""
    assert not unchanged(data, before)


def test_nonsense_is_new_each_time() -> None:
    """A plugin that writes into the sound of one request does not change that of the next."""
    sounds = [each for each in hostile.nonsense("audio") if isinstance(each.make(), tuple)]

    assert sounds
    for sample in sounds:
        assert sample.make()[0] is not sample.make()[0]
