# SPDX-License-Identifier: Apache-2.0
"""A certificate of a slot plugin says the same whenever it is made again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from specimens import slot_references
from support import DEFECTIVE_SLOT, gallery, timeless

from conformance.settings import DEFAULT_SEED

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote

SPECIMENS = [
    *(specimen for specimen in slot_references() if "NoRepeat" in specimen.label),
    *(s for s in gallery(DEFECTIVE_SLOT) if s.name == "starts_over_after_preemption"),
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
def test_another_seed_gives_the_same_failures(
    zygote: Zygote, specimen: Specimen, tmp_path: Path
) -> None:
    """What is found does not hang on the seed; which rules have to wait for it may."""
    first, second = (timeless(zygote, specimen, tmp_path, seed) for seed in (1, 2))

    assert first["run"]["seed"] != second["run"]["seed"]
    assert first["verdict"] == second["verdict"]
    assert _failures(first) == _failures(second) == ({specimen.rule} - {None})


def _failures(document: dict[str, Any]) -> set[str]:
    return {rule["id"] for rule in document["rules"] if rule["verdict"] == "fail"}
