# SPDX-License-Identifier: Apache-2.0
"""What is said of parsers that do something else than usual, and why nothing can be said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from specimens import parser_references
from support import DEFECTIVE_PARSER, Specimen, certify, gallery

from conformance.parser import checks
from conformance.parser.bench import told_of
from conformance.parser.messages import Client
from conformance.parser.roles import REASONING
from conformance.parser.tokens import Answer
from conformance.parser.wanted import Wanted
from conformance.settings import Budget
from conformance.verdict import Verdict
from conformance.watching.interruption import PluginHung
from reference_plugins.parser.thinking import END, START, ThinkingParser

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

pytestmark = pytest.mark.usefixtures("shared_zygote")

#: For models whose prompt ends with the start of the reasoning: it leaves that out of whole
#: answers, and looks for it nowhere else.
IN_PROMPT = """\
from vllm.entrypoints.generate.base.protocol import DeltaMessage
from vllm.reasoning.basic_parsers import BaseThinkingReasoningParser


class InPrompt(BaseThinkingReasoningParser):
    start_token, end_token = "<think>", "</think>"

    def extract_reasoning(self, model_output, request):
        reasoning, _, content = model_output.removeprefix("<think>").partition("</think>")
        return reasoning or None, content or None

    def extract_reasoning_streaming(self, before, text, delta, ids_before, ids, new):
        if len(new) == 1 and new[0] in (self.start_token_id, self.end_token_id):
            return None
        if self.end_token_id in ids_before:
            return DeltaMessage(content=delta)
        reasoning, _, content = delta.partition("</think>")
        return DeltaMessage(reasoning=reasoning or None, content=content or None)
"""

ENDLESS = """\
from reference_plugins.parser.thinking import ThinkingParser


class Endless(ThinkingParser):
    def is_reasoning_end(self, input_ids):
        return False

    def is_reasoning_end_streaming(self, input_ids, delta_ids):
        return False
"""


@pytest.mark.parametrize(
    ("format_", "verdict"),
    [(None, Verdict.NOT_VERIFIED), ("think-in-prompt", Verdict.PASS), ("think", Verdict.FAIL)],
)
def test_no_parser_is_blamed_for_a_format_that_was_guessed(
    zygote: Zygote, tmp_path: Path, format_: str | None, verdict: Verdict
) -> None:
    """Where it reads two formats, and fails in one of them, nobody knows which its model writes."""
    path = tmp_path / "in_prompt.py"
    path.write_text(IN_PROMPT, encoding="utf-8")
    profile = {"format": format_} if format_ else {}
    plugin = Specimen(f"{path}:InPrompt", None, profile, generation="parser/reasoning")
    found = certify(zygote, plugin, tmp_path, rules={"RP-04", "RP-05"})

    assert found["RP-04"].verdict is Verdict.PASS
    assert found["RP-05"].verdict is verdict, found["RP-05"].message
    if format_ is None:
        assert "'think' and 'think-in-prompt'" in str(found["RP-05"].message)
        assert str(found["RP-05"].message).endswith('[parser] format = "think-in-prompt"')


def test_samples_with_calls_alone_say_nothing_of_text(zygote: Zygote, tmp_path: Path) -> None:
    """What is missing is an answer without a call."""
    text = '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'
    calls = [{"name": "f", "arguments": {"x": 1}}]
    special = ["<tool_call>", "</tool_call>"]
    profile = {"samples": [{"text": text, "tool_calls": calls}], "special_tokens": special}
    plugin = Specimen(parser_references()[0].target, None, profile, generation="parser/tool")
    found = certify(zygote, plugin, tmp_path, rules={"TP-03", "TP-06"})

    assert found["TP-03"].acted
    assert found["TP-06"].verdict is Verdict.NOT_VERIFIED
    assert str(found["TP-06"].message).startswith("no sample is without a call; give one")


def test_reasoning_that_never_ends_is_told(zygote: Zygote, tmp_path: Path) -> None:
    """It is found, so nobody has to say how it is written."""
    path = tmp_path / "endless.py"
    path.write_text(ENDLESS, encoding="utf-8")
    plugin = Specimen(f"{path}:Endless", None, {}, generation="parser/reasoning")
    found = certify(zygote, plugin, tmp_path, rules={"RP-03", "RP-06"})

    assert found["RP-03"].verdict is Verdict.PASS, found["RP-03"].message
    assert found["RP-06"].message == (
        "reasoning was found, and is_reasoning_end was true after no answer"
    )


def _defective(rule: str, name: str) -> Specimen:
    return next(
        each
        for folder in DEFECTIVE_PARSER
        for each in gallery(folder)
        if each.rule == rule and each.name == name
    )


def test_the_name_of_older_releases_is_told(zygote: Zygote, tmp_path: Path) -> None:
    """Whoever has written for one of them learns what to rename."""
    found = certify(zygote, _defective("RP-01", "keeps_old_names"), tmp_path, rules={"RP-01"})

    assert "it has extract_reasoning_content, as older releases called it" in str(
        found["RP-01"].message
    )


def test_a_parser_without_a_partner_waits_for_nothing(zygote: Zygote, tmp_path: Path) -> None:
    """The rule about partners does not apply, whatever else is wrong."""
    broken = _defective("TP-05", "one_call_a_delta")
    found = certify(zygote, broken, tmp_path, rules={"TP-05", "TP-14"})

    assert found["TP-05"].verdict is Verdict.FAIL
    assert found["TP-14"].verdict is Verdict.NOT_APPLICABLE


def test_a_stop_string_has_nothing_to_do_with_an_earlier_turn(
    zygote: Zygote, tmp_path: Path
) -> None:
    """Each of the two rules is judged where the other one is broken."""
    broken = _defective("RP-16", "believes_an_earlier_turn")
    found = certify(zygote, broken, tmp_path, rules={"RP-16", "RP-19"})

    assert found["RP-16"].verdict is Verdict.FAIL
    assert found["RP-19"].verdict is Verdict.PASS, found["RP-19"].message


def test_what_a_call_hangs_on_is_told() -> None:
    """The place in the plugin is in the message, and the answer."""
    answer = Answer((1, 2), ("<think>", "aaaa"))
    told = r"20 s, at test_parser_reasons.py:[0-9]+; the answer was '<think>aaaa'"
    with pytest.raises(PluginHung, match=told), told_of(_Plugin, answer):
        raise PluginHung("extract_reasoning", 20)


class _Plugin:
    """A class of this file."""


class ReadsItsText(ThinkingParser):
    """It looks for the end in what it has streamed."""

    text = None

    def is_reasoning_end(self, *_: Any) -> bool:  # noqa: ANN401 - as vLLM has it
        """Tell whether the end has come."""
        return END in self.text  # type: ignore[operator]


class KnowsNoContent(ThinkingParser):
    """It says of no token that it is content."""

    def extract_content_ids(self, *_: Any) -> list[int]:  # noqa: ANN401 - as vLLM has it
        """Return nothing."""
        return []


class PartsAtTheLast(ThinkingParser):
    """It takes all up to the last end for reasoning, where it reads a whole answer."""

    def extract_reasoning(self, model_output: str, *_: Any) -> tuple[str, str]:  # noqa: ANN401 - as vLLM has it
        """Part a whole answer."""
        reasoning, content = model_output.rsplit(END, 1)
        return reasoning.replace(START, "", 1), content


@pytest.mark.parametrize(
    ("cls", "rule", "told"),
    [
        (ReadsItsText, "RP-06", "; the engine gives it tokens alone, and streams no text with it"),
        (KnowsNoContent, "RP-08", "extract_content_ids returned no token; whole: reasoning"),
        (PartsAtTheLast, "RP-17", "<think>I think again.' + content 'I say more.'"),
    ],
)
def test_the_message_says_what_is_wrong(cls: type[object], rule: str, told: str) -> None:
    """Whom the engine asks, that nothing was returned, and which half of a text was lost."""
    finding = checks.trial(cls, Wanted(REASONING, {}, None, Budget.QUICK, 1)).find(rule)

    assert finding.verdict is Verdict.FAIL
    assert told in str(finding.message)


def test_a_server_may_tell_of_an_error_in_other_words() -> None:
    """What was raised says nothing of whether requests were mixed up."""
    one = Client().stream("NotImplementedError: not streamed")
    other = Client().stream("not streamed")

    assert one.alike(other)
    assert not one.alike(Client().stream(None))
