"""TP-13 Arguments have the types that the schema says.

Plugin    vllm_spark2_5_plugin.spark2_5_tool_parser:Spark2_5ToolParser
Did       of
          '<tool_call>get_weather<arg_key>city</arg_key><arg_value>xy</arg_value><arg_key>limit</arg_key><arg_value>0</arg_value></tool_call>'
          the parser made get_weather({"city":"xy","limit":"0"}); expected get_weather({"city":
          "xy", "limit": 0})
Expected  Where the model writes a value without its type, the type is that of the tool's schema:
          integers, numbers, booleans, null, objects and lists as such, and a string stays one, also
          where it looks like a number.
Check     vllm.tool_parsers.utils has coerce_to_schema_type and find_tool_properties.

Needs vLLM and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

import json
import os
import sys
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager

sys.path.insert(0, "PLUGIN")

from vllm_spark2_5_plugin.spark2_5_tool_parser import Spark2_5ToolParser as Plugin


def served(
    plugin: Any,
    *,
    role: str,
    name: str,
    special: list[str],
    tools: list[Any],
    prompt: str,
    chat: dict[str, Any],
    stream: bool,
) -> tuple[Any, Any, Any, list[int]]:
    """Return a parser as a server makes it, its request, a tokenizer of bytes, and a prompt."""
    tokenizer: Any = ByT5Tokenizer()
    tokenizer.add_tokens(special)
    managers: Any = {"tool": ToolParserManager, "reasoning": ReasoningParserManager}
    managers[role].register_module(name, force=True, module=plugin)
    names: Any = {f"{role}_parser_name": name}
    cls: Any = ParserManager.get_parser(**names, enable_auto_tools=True)
    asked: Any = {"messages": [{"role": "user", "content": "x"}], "tools": tools or None}
    request = ChatCompletionRequest(**asked, stream=stream, chat_template_kwargs=chat or None)
    parser = cls(tokenizer, request.tools, chat_template_kwargs=chat)
    tokens = tokenizer.encode(prompt, add_special_tokens=False)
    return parser, parser.adjust_request(request), tokenizer, tokens


def message(reasoning: str | None, content: str | None, calls: Any) -> tuple[Any, ...]:
    """Return what a client has in the end: reasoning, content, and calls with their arguments."""
    found: list[Any] = []
    for name, arguments in calls:
        try:
            found.append((name, json.loads(arguments)))
        except ValueError:
            found.append((name, f"no JSON: {arguments}"))
    return (reasoning or "").strip(), (content or "").strip(), found


def whole(plugin: Any, deltas: list[str], **how: Any) -> tuple[Any, ...]:
    """Return what the parser makes of a whole answer."""
    parser, request, tokenizer, _ = served(plugin, **how, stream=False)
    text = "".join(deltas)
    ids = tokenizer.encode(text)
    reasoning, content, calls = parser.parse(text, request, bool(request.tools), ids)
    return message(reasoning, content, [(each.name, each.arguments) for each in calls or ()])


def check_whole(plugin: Any, deltas: list[str], says: list[Any], **how: Any) -> str | None:
    """The whole answer gives what it says."""
    expected, found = message(*says), whole(plugin, deltas, **how)
    return None if found == expected else f"whole {found}\nexpected {expected}"


fault = check_whole(
    Plugin,
    deltas=[
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>xy</arg_value><arg_key>limit</arg_key><arg_value>0</arg_value></tool_call>",
    ],
    says=["", "", [["get_weather", '{"city": "xy", "limit": 0}']]],
    role="tool",
    name="vllm_conformance",
    special=[
        "<tool_call>",
        "</tool_call>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "<think>",
        "</think>",
    ],
    tools=[
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "city": {"type": "string"},
                        "unit": {"type": "string"},
                        "days": {"type": "integer"},
                        "options": {"type": "object"},
                        "exact": {"type": "boolean"},
                        "height": {"type": "number"},
                        "limit": {"type": ["integer", "null"]},
                    },
                },
            },
        },
    ],
    prompt="user: x",
    chat={},
)
print(f"FAILS: {fault}" if fault else f"OK: {check_whole.__doc__}")
sys.exit(1 if fault else 0)
