"""TP-04 Streamed token by token, an answer says the same.

Plugin    raif_vllm.tool_parser:RaifToolParser
Did       'city=Paris\\ndays=3' streamed token by token: get_weather(); whole:
          get_weather({"city":"Paris","days":3})
Expected  The deltas of extract_tool_calls_streaming, one for each token, add up to the content and
          calls that extract_tool_calls returns of the whole answer.
Check     Print the deltas of the answer in the message, one for each token. Text that may be the
          beginning of a marker is held back until it is known what it is.

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

from raif_vllm.tool_parser import RaifToolParser as Plugin


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


def streamed(plugin: Any, deltas: list[str], held: int = 0, **how: Any) -> list[Any]:
    """Return what the parser says to each delta, whose text comes so many letters after its tokens.

    That is how vLLM's detokenizer streams an answer to a request with a stop string.
    """
    parser, request, tokenizer, prompt = served(plugin, **how, stream=True)
    found: list[Any] = []
    rest = ""
    for number, each in enumerate(deltas, 1):
        last = number == len(deltas)
        ids = tokenizer.encode(each, add_special_tokens=last)
        rest += each
        ready = len(rest) if last else max(0, len(rest) - held)
        text, rest = rest[:ready], rest[ready:]
        said = parser.parse_delta(text, ids, request, prompt, finished=last)
        print(f"{text!r}: {said and said.model_dump(exclude_unset=True)}")
        found += [said] if said else []
    return found


def joined(said: list[Any]) -> tuple[Any, ...]:
    """Return what a client puts together of what a parser said."""
    calls: dict[int, list[str]] = {}
    for call in (call for each in said for call in each.tool_calls or ()):
        name, arguments = calls.get(call.index, ("", ""))
        name += (call.function and call.function.name) or ""
        calls[call.index] = [name, arguments + ((call.function and call.function.arguments) or "")]
    reasoning = "".join(each.reasoning or "" for each in said)
    content = "".join(each.content or "" for each in said)
    return message(reasoning, content, [calls[index] for index in sorted(calls)])


def check_streamed(plugin: Any, deltas: list[str], **how: Any) -> str | None:
    """In these deltas the answer says what it says whole."""
    expected, found = whole(plugin, deltas, **how), joined(streamed(plugin, deltas, **how))
    return None if found == expected else f"streamed {found}\nexpected {expected}, as whole"


fault = check_streamed(
    Plugin,
    deltas=["city=Paris\ndays=3"],
    role="tool",
    name="vllm_conformance",
    special=["</raif>", "<|raif_end|>"],
    tools=[
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                },
            },
        },
    ],
    prompt="user: x",
    chat={},
)
print(f"FAILS: {fault}" if fault else f"OK: {check_streamed.__doc__}")
sys.exit(1 if fault else 0)
