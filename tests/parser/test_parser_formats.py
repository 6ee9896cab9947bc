# SPDX-License-Identifier: Apache-2.0
"""The known formats: what is drawn in one of them means what was drawn."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from conformance.parser.formats import (
    PROBE,
    REASONING_FORMATS,
    TOOL_FORMATS,
    Format,
    Unsaid,
    own,
)
from conformance.parser.messages import Call, Message
from conformance.parser.roles import TOOL
from conformance.parser.samples import Drawing
from conformance.parser.tools import TOOLS
from conformance.search import examples

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("known", [*TOOL_FORMATS, *REASONING_FORMATS], ids=lambda each: each.name)
def test_a_beginning_of_a_marker_is_none(known: Format) -> None:
    """What is put into strings and content begins like a marker, and holds none."""
    beginnings = Drawing(known, TOOLS)._beginnings()

    assert not [text for text in beginnings for marker in known.markers if marker in text]
    assert not known.marked or beginnings


def test_a_message_is_written_with_its_calls() -> None:
    """Text comes first, then each call."""
    message = Message("", "I look. ", (PROBE, Call("get_time", "{}")))

    assert TOOL_FORMATS[0].write(message) == (
        'I look. <tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
        '\n<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
    )


def test_messages_are_the_same_whatever_their_white_space() -> None:
    """White space of JSON and at the ends of content makes no difference; a lost call does."""
    one = Message("", "Yes. ", (Call("f", '{"a": 1}'),))

    assert one.same(Message("", "Yes.", (Call("f", '{"a":1}'),)))
    assert not one.same(Message("", "Yes."))
    assert not one.same(Message("", "Yes.", (Call("f", ""),)))


def _in_json(_content: str, calls: list[dict[str, Any]]) -> str:
    return json.dumps(calls)


def _pairs(calls: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [pair for call in calls for pair in call["arguments"].items()]


def _in_tags(_content: str, calls: list[dict[str, Any]]) -> str:
    return "".join(
        f"<{key}>{value if isinstance(value, str) else json.dumps(value)}"
        for key, value in _pairs(calls)
    )


def _of_strings(_content: str, calls: list[dict[str, Any]]) -> str:
    return "".join(f"{key}={value.strip()!r}" for key, value in _pairs(calls))


@pytest.mark.parametrize(
    ("function", "bare"), [(_in_json, False), (_in_tags, True), (_of_strings, False)]
)
def test_it_shows_where_strings_stand_bare(
    function: Callable[..., str | None], *, bare: bool
) -> None:
    """A function that writes a string as it writes a number leaves the type to the schema."""
    form = own(function, {}, TOOL)

    assert form.letters is bare
    assert {each.text for each in Drawing(form, TOOLS, typed=False).first()}


def test_what_a_model_never_says_is_not_drawn() -> None:
    """A function that returns None has no answer for that: neither a known one, nor a drawn one."""
    form = own(lambda content, calls: None if calls else content, {}, TOOL)
    drawing = Drawing(form, TOOLS)

    with pytest.raises(Unsaid):
        form.write(Message(calls=(PROBE,)))
    assert drawing.first() == []
    assert all(sample.text != "None" for sample in examples(drawing.plain(), 5, seed=0))


@pytest.mark.parametrize("known", REASONING_FORMATS, ids=lambda each: each.name)
def test_characters_of_several_tokens_stand_beside_one_another(known: Format) -> None:
    """Where tokens are pieces of words, a known answer has two such characters in a row."""
    (sample,) = (each for each in Drawing(known, TOOLS).first() if each.pieces)

    assert "😀😀" in sample.text
