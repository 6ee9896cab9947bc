# SPDX-License-Identifier: Apache-2.0
"""Formats in which models write calls and reasoning: from a message to the text of an answer."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import attrs

from conformance.parser.bench import REASONING, TOOL
from conformance.parser.messages import Call, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TAG = re.compile(r"</?[^<>\s=]+>?")

#: Values that a format can hold: strings of letters, or any value of JSON.
LETTERS, VALUES = range(2)


def _json(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _python(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in arguments.items())


def _tagged(opening: str, closing: str) -> Callable[[Mapping[str, Any]], str]:
    """Return what writes each argument by itself, its name in place of KEY."""

    def write(arguments: Mapping[str, Any]) -> str:
        return "".join(
            opening.replace("KEY", key)
            + (value if isinstance(value, str) else json.dumps(value))
            + closing
            for key, value in arguments.items()
        )

    return write


@attrs.frozen(eq=False)
class Format:
    """How a family of models writes a message."""

    name: str
    special: tuple[str, ...] = ()  #: texts that are one token each
    before: str = ""
    each: str = ""  #: a call, with NAME, ARGUMENTS and its INDEX
    between: str = ""
    after: str = ""
    arguments: Callable[[Mapping[str, Any]], str] = _json
    values: int = VALUES
    #: Reasoning stands between these; the first is in the prompt where ``opened``.
    thinks: tuple[str, str, str] | None = None  #: before, between it and content, after
    opened: bool = False
    #: What was found of a parser: it takes text before calls, and more calls than one.
    content: bool = True
    several: bool = True

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that mean something in the format: tags up to their names, and special tokens."""
        around = self.thinks or (self.before, self.each, self.after)
        tags = [tag for text in around for tag in _TAG.findall(text)]
        plain = [text.strip() for text in self.thinks or (self.before,) if not _TAG.search(text)]
        found = (*self.special, *tags, *plain)
        return tuple(dict.fromkeys(text for text in found if len(text) > 1))

    @property
    def marked(self) -> bool:
        """Whether a call is told from text by more than a bracket."""
        return any(len(marker) > 3 for marker in self.markers)  # noqa: PLR2004 - "[{" and the like

    def write(self, message: Message) -> str:
        """Return an answer that says a message."""
        if self.thinks is not None:
            start, middle, end = self.thinks
            if self.opened:
                start = ""
            return f"{start}{message.reasoning}{middle}{message.content}{end}"
        if not message.calls:
            return message.content
        calls = self.between.join(
            self.each.replace("INDEX", str(index))
            .replace("NAME", call.name)
            .replace("ARGUMENTS", self.arguments(json.loads(call.arguments)))
            for index, call in enumerate(message.calls)
        )
        return f"{message.content}{self.before}{calls}{self.after}"

    def prompt(self) -> str:
        """Return the end of the prompt that the model continues."""
        return self.thinks[0] if self.thinks is not None and self.opened else "user: x"


#: DeepSeek and Step write their markers with this bar.
_BAR = "\uff5c"
_OBJECT = '{"name": "NAME", "arguments": ARGUMENTS}'
_PARAMETERS = '{"name": "NAME", "parameters": ARGUMENTS}'
_PYTHON = "NAME(ARGUMENTS)"
_DEEPSEEK = tuple(
    f"<{_BAR}tool▁{name}{_BAR}>"
    for name in ("calls▁begin", "call▁begin", "sep", "call▁end", "calls▁end")
)
_STEP = tuple(text.replace("▁", "_") for text in _DEEPSEEK)
_KIMI = tuple(
    f"<|tool_call{name}|>"
    for name in ("s_section_begin", "_begin", "_argument_begin", "_end", "s_section_end")
)


def _tools(  # noqa: PLR0917 - a row of a table
    name: str,
    special: str | tuple[str, ...],
    before: str,
    each: str,
    between: str = "",
    after: str = "",
    tagged: tuple[str, str] | None = None,
) -> Format:
    """Return a format of calls; special tokens are parted by spaces, *tagged* stands for JSON."""
    tokens = tuple(special.split()) if isinstance(special, str) else special
    arguments = _tagged(*tagged) if tagged else _python if each == _PYTHON else _json
    values = LETTERS if tagged else VALUES
    return Format(name, tokens, before, each, between, after, arguments, values)


TOOL_FORMATS = (
    _tools("hermes", "<tool_call> </tool_call>", "", f"<tool_call>\n{_OBJECT}\n</tool_call>", "\n"),
    _tools("mistral", "[TOOL_CALLS] [ARGS] [CALL_ID]", "", "[TOOL_CALLS]NAME[ARGS]ARGUMENTS"),
    _tools("mistral-list", "[TOOL_CALLS]", "[TOOL_CALLS][", _OBJECT, ", ", "]"),
    _tools("llama3_json", "<|python_tag|>", "<|python_tag|>", _PARAMETERS, "; "),
    _tools(
        "llama4_pythonic",
        "<|python_start|> <|python_end|>",
        "<|python_start|>[",
        _PYTHON,
        ", ",
        "]<|python_end|>",
    ),
    _tools("pythonic", "", "[", _PYTHON, ", ", "]"),
    _tools("olmo3", "", "<function_calls>\n", _PYTHON, "\n", "\n</function_calls>"),
    _tools(
        "lfm2",
        "<|tool_call_start|> <|tool_call_end|>",
        "<|tool_call_start|>[",
        _PYTHON,
        ", ",
        "]<|tool_call_end|>",
    ),
    _tools(
        "jamba", "<tool_calls> </tool_calls>", "<tool_calls>[\n", _OBJECT, ",\n", "\n]</tool_calls>"
    ),
    _tools(
        "deepseek_v3",
        _DEEPSEEK,
        _DEEPSEEK[0],
        f"{_DEEPSEEK[1]}function{_DEEPSEEK[2]}NAME\n```json\nARGUMENTS\n```{_DEEPSEEK[3]}",
        "\n",
        _DEEPSEEK[4],
    ),
    _tools(
        "deepseek_v31",
        _DEEPSEEK,
        _DEEPSEEK[0],
        f"{_DEEPSEEK[1]}NAME{_DEEPSEEK[2]}ARGUMENTS{_DEEPSEEK[3]}",
        after=_DEEPSEEK[4],
    ),
    _tools(
        "kimi_k2",
        _KIMI,
        _KIMI[0],
        f"{_KIMI[1]}functions.NAME:INDEX{_KIMI[2]}ARGUMENTS{_KIMI[3]}",
        after=_KIMI[4],
    ),
    _tools("granite-20b-fc", "", "", f"<function_call> {_OBJECT}"),
    _tools(
        "internlm",
        "<|action_start|> <|plugin|> <|action_end|>",
        "",
        f"<|action_start|><|plugin|>{_PARAMETERS}<|action_end|>",
    ),
    _tools("phi4", "", "functools[", _OBJECT, ", ", "]"),
    _tools("json-list", "", "[", _OBJECT, ", ", "]"),
    _tools("longcat", "", "", f"<longcat_tool_call>{_OBJECT}</longcat_tool_call>"),
    _tools(
        "gigachat3",
        "<|message_sep|> <|role_sep|>",
        "",
        f"<|message_sep|>\n\nfunction call<|role_sep|>\n{_OBJECT}",
    ),
    _tools(
        "qwen3_coder",
        "<tool_call> </tool_call>",
        "",
        "<tool_call>\n<function=NAME>\nARGUMENTS</function>\n</tool_call>",
        "\n",
        tagged=("<parameter=KEY>\n", "\n</parameter>\n"),
    ),
    _tools(
        "seed_oss",
        "<seed:tool_call> </seed:tool_call> <seed:think> </seed:think>",
        "",
        "<seed:tool_call>\n<function=NAME>\nARGUMENTS</function>\n</seed:tool_call>",
        "\n",
        tagged=("<parameter=KEY>", "</parameter>\n"),
    ),
    _tools(
        "glm47",
        "<tool_call> </tool_call> <arg_key> </arg_key> <arg_value> </arg_value> <think> </think>",
        "",
        "<tool_call>NAMEARGUMENTS</tool_call>",
        tagged=("<arg_key>KEY</arg_key><arg_value>", "</arg_value>"),
    ),
    _tools(
        "minimax_m2",
        "<minimax:tool_call> </minimax:tool_call> <think> </think>",
        "<minimax:tool_call>\n",
        '<invoke name="NAME">\nARGUMENTS</invoke>\n',
        after="</minimax:tool_call>",
        tagged=('<parameter name="KEY">', "</parameter>\n"),
    ),
    _tools(
        "step3",
        _STEP,
        _STEP[0],
        f'{_STEP[1]}function{_STEP[2]}<steptml:invoke name="NAME">ARGUMENTS</steptml:invoke>'
        + _STEP[3],
        after=_STEP[4],
        tagged=('<steptml:parameter name="KEY">', "</steptml:parameter>"),
    ),
)


def _thinks(
    name: str, special: str, before: str, middle: str, after: str = "", *, opened: bool = False
) -> Format:
    """Return a format of reasoning; *before* is in the prompt where it is *opened*."""
    return Format(name, tuple(special.split()), thinks=(before, middle, after), opened=opened)


REASONING_FORMATS = (
    _thinks("think", "<think> </think>", "<think>", "</think>"),
    _thinks("think-in-prompt", "<think> </think>", "<think>", "</think>", opened=True),
    _thinks("seed:think", "<seed:think> </seed:think>", "<seed:think>", "</seed:think>"),
    _thinks("THINK", "[THINK] [/THINK]", "[THINK]", "[/THINK]"),
    _thinks(
        "think-response",
        "<think> </think> <response> </response>",
        "<think>\n",
        "\n</think>\n\n<response>\n",
        "\n</response>\n",
    ),
    _thinks("granite", "", "Here is my thought process: ", "Here is my response: "),
)


#: The known formats, by what a parser is for.
KNOWN: Mapping[str, tuple[Format, ...]] = {TOOL: TOOL_FORMATS, REASONING: REASONING_FORMATS}


#: A call by which a format is recognised.
PROBE = Call("get_weather", '{"city": "Paris"}')
