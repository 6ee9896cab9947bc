# SPDX-License-Identifier: Apache-2.0
"""Every defective parser fails by the rule that is about its fault."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from support import DEFECTIVE_PARSER, caught, certify, gallery

from conformance.parser import generations
from conformance.parser.checks import CHECKS
from conformance.rules import Evidence
from conformance.verdict import Verdict
from conformance.worker.installed import suite_of

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote

SPECIMENS = [
    specimen
    for folder in DEFECTIVE_PARSER
    for specimen in gallery(folder)
    if specimen.evidence is Evidence.SIMULATOR
]

pytestmark = pytest.mark.usefixtures("shared_zygote")


@pytest.mark.gallery
@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen.label)
def test_dies_by_its_own_rule(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A defective parser fails by its rule's id, with a sentence that is the same every time."""
    assert specimen.rule is not None
    result = caught(zygote, specimen, tmp_path)

    assert result.verdict is Verdict.FAIL, result.message
    assert result.message
    assert not re.search(r"0x[0-9a-f]{6}", result.message)
    assert result.counterexample is not None
    assert result.counterexample["kind"] == "check"


#: Parsers whose fault is in the way of nothing else.
ALONE = (
    "TP-01",
    "TP-05",
    "TP-08",
    "TP-10",
    "TP-12",
    "TP-13",
    "TP-14",
    "TP-15",
    "TP-16",
    "TP-18",
    "TP-20",
    "TP-21",
    "RP-01",
    "RP-05",
    "RP-06",
    "RP-07",
    "RP-08",
    "RP-10",
    "RP-12",
    "RP-13",
    "RP-15",
    "RP-16",
    "RP-17",
    "RP-18",
    "RP-21",
    "RP-22",
    "RP-23",
    "RP-24",
)


@pytest.mark.gallery
@pytest.mark.parametrize(
    "specimen", [s for s in SPECIMENS if s.rule in ALONE], ids=lambda specimen: specimen.label
)
def test_dies_by_no_other_rule(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """One fault is one failure, and whatever cannot be judged beside it says so."""
    results = certify(zygote, specimen, tmp_path)

    assert [r.rule for r in results.values() if r.verdict is Verdict.FAIL] == [specimen.rule]
    assert Verdict.ERROR not in {result.verdict for result in results.values()}


@pytest.mark.parametrize("generation", generations, ids=lambda generation: generation.name)
def test_every_rule_has_a_defective_parser(generation: object) -> None:
    """No rule is without a parser that it catches, and none without a check."""
    rules = {rule.id for rule in generation.rules}  # type: ignore[attr-defined]
    survival = generation.survival_rule  # type: ignore[attr-defined]

    assert rules == {s.rule for s in SPECIMENS if s.generation == generation.name}  # type: ignore[attr-defined]
    shares = suite_of(generation).shares or ()  # type: ignore[arg-type]
    checked = {rule for rule in CHECKS if rule[:2] == survival[:2]}
    assert rules == checked | {survival, *shares}
