# SPDX-License-Identifier: Apache-2.0
"""What a hook may answer, and what becomes of it."""

from __future__ import annotations

import enum
import json
from typing import Any

import pytest

from reference_plugins.classifier_hook.contract import Entry
from reference_plugins.classifier_hook.scores import InvalidScores, copied, decided, failure

LOOP: dict[str, Any] = {}
LOOP["self"] = LOOP


class Level(enum.IntEnum):
    """A number with a name."""

    HIGH = 3


def entry(name: str, *, blocking: bool = True, closes: bool = True) -> Entry:
    """Return a registered hook that is never called."""
    return Entry(None, name, blocking, 1.0, closes)  # type: ignore[arg-type] # see above


def test_scores_are_a_copy() -> None:
    """What a hook does to its dict afterwards reaches nobody."""
    answer: dict[str, Any] = {"spans": [[1, 2]], "by": {"x": 0.5}, "none": None, "ok": True}
    scores = copied(answer)
    answer["spans"][0].append(3)
    answer["by"]["x"] = 1.0

    assert scores == {"spans": [[1, 2]], "by": {"x": 0.5}, "none": None, "ok": True}


def test_values_of_subclasses_become_plain() -> None:
    """Enumerations and tuples are kept by their values."""
    scores = copied({"level": Level.HIGH, "pair": (1, 2)})

    assert type(scores["level"]) is int
    assert json.dumps(scores) == '{"level": 3, "pair": [1, 2]}'


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (None, r"must return a dict \(got None\)"),
        (0.5, "must return a dict"),
        ([("score", 1)], "must return a dict"),
        ({1: "x"}, "has the key 1, which is no str"),
        ({"a": {2: "x"}}, r"scores\['a'\] has the key 2"),
        ({"a": object()}, r"scores\['a'\] is a value of type object"),
        ({"a": [{1, 2}]}, r"scores\['a'\]\[0\] is a value of type set"),
        ({"a": b"x"}, "type bytes"),
        ({"a": float("nan")}, "nan, which JSON cannot hold"),
        ({"a": [float("inf")]}, "inf, which JSON cannot hold"),
        (LOOP, "nest deeper than 32 levels, or hold themselves"),
    ],
)
def test_what_json_cannot_hold_is_invalid(answer: object, sentence: str) -> None:
    """The sentence says where in the scores it is."""
    with pytest.raises(InvalidScores, match=sentence):
        copied(answer)


def test_the_first_blocker_decides() -> None:
    """Of several, the one that was registered first replaces the answer."""
    verdict = decided(
        [
            (entry("passes"), {"block": False}, False),
            (entry("first"), {"block": True, "replacement": "first"}, False),
            (entry("second"), {"block": True, "replacement": "second"}, False),
        ]
    )

    assert (verdict.blocker, verdict.replacement) == ("first", "first")
    assert list(verdict.scores) == ["passes", "first", "second"]


def test_a_hook_that_closes_comes_in_its_turn() -> None:
    """A failure before a decision wins over it, with the default refusal."""
    verdict = decided(
        [
            (entry("fails"), failure("timeout", "too late"), True),
            (entry("blocks"), {"block": True, "replacement": "mine"}, False),
        ]
    )

    assert (verdict.blocker, verdict.replacement) == ("fails", None)


@pytest.mark.parametrize(
    ("hook", "answer", "failed", "blocker"),
    [
        (entry("h", blocking=False, closes=False), {"block": True}, False, None),
        (entry("h", blocking=False, closes=False), failure("exception", "x"), True, None),
        (entry("h", closes=False), failure("exception", "x"), True, None),
        (entry("h", closes=False), {"block": True}, False, "h"),
        (entry("h"), failure("exception", "x"), True, "h"),
        (entry("h"), {"block": 1}, False, "h"),
        (entry("h"), {"block": "yes"}, False, "h"),
        (entry("h"), {"block": 0}, False, None),
        (entry("h"), {"block": []}, False, None),
        (entry("h"), {}, False, None),
        (entry("h"), {"replacement": "text"}, False, None),
    ],
)
def test_who_blocks(hook: Entry, answer: dict[str, Any], failed: bool, blocker: str | None) -> None:
    """A truthy `block` of a blocking hook does, and a failure of one that closes."""
    assert decided([(hook, answer, failed)]).blocker == blocker


@pytest.mark.parametrize("replacement", ["", None, 5, ["text"]])
def test_what_is_no_text_replaces_nothing(replacement: object) -> None:
    """The decision stands, and the default refusal goes out."""
    verdict = decided([(entry("h"), {"block": True, "replacement": replacement}, False)])

    assert (verdict.blocker, verdict.replacement) == ("h", None)


def test_messages_have_an_end() -> None:
    """An exception that quotes the whole text is cut."""
    message = failure("exception", "x" * 10_000)["error"]["message"]

    assert len(message) == 300
