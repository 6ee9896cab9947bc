# SPDX-License-Identifier: Apache-2.0
"""A certificate says the same whenever it is made again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from specimens import references
from support import DEFECTIVE, gallery, timeless

from conformance.settings import DEFAULT_SEED

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote

NAMES = ("keeps_replaced_occupant", "counts_apply_calls")
SPECIMENS = [
    references()[0],
    *(specimen for specimen in gallery(DEFECTIVE) if specimen.name in NAMES),
]


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen.label)
def test_the_same_seed_gives_the_same_bytes(
    zygote: Zygote, specimen: Specimen, tmp_path: Path
) -> None:
    """Two runs with one seed differ in nothing but the time they took."""
    first, second = (
        json.dumps(timeless(zygote, specimen, tmp_path, DEFAULT_SEED)) for _ in range(2)
    )

    assert first == second


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen.label)
def test_another_seed_gives_the_same_verdicts(
    zygote: Zygote, specimen: Specimen, tmp_path: Path
) -> None:
    """What is found does not hang on the seed."""
    first, second = (
        {rule["id"]: rule["verdict"] for rule in document["rules"]}
        for document in (timeless(zygote, specimen, tmp_path, seed) for seed in (1, 2))
    )

    assert first == second
