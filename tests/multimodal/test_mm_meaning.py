# SPDX-License-Identifier: Apache-2.0
"""Profiles of multi-modal processors may say what an item takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from specimens import processor_references
from support import DEFECTIVE_PROCESSOR, certify, gallery

from conformance.rules import Evidence
from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote

MEANT = [each for each in gallery(DEFECTIVE_PROCESSOR) if each.rule == "MM-81"]


@pytest.mark.parametrize("specimen", MEANT, ids=lambda each: each.name)
def test_nothing_else_shows_a_wrong_count(
    zygote: Zygote, specimen: Specimen, tmp_path: Path
) -> None:
    """Without the author's word every rule holds."""
    profile = {key: value for key, value in specimen.profile.items() if key != "expected"}
    results = certify(
        zygote, attrs.evolve(specimen, profile=profile), tmp_path, budget=Budget.QUICK
    )

    assert not {rule for rule, each in results.items() if each.verdict is Verdict.FAIL}
    assert results["MM-81"].verdict is Verdict.NOT_APPLICABLE


@pytest.mark.engine
def test_an_engine_shows_it_as_well(zygote: Zygote, tmp_path: Path) -> None:
    """Places of items in an engine are held against what the author says."""
    (reference,) = processor_references()
    source = "def count(item):\n    return 1 + item.width * 0\n"
    (tmp_path / "mm_meant.py").write_text(source, encoding="utf-8")
    wrong = attrs.evolve(reference, profile={**reference.profile, "expected": "mm_meant:count"})
    results = [
        certify(zygote, each, tmp_path, rules={"MM-81"}, evidence=(Evidence.OFFLINE,))["MM-81"]
        for each in (wrong, reference)
    ]

    assert [each.verdict for each in results] == [Verdict.FAIL, Verdict.PASS]
    assert "its author says 1" in str(results[0].message)


def test_the_reference_has_as_many_as_it_means(zygote: Zygote, tmp_path: Path) -> None:
    """The reference names a function, and agrees with it for images of all sizes."""
    (reference,) = processor_references()
    result = certify(zygote, reference, tmp_path, rules={"MM-81"})["MM-81"]

    assert result.verdict is Verdict.PASS, result.message


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def count(item):\n    return item.patches\n", "raised AttributeError"),
        ("def count(item):\n    return 'many'\n", "no number of placeholders"),
        ("N = iter(range(999))\n\n\ndef count(item):\n    return next(N)\n", "asked again"),
    ],
)
def test_a_function_that_does_not_count_judges_nobody(
    source: str, said: str, zygote: Zygote, tmp_path: Path
) -> None:
    """What it does not say is not verified."""
    (tmp_path / "mm_meant.py").write_text(source, encoding="utf-8")
    profile = {**MEANT[0].profile, "expected": "mm_meant:count"}
    specimen = attrs.evolve(MEANT[0], profile=profile)
    result = certify(zygote, specimen, tmp_path, rules={"MM-81"})["MM-81"]

    assert result.verdict is Verdict.NOT_VERIFIED
    assert said in str(result.message)
