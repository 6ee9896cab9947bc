# SPDX-License-Identifier: Apache-2.0
"""A client that puts a message together, and what it stumbles over."""

from __future__ import annotations

from typing import Any

import attrs

from conformance.parser.messages import Call, Message


@attrs.frozen
class Stream:
    """What a parser streamed: the message as a client puts it together, and how it came."""

    said: Message
    #: What a client would stumble over: a sentence for each.
    stumbles: tuple[str, ...]
    indices: tuple[int, ...]  #: of the calls, in the order in which they began
    pieces: tuple[Message, ...]  #: what each delta added

    def alike(self, other: Stream) -> bool:
        """Tell whether another one says the same, with the same indices."""
        return self.said.same(other.said) and self.indices == other.indices


class Client:
    """A client that puts a message together out of deltas, as the OpenAI SDK does."""

    def __init__(self) -> None:
        self._reasoning = ""
        self._content = ""
        self._calls: dict[int, tuple[str, str]] = {}
        self._ids: dict[int, str] = {}
        self._stumbles: list[str] = []
        self._pieces: list[Message] = []

    def receive(self, delta: Any) -> None:  # noqa: ANN401 - vLLM's DeltaMessage, or None
        """Take a delta."""
        if delta is None:
            self._pieces.append(Message())
            return
        reasoning, content = delta.reasoning or "", delta.content or ""
        self._reasoning += reasoning
        self._content += content
        calls = tuple(self._call(call) for call in delta.tool_calls or ())
        self._pieces.append(Message(reasoning, content, calls))

    def _call(self, delta: Any) -> Call:  # noqa: ANN401 - vLLM's DeltaToolCall
        index = delta.index
        name = (delta.function and delta.function.name) or ""
        arguments = (delta.function and delta.function.arguments) or ""
        known, so_far = self._calls.get(index, ("", ""))
        if index not in self._calls:
            if index != len(self._calls):
                self._stumbles.append(f"call {len(self._calls)} has the index {index}")
            if not name:
                self._stumbles.append(f"call {index} begins without its name")
            if not delta.id:
                self._stumbles.append(f"call {index} begins without an id")
            elif delta.id in self._ids.values():
                self._stumbles.append(f"call {index} has the id of another one")
            self._ids[index] = delta.id or ""
        else:
            if name and known:
                self._stumbles.append(f"the name of call {index} comes twice")
            if delta.id and delta.id != self._ids[index]:
                self._stumbles.append(f"call {index} gets a second id")
        self._calls[index] = (known + name, so_far + arguments)
        return Call(name, arguments)

    def stream(self, raised: str | None) -> Stream:
        """Return what was put together."""
        order = sorted(self._calls)
        calls = tuple(Call(*self._calls[index]) for index in order)
        return Stream(
            Message(self._reasoning, self._content, calls, raised),
            tuple(self._stumbles),
            tuple(self._calls),
            tuple(self._pieces),
        )
