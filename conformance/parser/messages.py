# SPDX-License-Identifier: Apache-2.0
"""What an answer says: reasoning, content and calls; and a client that puts it together."""

from __future__ import annotations

import json
from typing import Any, NoReturn
from unicodedata import normalize

import attrs

from conformance.watching.comparison import in_common

#: Characters of a message that a sentence quotes.
QUOTED = 160


def _no_number(name: str) -> NoReturn:
    """Refuse ``NaN`` and ``Infinity``, which Python takes for JSON and clients do not."""
    raise ValueError(f"{name} is no JSON")


@attrs.frozen
class Call:
    """One call of a tool."""

    name: str
    arguments: str  #: JSON, as text
    id: str = attrs.field(default="", eq=False)

    @property
    def value(self) -> Any:  # noqa: ANN401 - whatever the JSON says
        """The arguments, or their text where that is no JSON."""
        try:
            return json.loads(self.arguments, parse_constant=_no_number)
        except (ValueError, RecursionError):
            return f"no JSON: {self.arguments}"


@attrs.frozen
class Message:
    """What came of an answer."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[Call, ...] = ()
    raised: str | None = None  #: the parser raised instead
    place: str = attrs.field(default="", eq=False)  #: the line where that came up

    @property
    def meaning(self) -> tuple[Any, ...]:
        """What two messages have in common that say the same.

        White space at the ends is the format's, and that of arguments is JSON's.
        """
        calls = [(call.name, json.dumps(call.value, sort_keys=True)) for call in self.calls]
        return self.reasoning.strip(), self.content.strip(), calls, self.raised

    @property
    def error(self) -> str | None:
        """What the parser raised instead, and where."""
        return None if self.raised is None else f"{self.raised}{self.place}"

    @property
    def document(self) -> list[Any]:
        """The message as JSON has it."""
        calls = [[call.name, call.arguments] for call in self.calls]
        return [self.reasoning, self.content, calls]

    def same(self, other: Message) -> bool:
        """Tell whether two messages say the same."""
        return self.meaning == other.meaning

    def __str__(self) -> str:
        """Return the message in a few words."""
        return self.whole if self.raised is not None else shortened(self.whole)

    @property
    def whole(self) -> str:
        """The message in words, however many."""
        if self.raised is not None:
            return f"raised {self.error}"
        parts = [f"reasoning {self.reasoning!r}"] if self.reasoning else []
        parts += [f"content {self.content!r}"] if self.content else []
        parts += [f"{call.name}({call.arguments})".replace("\n", "\\n") for call in self.calls]
        return " + ".join(parts) or "nothing"


@attrs.frozen
class Stream:
    """What a parser streamed: the message as a client puts it together, and how it came."""

    said: Message
    #: What a client would stumble over: a sentence for each.
    stumbles: tuple[str, ...]
    indices: tuple[int, ...]  #: of the calls, in the order in which they began
    pieces: tuple[Message, ...]  #: what each delta added
    sizes: tuple[int, ...] = ()  #: tokens of each delta, where a server tells
    unknown: tuple[str, ...] = ()  #: fields of deltas that the installed vLLM does not know

    @property
    def joined(self) -> bool:
        """Whether there was a delta of several tokens."""
        return max(self.sizes, default=1) > 1

    def alike(self, other: Stream) -> bool:
        """Tell whether another one says the same, with the same indices.

        A server tells of what was raised in other words than the parser.
        """
        ended = (self.said.raised is None) == (other.said.raised is None)
        one, two = (attrs.evolve(each.said, raised=None) for each in (self, other))
        return ended and one.same(two) and self.indices == other.indices


class Client:
    """A client that puts a message together out of deltas, as the OpenAI SDK does."""

    def __init__(self) -> None:
        self._reasoning = ""
        self._content = ""
        self._calls: dict[int, tuple[str, str]] = {}
        self._ids: dict[int, str] = {}
        self._stumbles: list[str] = []
        self._pieces: list[Message] = []
        self._unknown: dict[str, None] = {}

    def receive(self, delta: Any) -> None:  # noqa: ANN401 - vLLM's DeltaMessage, or None
        """Take a delta."""
        if delta is None:
            self._pieces.append(Message())
            return
        self._unknown |= dict.fromkeys(getattr(delta, "model_extra", None) or ())
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

    def stream(self, raised: str | None, sizes: tuple[int, ...] = (), *, place: str = "") -> Stream:
        """Return what was put together."""
        order = sorted(self._calls)
        calls = tuple(Call(*self._calls[index], self._ids[index]) for index in order)
        return Stream(
            Message(self._reasoning, self._content, calls, raised, place),
            tuple(self._stumbles),
            tuple(self._calls),
            tuple(self._pieces),
            sizes,
            tuple(self._unknown),
        )


def quoted(text: str) -> str:
    """Return a text as sentences quote it."""
    return shortened(repr(text))


def apart(one: Message, other: Message) -> tuple[str, str]:
    """Return two messages in a few words each, in which they can be told apart."""
    said, meant = str(one), str(other)
    if said != meant:
        # What is composed otherwise looks the same.
        alike = normalize("NFC", said) == normalize("NFC", meant)
        return (escaped(said), escaped(meant)) if alike else (said, meant)
    texts = one.whole, other.whole
    start = max(0, in_common(*texts) - QUOTED // 2)
    first, second = (f"... {text[start : start + QUOTED]} ..." for text in texts)
    return first, second


def escaped(text: str) -> str:
    """Return a text in ASCII."""
    return text.encode("ascii", "backslashreplace").decode("ascii")


def shortened(text: str) -> str:
    """Return a text without its middle, if it is long."""
    half = QUOTED // 2
    return text if len(text) <= QUOTED else f"{text[:half]} ... {text[-half:]}"
