"""TP-13 Arguments have the types that the schema says.

Plugin    vllm_spark2_5_plugin.spark2_5_tool_parser:Spark2_5ToolParser
Did       of '<tool_call>get_time<arg_key>city</arg_key><arg_value>null</arg_value></tool_call>' the
          parser made get_time({"city":null}); expected get_time({"city": "null"})
Expected  Where the model writes a value without its type, the type is that of the tool's schema:
          integers, numbers, booleans, null, objects and lists as such, and a string stays one, with
          the blanks at its ends, also where it looks like a number, and where the schema stands
          behind a $ref. Tools of /v1/responses, which are flat, have their schemas as well. What is
          written of NaN, Infinity or 1e999 is JSON.
Check     vllm.tool_parsers.utils has coerce_to_schema_type and find_tool_properties, which follow
          no $ref: look in $defs first, where Pydantic writes what is a class of its own.

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
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.parser.parser_manager import ParserManager
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager

sys.path.insert(0, "PLUGIN")

from vllm_spark2_5_plugin.spark2_5_tool_parser import Spark2_5ToolParser as Plugin


def named(earlier: Any) -> str:
    """Return the id that a client gives a request, which begins as those of earlier turns do."""
    return f"session-of-a-client-0123456789abcdef-{len(earlier)}"


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
    earlier: Any = (),
    responses: bool = False,
) -> tuple[Any, Any, Any, list[int]]:
    """Return a parser as a server makes it, its request, a tokenizer of bytes, and a prompt."""
    tokenizer: Any = ByT5Tokenizer()
    tokenizer.add_tokens(special)
    managers: Any = {"tool": ToolParserManager, "reasoning": ReasoningParserManager}
    managers[role].register_module(name, force=True, module=plugin)
    names: Any = {f"{role}_parser_name": name}
    cls: Any = ParserManager.get_parser(**names, enable_auto_tools=True)
    said = [{"role": "user", "content": "x"}, *earlier]
    asked: Any = {"messages": said, "tools": tools or None, "request_id": named(earlier)}
    of: Any = ChatCompletionRequest
    if responses:
        flat = [{"type": "function", **tool["function"]} for tool in tools]
        of, asked = ResponsesRequest, {"input": "x", "tools": flat}
    request = of(**asked, stream=stream, chat_template_kwargs=chat or None)
    chat = dict(chat)
    parser = cls(tokenizer, request.tools, chat_template_kwargs=chat)
    own = dict(chat)  # vLLM has an instance of its own adjust the request
    cls(tokenizer, request.tools, chat_template_kwargs=own).adjust_request(request)
    if stream:  # a server has made one by then, of the same keywords
        parser = cls(tokenizer, request.tools, chat_template_kwargs=chat)
    tokens = tokenizer.encode(prompt, add_special_tokens=False)
    return parser, request, tokenizer, tokens


def message(reasoning: str | None, content: str | None, calls: Any) -> tuple[Any, ...]:
    """Return what a client has in the end: reasoning, content, and calls with their arguments."""
    found: list[Any] = []
    for name, arguments in calls:
        try:
            found.append((name, json.loads(arguments)))
        except (ValueError, RecursionError):
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
    deltas=["<tool_call>get_time<arg_key>city</arg_key><arg_value>null</arg_value></tool_call>"],
    says=["", "", [["get_time", '{"city": "null"}']]],
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
                "name": "get_time",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}, "name": {"type": "string"}},
                },
            },
        },
    ],
    prompt="user: x",
    chat={},
)
print(f"FAILS: {fault}" if fault else f"OK: {check_whole.__doc__}")
sys.exit(1 if fault else 0)
