# SPDX-License-Identifier: Apache-2.0
"""Plays a case against a parser, and says what is wrong.

The program of a counterexample is the function of this module that plays its case, with what that
function uses.  ``how`` is what :func:`served` takes.  A function returns what happened and what was
expected, or None where it is as the docstring says.
"""

import json
import time
from typing import Any

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.parser.parser_manager import ParserManager
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
from vllm.v1.utils import ConstantList


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


def check_stops(plugin: Any, deltas: list[str], *, held: int, **how: Any) -> str | None:
    """A stop string that is not in the answer changes nothing of what is streamed."""
    expected = joined(streamed(plugin, deltas, **how))
    print(f"and with a stop string of {held + 1} letters:")
    found = joined(streamed(plugin, deltas, held, **how))
    return None if found == expected else f"streamed {found}\nexpected {expected}, as without it"


def check_whole(plugin: Any, deltas: list[str], says: list[Any], **how: Any) -> str | None:
    """The whole answer gives what it says."""
    expected, found = message(*says), whole(plugin, deltas, **how)
    return None if found == expected else f"whole {found}\nexpected {expected}"


def check_responses(plugin: Any, deltas: list[str], **how: Any) -> str | None:
    """The answer says the same to a request of /v1/responses as in chat, whole and streamed."""
    for way in (whole, lambda *given, **more: joined(streamed(*given, **more))):
        expected = way(plugin, deltas, **how)
        try:
            found: Any = way(plugin, deltas, **how, responses=True)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if found != expected:
            return f"in /v1/responses {found}\nexpected {expected}, as in chat"
    return None


def check_keeps(plugin: Any, deltas: list[str], says: list[Any], **how: Any) -> str | None:
    """The whole answer gives the calls that were complete where it ends, whatever comes of more."""
    expected, found = message(*says)[2], whole(plugin, deltas, **how)
    if found[2][: len(expected)] == expected:
        return None
    return f"whole {found}\nexpected the complete calls {expected}"


def check_deltas(plugin: Any, deltas: list[str], says: list[Any], **how: Any) -> str | None:
    """The deltas add up to what the answer says."""
    expected, found = message(*says), joined(streamed(plugin, deltas, **how))
    return None if found == expected else f"streamed {found}\nexpected {expected}"


def check_begins(plugin: Any, deltas: list[str], **how: Any) -> str | None:
    """Each call begins once, with its name, its id and the next index."""
    ids: dict[int, str] = {}
    said = streamed(plugin, deltas, **how)
    for call in (call for each in said for call in each.tool_calls or ()):
        name = call.function and call.function.name
        if call.index in ids:
            good = not name and call.id in (None, "", ids[call.index])
        else:
            good = name and call.id and call.id not in ids.values() and call.index == len(ids)
            ids[call.index] = call.id or ""
        if not good:
            return f"a delta has {call!r}\nexpected name, id and next index once for each call"
    return None


def identified(plugin: Any, deltas: list[str], *, streams: bool, **how: Any) -> list[Any]:
    """Return id, name and arguments of each call, of a whole answer or a streamed one."""
    if not streams:
        parser, request, tokenizer, _ = served(plugin, **how, stream=False)
        text = "".join(deltas)
        _, _, calls = parser.parse(text, request, bool(request.tools), tokenizer.encode(text))
        return [(each.id, each.name, each.arguments) for each in calls or ()]
    said = [call for each in streamed(plugin, deltas, **how) for call in each.tool_calls or ()]
    names = {call.index: call.function.name for call in said if call.id and call.function}
    return [(call.id, names[call.index], "{}") for call in said if call.id]


def turn(calls: list[Any]) -> list[dict[str, Any]]:
    """Return what a conversation has of calls: the answer with them, what came of each, a text."""
    made = [
        {"id": own, "type": "function", "function": {"name": name, "arguments": arguments}}
        for own, name, arguments in calls
    ]
    results = [{"role": "tool", "tool_call_id": own, "content": "x"} for own, _, _ in calls]
    answer = {"role": "assistant", "content": "", "tool_calls": made}
    return [answer, *results, {"role": "user", "content": "x"}]


def check_new_ids(plugin: Any, deltas: list[str], *, streams: bool, **how: Any) -> str | None:
    """The calls of two turns of a conversation have ids of their own, if any."""
    first = identified(plugin, deltas, streams=streams, **how)
    second = identified(plugin, deltas, streams=streams, earlier=turn(first), **how)
    ids = [[own for own, _, _ in calls if own] for calls in (first, second)]
    return f"{ids[0]}, then {ids[1]}\nexpected: other ids" if set(ids[0]) & set(ids[1]) else None


def check_asked(
    plugin: Any,
    *,
    part: str,
    length: int,
    unknown: int,
    answer: str,
    special: list[str],
    chat: dict[str, Any] | None,
) -> str | None:
    """The engine can ask where reasoning ends of a prompt, and of the first token behind it."""
    tokenizer: Any = ByT5Tokenizer()
    tokenizer.add_tokens(special)
    parser = plugin(tokenizer=tokenizer, **({} if chat is None else {"chat_template_kwargs": chat}))
    prompt = tokenizer.encode(part, add_special_tokens=False)
    if length:
        prompt = (prompt * (length // len(prompt) + 1))[:length]
    prompt += range(len(tokenizer), len(tokenizer) + unknown)
    began = time.process_time()
    try:
        ended = parser.is_reasoning_end(list(prompt))
        if not ended:
            first = tokenizer.encode(answer, add_special_tokens=False)[:1]
            parser.is_reasoning_end_streaming(ConstantList([*prompt, *first]), first)
    except Exception as error:
        return f"raised {type(error).__name__}: {error}\nexpected: it raises nothing"
    took = time.process_time() - began
    if took > 5:
        return f"{len(prompt)} tokens took {took:.0f} s\nexpected: no client waits for that"
    return None


def check_reads(plugin: Any, deltas: list[str], **how: Any) -> str | None:
    """The parser raises nothing at a whole answer."""
    try:
        whole(plugin, deltas, **how)
    except Exception as error:
        return f"raised {type(error).__name__}: {error}\nexpected: it raises nothing"
    return None


def check_goes_on(plugin: Any, deltas: list[str], **how: Any) -> str | None:
    """The parser raises nothing at any delta."""
    try:
        streamed(plugin, deltas, **how)
    except Exception as error:
        return f"raised {type(error).__name__}: {error}\nexpected: it raises nothing"
    return None
