# SPDX-License-Identifier: Apache-2.0
"""Correct parsers pass everything: the references, and unusual ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from specimens import parser_references
from support import UNUSUAL_PARSER, Specimen, certify, gallery

from conformance.settings import UsageError
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

UNUSUAL = [specimen for folder in UNUSUAL_PARSER for specimen in gallery(folder)]

#: A parser of a format that nobody knows.
STRANGE = """\
from vllm.entrypoints.generate.base.protocol import DeltaMessage, ExtractedToolCallInformation
from vllm.tool_parsers import ToolParser

class Strange(ToolParser):
    def extract_tool_calls(self, model_output, request):
        return ExtractedToolCallInformation(
            tools_called=False, tool_calls=[], content=model_output
        )

    def extract_tool_calls_streaming(self, previous, current, delta, *rest):
        return DeltaMessage(content=delta)
"""

pytestmark = pytest.mark.usefixtures("shared_zygote")


CORRECT = [*parser_references(), *UNUSUAL]


def _alarms(specimen: Specimen, results: dict[str, RuleResult]) -> dict[str, str | None]:
    """Return the rules that do not pass, with what is said of them."""
    good = {rule: {Verdict.PASS} for rule in results}
    if "partner" not in specimen.profile:
        good |= {rule: {Verdict.NOT_APPLICABLE} for rule in ("TP-14", "RP-12")}
    # What a model says without a marker may be its reasoning; few name their markers.
    good |= {rule: {Verdict.PASS, Verdict.NOT_APPLICABLE} for rule in ("RP-20", "RP-22")}
    if specimen in UNUSUAL:  # not all of them count, or have markers that a prompt may hold
        good |= {rule: {Verdict.PASS, Verdict.NOT_APPLICABLE} for rule in ("RP-15", "RP-16")}
    return {rule: one.message for rule, one in results.items() if one.verdict not in good[rule]}


@pytest.mark.gallery
@pytest.mark.parametrize("specimen", CORRECT, ids=lambda specimen: specimen.label)
def test_passes_everything(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A correct parser passes every rule, each by answers in which it found something."""
    alarms = _alarms(specimen, certify(zygote, specimen, tmp_path))

    assert set(alarms) == set(specimen.advice), alarms


def test_nothing_is_shown_of_a_format_that_nobody_knows(zygote: Zygote, tmp_path: Path) -> None:
    """A parser in whose answers no call is found is not verified, and the way out is told."""
    path = tmp_path / "strange.py"
    path.write_text(STRANGE, encoding="utf-8")
    results = certify(
        zygote, Specimen(f"{path}:Strange", None, {}, generation="parser/tool"), tmp_path
    )

    assert results["TP-01"].verdict is Verdict.PASS
    for rule in ("TP-03", "TP-04", "TP-05", "TP-09"):
        assert results[rule].verdict is Verdict.NOT_VERIFIED
        assert "[[parser.samples]]" in str(results[rule].message)
    assert Verdict.FAIL not in {found.verdict for found in results.values()}


def test_samples_without_calls_show_nothing(zygote: Zygote, tmp_path: Path) -> None:
    """What no sample yields a call of passes nothing that is about calls."""
    path = tmp_path / "strange.py"
    path.write_text(STRANGE, encoding="utf-8")
    profile = {"samples": [{"text": "Nothing to call."}]}
    specimen = Specimen(f"{path}:Strange", None, profile, generation="parser/tool")
    results = certify(zygote, specimen, tmp_path)

    assert results["TP-04"].verdict is Verdict.NOT_VERIFIED
    assert str(results["TP-04"].message).startswith("no call was found in any answer that is")


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ({"format": "herpes"}, "'herpes' is none of hermes,"),
        ({"samples": [{"words": "x"}]}, "has no text"),
        ({"samples": [{"text": "x", "call": []}]}, "'call' is none of calls,"),
        ({"samples": [{"text": "x", "calls": [{"f": 1}]}]}, "has no name"),
    ],
)
def test_mistakes_of_a_profile_are_told(
    zygote: Zygote, tmp_path: Path, profile: dict[str, object], said: str
) -> None:
    """What is wrong with a profile is told in a sentence, and blamed on nobody."""
    specimen = parser_references()[0]
    wrong = Specimen(specimen.target, None, profile, generation="parser/tool")
    with pytest.raises(UsageError, match=said):
        certify(zygote, wrong, tmp_path, rules={"TP-02"})
