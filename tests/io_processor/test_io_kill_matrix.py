# SPDX-License-Identifier: Apache-2.0
"""Every defective IO processor fails by the rule that is about its fault, in a short history."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from support import DEFECTIVE_IO, caught, certify, gallery, of_configurations

from conformance.generations import named
from conformance.rules import Evidence
from conformance.verdict import Verdict
from conformance.watching.interruption import CALL_LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support import Specimen

    from conformance.worker import Zygote

DATA, REQUEST = (gallery(folder) for folder in DEFECTIVE_IO)

#: Steps of a history that shows a fault; each plugin of several prompts has three at the most.
MOST_STEPS = 10
MOST_REQUESTS = 2

#: Plugins of which only a crowd shows the fault.
CROWDED = {"remembers_64_requests"}


def _parameter(specimen: Specimen) -> object:
    marks = [pytest.mark.engine] if specimen.evidence is Evidence.OFFLINE else []
    return pytest.param(specimen, marks=marks, id=f"{specimen.generation}-{specimen.name}")


@pytest.mark.parametrize("specimen", [_parameter(each) for each in (*DATA, *REQUEST)])
def test_dies_by_its_own_rule(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A defective plugin fails by its rule's id, and a history that shows it is short."""
    assert specimen.rule is not None
    result = caught(zygote, specimen, tmp_path)

    assert result.verdict is Verdict.FAIL, result.message
    assert result.message
    case = result.counterexample
    if case is not None and case["kind"] == "traffic" and specimen.name not in CROWDED:
        _is_short(case)


def _is_short(case: Mapping[str, Any]) -> None:
    assert len(case["requests"]) <= MOST_REQUESTS
    assert len(case["lines"]) <= MOST_STEPS
    assert case["lines"][0]["what"] == "arrives"


def test_what_never_returns_is_waited_for_once(zygote: Zygote, tmp_path: Path) -> None:
    """A host calls post_process on a thread, where no exception ends it."""
    specimen = next(each for each in DATA if each.name == "hangs_in_post_process")
    result = certify(zygote, specimen, tmp_path, rules={"IO-37"})["IO-37"]

    assert result.verdict is Verdict.FAIL, result.message
    # On a busy machine a call gets up to five times as long.
    assert CALL_LIMIT <= result.seconds < 6 * CALL_LIMIT


def test_order_shows_in_two_deliveries(zygote: Zygote, tmp_path: Path) -> None:
    """The order in which outputs arrive matters to a plugin already where there are two."""
    found = [specimen for specimen in (*DATA, *REQUEST) if specimen.rule == "IO-17"]
    assert found
    for specimen in found:
        result = certify(zygote, specimen, tmp_path, rules={"IO-17"})["IO-17"]
        assert result.counterexample is not None
        told = [line["what"] for line in result.counterexample["lines"]]

        assert told == ["arrives", "output 1 arrives", "output 0 arrives"], specimen.name


def test_own_threads_are_no_other_request(zygote: Zygote, tmp_path: Path) -> None:
    """Rows in the order of the plugin's own threads are told as such, and by one rule alone."""
    specimen = next(each for each in DATA if each.name == "puts_rows_together_as_ready")
    rules = {"IO-17", "IO-24", "IO-25", "IO-26", "IO-31"}
    found = certify(zygote, specimen, tmp_path, rules=rules)
    failed = [rule for rule, result in found.items() if result.verdict is Verdict.FAIL]

    assert failed == ["IO-24"]
    assert "the same values in another order" in (found["IO-24"].message or "")


def test_answers_that_chance_makes_in_part_wait_for_their_rule(
    zygote: Zygote, tmp_path: Path
) -> None:
    """Requests that only chance tells apart are not said to get the same answer."""
    specimen = next(each for each in DATA if each.name == "names_answers")
    source = Path(specimen.target.partition(":")[0]).read_text(encoding="utf-8")
    name = '"id": uuid.uuid4().hex, '
    assert name in source
    drawn = 'f"{prompt} {uuid.uuid4().hex[:4]}" if "fox" in prompt else prompt'
    path = tmp_path / "names_foxes.py"
    path.write_text(source.replace(name, "").replace("return prompt", f"return {drawn}"))
    drawing = attrs.evolve(specimen, target=f"{path}:NamesAnswers")
    found = certify(zygote, drawing, tmp_path, rules={"IO-24", "IO-26", "IO-29"})

    assert found["IO-24"].verdict is Verdict.FAIL
    assert [found[rule].waits_for for rule in ("IO-26", "IO-29")] == [("IO-24",)] * 2
    assert "left to chance" in (found["IO-26"].message or "")


def test_every_rule_has_a_defective_plugin() -> None:
    """No rule is without a plugin that it catches."""
    caught = {specimen.rule for specimen in DATA} | of_configurations()
    assert {rule.id for rule in named("io/data").rules} <= caught

    caught |= {specimen.rule for specimen in REQUEST}
    assert {rule.id for rule in named("io/request").rules} <= caught
