# SPDX-License-Identifier: Apache-2.0
"""What profiles of parsers say: a function that writes answers, a partner, samples."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from specimens import parser_references
from support import ROOT, Specimen, certify

from conformance.parser import cost, tokens
from conformance.parser.formats import TOOL_FORMATS, Format, named, own
from conformance.parser.messages import Call, Message
from conformance.parser.roles import TOOL
from conformance.parser.samples import Drawing, Sample, read
from conformance.parser.tools import SCHEMAS, TOOLS
from conformance.running.runner import Certification
from conformance.settings import Budget, Settings, UsageError
from conformance.verdict import RuleResult, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conformance.worker import Zygote

#: Reads whole answers, and calls what is not there for each delta.
RAISES = """\
from reference_plugins.parser.tagged_calls import TaggedCallsParser

class Raises(TaggedCallsParser):
    def extract_tool_calls_streaming(self, *arguments):
        return self._tools_enabled(arguments[-1])
"""

#: Reads calls of which every part has a line, and nothing else: a call is whole behind its last.
LINES = """\
import json
import re

from vllm.entrypoints.generate.base.protocol import (
    ExtractedToolCallInformation, FunctionCall, ToolCall
)
from vllm.tool_parsers import ToolParser

CALL = re.compile(r"<tool_call>([^<\\n]+)\\n(.*?)</tool_call>", re.DOTALL)
PAIR = re.compile(r"<arg_key>(.*?)</arg_key>\\n<arg_value>(.*?)</arg_value>\\n", re.DOTALL)


class ByLines(ToolParser):
    def extract_tool_calls(self, model_output, request):
        calls = [
            ToolCall(function=FunctionCall(name=name, arguments=self.arguments(name, body)))
            for name, body in CALL.findall(model_output)
        ]
        content = model_output.partition("<tool_call>")[0] if calls else model_output
        return ExtractedToolCallInformation(
            tools_called=bool(calls), tool_calls=calls, content=content
        )

    def arguments(self, name, body):
        pairs = {}
        for key, value in PAIR.findall(body):
            try:
                pairs[key] = json.loads(value)
            except ValueError:
                pairs[key] = value
        return json.dumps(pairs)

    def extract_tool_calls_streaming(self, *arguments):
        return None
"""

#: The author's own function, of a format that nobody else has.
SERIALISER = """\
import json

def serialise(content, calls):
    lines = [f"@{call['name']} {json.dumps(call['arguments'])}\\n" for call in calls]
    return "".join([content + "\\n"] * bool(content) + lines)

def never_bare(content, calls):
    return serialise(content, calls) if all(call["arguments"] for call in calls) else None
"""

PROFILE = """\
[parser]
serialise = "lines:serialise"
"""


@pytest.mark.usefixtures("shared_zygote")
@pytest.mark.parametrize(
    ("function", "verdict"),
    [("serialise", Verdict.PASS), ("never_bare", Verdict.PASS), ("serialize", None)],
)
def test_answers_are_drawn_from_the_authors_function(
    zygote: Zygote, tmp_path: Path, function: str, verdict: Verdict | None
) -> None:
    """A format that nobody knows is drawn in all the same; a function that is not there is told."""
    source = (ROOT / "fixtures" / "unusual" / "parser_tool" / "calls_by_line.py").read_text("utf-8")
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    (tmp_path / "lines.py").write_text(SERIALISER, encoding="utf-8")
    profile = PROFILE.replace(":serialise", f":{function}")
    (tmp_path / "mine.conformance.toml").write_text(profile, encoding="utf-8")
    options = Settings(
        targets=(str(tmp_path / "mine.py"),), budget=Budget.QUICK, report=tmp_path / "report"
    )
    with Certification(options, zygote=zygote) as certification:
        certification.load()
        checks = [c for c in certification.checks() if c.rule in ("TP-03", "TP-05", "TP-13")]
        certification.select(checks)
        if verdict is None:
            with pytest.raises(UsageError, match="serialise = 'lines:serialize': there is no"):
                certification.run(checks[0])
            return
        found = [certification.run(check) for check in checks]

    assert [(each.verdict, each.message) for each in found] == [(verdict, None)] * 3
    assert min(each.acted for each in found) >= 10


#: How some models write answers; each template is the author's own file.
TEMPLATE = """\
{% for message in messages %}<|start|>{{ message.role }}
{% if message.reasoning %}<think>{{ message.reasoning }}</think>{% endif %}{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|stop|>
{% endfor %}{% if add_generation_prompt %}<|start|>assistant
{% endif %}"""


@pytest.mark.usefixtures("shared_zygote")
@pytest.mark.parametrize("number", [0, 2], ids=["tool", "reasoning"])
def test_answers_are_what_a_chat_template_writes(
    zygote: Zygote, tmp_path: Path, number: int
) -> None:
    """The file of the model says how its answers look, and where they begin and end."""
    (tmp_path / "mine.jinja").write_text(TEMPLATE, encoding="utf-8")
    reference = parser_references()[number]
    special = {0: ["<tool_call>", "</tool_call>"], 2: ["<think>", "</think>"]}[number]
    profile = {"chat_template": str(tmp_path / "mine.jinja"), "special_tokens": special}
    specimen = Specimen(reference.target, None, profile, generation=reference.generation)
    found = certify(zygote, specimen, tmp_path)

    alarms = {rule: one.message for rule, one in found.items() if one.verdict is Verdict.FAIL}
    assert not alarms
    for rule in ("TP-03", "TP-05", "TP-13") if number == 0 else ("RP-03", "RP-05", "RP-07"):
        assert found[rule].verdict is Verdict.PASS
        assert found[rule].acted >= 10


#: One whose generation prompt begins reasoning, which each answer ends, and later turns keep
#: behind the result of a tool.
THINKING = """\
{% for message in messages %}<|start|>{{ message.role }}
{% if message.role == "assistant" %}<think>
{{ message.reasoning }}
</think>

{% endif %}{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|stop|>
{% endfor %}{% if add_generation_prompt %}<|start|>assistant
<think>
{% endif %}"""


@pytest.mark.usefixtures("shared_zygote")
def test_reasoning_that_a_prompt_begins_is_not_for_the_parser_of_calls(
    zygote: Zygote, tmp_path: Path
) -> None:
    """Its end stands before each answer that the template writes, and a parser takes it away."""
    (tmp_path / "mine.jinja").write_text(THINKING, encoding="utf-8")
    profile = {
        "chat_template": str(tmp_path / "mine.jinja"),
        "special_tokens": ["<tool_call>", "</tool_call>"],
    }
    reference = parser_references()[0]
    specimen = Specimen(reference.target, None, profile, generation=reference.generation)
    found = certify(zygote, specimen, tmp_path, rules={"TP-03", "TP-06"})

    assert [(one.verdict, one.message) for one in found.values()] == [(Verdict.PASS, None)] * 2


@pytest.mark.usefixtures("shared_zygote")
@pytest.mark.parametrize(
    ("name", "rest", "verdict"),
    [
        ("believes_an_earlier_turn", "", Verdict.FAIL),
        (None, "", Verdict.PASS),
        # Later turns keep no reasoning, so nothing in a prompt ends it.
        (
            "believes_an_earlier_turn",
            "{% set messages = messages[:1] %}",
            Verdict.PASS,
        ),
    ],
    ids=["defective", "reference", "kept-by-none"],
)
def test_later_turns_are_those_that_the_template_writes(
    zygote: Zygote, tmp_path: Path, name: str | None, rest: str, verdict: Verdict
) -> None:
    """What an earlier turn leaves in a prompt is the template's to say."""
    template = (
        THINKING
        if not rest
        else THINKING.replace(
            "<|start|>{{ message.role }}\n",
            "{% if loop.last or loop.first %}<|start|>{{ message.role }}\n",
            1,
        ).replace("<|stop|>\n{% endfor %}{% if add", "<|stop|>\n{% endif %}{% endfor %}{% if add")
    )
    (tmp_path / "mine.jinja").write_text(template, encoding="utf-8")
    profile = {
        "chat_template": str(tmp_path / "mine.jinja"),
        "special_tokens": ["<think>", "</think>"],
    }
    target = parser_references()[2].target
    if name is not None:
        target = str(ROOT / "fixtures" / "defective" / "parser_reasoning" / f"{name}.py")
    specimen = Specimen(target, None, profile, generation="parser/reasoning")
    found = certify(zygote, specimen, tmp_path, rules={"RP-16"})["RP-16"]

    assert found.verdict is verdict, found.message
    assert found.acted or verdict is Verdict.FAIL


@pytest.mark.usefixtures("shared_zygote")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("{{ messages[5].content }}", "raised UndefinedError"),
        (TEMPLATE.replace("message.tool_calls or []", "[]"), "the template writes no calls"),
        (TEMPLATE.replace("prompt %}<|start|>a", "prompt %}a"), "no answer begins where"),
    ],
)
def test_a_template_that_says_nothing_is_told(
    zygote: Zygote, tmp_path: Path, text: str | None, said: str
) -> None:
    """What is wrong with a template is told in a sentence."""
    if text is not None:
        (tmp_path / "mine.jinja").write_text(text, encoding="utf-8")
    profile = {"chat_template": str(tmp_path / "mine.jinja")}
    wrong = Specimen(parser_references()[0].target, None, profile, generation="parser/tool")
    with pytest.raises(UsageError, match=said):
        certify(zygote, wrong, tmp_path, rules={"TP-03"})


@pytest.mark.usefixtures("shared_zygote")
@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "from vllm.where.it.was import (\n    ToolParser,\n    ToolParserManager,\n    NoSuch)",
            "ToolParser, ToolParserManager in vllm.tool_parsers.abstract_tool_parser",
        ),
        (
            "from vllm.tool_parsers.utils import ToolParser",
            "ToolParser in vllm.tool_parsers.abstract_tool_parser",
        ),
        # The other one is where it was, and this one is no class.
        (
            "from vllm.multimodal.inputs import MultiModalDataDict, MultiModalFieldConfig",
            "MultiModalDataDict in vllm.inputs.llm",
        ),
        (
            "from vllm.entrypoints.chat_utils import random_tool_call_id",
            "make_tool_call_id for random_tool_call_id in vllm.renderers.chat_utils",
        ),
        ("from vllm.where.it.was import NoSuch", None),
        ("import vllm.where.it.was", None),
    ],
)
def test_what_vllm_has_moved_is_told(
    zygote: Zygote, tmp_path: Path, statement: str, said: str | None
) -> None:
    """A plugin for another release learns where the installed one has what it imports."""
    path = tmp_path / "moved.py"
    path.write_text(f"{statement}\n\nclass Moved(ToolParser):\n    pass\n", encoding="utf-8")
    plugin = Specimen(f"{path}:Moved", None, {}, generation="parser/tool")
    found = certify(zygote, plugin, tmp_path, rules={"TP-01"})["TP-01"]

    assert found.verdict is Verdict.FAIL
    message = str(found.message).replace("this vLLM may have", "this vLLM has")
    assert message.endswith(f"(moved.py:1): this vLLM has {said}" if said else "(moved.py:1)")


@pytest.mark.usefixtures("shared_zygote")
def test_what_was_imported_for_newer_releases_is_told(zygote: Zygote, tmp_path: Path) -> None:
    """Where older places are tried when it fails, the first of them is the one to mend."""
    newer = "from vllm.where.it.was import MultiModalDataDict"
    older = "from vllm.older.still import ToolParser"
    attempts = f"try:\n    {newer}\nexcept ImportError:\n    {older}\n"
    (tmp_path / "moved.py").write_text(f"{attempts}\nclass Moved(ToolParser):\n    pass\n")
    plugin = Specimen(f"{tmp_path / 'moved.py'}:Moved", None, {}, generation="parser/tool")
    found = certify(zygote, plugin, tmp_path, rules={"TP-01"})["TP-01"]

    assert "this vLLM has MultiModalDataDict in vllm.inputs.llm" in str(found.message)


#: Looks for tokens that no known format has, and reads nothing.
TOKENS = """\
from vllm.reasoning import ReasoningParser

START, END, MORE = "<|ask|>", "<|say|>", ("[HUSH]", "<|a|>", "<|b|>")

class Tokens(ReasoningParser):
    def __init__(self, tokenizer, *args, **kwargs):
        super().__init__(tokenizer, *args, **kwargs)
        self.end = self.vocab[END] + 0 * self.vocab[START]

    def is_reasoning_end(self, input_ids):
        return self.end in input_ids

    def extract_content_ids(self, input_ids):
        return input_ids

    def extract_reasoning(self, model_output, request):
        return None, model_output

    def extract_reasoning_streaming(self, previous_text, current_text, delta_text, *ids):
        return None
"""


@pytest.mark.usefixtures("shared_zygote")
def test_tokens_of_the_source_are_tried_and_named(zygote: Zygote, tmp_path: Path) -> None:
    """A parser is made with what it looks for, and the profile to write names that."""
    path = tmp_path / "tokens.py"
    path.write_text(TOKENS, encoding="utf-8")
    plugin = Specimen(f"{path}:Tokens", None, {}, generation="parser/reasoning")
    found = certify(zygote, plugin, tmp_path, rules={"RP-01", "RP-03"})

    assert found["RP-01"].verdict is Verdict.PASS, found["RP-01"].message
    assert found["RP-03"].verdict is Verdict.NOT_VERIFIED
    wanted = 'special_tokens = ["<|ask|>", "<|say|>", "[HUSH]", "<|a|>", ...]  # those that are'
    wanted += " one token of the model's tokenizer\n[[parser.samples]]\n"
    assert wanted in str(found["RP-03"].message)


#: Wants a token at the id that its model has it at.
ITS_IDS = """\
from reference_plugins.parser.tagged_calls import TaggedCallsParser

class ItsIds(TaggedCallsParser):
    def __init__(self, tokenizer, tools=None):
        super().__init__(tokenizer, tools)
        if self.vocab.get("<tool_call>") != EXPECTED:
            raise RuntimeError(f"<tool_call> has to be token EXPECTED")
"""


@pytest.mark.usefixtures("shared_zygote")
def test_a_parser_may_want_the_ids_of_its_model(zygote: Zygote, tmp_path: Path) -> None:
    """Its tokenizer shows all; one that is made up shows nothing of a parser that refuses it."""
    made = tokens.tokenizer(("<more>", "<tool_call>", "</tool_call>"))
    made.save_pretrained(tmp_path / "model")
    path = tmp_path / "its_ids.py"
    expected = str(made.get_vocab()["<tool_call>"])
    path.write_text(ITS_IDS.replace("EXPECTED", expected), encoding="utf-8")
    tokenized = {"format": "hermes", "tokenizer": str(tmp_path / "model")}

    def judged(profile: dict[str, Any]) -> dict[str, RuleResult]:
        plugin = Specimen(f"{path}:ItsIds", None, profile, generation="parser/tool")
        return certify(zygote, plugin, tmp_path, rules={"TP-01", "TP-04", "TP-09", "TP-10"})

    assert all(each.verdict is Verdict.PASS for each in judged(tokenized).values())

    made_up = judged({"special_tokens": ["<tool_call>"]})["TP-01"]
    assert made_up.verdict is Verdict.NOT_VERIFIED
    assert "folder with the tokenizer of its model" in str(made_up.message)

    with pytest.raises(UsageError, match="has tokens of its own; leave special_tokens out"):
        judged({**tokenized, "special_tokens": []})


#: Thinks where requests want it; else the template ends its reasoning in the prompt.
ASKED = """\
from reference_plugins.parser.thinking import ThinkingParser

class Asked(ThinkingParser):
    def __init__(self, tokenizer, *args, **kwargs):
        super().__init__(tokenizer, *args, **kwargs)
        self.thinks = (kwargs.get("chat_template_kwargs") or {}).get("enable_thinking", True)

    def extract_reasoning(self, model_output, request):
        if not self.thinks:
            return None, model_output
        return super().extract_reasoning(model_output, request)
"""


@pytest.mark.usefixtures("shared_zygote")
def test_reasoning_may_have_ended_in_the_prompt(zygote: Zygote, tmp_path: Path) -> None:
    """Then vLLM asks nobody where it ends, and all of the answer is content."""
    path = tmp_path / "asked.py"
    path.write_text(ASKED, encoding="utf-8")
    profile = {
        "special_tokens": ["<think>", "</think>"],
        "chat_template_kwargs": {"enable_thinking": False},
        "samples": [{"text": "I say.", "content": "I say.", "prompt": "<think>\n\n</think>\n\n"}],
    }
    plugin = Specimen(f"{path}:Asked", None, profile, generation="parser/reasoning")
    found = certify(zygote, plugin, tmp_path)

    assert not {rule: one.message for rule, one in found.items() if one.verdict is Verdict.FAIL}


@pytest.mark.usefixtures("shared_zygote")
@pytest.mark.parametrize("beside", [True, False])
def test_a_partner_has_a_profile_of_its_own(
    zygote: Zygote, tmp_path: Path, *, beside: bool
) -> None:
    """How it writes reasoning may stand beside its file; where nobody says it, that is told."""
    source = (ROOT / "reference_plugins" / "parser" / "thinking.py").read_text(encoding="utf-8")
    source = source.replace("think>", "ponder>").replace("ThinkingParser", "PonderingParser")
    (tmp_path / "pondering.py").write_text(source, encoding="utf-8")
    writes = (
        "def serialise(content, reasoning):\n    return f'<ponder>{reasoning}</ponder>{content}'"
    )
    (tmp_path / "writes.py").write_text(writes, encoding="utf-8")
    if beside:
        own_profile = '[parser]\nserialise = "writes:serialise"\n'
        (tmp_path / "pondering.conformance.toml").write_text(own_profile, encoding="utf-8")
    profile = {
        "partner": f"{tmp_path / 'pondering.py'}:PonderingParser",
        "special_tokens": ["<tool_call>", "</tool_call>", "<ponder>", "</ponder>"],
    }
    plugin = Specimen(parser_references()[0].target, None, profile, generation="parser/tool")
    found = certify(zygote, plugin, tmp_path, rules={"TP-14"})["TP-14"]

    if beside:
        assert found.verdict is Verdict.PASS, found.message
    else:
        assert found.verdict is Verdict.NOT_VERIFIED
        assert "give it in the profile beside the partner" in str(found.message)


@pytest.mark.usefixtures("shared_zygote")
def test_whatever_a_model_says_nothing_raises(zygote: Zygote, tmp_path: Path) -> None:
    """Also of a parser of which nobody knows how its model answers."""
    path = tmp_path / "tokens.py"
    raises = TOKENS.replace("return None, model_output", "return model_output.split(START)[:2]")
    path.write_text(raises, encoding="utf-8")
    plugin = Specimen(f"{path}:Tokens", None, {}, generation="parser/reasoning")
    found = certify(zygote, plugin, tmp_path, rules={"RP-11"})["RP-11"]

    assert found.verdict is Verdict.FAIL
    assert str(found.message).startswith("'It rains. ' whole: raised ValueError: not enough")


@pytest.mark.usefixtures("shared_zygote")
def test_calls_whose_parts_have_lines_need_no_profile(zygote: Zygote, tmp_path: Path) -> None:
    """The chat templates of several models write them so, though newer ones write no lines."""
    (tmp_path / "by_lines.py").write_text(LINES, encoding="utf-8")
    plugin = Specimen(str(tmp_path / "by_lines.py:ByLines"), None, {}, generation="parser/tool")
    found = certify(zygote, plugin, tmp_path, rules={"TP-03"})["TP-03"]

    assert found.verdict is Verdict.PASS, found.message


@pytest.mark.usefixtures("shared_zygote")
def test_what_is_raised_at_every_delta_is_told_by_one_rule(zygote: Zygote, tmp_path: Path) -> None:
    """Where nothing is found of streamed answers, the exception is named; TP-04 fails alone."""
    (tmp_path / "raises.py").write_text(RAISES, encoding="utf-8")
    broken = Specimen(str(tmp_path / "raises.py:Raises"), None, {}, generation="parser/tool")
    results = certify(zygote, broken, tmp_path)
    messages = {rule: results[rule].message or "" for rule in ("TP-07", "TP-08", "TP-09")}

    assert [r.rule for r in results.values() if r.verdict is Verdict.FAIL] == ["TP-04"]
    for message in messages.values():
        assert "has no attribute '_tools_enabled'" in message, messages
    told = " ".join((results["TP-04"].message or "").split())
    assert "at raises.py:5, `return self._tools_enabled(arguments[-1])`" in told
    assert results["TP-06"].verdict is Verdict.PASS, results["TP-06"].message


@pytest.mark.usefixtures("shared_zygote")
@pytest.mark.parametrize(
    ("partner", "said"),
    [
        ("reasoning-parser:qwen", "no reasoning parser 'qwen'"),
        ("reference_plugins.parser.thinking:Thinking", "has no 'Thinking'"),
        ("reference_plugins.parser.thinking", "has to name one class"),
    ],
)
def test_a_partner_that_is_not_there_is_told(
    zygote: Zygote, tmp_path: Path, partner: str, said: str
) -> None:
    """What is wrong with the name of a partner is told in a sentence."""
    wrong = Specimen(
        parser_references()[0].target, None, {"partner": partner}, generation="parser/tool"
    )
    with pytest.raises(UsageError, match=said):
        certify(zygote, wrong, tmp_path, rules={"TP-14"})


def test_calls_of_a_sample_may_be_called_tool_calls() -> None:
    """Both names mean the same."""
    calls = [{"name": "f", "arguments": {"x": 1}}]
    meant = Message(calls=(Call("f", '{"x": 1}'),))

    for key in ("calls", "tool_calls"):
        assert read({"samples": [{"text": "t", key: calls}]}, None) == (Sample("t", meant),)


@given(SCHEMAS)
@settings(max_examples=50, deadline=None)
def test_schemas_are_of_the_types_that_json_has(schema: dict[str, object]) -> None:
    """Whatever is drawn of a schema has a type, also within others."""
    assert schema["type"]
    for inner in (schema.get("items"), *dict(schema.get("properties", {})).values()):  # type: ignore[call-overload]
        assert inner is None or inner["type"]


def _written(name: str, **arguments: object) -> str:
    import json

    known = next(each for each in TOOL_FORMATS if each.name == name)
    return known.write(Message(calls=(Call("f", json.dumps(arguments)),)))


def test_values_are_written_as_a_format_has_them() -> None:
    """Strings are bare or marked, other values JSON, or written with the format's own marks."""
    assert "<parameter=n>\n3\n</parameter>" in _written("qwen3_coder", n=3)
    assert 'name="n" string="false">3<' in _written("deepseek_v32", n=3)
    assert 'name="n" string="true">3<' in _written("deepseek_v32", n="3")
    assert 'key="n" type="null"<|sep|>null<' in _written("kimi_k3", n=None)
    assert '{n:3,o:{a:<|"|>x<|"|>},l:[true]}' in _written("gemma4", n=3, o={"a": "x"}, l=[True])
    nested = _written("minimax_m3", o={"a": "x"}, l=[1])
    assert "<o>]<]minimax[>[<a>x]<]minimax[>[</a>" in nested
    assert "<l>]<]minimax[>[<item>1]<]minimax[>[</item>" in nested


def test_without_types_nothing_but_letters_is_drawn() -> None:
    """What TP-03 is judged by cannot be taken for a value of another type."""
    tagged = next(each for each in TOOL_FORMATS if each.name == "qwen3_coder")
    drawing = Drawing(tagged, TOOLS, typed=False)

    @given(drawing.samples())
    @settings(max_examples=50, deadline=None)
    def letters(sample: Sample) -> None:
        assert sample.says is not None
        values = [value for call in sample.says.calls for value in call.value.values()]
        assert all(isinstance(value, str) and value.startswith("x") for value in values)

    letters()


def test_a_serialiser_is_given_content_and_calls() -> None:
    """Calls have their arguments as objects; a reasoning parser's function is given reasoning."""
    given_calls: list[object] = []

    def serialise(content: str, second: object) -> str:
        given_calls.append(second)
        return content

    Format(name="x", serialise=serialise).write(Message("", "c", (Call("f", '{"a": 1}'),)))
    Format(name="x", serialise=serialise, thinks=("", "", "")).write(Message("r", "c"))

    assert given_calls == [[{"name": "f", "arguments": {"a": 1}}], "r"]


def _in_json(content: str, calls: list[dict[str, Any]]) -> str | None:
    """Write the calls of a model that says one at a time, and nothing before it."""
    if len(calls) > 1 or (calls and content):
        return None
    return content + "".join(json.dumps(call) for call in calls)


def _in_python(content: str, calls: list[dict[str, Any]]) -> str:
    return content + "".join(f"\n{call['name']}({call['arguments']})" for call in calls)


@pytest.mark.parametrize(
    ("serialise", "alone", "hyphens"), [(_in_json, True, True), (_in_python, False, False)]
)
def test_a_serialiser_says_what_its_model_never_says(
    serialise: Callable[..., str | None], *, alone: bool, hyphens: bool
) -> None:
    """None is no answer; a name that does not stand between quotes has no hyphen."""
    drawing = Drawing(own(serialise, {}, TOOL), TOOLS)
    drawn: list[Message] = []

    @given(drawing.samples())
    @settings(max_examples=150, deadline=None, database=None, derandomize=True)
    def every(sample: Sample) -> None:
        assert sample.says is not None
        assert sample.text == serialise(sample.says.content, named(sample.says.calls))
        drawn.append(sample.says)

    every()

    assert all(len(each.calls) < 2 and not each.content for each in drawn) is alone
    assert any(call.name == "get-time" for each in drawn for call in each.calls) is hyphens


def test_lines_are_counted() -> None:
    """Twice the work is twice the lines, on whatever machine."""

    def work(times: int) -> None:
        for _ in range(times):
            pass

    short, long = (cost.lines_of(lambda times=times: work(times)) for times in (10, 20))  # type: ignore[misc]
    assert long - short == 10 * (cost.lines_of(lambda: work(1)) - cost.lines_of(lambda: work(0)))
