# SPDX-License-Identifier: Apache-2.0
"""Correct IO processors pass everything: ours, and unusual ones, with a profile and without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from specimens import io_references
from support import GOOD, UNUSUAL_IO, certify, gallery

from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote


REFERENCES = io_references()

#: Nobody finds out by trying that a text must be a picture.
DISCOVERED = [
    attrs.evolve(specimen, profile={})
    for specimen in REFERENCES
    if "ImageFilter" not in specimen.target
]


@pytest.mark.parametrize(
    "specimen",
    [*REFERENCES, *DISCOVERED, *(found for folder in UNUSUAL_IO for found in gallery(folder))],
    ids=lambda specimen: f"{specimen.generation}-{specimen.label}",
)
def test_passes_everything(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A correct plugin passes every rule that applies to it."""
    results = certify(zygote, specimen, tmp_path)

    broken = {rule: found.message for rule, found in results.items() if found.verdict not in GOOD}
    assert set(broken) == set(specimen.advice), broken
    assert results["IO-07"].acted
    assert results["IO-27"].acted


def test_what_fills_up_does_not_keep_growing(zygote: Zygote, tmp_path: Path) -> None:
    """What it keeps is bounded, though it still grew in the first requests."""
    folder = next(folder for folder in UNUSUAL_IO if folder.name == "io_data")
    found = next(each for each in gallery(folder) if "ChecksWhatComesBack" in each.target)
    bare = attrs.evolve(found, profile={})
    results = certify(zygote, bare, tmp_path, budget=Budget.QUICK, rules={"IO-36"})

    assert results["IO-36"].verdict is Verdict.PASS, results["IO-36"].message
