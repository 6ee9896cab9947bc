# SPDX-License-Identifier: Apache-2.0
"""MM-24 and rows that carry positions behind their embeddings, which vLLM takes off again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from vllm.model_executor.models.interfaces import SupportsMultiModal

from conformance.multimodal.processor.embeddings import usable

if TYPE_CHECKING:
    from conformance.multimodal.processor.bench import Bench

WIDTH, POSITIONS = 64, 5


class Prunes(SupportsMultiModal):
    """Leaves rows out, and says behind the others where they belong."""

    supports_multimodal_pruning = True


class LeavesTheirPlaces(SupportsMultiModal):
    """Has a row for each placeholder."""


def bench(model: type, rate: float | None) -> Bench:
    """Return a bench with one item, whose rows are wider than the model's."""
    found = SimpleNamespace(good=True, value=[torch.zeros(3, WIDTH + POSITIONS)])
    config = SimpleNamespace(
        get_inputs_embeds_size=lambda: WIDTH,
        multimodal_config=SimpleNamespace(video_pruning_rate=rate),
    )
    made = SimpleNamespace(
        ready=lambda _: True,
        encode=lambda _: found,
        host=SimpleNamespace(cls=model, config=SimpleNamespace(model_config=config)),
    )
    return cast("Bench", made)


@pytest.mark.parametrize(
    ("model", "rate", "fails"),
    [(Prunes, 0.5, False), (Prunes, None, True), (LeavesTheirPlaces, 0.5, True)],
)
def test_rows_may_be_wider_where_a_model_prunes(
    model: type, rate: float | None, fails: bool
) -> None:
    """And nowhere else: the engine would end."""
    prompt: Any = None

    trouble = usable(bench(model, rate), prompt)

    assert (trouble is not None and trouble.actual == str(WIDTH + POSITIONS)) == fails
