"""RP-19 A stop string that never comes changes nothing.

Plugin    super_v3_reasoning_parser:SuperV3ReasoningParser
Did       'First I think.</think>Then I say it.' token by token, with a stop string of 6 letters in
          the request: reasoning 'First I t' + content 'hink>Then I say it.'; without it: reasoning
          'First I think.' + content 'Then I say it.'
Expected  A streamed answer to a request with stop strings, none of which is in it, says the same
          reasoning and content as to a request without: the text of a delta comes later than its
          tokens then.
Check     A marker is where its text is, which may come in several deltas, later than its token.
          Where an instance reads text, is_reasoning_end_streaming is true when the end's text has
          come. Only a SHOULD: vLLM could hold back the tokens as well.

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

from super_v3_reasoning_parser import SuperV3ReasoningParser as Plugin


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


def check_stops(plugin: Any, deltas: list[str], *, held: int, **how: Any) -> str | None:
    """A stop string that is not in the answer changes nothing of what is streamed."""
    expected = joined(streamed(plugin, deltas, **how))
    print(f"and with a stop string of {held + 1} letters:")
    found = joined(streamed(plugin, deltas, held, **how))
    return None if found == expected else f"streamed {found}\nexpected {expected}, as without it"


fault = check_stops(
    Plugin,
    deltas=[
        "F",
        "i",
        "rs",
        "t",
        " ",
        "I",
        " th",
        "in",
        "k",
        ".",
        "</think>",
        "T",
        "h",
        "e",
        "n ",
        "I",
        " ",
        "say",
        " it",
        ".",
        "",
    ],
    held=5,
    role="reasoning",
    name="vllm_conformance",
    special=["<think>", "</think>"],
    tools=[],
    prompt="<think>",
    chat={},
)
print(f"FAILS: {fault}" if fault else f"OK: {check_stops.__doc__}")
sys.exit(1 if fault else 0)
