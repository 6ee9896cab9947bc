# SPDX-License-Identifier: Apache-2.0
"""Profiles that say that nothing switches a plugin on: true of some, and no way round the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support import UNUSUAL, UNUSUAL_SLOT, Specimen, certify, gallery

from conformance.rules import Evidence
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

#: Acts on the requests that have a word under a key, and refuses no other.
ACTS = """
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates


class Acts(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.rows = {{}}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        process_dict_updates(self.rows, batch_update, self.chosen)

    @staticmethod
    def chosen(params, prompt_ids, output_ids):
        return (params.extra_args or {{}}).get("mode") == {word!r} or None

    def apply(self, logits):
        for row in self.rows:
            logits[row, 5] += 9
        return logits
"""


def _certified(
    zygote: Zygote, folder: Path, word: str, profile: dict[str, Any]
) -> dict[str, RuleResult]:
    path = folder / "acts.py"
    path.write_text(ACTS.format(word=word), encoding="utf-8")
    rules = {"LB-03", "LB-04", "LB-05", "LB-14", "LB-38"}
    return certify(zygote, Specimen(f"{path}:Acts", None, profile), folder, rules=rules)


@pytest.mark.parametrize(("gallery_of", "letters"), [(UNUSUAL, "LB"), (UNUSUAL_SLOT, "LS")])
def test_what_only_validates_is_judged(
    zygote: Zygote, gallery_of: Path, letters: str, tmp_path: Path
) -> None:
    """What needs a request that opts in says nothing about it, and why; all else is judged."""
    specimen = next(each for each in gallery(gallery_of) if each.name == "validates_only")
    results = certify(zygote, specimen, tmp_path)
    passing = {rule for rule, result in results.items() if result.verdict is Verdict.PASS}

    assert {result.verdict for result in results.values()} == {
        Verdict.PASS,
        Verdict.NOT_APPLICABLE,
    }
    idle = results[f"{letters}-03"]
    assert idle.verdict is Verdict.NOT_APPLICABLE
    assert idle.message == "the profile says that nothing switches it on"
    judged = {"LB": ("01", "04", "15", "16", "38", "42"), "LS": ("01", "04", "35")}[letters]
    assert passing >= {f"{letters}-{number}" for number in judged}


def test_what_acts_on_a_request_of_off_fails(zygote: Zygote, tmp_path: Path) -> None:
    """That nothing switches it on excuses no row that must be left alone."""
    off = [{}, {"extra_args": {"mode": "strict"}}]
    results = _certified(zygote, tmp_path, "strict", {"on": [], "off": off})

    assert results["LB-04"].verdict is Verdict.FAIL


def test_what_a_client_switches_on_is_not_verified(zygote: Zygote, tmp_path: Path) -> None:
    """A request that any client may send changes a row: what it does there is unknown."""
    results = _certified(zygote, tmp_path, "0", {"on": [], "off": [{}]})

    for rule in ("LB-03", "LB-05", "LB-14"):
        assert results[rule].verdict is Verdict.NOT_VERIFIED
    assert results["LB-05"].message == (
        "the profile says that nothing switches it on, and a request with "
        'extra_args={"mode": "0"} does: name it in `on`'
    )


def test_what_is_found_to_switch_it_on_is_played(zygote: Zygote, tmp_path: Path) -> None:
    """A value of a likely type is found as it is without a profile, and rows are judged."""
    results = _certified(zygote, tmp_path, "a", {"on": [], "off": [{}]})

    for rule in ("LB-03", "LB-05"):
        assert results[rule].verdict is Verdict.PASS
        assert results[rule].acted


def test_an_empty_list_alone_says_nothing(zygote: Zygote, tmp_path: Path) -> None:
    """Nobody has said which requests it leaves alone or refuses: the profile is not filled in."""
    results = _certified(zygote, tmp_path, "strict", {"on": []})

    assert results["LB-05"].verdict is Verdict.NOT_VERIFIED
    assert "nothing switched the plugin on" in str(results["LB-05"].message)


@pytest.mark.engine
def test_what_only_validates_is_judged_in_an_engine(zygote: Zygote, tmp_path: Path) -> None:
    """It is no gap of an engine that such a plugin changes nothing there."""
    specimen = next(each for each in gallery(UNUSUAL) if each.name == "validates_only")
    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))

    assert results["LB-04"].verdict is Verdict.PASS
    assert results["LB-05"].verdict is Verdict.NOT_APPLICABLE


@pytest.mark.server
def test_what_only_validates_is_judged_on_servers(zygote: Zygote, tmp_path: Path) -> None:
    """Requests that it leaves alone are asked of servers, and so are odd ones."""
    specimen = next(each for each in gallery(UNUSUAL) if each.name == "validates_only")
    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.SERVER,))

    assert results["LB-05"].verdict is Verdict.NOT_APPLICABLE
    for rule in ("LB-04", "LB-16", "LB-32", "LB-38", "LB-42"):
        assert results[rule].verdict is Verdict.PASS, results[rule].message
