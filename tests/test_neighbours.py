# SPDX-License-Identifier: Apache-2.0
"""Parameter sets near those of a profile differ in what these agree in, and are ones that work."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.logits.calls import PluginRaised
from conformance.logits.neighbours import MOST, TWINS, neighbours


def _derived(*arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the arguments that are derived where a plugin takes all but negative numbers."""
    on = [{"extra_args": each} for each in arguments]

    def acts(keywords: dict[str, Any]) -> bool:
        return not any(value in TWINS for value in keywords["extra_args"].values())

    return [keywords["extra_args"] for keywords in neighbours(on, acts)]


def test_only_what_is_the_same_everywhere_is_changed() -> None:
    """Numbers that a profile varies already are left alone."""
    assert _derived({"n": 2, "window": 10}, {"n": 3, "window": 10}) == [{"n": 2, "window": 11}]
    assert _derived({"n": 2}, {"n": 3}) == []


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (2, 3),
        (0.5, 0.25),
        ([5, 7], [5]),
        ([5], [5, 5]),
        (True, None),
        ("a", "A"),
        ("", None),
        ([], None),
    ],
)
def test_numbers_and_lists_are_changed(value: object, other: object) -> None:
    """Another number, a shorter or longer list, or a text in the other case."""
    assert next(iter(_derived({"it": value})), {"it": None}) == {"it": other}


def test_what_a_plugin_refuses_is_not_tried() -> None:
    """The next number is taken instead; nothing, where none works."""

    def acts(keywords: dict[str, Any]) -> bool:
        if not 0 <= keywords["extra_args"]["n"] <= 2:
            raise PluginRaised("validate_params", ValueError("no such number"))
        return True

    assert neighbours([{"extra_args": {"n": 2}}], acts) == ({"extra_args": {"n": 1}},)
    assert neighbours([{"extra_args": {"n": 2}}], lambda _: False) == ()


def test_there_are_few() -> None:
    """More would take the place of the profile's own."""
    assert len(_derived(dict.fromkeys("abcdef", 5))) == MOST


@pytest.mark.parametrize("value", [5, 0.5])
def test_numbers_with_one_hash_come_last(value: float) -> None:
    """A cache whose key is a hash takes one of them for the other."""
    found = neighbours([{"extra_args": {"by": value}}], lambda _: True)

    first, second = (keywords["extra_args"]["by"] for keywords in found[-2:])
    assert (first, second) == TWINS
    assert hash(first) == hash(second)
    assert type(first) is type(value)
