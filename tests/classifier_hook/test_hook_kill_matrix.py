# SPDX-License-Identifier: Apache-2.0
"""Every defective hook fails by the rule that is about its fault."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from support import DEFECTIVE_HOOK, caught, certify, gallery, of_configurations

from conformance.classifier_hook.catalogue import RULES
from conformance.rules import Evidence
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote

KINDS = {"keyword", "model", "remote", "store"}

SPECIMENS = gallery(DEFECTIVE_HOOK)

#: Hooks whose fault no simulator shows, by where it does: `test_hook_live` is about them.
SIMULATED = [specimen for specimen in SPECIMENS if specimen.evidence is Evidence.SIMULATOR]


@pytest.mark.parametrize("specimen", SIMULATED, ids=lambda specimen: specimen.name)
def test_dies_by_its_own_rule(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A defective hook fails by its rule's id, with a sentence that is the same every time."""
    assert specimen.rule is not None
    result = caught(zygote, specimen, tmp_path)

    assert result.verdict is Verdict.FAIL, result.message
    assert result.message
    assert not re.search(r"0x[0-9a-f]{6}", result.message)
    assert result.counterexample is not None
    assert result.counterexample["kind"] == "check"


#: A hook of each part of the catalogue, whose fault is in the way of nothing else.
ALONE = (
    "names_each_instance",
    "prolongs_its_timeout",
    "misses_capitals",
    "divides_by_words",
    "numbers_requests",
    "says_how_long_it_took",
    "searches_quadratically",
    "swallows_cancellation",
    "shields_its_request",
    "keeps_context_on_self",
    "files_by_request_id",
    "counts_calls_in_progress",
    "returns_one_dict",
    "caches_every_text",
    "limits_calls_of_one_loop",
    "remembers_by_lower_case",
    "remembers_by_beginning",
    "keeps_words_of_a_tenant",
    "opens_its_circuit",
    "has_one_deadline",
    "asks_once_for_each_text",
    "serves_so_many_a_second",
    "leaves_numbers_out_of_batches",
    "waits_for_the_rest",
    "beats_for_each_call",
    "takes_its_threshold_from_anybody",
)


@pytest.mark.parametrize(
    "specimen", [s for s in SPECIMENS if s.name in ALONE], ids=lambda specimen: specimen.name
)
def test_dies_by_no_other_rule(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """One fault is one failure, and whatever cannot be judged beside it says so."""
    results = certify(zygote, specimen, tmp_path)

    assert [r.rule for r in results.values() if r.verdict is Verdict.FAIL] == [specimen.rule]
    assert Verdict.ERROR not in {result.verdict for result in results.values()}


def test_every_rule_has_a_defective_hook() -> None:
    """No rule is without a hook that it catches, and no kind of hook is left out."""
    rules = {rule.id for rule in RULES}
    assert rules == {specimen.rule for specimen in SPECIMENS} | (of_configurations() & rules)
    assert {specimen.kind for specimen in SPECIMENS} == KINDS
    assert set(ALONE) <= {specimen.name for specimen in SPECIMENS}


#: Rules of many calls, which could take minutes and show nothing of a hook that is never in time.
LONG = ("CH-15", "CH-18", "CH-23", "CH-24", "CH-30", "CH-31", "CH-33", "CH-35", "CH-37")


def test_a_hook_that_is_never_in_time_is_called_a_few_times(zygote: Zygote, tmp_path: Path) -> None:
    """The runtime cancels each of its calls, so all that could be seen of it waits."""
    specimen = next(one for one in SPECIMENS if one.name == "is_slower_than_it_says")
    results = certify(zygote, specimen, tmp_path)

    assert [r.rule for r in results.values() if r.verdict is Verdict.FAIL] == ["CH-22"]
    for rule in LONG:
        assert results[rule].verdict is Verdict.NOT_VERIFIED
        assert "CH-22" in str(results[rule].message)
    assert results["CH-29"].examples < 150
