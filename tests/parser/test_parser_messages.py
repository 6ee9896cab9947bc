# SPDX-License-Identifier: Apache-2.0
"""Messages in a few words."""

from __future__ import annotations

from conformance.parser.messages import QUOTED, Call, Message, apart


def test_long_messages_are_told_apart() -> None:
    """Where their middles differ, these are shown."""
    one, other = (Message(content="a" * QUOTED + letter + "b" * QUOTED) for letter in "xy")
    assert str(one) == str(other)

    first, second = apart(one, other)

    assert ("ax" in first, "ay" in second) == (True, True)
    assert max(map(len, (first, second))) < QUOTED + 10


def test_short_ones_are_whole() -> None:
    """Nothing is left out that has room."""
    assert apart(Message("a"), Message("b")) == ("reasoning 'a'", "reasoning 'b'")


def test_arguments_that_only_python_reads_are_no_json() -> None:
    """A client in another language stops at them."""
    assert Call("f", '{"x": 1.5}').value == {"x": 1.5}
    for said in ("NaN", "Infinity", "-Infinity"):
        assert Call("f", f'{{"x": {said}}}').value == f'no JSON: {{"x": {said}}}'


def test_what_looks_the_same_is_told_apart() -> None:
    """A letter that is composed of two, and the same one as one, are written in ASCII."""
    one, other = apart(Message(content="e\u0301"), Message(content="\u00e9"))

    assert (one, other) == (r"content 'e\u0301'", r"content '\xe9'")
