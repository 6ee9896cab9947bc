"""TP-21 The schema of a tool may be any that JSON Schema has.

Plugin    vllm_iquest_q1.tool_parser:IQuestQ1ToolParser
Did       'I look.<iquest_tool_call>get_weather\\n<arg_key>city</arg_key>\\n<arg_value>Paris ...
          _value>\\n<arg_key>days</arg_key>\\n<arg_value>3</arg_value>\\n</iquest_tool_call>', the
          schema of each argument being true, whole: raised AttributeError: 'bool' object has no
          attribute 'get' at tool_parser.py:91, `return parameter.get("type") == "string"`
Expected  An answer raises nothing, whatever schemas the tools of its request have: references, also
          to themselves, true, no type or several, enumerations, and no properties at all.
Check     A schema may be true, which is no object, and its type a list or missing: ask isinstance
          before .get, and follow a $ref once, or not at all.

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

from vllm_iquest_q1.tool_parser import IQuestQ1ToolParser as Plugin


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


def check_reads(plugin: Any, deltas: list[str], **how: Any) -> str | None:
    """The parser raises nothing at a whole answer."""
    try:
        whole(plugin, deltas, **how)
    except Exception as error:
        return f"raised {type(error).__name__}: {error}\nexpected: it raises nothing"
    return None


fault = check_reads(
    Plugin,
    deltas=[
        "I look.<iquest_tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</iquest_tool_call>",
    ],
    role="tool",
    name="vllm_conformance",
    special=["<iquest_tool_call>", "</iquest_tool_call>"],
    tools=[
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {
                    "type": "object",
                    "properties": {"city": True, "days": True},
                    "$defs": {
                        "place": {"type": "string"},
                        "node": {
                            "type": "object",
                            "properties": {
                                "name": {"type": "string"},
                                "next": {"$ref": "#/$defs/node"},
                            },
                        },
                    },
                },
            },
        },
    ],
    prompt="user: x",
    chat={},
)
print(f"FAILS: {fault}" if fault else f"OK: {check_reads.__doc__}")
sys.exit(1 if fault else 0)
