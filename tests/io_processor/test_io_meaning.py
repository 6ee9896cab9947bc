# SPDX-License-Identifier: Apache-2.0
"""Profiles of IO processors may say what requests are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from specimens import io_references
from support import DEFECTIVE_IO, certify, gallery

from conformance.rules import Evidence
from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote

MEANT = [each for folder in DEFECTIVE_IO for each in gallery(folder) if each.rule == "IO-40"]


@pytest.mark.parametrize("specimen", MEANT, ids=lambda each: each.name)
def test_nothing_else_shows_a_wrong_answer(
    zygote: Zygote, specimen: Specimen, tmp_path: Path
) -> None:
    """Without the author's word every rule holds."""
    profile = {key: value for key, value in specimen.profile.items() if key != "expected"}
    results = certify(
        zygote, attrs.evolve(specimen, profile=profile), tmp_path, budget=Budget.QUICK
    )

    assert not {rule for rule, each in results.items() if each.verdict is Verdict.FAIL}
    assert results["IO-40"].verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize("specimen", io_references(), ids=lambda each: each.label)
def test_references_answer_what_they_mean(
    zygote: Zygote, specimen: Specimen, tmp_path: Path
) -> None:
    """Every reference has a function of its own, and it agrees."""
    result = certify(zygote, specimen, tmp_path, rules={"IO-40"})["IO-40"]

    assert result.verdict is Verdict.PASS, result.message


def test_a_tolerance_lets_near_numbers_pass(zygote: Zygote, tmp_path: Path) -> None:
    """What is rounded to one place is near enough where the profile says so."""
    specimen = next(each for each in MEANT if each.name == "rounds_probabilities")
    profile = {**specimen.profile, "tolerance": {"rtol": 0.5}}
    near = attrs.evolve(specimen, profile=profile)

    assert certify(zygote, near, tmp_path, rules={"IO-40"})["IO-40"].verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def answer(data, outputs):\n    return data.lines\n", "raised AttributeError"),
        (
            "N = iter(range(99))\n\n\ndef answer(data, outputs):\n    return next(N)\n",
            "when it was asked again",
        ),
    ],
)
def test_a_function_that_does_not_answer_judges_nobody(
    source: str, said: str, zygote: Zygote, tmp_path: Path
) -> None:
    """What it does not say is not verified."""
    (tmp_path / "io_meant.py").write_text(source, encoding="utf-8")
    profile = {**MEANT[0].profile, "expected": "io_meant:answer"}
    result = certify(zygote, attrs.evolve(MEANT[0], profile=profile), tmp_path, rules={"IO-40"})[
        "IO-40"
    ]

    assert result.verdict is Verdict.NOT_VERIFIED
    assert said in str(result.message)


@pytest.mark.engine
@pytest.mark.slow
def test_an_engine_shows_a_wrong_answer(zygote: Zygote, tmp_path: Path) -> None:
    """The function is asked for the outputs of a real model as well."""
    result = certify(zygote, MEANT[0], tmp_path, evidence=(Evidence.OFFLINE,))["IO-40"]

    assert result.verdict is Verdict.FAIL
    assert str(result.message).startswith("offline: ")
