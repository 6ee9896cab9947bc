# SPDX-License-Identifier: Apache-2.0
"""A tool parser for ``<tool_call>{"name": "f", "arguments": {...}}</tool_call>``.

    vllm serve MODEL --enable-auto-tool-choice \
        --tool-parser-plugin tagged_calls.py --tool-call-parser tagged_calls

One reader serves both methods: a whole answer is a single piece of text, a streamed one comes in
many, cut anywhere.  It looks at each character once, so that a step costs what its own text is
long, and not what the answer is long so far.
"""

from __future__ import annotations

import json
import re
import uuid
from enum import Enum, auto
from typing import TYPE_CHECKING

from vllm.tool_parsers import ToolParser, ToolParserManager

try:
    from vllm.entrypoints.generate.base.protocol import (
        DeltaFunctionCall,
        DeltaMessage,
        DeltaToolCall,
        ExtractedToolCallInformation,
        FunctionCall,
        ToolCall,
    )
except ImportError:  # vLLM 0.28
    from vllm.entrypoints.openai.engine.protocol import (
        DeltaFunctionCall,
        DeltaMessage,
        DeltaToolCall,
        ExtractedToolCallInformation,
        FunctionCall,
        ToolCall,
    )

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tokenizers import TokenizerLike
    from vllm.tool_parsers.abstract_tool_parser import Tool

START, END = "<tool_call>", "</tool_call>"

#: What JSON makes a string of: no other escapes, and no half of a character.
STRING = r'"(?:[^"\\]|\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}))*"'

#: What stands between the start of a call and its arguments; JSON writes the name.
HEAD = re.compile(rf'\s*\{{\s*"name"\s*:\s*({STRING})\s*,\s*"arguments"\s*:\s*(?=\{{)')


def held_back(text: str, marker: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a marker."""
    longest = min(len(text), len(marker) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(marker[:n])), 0)


class State(Enum):
    """What the reader is in the middle of."""

    TEXT = auto()
    HEAD = auto()  #: of a call, up to its arguments
    ARGUMENTS = auto()
    TAIL = auto()  #: behind the arguments, up to the end of the call


class Reader:
    """Reads an answer piece by piece; what it has read for certain, it tells at once."""

    def __init__(self) -> None:
        self.state = State.TEXT
        self.calls = 0
        self._rest = ""  # read, and not yet understood
        self._depth = 0
        self._quoted = self._escaped = False

    def read(self, text: str) -> tuple[str, list[tuple[int, str | None, str]]]:
        """Read a piece; return content, and for each call its index, name and arguments.

        The name is there where the call begins; arguments are those of this piece alone.
        """
        self._rest += text
        content = ""
        calls: dict[int, tuple[str | None, str]] = {}
        steps = {
            State.TEXT: self._text,
            State.HEAD: self._head,
            State.ARGUMENTS: self._arguments,
            State.TAIL: self._tail,
        }
        state = None
        while state is not self.state:
            state = self.state
            said, name, arguments = steps[state]()
            content += said
            if name is not None or arguments:
                known, so_far = calls.get(self.calls - 1, (None, ""))
                calls[self.calls - 1] = (known or name, so_far + arguments)
        return content, [(index, *call) for index, call in calls.items()]

    def rest(self) -> str:
        """Return what an answer ended with that turned out to be no call."""
        unread = self.state in (State.TEXT, State.HEAD)
        start = START if self.state is State.HEAD else ""
        return start + self._rest if unread else ""

    def _text(self) -> tuple[str, str | None, str]:
        said, marker, rest = self._rest.partition(START)
        if marker:
            self.state, self._rest = State.HEAD, rest
        else:
            end = len(said) - held_back(said, START)
            said, self._rest = said[:end], said[end:]
        # Between two calls stands white space, which is nobody's.
        return said if not self.calls or said.strip() else "", None, ""

    def _head(self) -> tuple[str, str | None, str]:
        found = HEAD.match(self._rest)
        if found:
            self.state, self._rest = State.ARGUMENTS, self._rest[found.end() :]
            self.calls += 1
            return "", str(json.loads(found[1], strict=False)), ""
        body, marker, rest = self._rest.partition(END)
        if marker or body.lstrip()[:1] not in ("", "{"):
            # No call after all: the model talks about the marker.
            self.state, self._rest = State.TEXT, rest
            return START + body + marker, None, ""
        return "", None, ""

    def _arguments(self) -> tuple[str, str | None, str]:
        for position, letter in enumerate(self._rest):
            if self._quoted:
                self._quoted = self._escaped or letter != '"'
                self._escaped = letter == "\\" and not self._escaped
            elif letter == '"':
                self._quoted = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                self._depth -= 1
                if not self._depth:
                    arguments = self._rest[: position + 1]
                    self.state, self._rest = State.TAIL, self._rest[position + 1 :]
                    return "", None, arguments
        arguments, self._rest = self._rest, ""
        return "", None, arguments

    def _tail(self) -> tuple[str, str | None, str]:
        tail, marker, rest = self._rest.partition(END)
        if marker:
            self.state, self._rest = State.TEXT, rest
        else:
            self._rest = tail[len(tail) - held_back(tail, END) :]
        return "", None, ""


@ToolParserManager.register_module("tagged_calls")
class TaggedCallsParser(ToolParser):
    """Calls between markers, each a JSON object with a name and arguments."""

    def __init__(self, tokenizer: TokenizerLike, tools: list[Tool] | None = None) -> None:
        super().__init__(tokenizer, tools)
        self._reader = Reader()

    def adjust_request(self, request: ChatCompletionRequest) -> ChatCompletionRequest:
        """Keep the markers in the text: some tokenizers take them for special tokens."""
        request = super().adjust_request(request)
        if request.tools and request.tool_choice != "none":
            request.skip_special_tokens = False
        return request

    def extract_tool_calls(
        self, model_output: str, request: ChatCompletionRequest
    ) -> ExtractedToolCallInformation:
        """Return the calls of a whole answer; nothing is kept of it."""
        reader = Reader()
        content, calls = reader.read(model_output)
        content += reader.rest()
        return ExtractedToolCallInformation(
            tools_called=bool(calls),
            tool_calls=[
                ToolCall(function=FunctionCall(name=name or "", arguments=arguments))
                for _, name, arguments in calls
            ],
            content=content or None,
        )

    def extract_tool_calls_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
        request: ChatCompletionRequest,
    ) -> DeltaMessage | None:
        """Return what this delta adds, or None where it adds nothing for certain."""
        content, calls = self._reader.read(delta_text)
        if not content and not calls:
            return None
        return DeltaMessage(
            content=content or None,
            tool_calls=[_delta(index, name, arguments) for index, name, arguments in calls],
        )


def _delta(index: int, name: str | None, arguments: str) -> DeltaToolCall:
    function = DeltaFunctionCall(name=name, arguments=arguments)
    if name is None:
        return DeltaToolCall(index=index, function=function)
    made = f"chatcmpl-tool-{uuid.uuid4().hex}"
    return DeltaToolCall(index=index, id=made, type="function", function=function)
