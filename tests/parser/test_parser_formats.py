# SPDX-License-Identifier: Apache-2.0
"""The known formats: what is drawn in one of them means what was drawn."""

from __future__ import annotations

import pytest

from conformance.parser.formats import PROBE, REASONING_FORMATS, TOOL_FORMATS, Format
from conformance.parser.messages import Call, Message
from conformance.parser.samples import TOOLS, Drawing


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
