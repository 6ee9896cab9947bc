# SPDX-License-Identifier: Apache-2.0
"""Requests that any client may send: where odd values are put, and how they are written."""

from __future__ import annotations

import functools
import json
import math
from itertools import islice
from typing import Any

import pytest
from hypothesis import find

from conformance.counterexample.source import decoded, encoded, expression
from conformance.logits.fuzzing.bodies import odd
from conformance.logits.fuzzing.explorer import AT_EDGES
from conformance.logits.fuzzing.values import (
    DEEP,
    LIKELY,
    edges,
    mutations,
    nested,
    of_size,
    positions,
    replaced,
    requests,
)
from conformance.settings import Budget

VOCABULARY = 500
ODD: tuple[Any, ...] = (None, VOCABULARY, -1, "", [], {}, 2**40, "x")


@pytest.mark.parametrize("keys", [("boost",), ("mode", "boost")], ids=len)
@pytest.mark.parametrize("bases", [[], [{}], [{"temperature": 0.5}]], ids=str)
def test_a_key_without_a_request_that_works_is_tried(
    bases: list[dict[str, Any]], keys: tuple[str, ...]
) -> None:
    """Keys that a plugin was only seen to read get every value at the edges."""
    sent = [keywords for keywords, _ in requests(bases, keys, VOCABULARY)]

    for key in keys:
        values = [(one.get("extra_args") or {}).get(key) for one in sent]
        assert sum(value == VOCABULARY for value in values) >= 1
        assert len(values) >= len(edges(VOCABULARY))


@pytest.mark.parametrize("bases", [[], [{}]], ids=str)
def test_two_keys_without_a_request_that_works_are_paired(bases: list[dict[str, Any]]) -> None:
    """Within the standard number of requests one is right and the other wrong, or missing."""
    early = islice(requests(bases, ("low", "high"), VOCABULARY), AT_EDGES[Budget.STANDARD])
    sent = [keywords.get("extra_args") or {} for keywords, _ in early]

    for right, wrong in (("low", "high"), ("high", "low")):
        for likely in LIKELY:
            assert {right: likely} in sent
            for value in ODD:
                assert {right: likely, wrong: value} in sent


def test_every_position_comes_early() -> None:
    """The most telling value is tried at each position before another one at any."""
    base = {"extra_args": {"spans": [[1, 5], [7, 9]], "mode": "a"}}
    early = [path for _, path in islice(requests([base], (), VOCABULARY), 12)]

    assert ("extra_args", "mode") in early
    assert ("extra_args", "spans", 1, 1) in early


def test_parts_are_put_where_nothing_is() -> None:
    """A key in a table that is missing is added with its table."""
    assert replaced({}, ("extra_args", "boost"), 5) == {"extra_args": {"boost": 5}}
    assert replaced({"extra_args": None}, ("extra_args", "boost"), 5)["extra_args"] == {"boost": 5}


@pytest.mark.parametrize("value", edges(VOCABULARY), ids=lambda value: expression(value)[:30])
def test_values_are_written_as_they_are(value: object) -> None:
    """The expression that a person reads gives the value, and so does the case file."""
    again = eval(expression(value), {"functools": functools})  # noqa: S307 - our own
    if isinstance(value, float) and math.isnan(value):
        assert math.isnan(again)
        assert math.isnan(decoded(encoded(value)))
    else:
        assert repr(again) == repr(value)
        assert repr(decoded(encoded(value))) == repr(value)


def test_long_values_are_short_to_read() -> None:
    """A person is never shown a megabyte, nor hundreds of brackets."""
    assert max(len(expression(value)) for value in edges(VOCABULARY) if value != {}) < 20_000
    assert len(expression(nested(DEEP))) < 80
    assert expression("a" * 5_000 + "!") == '"a" * 5000 + "!"'


def test_requests_without_arguments_are_drawn_from() -> None:
    """A parameter set that holds nothing leaves the keys that the plugin reads."""
    found = find(mutations([{"extra_args": {}}], ("boost",), VOCABULARY), lambda _: True)

    assert found[1] == ("extra_args", "boost")
    assert positions({"extra_args": {}}) == []


@pytest.mark.parametrize(
    ("value", "sent"),
    [("67,5", f"{VOCABULARY},5"), ({"67": 2.0, "5": 1.0}, {str(VOCABULARY): 2.0, "5": 1.0})],
)
def test_ids_in_texts_and_keys_leave_the_vocabulary(value: object, sent: object) -> None:
    """The first id that no token has is sent wherever an id may stand."""
    values = [
        keywords["extra_args"].get("it")
        for keywords, _ in requests([{"extra_args": {"it": value}}], (), VOCABULARY)
    ]

    assert sent in values[:12]


def test_every_key_that_is_served_is_written_in_all_ways_of_json() -> None:
    """Each key gets floats, true, numbers beyond 64 bits, a megabyte, and comes twice."""
    served: list[dict[str, Any]] = [{"prompt": 5, "mode": "x"}, {"ban": [1, 2], "mode": "y"}]
    bodies = {body.says: body.text for body in odd("m", served)}
    found = {says: json.loads(text)["vllm_xargs"] for says, text in bodies.items()}

    usual = {"a number beyond 64 bits", "true", "a list of a megabyte", "a text of a megabyte"}
    for key in ("prompt", "mode", "ban"):
        assert {f"{what} for {key}" for what in usual} <= found.keys()
        assert found[f"true for {key}"][key] is True
        assert found[f"a number beyond 64 bits for {key}"][key] == 10**30
        assert len(bodies[f"a text of a megabyte for {key}"]) >= 1_000_000
        *_, arguments = bodies[f"{key} twice"].split('"vllm_xargs": ')
        assert arguments.count(f'"{key}": ') == 2
    assert repr(found["a float for prompt"]["prompt"]) == "5.0"
    assert repr(found["a list of floats for ban"]["ban"]) == "[1.0, 2.0]"
    assert found["a list of true for ban"]["ban"] == [True, True]
    assert found["true for ban"]["mode"] == "y"
    assert all(json.loads(text)["prompt"] for text in bodies.values())


@pytest.mark.parametrize("value", [VOCABULARY, -VOCABULARY - 1, float(VOCABULARY), "500", [[500]]])
def test_a_value_tells_the_size_of_the_vocabulary(value: object) -> None:
    """With a model of another size, another value is sent."""
    assert of_size({"extra_args": {"key": value}}, VOCABULARY)
    assert of_size({"extra_args": {str(VOCABULARY): 1}}, VOCABULARY)


@pytest.mark.parametrize("value", [VOCABULARY - 1, -1, 2**40, "5000", True, None, nested(DEEP)])
def test_other_values_harm_any_model(value: object) -> None:
    """They are sent as they are."""
    assert not of_size({"extra_args": {"key": value}}, VOCABULARY)
