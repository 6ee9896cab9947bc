# SPDX-License-Identifier: Apache-2.0
"""What is found in one of several formats that a parser reads, and what it says of the others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from support import DEFECTIVE_PARSER, Specimen, certify, gallery
from vllm.tool_parsers.pythonic_tool_parser import PythonicToolParser

from conformance.parser import checks
from conformance.parser.roles import REASONING, TOOL
from conformance.parser.samples import Drawing
from conformance.parser.wanted import Wanted
from conformance.settings import Budget
from conformance.verdict import Verdict
from reference_plugins.parser.tagged_calls import TaggedCallsParser
from reference_plugins.parser.thinking import ThinkingParser

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy
    from vllm.entrypoints.generate.base.protocol import DeltaMessage, ExtractedToolCallInformation
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    from conformance.parser.samples import Sample
    from conformance.worker import Zygote


class Forgets(ThinkingParser):
    """What a word of Chinese was is forgotten where it is streamed, in whatever format."""

    wherever = True

    def extract_reasoning_streaming(self, *arguments: Any) -> DeltaMessage | None:  # noqa: ANN401
        """Return what a delta says, without the word."""
        said = super().extract_reasoning_streaming(*arguments)
        if said is not None and said.reasoning and (self._started or self.wherever):
            said.reasoning = said.reasoning.replace("漢", "") or None
        return said


class ForgetsBehindAStart(Forgets):
    """It does so only where the model has written the start itself."""

    wherever = False


@pytest.mark.parametrize(("cls", "found"), [(Forgets, "fail"), (ForgetsBehindAStart, "alone")])
def test_what_fails_in_one_format_is_tried_in_the_others(
    monkeypatch: pytest.MonkeyPatch, cls: type[object], found: str
) -> None:
    """That a fault is in one format alone is said where its own answer is right in another."""
    drawn = Drawing.samples

    def samples(self: Drawing) -> SearchStrategy[Sample]:
        return st.sampled_from(self.first()) if self.format.opened else drawn(self)

    monkeypatch.setattr(Drawing, "samples", samples)
    wanted = Wanted(REASONING, {}, None, Budget.QUICK, 1)
    finding = checks.trial(cls, wanted).find("RP-04")

    if found == "fail":
        assert finding.verdict is Verdict.FAIL, finding.message
    else:
        assert finding.verdict is Verdict.NOT_VERIFIED
        assert "this was found in 'think' alone" in str(finding.message)


class NamesOtherwise(TaggedCallsParser):
    """It makes calls, and none of a tool of the request."""

    def extract_tool_calls(
        self, model_output: str, request: ChatCompletionRequest
    ) -> ExtractedToolCallInformation:
        """Return calls with other names."""
        found = super().extract_tool_calls(model_output, request)
        for call in found.tool_calls:
            call.function.name = f"tools.{call.function.name}"
        return found


class Unwraps(PythonicToolParser):
    """It reads calls as LFM2 writes them, and without the markers around them as well."""

    markers = ("<|tool_call_start|>", "<|tool_call_end|>")

    def extract_tool_calls(
        self, model_output: str, request: ChatCompletionRequest
    ) -> ExtractedToolCallInformation:
        """Return the calls between the markers."""
        for marker in self.markers:
            model_output = model_output.replace(marker, "")
        return super().extract_tool_calls(model_output, request)


def test_the_format_is_the_one_whose_markers_are_in_the_source() -> None:
    """Rather than one without any, which is read as well; the certificate says which was taken."""
    told = checks.trial(Unwraps, Wanted(TOOL, {}, None, Budget.QUICK, 1)).context()

    assert (told["profile"]["format"], told["profile"]["unread"]) == ("lfm2", [])
    assert told["notes"] == [
        {
            "about": "format",
            "says": ["judged in answers of the format 'lfm2', which no profile names"],
        }
    ]


def test_markers_of_the_source_that_no_answer_had_are_told() -> None:
    """Nothing was shown of them; nor is anything said where the profile names the format."""
    told = checks.trial(Forgets, Wanted(REASONING, {}, None, Budget.QUICK, 1)).context()

    (note,) = told["notes"]
    first, second = note["says"]
    assert first == (
        "judged in answers of the format 'think', which no profile names; 'think-in-prompt', "
        "'think-asked', 'think-asked-in-prompt' would do as well"
    )
    assert second == (
        "of the markers in its source no answer had '<|tool_call_start|>', '<|tool_call_end|>': "
        "if the model writes them, name its format in the profile"
    )
    named = Wanted(REASONING, {"format": "think"}, None, Budget.QUICK, 1)
    assert checks.trial(Forgets, named).context()["notes"] == []


def test_what_a_parser_made_of_no_known_format_is_told_once() -> None:
    """One that makes other calls than a format means has made some; all rules have one cause."""
    trial = checks.trial(NamesOtherwise, Wanted(TOOL, {}, None, Budget.QUICK, 1))
    causes = {trial.find(rule).cause for rule in ("TP-03", "TP-06", "TP-11", "TP-16")}

    (cause,) = causes
    assert "formats is read as it is meant: of '<tool_call>" in str(cause)
    assert "the parser made tools.get_weather(" in str(cause)
    assert "no call was found" not in str(cause)


@pytest.mark.usefixtures("shared_zygote")
def test_a_leak_is_told_beside_a_wrong_index(zygote: Zygote, tmp_path: Path) -> None:
    """Content that differs token by token fails by its rule, whatever is wrong with indices."""
    every = (each for folder in DEFECTIVE_PARSER for each in gallery(folder))
    leaks = next(each for each in every if "LeaksBeginnings" in each.label)
    results = certify(zygote, leaks, tmp_path, rules={"TP-04", "TP-08"})

    assert {each.verdict for each in results.values()} == {Verdict.FAIL}


def test_calls_within_tools_tags_are_found_without_a_profile(
    zygote: Zygote, tmp_path: Path
) -> None:
    """No parser of vLLM reads them, and several that people published do."""
    reference = sys.modules[TaggedCallsParser.__module__].__file__
    assert reference is not None
    source = Path(reference).read_text(encoding="utf-8").replace("tool_call>", "tools>")
    (tmp_path / "tools.py").write_text(source, encoding="utf-8")
    plugin = Specimen(
        f"{tmp_path / 'tools.py'}:TaggedCallsParser", None, {}, generation="parser/tool"
    )
    found = certify(zygote, plugin, tmp_path, rules={"TP-03", "TP-04"}, budget=Budget.QUICK)

    assert {each.verdict for each in found.values()} == {Verdict.PASS}, found
