# SPDX-License-Identifier: Apache-2.0
"""Every defective processor fails by the rule that is about its fault."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from support import DEFECTIVE_PROCESSOR, caught, certify, gallery, of_configurations

from conformance.multimodal.processor.catalogue import RULES
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote

KINDS = {"processor", "model", "info", "dummy inputs"}

SPECIMENS = gallery(DEFECTIVE_PROCESSOR)


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen.name)
def test_dies_by_its_own_rule(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A defective processor fails by its rule's id, with a sentence that is the same every time."""
    assert specimen.rule is not None
    result = caught(zygote, specimen, tmp_path)

    assert result.verdict is Verdict.FAIL, result.message
    assert result.message
    assert not re.search(r"0x[0-9a-f]{6}", result.message)
    assert result.counterexample is not None
    assert result.counterexample["kind"] in ("prompt", "check")


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen.name)
def test_dies_for_any_seed(zygote: Zygote, specimen: Specimen, seed: int, tmp_path: Path) -> None:
    """That a defective processor fails is no matter of chance."""
    rule = str(specimen.rule)
    result = certify(zygote, specimen, tmp_path, rules={rule}, seed=seed)[rule]

    assert result.verdict is Verdict.FAIL, result.message


#: Faults that show in two items and in no single one, and how many rows an item gets by them.
OF_TWO: Mapping[str, Callable[[list[int]], int]] = {
    "splits_rows_evenly": lambda counts: sum(counts) // 2,
    "pads_rows_to_the_longest": max,
}


@pytest.mark.parametrize("name", OF_TWO)
def test_a_mismatch_is_shown_with_two_items(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """The table has both items, and says of one what was expected and what it got."""
    specimen = next(specimen for specimen in SPECIMENS if specimen.name == name)
    rule = str(specimen.rule)
    result = certify(zygote, specimen, tmp_path, rules={rule})[rule]

    assert result.counterexample is not None
    lines = [line for line in result.counterexample["lines"] if line["item"]]
    assert [line["item"] for line in lines] == ["A", "B"]
    (wrong,) = [line for line in lines if line["here"]]
    rows = OF_TWO[name]([int(line["placeholders"]) for line in lines])
    assert wrong["rows"] == str(rows) != wrong["placeholders"]
    trouble = result.counterexample["trouble"]
    assert (trouble["expected"], trouble["actual"]) == (wrong["placeholders"], wrong["rows"])
    assert result.seconds < 60


#: What of data differs that is of the same shape, in a sentence.
OF_DATA: Mapping[str, str] = {
    "sends_small_integers_when_busy": "is of type torch.int32 here and of type torch.int64 alone",
}


@pytest.mark.parametrize("name", OF_DATA)
def test_a_sentence_says_by_what_data_differ(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """Their type, where the shape is the same."""
    specimen = next(specimen for specimen in SPECIMENS if specimen.name == name)
    rule = str(specimen.rule)
    result = certify(zygote, specimen, tmp_path, rules={rule})[rule]

    assert OF_DATA[name] in str(result.message)


#: A processor of each part of the catalogue, whose fault is in the way of nothing else.
ALONE = (
    "reads_a_text_config",
    "has_no_text_for_chats",
    "lists_ranges_backwards",
    "merges_by_token",
    "joins_the_words_of_texts",
    "splits_rows_evenly",
    "adds_a_row_for_the_class",
    "pools_audio",
    "sorts_by_size",
    "centres_the_batch",
    "saves_patches_when_busy",
    "pops_its_options",
    "pads_data_to_the_longest",
    "numbers_its_images",
    "hashes_bytes_alone",
    "leaves_options_out_of_hashes",
    "knows_no_limits",
    "estimates_generously",
    "thins_out_large_images",
    "adds_to_no_estimate",
)


@pytest.mark.parametrize(
    "specimen", [s for s in SPECIMENS if s.name in ALONE], ids=lambda specimen: specimen.name
)
def test_dies_by_no_other_rule(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """One fault is one failure, and whatever cannot be judged beside it says so."""
    results = certify(zygote, specimen, tmp_path)

    assert [r.rule for r in results.values() if r.verdict is Verdict.FAIL] == [specimen.rule]
    assert Verdict.ERROR not in {result.verdict for result in results.values()}


#: Rules about rows, which only a model makes.
OF_ROWS = {*(f"MM-{number}" for number in range(20, 29)), "MM-39", "MM-82", "MM-84"}


def test_nothing_is_said_of_rows_that_no_model_made(zygote: Zygote, tmp_path: Path) -> None:
    """Where the model cannot be made, its rows neither pass nor fail; everything else passes."""
    specimen = next(specimen for specimen in SPECIMENS if specimen.rule == "MM-02")
    results = certify(zygote, specimen, tmp_path)

    assert results["MM-02"].verdict is Verdict.FAIL
    for rule in OF_ROWS:
        assert results[rule].verdict is Verdict.NOT_VERIFIED, rule
        assert results[rule].waits_for == ("MM-02",), rule
        assert not results[rule].examples, rule
    others = {results[rule].verdict for rule in set(results) - OF_ROWS - {"MM-02"}}
    assert others <= {Verdict.PASS, Verdict.NOT_APPLICABLE}


def test_every_rule_has_a_defective_processor() -> None:
    """No rule is without a processor that it catches, and no kind of fault is left out."""
    rules = {rule.id for rule in RULES}
    assert rules == {specimen.rule for specimen in SPECIMENS} | (of_configurations() & rules)
    assert {specimen.kind for specimen in SPECIMENS} == KINDS
    assert set(ALONE) | set(OF_TWO) <= {specimen.name for specimen in SPECIMENS}
