# SPDX-License-Identifier: Apache-2.0
"""What clients get, as data: which exception is whose error, and when two answers are the same."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
import torch
from support import ask_job

from conformance.io_processor.answers import Answer, Kind
from conformance.watching.comparison import (
    difference,
    first_line,
    plain,
    reordered,
    shortened,
    unsteady,
)

if TYPE_CHECKING:
    from conformance.worker import Zygote


def test_exceptions_have_the_status_that_the_server_gives_them(
    zygote: Zygote, tmp_path: Path
) -> None:
    """Three kinds of exceptions and vLLM's own are the client's error, all others the server's."""
    told = ask_job(zygote, "io_simulator_job:statuses", {}, tmp_path, beside=__file__)

    clients = {"ValueError", "TypeError", "OverflowError", "UnicodeEncodeError"}
    assert {name for name, (kind, _) in told.items() if kind == Kind.REFUSED.value} == (
        clients | {"VLLMValidationError"}
    )
    assert told["ValueError"] == (Kind.REFUSED.value, 400)
    assert told["KeyError"] == (Kind.FAILED.value, 500)
    assert told["NotImplementedError"] == (Kind.FAILED.value, 501)
    assert told["SystemExit"] == (Kind.FAILED.value, 500)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(Kind.ANSWERED, {"a": 1}), 'was answered {"a": 1}'),
        (
            Answer(Kind.REFUSED, status=400, error="ValueError: bad", call="parse_data"),
            "ended with HTTP 400 in parse_data (ValueError: bad)",
        ),
        (Answer(Kind.FAILED, status=500, error="OSError: no"), "ended with HTTP 500 (OSError: no)"),
        (Answer(Kind.CANCELLED), "was cancelled"),
        (Answer(Kind.UNFINISHED), "was unfinished"),
    ],
    ids=lambda value: value.kind.value if isinstance(value, Answer) else "",
)  # fmt: skip
def test_answers_are_described(answer: Answer, words: str) -> None:
    """A message says how a request ended, and where."""
    assert answer.describe() == words


def test_values_in_another_order_are_told_from_others() -> None:
    """The same values, not all of them in one order; and no others."""
    assert reordered([{"a": [0.5, 2]}, {"a": [0.5, 2]}, {"a": [2, 0.5]}])
    assert not reordered([{"a": [0.5, 2]}, {"a": [0.5, 2]}])
    assert not reordered([{"a": [0.5, 2]}, {"a": [3, 0.5]}])


def test_floats_may_differ_a_little() -> None:
    """Rounding is no difference; everything else is, types included."""
    assert difference({"a": [0.1, 1.0]}, {"a": [0.1000001, 1]}) is None
    assert difference({"a": [0.1, 1.0]}, {"a": [0.2, 1.0]}) == "0.1 instead of 0.2 at ['a'][0]"
    assert difference({"a": True}, {"a": 1}) == "true instead of 1 at ['a']"
    assert difference([1, 2], [1]) == "[1, 2] instead of [1]"
    assert difference(float("nan"), float("nan")) is None
    assert difference(float("nan"), 0.0) == "NaN instead of 0.0"


def test_what_differs_is_shown() -> None:
    """Of long values the part in which they differ."""
    one, other = ({"words": ["same"] * 30 + [last]} for last in ("cat", "dog"))

    assert difference("a" * 200 + "b", "a" * 200 + "c") == (
        f'... {"a" * 40}b" instead of ... {"a" * 40}c"'
    )
    assert difference("a" * 200, "a" * 200 + "b") == (
        f'... {"a" * 40}" instead of ... {"a" * 40}b"'
    )
    assert difference([one], [other]) == '"cat" instead of "dog" at [0][\'words\'][30]'
    assert difference({"a": one}, {"b": one}) == (
        f"{shortened({'a': one})} instead of {shortened({'b': one})}"
    )


def test_hidden_places_do_not_count() -> None:
    """What differs from one time to the next is left out, whatever its place in a list."""
    answers = [{"rows": [{"time": time, "n": 1}] * 2} for time in (1, 2)]
    hidden = unsteady(answers)

    assert hidden == {("rows", "*", "time")}
    assert difference(answers[0], answers[1], hidden) is None
    assert difference({"rows": [{"time": 3, "n": 2}] * 2}, answers[1], hidden) == (
        "2 instead of 1 at ['rows'][0]['n']"
    )


@attrs.frozen
class _Label:
    number: int
    scores: torch.Tensor


def test_what_never_was_json_can_be_compared() -> None:
    """Tensors and objects become lists and dictionaries, at any depth."""
    label = {"label": (_Label(2, torch.tensor([0.5, 1.0])),), 3: {"a"}}

    assert plain(torch.ones(2, 2)) == [[1.0, 1.0], [1.0, 1.0]]
    assert plain(label)["3"] == ["a"]


class _Level(IntEnum):
    SURE = 1


def test_a_member_of_an_enumeration_is_its_value() -> None:
    """Offline an answer may hold the member itself, of which JSON makes its value."""
    assert plain({"level": _Level.SURE}) == {"level": 1}
    assert type(plain(_Level.SURE)) is int


def test_messages_hold_whatever_clients_send() -> None:
    """A message is short, and one that any file takes."""
    assert shortened({"text": "x" * 200}) == '{"text": "' + "x" * 66 + " ..."
    assert shortened("\ud800") == '"\\ud800"'
    assert first_line("one\ntwo") == "one"
    assert len(first_line("x" * 1000)) == 200
    first_line("half of \ud800").encode()
