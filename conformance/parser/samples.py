# SPDX-License-Identifier: Apache-2.0
"""What answers are tried: those of the profile, and those drawn in a format that fits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from conformance.inputs.oddities import CASED
from conformance.parser.formats import LEAD, PROBE, SECOND, SIGNED, THINKING, Format, Unsaid
from conformance.parser.messages import Call, Message
from conformance.parser.tools import REFERRING, UNTYPED, drawn_tools
from conformance.settings import UsageError


@attrs.frozen
class Sample:
    """An answer, and what it says if that is known."""

    text: str
    says: Message | None = None
    prompt: str | None = None  #: the end of the prompt, where it matters
    #: The tools of its request, where they are not those of all.
    tools: tuple[dict[str, Any], ...] | None = attrs.field(default=None, hash=False)
    pieces: bool = False  #: its tokens are pieces of words, see :func:`tokens.tokenizer`
    lead: str = ""  #: what stands before its calls, of which a parser need say nothing


def holding(sample: Sample, text: str) -> Sample | None:
    """Return a sample whose reasoning, or a string of whose calls, begins with a text.

    None where it does not say what that is, or has it twice.
    """
    says = sample.says or Message()
    values = (call.value for call in says.calls if isinstance(call.value, dict))
    strings = [each for value in values for each in value.values() if isinstance(each, str)]
    part = says.reasoning.strip() or next(filter(str.strip, strings), "")
    if not part or sample.text.count(part) != 1:
        return None
    longer = f"{text} {part}"
    old, new = (json.dumps(each)[1:-1] for each in (part, longer))
    calls = tuple(Call(each.name, each.arguments.replace(old, new)) for each in says.calls)
    said = attrs.evolve(says, reasoning=says.reasoning.replace(part, longer), calls=calls)
    return attrs.evolve(sample, text=sample.text.replace(part, longer), says=said)


def read(section: Mapping[str, Any], origin: str | None) -> tuple[Sample, ...]:
    """Return the samples of a profile.

    Raises:
        UsageError: one is not written as the documentation has it.

    """
    return tuple(_sample(each, origin) for each in section.get("samples", ()))


def _sample(table: object, origin: str | None) -> Sample:
    where = f"profile {origin}: [parser] samples"
    if isinstance(table, str):
        return Sample(table)
    if not isinstance(table, dict) or not isinstance(table.get("text"), str):
        raise UsageError(f'{where}: {table!r} has no text: write {{ text = "..." }}.')
    table = {"calls" if key == "tool_calls" else key: value for key, value in table.items()}
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


def _call(table: object, where: str) -> Call:
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise UsageError(f"{where}: the call {table!r} has no name: {{ name, arguments }}.")
    return Call(table["name"], json.dumps(table.get("arguments", {})))


WORDS = ("the", "weather", "in Paris", "x < 3", "is fine", "él", "漢字", "😀", "…", "\n\n", "it's")
HARD = ('"', "\\", "'", "{", "}", "[", "]", ",", ": ", "\n", "```", "</", "<", "null", "1")

#: What authors repair in JSON that models write wrong, and must leave alone in strings.
REPAIRED = ("True", "class=", "None", "&lt;", ",}", ", ]", "\\u0022", '"name": "f"')

#: White space at the ends of a string is the string's.
PADDED = "  x\n"

#: The same without a new line, which formats with tags may have around each string.
INDENTED = "  x "

#: Characters of several tokens each, where tokens are pieces of words, beside one another; one
#: that two make up, which some write as another one, and one that ends a line to ``splitlines``.
IN_BYTES = f"x😀😀e\u0301\u2028{CASED}y"

#: Text with code in it, as models write it.
FENCED = "It is this:\n```python\nprint(1)\n```\nNothing else."

#: Text before a marker, with the beginning of one in it and at its end.
OPEN = "It is {0} 3, and {0}"

#: Text of more letters than buffers and previews have.
LONG = "It" + " rain" * 500 + "s."

#: Calls of an answer with many.
MANY = 5

#: Arguments of each type that :data:`TOOLS` have, and strings that look like another one.
_TYPED: Mapping[str, Mapping[str, Any]] = {
    "get_weather": {
        "city": "42",
        "unit": "true",
        "days": 3,
        "options": {"a": "x"},
        "exact": True,
        "height": 48.8584,
        "limit": None,
    },
    "get_time": {"city": "null", "name": "1e3"},
}

#: Calls of tools that no other request has.
_ODD = (
    (UNTYPED, Call("get_hours", '{"hours": 3}')),
    (UNTYPED, Call("get_hours", '{"hours": null, "remark": "x"}')),
    (UNTYPED, Call("ping", "{}")),
    (REFERRING, Call("get_route", '{"end": {"city": "Paris", "floor": 3}}')),
)

#: Strings that a parser may take for something else.
ALIKE = ("42", "-7", "3.5", "1e3", "007", "true", "False", "None", "{}", "[1]", '{"a": 1}')


@attrs.frozen(eq=False)
class Drawing:
    """Draws messages that a format can hold."""

    format: Format
    tools: tuple[dict[str, Any], ...]
    free: bool = True  #: requests may have other tools
    #: Arguments may be of any type, also where types are not marked.
    typed: bool = True
    #: By schema, as JSON: Hypothesis looks into a strategy once, which costs more than to draw.
    _values: dict[str, SearchStrategy[Any]] = attrs.field(init=False, factory=dict)
    #: By the tools of a request, as JSON: for the same reason.
    _answers: dict[str, SearchStrategy[Sample]] = attrs.field(init=False, factory=dict)

    def samples(self) -> SearchStrategy[Sample]:
        """Draw answers with what they say."""
        if self.format.thinks is not None:
            thoughts = st.builds(Message, self.before, self.content)
            return self._said(st.builds(self._sample, thoughts, pieces=st.booleans()))
        tools = st.just(self.tools)
        if self.free and (self.typed or not self.format.letters):
            hyphens = ["get-time"] if self.format.quotes else []
            tools |= drawn_tools(("get_weather", "f", "searchFor2", *hyphens))
        return tools.flatmap(self._with_tools)

    def _with_tools(self, tools: tuple[dict[str, Any], ...]) -> SearchStrategy[Sample]:
        """Draw answers to a request with these tools."""
        key = json.dumps(tools)
        if key not in self._answers:
            message = self._messages(tools)
            made = st.builds(self._sample, message, st.just(tools), pieces=st.booleans())
            self._answers[key] = self._said(made)
        return self._answers[key]

    def plain(self) -> SearchStrategy[Sample]:
        """Draw answers without a call: all of one is content."""
        return self._said(self.content.map(lambda text: self._sample(Message(content=text))))

    def fenced(self) -> list[Sample]:
        """Return an answer with code in it, between marks that some parsers look for."""
        if any(marker in FENCED for marker in self.format.markers):
            return []
        return self.saying(Message(content=FENCED))

    def of_each_type(self) -> list[Sample]:
        """Return answers to known tools with arguments of each type, one and all at once."""
        if not self._knows_ours():
            return []
        calls = [
            Call(name, json.dumps(arguments))
            for name, values in _TYPED.items()
            for arguments in (*({key: value} for key, value in values.items()), values)
        ]
        calls.append(attrs.evolve(PROBE, arguments=json.dumps({"city": INDENTED})))
        found = self.saying(*(Message(calls=(call,)) for call in (*calls, SIGNED)))
        odd = (self._sample(Message(calls=(call,)), tools) for tools, call in _ODD if self.free)
        return [*found, *(sample for sample in odd if sample is not None)]

    def _knows_ours(self) -> bool:
        """Tell whether requests have the tools that they have without a profile."""
        return set(_TYPED) <= {tool["function"]["name"] for tool in self.tools}

    def _sample(
        self,
        message: Message,
        tools: tuple[dict[str, Any], ...] | None = None,
        *,
        pieces: bool = False,
    ) -> Sample | None:
        """Return the answer that says a message, or None where the model never says it."""
        try:
            text = self.format.write(message)
        except Unsaid:
            return None
        if self._runs_on(message.reasoning or message.content, text):
            return None
        return Sample(text, message, self.format.prompt(), tools, pieces)

    def _runs_on(self, before: str, text: str) -> bool:
        """Tell whether a marker begins within what stands before one: where that ends is open."""
        end = text.find(before) + len(before)
        return before in text and any(
            marker in text[max(0, end - len(marker) + 1) : end + len(marker) - 1]
            for marker in self.format.markers
        )

    def saying(self, *messages: Message, pieces: bool = False) -> list[Sample]:
        """Return the answers that say messages, but for what the model never says."""
        found = (self._sample(message, pieces=pieces) for message in messages)
        return [sample for sample in found if sample is not None]

    def long(self) -> list[Sample]:
        """Return a long answer, for a parser that keeps or tells no more than so many letters."""
        if self.format.thinks is not None:
            return self.saying(attrs.evolve(THINKING, reasoning=LONG))
        told = attrs.evolve(PROBE, arguments=json.dumps({"city": LONG}))
        return self.saying(Message(calls=(told,))) if self._knows_ours() else []

    @staticmethod
    def _said(drawn: SearchStrategy[Sample | None]) -> SearchStrategy[Sample]:
        """Leave out what the model never says."""
        return cast("SearchStrategy[Sample]", drawn.filter(lambda sample: sample is not None))

    def first(self) -> list[Sample]:
        """Return answers that are tried before any that is drawn."""
        edges = self._edges()[:1] if self.format.marked else ()
        if self.format.thinks is not None:
            messages = [THINKING]
            # What is said may end or begin as a marker does, right beside one.
            for edge in edges:
                messages.append(attrs.evolve(THINKING, reasoning=OPEN.format(edge)))
                messages.append(attrs.evolve(THINKING, content=f"{edge} it begins."))
            in_bytes = Message(f"I think {IN_BYTES}.", f"I say {IN_BYTES}.")
        elif not self._knows_ours():
            return []
        else:
            lead = LEAD if self.format.content else ""
            messages = [Message(calls=(PROBE,)), Message("", lead, (PROBE,))]
            messages += [Message("", OPEN.format(edge), (PROBE,)) for edge in edges if lead]
            if self.format.several:
                messages.append(Message("", lead, (PROBE, SECOND)))
                messages.append(Message(calls=((PROBE, SECOND) * MANY)[:MANY]))
            if self.format.marked and not self.format.letters:
                for text in (" ".join(REPAIRED), PADDED):
                    told = attrs.evolve(PROBE, arguments=json.dumps({"city": text}))
                    messages.append(Message(calls=(told,)))
            if self.typed and not self.format.letters:  # else types are what TP-13 is about
                messages.append(Message(calls=(SIGNED,)))
            arguments = json.dumps({"city": IN_BYTES}, ensure_ascii=False)
            in_bytes = Message("", lead, (attrs.evolve(PROBE, arguments=arguments),))
        return [*self.saying(*messages), *self.saying(in_bytes, pieces=True)]

    def _messages(self, tools: tuple[dict[str, Any], ...]) -> SearchStrategy[Message]:
        call = st.sampled_from(tools).flatmap(lambda tool: self._call(tool["function"]))
        calls = st.lists(call, min_size=1, max_size=3 if self.format.several else 1)
        lead = self.before if self.format.content else st.just("")
        return st.builds(Message, st.just(""), st.just("") | lead, calls.map(tuple))

    def _call(self, function: Mapping[str, Any]) -> SearchStrategy[Call]:
        schema = {"type": "object", "properties": {}, **(function.get("parameters") or {})}
        return self._value(schema).map(
            lambda found: Call(function["name"], json.dumps(found, ensure_ascii=False))
        )

    def _fields(self, schema: Mapping[str, Any]) -> SearchStrategy[dict[str, Any]]:
        """Draw an object."""
        needed = set(schema.get("required", ()))
        properties = schema.get("properties", {})
        if self.format.letters and not self.typed:
            needed = set()
            properties = {n: of for n, of in properties.items() if of == {"type": "string"}}
        fields = {name: self._value(of) for name, of in properties.items()}
        return st.fixed_dictionaries(
            {name: value for name, value in fields.items() if name in needed},
            optional={name: value for name, value in fields.items() if name not in needed},
        )

    def _value(self, schema: Mapping[str, Any]) -> SearchStrategy[Any]:
        """Draw a value as a schema has it."""
        key = json.dumps(schema)
        if key not in self._values:
            self._values[key] = self._any(schema)
        return self._values[key]

    def _any(self, schema: Mapping[str, Any]) -> SearchStrategy[Any]:
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        kinds: dict[str, Callable[[], SearchStrategy[Any]]] = {
            "integer": lambda: st.integers(-9, 999) | st.just(2**53 + 1),
            # Never a whole number: a parser may read 5 as 5.0 here.
            "number": lambda: st.integers(-9, 999).map(lambda n: n + 0.25) | st.just(48.8584),
            "boolean": st.booleans,
            "null": st.none,
            "array": lambda: st.lists(self._value(schema.get("items", {})), max_size=2),
            "object": lambda: (
                self._fields(schema)
                if "properties" in schema
                else st.dictionaries(st.sampled_from(["a", "b"]), self._strings, max_size=2)
            ),
        }
        named = schema.get("type")
        every = named if isinstance(named, list) else [named]
        return st.one_of([kinds.get(str(each), lambda: self._strings)() for each in every])

    @cached_property
    def _strings(self) -> SearchStrategy[str]:
        if self.format.letters:
            words = st.lists(st.sampled_from(("Paris", "é", "漢字", "😀", "o", "a b")), max_size=3)
            # They cannot be taken for anything else.
            letters = words.map(lambda found: "x" + "".join(found) + "y")
            return letters | st.sampled_from(ALIKE) if self.typed else letters
        pieces = (*WORDS, *HARD, *REPAIRED, *self._beginnings()) if self.format.marked else WORDS
        return self._joined(pieces)

    @cached_property
    def content(self) -> SearchStrategy[str]:
        """Draws text, which ends with a word: a parser is not told that an answer is over."""
        return self._words.map(lambda text: f"I say {text}.")

    @cached_property
    def before(self) -> SearchStrategy[str]:
        """Draws text before a marker, which tells that it is over: it may end as markers begin."""
        edges = self._edges() if self.format.marked else ()
        if not edges:
            return self.content
        # A model may well write "<", and no more of a marker than that.
        cut_off = st.builds("I think that {}{}".format, self._words, st.sampled_from(edges))
        return self.content | self._unmarked(cut_off)

    @cached_property
    def _words(self) -> SearchStrategy[str]:
        pieces = (*WORDS, *HARD, *self._beginnings()) if self.format.marked else WORDS
        return self._joined(pieces)

    def _joined(self, pieces: Iterable[str]) -> SearchStrategy[str]:
        return self._unmarked(st.lists(st.sampled_from(tuple(pieces)), max_size=5).map("".join))

    def _unmarked(self, drawn: SearchStrategy[str]) -> SearchStrategy[str]:
        """Leave out texts with a marker in them."""
        markers = [text for text in self.format.markers if text not in HARD]
        return drawn.filter(lambda text: not any(marker in text for marker in markers))

    def _edges(self) -> tuple[str, ...]:
        """Return the first characters of the format's markers that no word begins with."""
        first = dict.fromkeys(each[0] for each in self.format.markers)
        return tuple(each for each in first if not each.isalnum())

    def _beginnings(self) -> tuple[str, ...]:
        """Return the beginnings of the format's markers."""
        markers = self.format.markers
        found = [text[:end] for text in markers for end in (len(text) // 2, len(text) - 1)]
        whole = [text for text in found if not text or any(each in text for each in markers)]
        return tuple(text for text in dict.fromkeys(found) if text not in whole)


def cuts() -> SearchStrategy[Sequence[int]]:
    """Draw where an answer is cut: every so many tokens, or anywhere."""
    every = st.sampled_from((2, 3, 5, 8, 16, 1000)).map(lambda step: range(step, 1000, step))
    return every | st.lists(st.integers(1, 120), max_size=12)
