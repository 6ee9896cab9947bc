# SPDX-License-Identifier: Apache-2.0
"""What answers are tried: those of the profile, and those drawn in a format that fits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
from hypothesis import strategies as st

from conformance.parser import formats
from conformance.parser.messages import Call, Message
from conformance.settings import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hypothesis.strategies import SearchStrategy

    from conformance.parser.formats import Format


def _tool(name: str, **properties: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON schemas
    schema = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


#: The tools of requests, where no profile names others.
TOOLS = (
    _tool(
        "get_weather",
        city={"type": "string"},
        unit={"type": "string"},
        days={"type": "integer"},
        options={"type": "object"},
    ),
    _tool("get_time", city={"type": "string"}),
)


@attrs.frozen
class Sample:
    """An answer, and what it says if that is known."""

    text: str
    says: Message | None = None
    prompt: str | None = None  #: the end of the prompt, where it matters


def read(section: Mapping[str, Any], origin: str | None) -> tuple[Sample, ...]:
    """Return the samples of a profile.

    Raises:
        UsageError: one is not written as the documentation has it.

    """
    return tuple(_sample(each, origin) for each in section.get("samples", ()))


def _sample(table: Any, origin: str | None) -> Sample:  # noqa: ANN401 - whatever TOML has
    where = f"profile {origin}: [parser] samples"
    if isinstance(table, str):
        return Sample(table)
    if not isinstance(table, dict) or not isinstance(table.get("text"), str):
        raise UsageError(f'{where}: {table!r} has no text: write {{ text = "..." }}.')
    known = {"text", "prompt", "content", "reasoning", "calls"}
    if unknown := sorted(set(table) - known):
        raise UsageError(f"{where}: {unknown[0]!r} is none of {', '.join(sorted(known))}.")
    says = None
    if set(table) & {"content", "reasoning", "calls"}:
        says = Message(
            str(table.get("reasoning", "")),
            str(table.get("content", "")),
            tuple(_call(call, where) for call in table.get("calls", ())),
        )
    return Sample(table["text"], says, table.get("prompt"))


def _call(table: Any, where: str) -> Call:  # noqa: ANN401 - whatever TOML has
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise UsageError(f"{where}: the call {table!r} has no name: {{ name, arguments }}.")
    return Call(table["name"], json.dumps(table.get("arguments", {})))


WORDS = ("the", "weather", "in Paris", "x < 3", "is fine", "él", "漢字", "😀", "…", "\n\n", "it's")
HARD = ('"', "\\", "'", "{", "}", "[", "]", ",", ": ", "\n", "```", "</", "<", "null", "1")


@attrs.frozen(eq=False)
class Drawing:
    """Draws messages that a format can hold."""

    format: Format
    tools: tuple[dict[str, Any], ...]

    def samples(self) -> SearchStrategy[Sample]:
        """Draw answers with what they say."""
        return self._messages().map(self.sample)

    def plain(self) -> SearchStrategy[Sample]:
        """Draw answers without a call: all of one is content."""
        return self._content().map(lambda text: self.sample(Message(content=text)))

    def sample(self, message: Message) -> Sample:
        """Return the answer that says a message."""
        prompt = self.format.prompt()
        return Sample(self.format.write(message), message, prompt)

    def first(self) -> list[Sample]:
        """Return answers that are tried before any that is drawn."""
        if self.format.thinks:
            messages = [Message("First I think.", "Then I say it.")]
        else:
            call = formats.PROBE
            lead = "Let me look. " if self.format.content else ""
            second = Call("get_time", '{"city": "Rome"}')
            messages = [Message(calls=(call,)), Message("", lead, (call,))]
            if self.format.several:
                messages.append(Message("", lead, (call, second)))
            names = {tool["function"]["name"] for tool in self.tools}
            if not {"get_weather", "get_time"} <= names:
                return []
        return [self.sample(message) for message in messages]

    def _messages(self) -> SearchStrategy[Message]:
        if self.format.thinks:
            return st.builds(Message, self._content(), self._content())
        calls = st.lists(self._call(), min_size=1, max_size=3 if self.format.several else 1)
        lead = self._content() if self.format.content else st.just("")
        lead = st.just("") | lead
        return st.builds(Message, st.just(""), lead, calls.map(tuple))

    def _call(self) -> SearchStrategy[Call]:
        return st.sampled_from(self.tools).flatmap(self._call_of)

    def _call_of(self, tool: Mapping[str, Any]) -> SearchStrategy[Call]:
        function = tool["function"]
        schema = function.get("parameters", {})
        needed = set(schema.get("required", ()))
        fields = {name: self._value(kind) for name, kind in schema.get("properties", {}).items()}
        arguments = st.fixed_dictionaries(
            {name: value for name, value in fields.items() if name in needed},
            optional={name: value for name, value in fields.items() if name not in needed},
        )
        return arguments.map(
            lambda found: Call(function["name"], json.dumps(found, ensure_ascii=False))
        )

    def _value(self, schema: Mapping[str, Any]) -> SearchStrategy[Any]:
        if self.format.letters:
            return self._letters()
        kinds: dict[str, SearchStrategy[Any]] = {
            "integer": st.integers(-9, 999),
            "number": st.integers(-9, 999),
            "boolean": st.booleans(),
            "array": st.lists(self._string(), max_size=2),
            "object": st.dictionaries(st.sampled_from(["a", "b"]), self._string(), max_size=2),
        }
        return kinds.get(str(schema.get("type")), self._string())

    def _letters(self) -> SearchStrategy[str]:
        """Draw strings that cannot be taken for anything else."""
        words = st.lists(st.sampled_from(("Paris", "é", "漢字", "😀", "o", "a b")), max_size=3)
        return words.map(lambda found: "x" + "".join(found) + "y")

    def _string(self) -> SearchStrategy[str]:
        pieces = (*WORDS, *HARD, *self._beginnings()) if self.format.marked else WORDS
        return self._joined(pieces)

    def _content(self) -> SearchStrategy[str]:
        """Draw text, which ends with a word: nobody tells a parser that an answer is over."""
        pieces = (*WORDS, *HARD, *self._beginnings()) if self.format.marked else WORDS
        return self._joined(pieces).map(lambda text: f"I say {text}.")

    def _joined(self, pieces: Iterable[str]) -> SearchStrategy[str]:
        joined = st.lists(st.sampled_from(tuple(pieces)), max_size=5).map("".join)
        markers = [text for text in self.format.markers if text not in HARD]
        return joined.filter(lambda text: not any(marker in text for marker in markers))

    def _beginnings(self) -> tuple[str, ...]:
        """Return the beginnings of the format's markers."""
        found = (
            marker[:length]
            for marker in self.format.markers
            for length in (len(marker) // 2, len(marker) - 1)
        )
        return tuple(
            text
            for text in dict.fromkeys(found)
            if text and not any(marker in text for marker in self.format.markers)
        )


def cuts() -> SearchStrategy[Sequence[int]]:
    """Draw where an answer is cut: every so many tokens, or anywhere."""
    every = st.sampled_from((2, 3, 5, 8, 16, 1000)).map(lambda step: range(step, 1000, step))
    return every | st.lists(st.integers(1, 120), max_size=12)
