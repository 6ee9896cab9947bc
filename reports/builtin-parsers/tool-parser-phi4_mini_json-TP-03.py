"""TP-03 A whole answer gives the calls that are in it.

Plugin    tool-parser:phi4_mini_json
Did       of 'functools[{"name": "get_weather", "arguments": {"city": "]"}}]' the parser made
          nothing; expected get_weather({"city": "]"})
Expected  extract_tool_calls returns each call of the answer with its name and its arguments,
          whatever strings these hold, and the text before them as content.
Check     Let a JSON decoder find the end of an object, not a regular expression.

Needs vLLM and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

import json
import os
import sys
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager

from vllm.tool_parsers.phi4mini_tool_parser import Phi4MiniJsonToolParser as Plugin


END = "<|end|>"


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
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({each: number for number, each in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_tokens([AddedToken(text, special=False, normalized=False) for text in special])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END)

    managers: Any = {"tool": ToolParserManager, "reasoning": ReasoningParserManager}
    managers[role].register_module(name, force=True, module=plugin)
    names: Any = {f"{role}_parser_name": name}
    cls: Any = ParserManager.get_parser(**names, enable_auto_tools=True)
    asked: Any = {"messages": [{"role": "user", "content": "x"}], "tools": tools or None}
    request = ChatCompletionRequest(**asked, stream=stream)
    parser = cls(tokenizer, request.tools, chat_template_kwargs=chat)
    return parser, parser.adjust_request(request), tokenizer, tokenizer.encode(prompt)


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
    ids = [*tokenizer.encode("".join(deltas)), tokenizer.eos_token_id]
    reasoning, content, calls = parser.parse("".join(deltas), request, bool(request.tools), ids)
    return message(reasoning, content, [(each.name, each.arguments) for each in calls or ()])


def check_whole(plugin: Any, deltas: list[str], says: list[Any], **how: Any) -> str | None:
    """The whole answer gives what it says."""
    expected, found = message(*says), whole(plugin, deltas, **how)
    return None if found == expected else f"whole {found}\nexpected {expected}"


fault = check_whole(
    Plugin,
    deltas=['functools[{"name": "get_weather", "arguments": {"city": "]"}}]'],
    says=["", "", [["get_weather", '{"city": "]"}']]],
    role="tool",
    name="phi4_mini_json",
    special=[],
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
