# SPDX-License-Identifier: Apache-2.0
"""Which sources are asked in processes with other hashes, and what is told of those."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from conformance.watching import hash_seeds

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ("list(set(words))", True),
        ("next(iter({word for word in words}))", True),
        ("one.keys() & other.keys()", True),
        ("first.union(second)", True),
        ("hash(words)", True),
        ("sorted(set(words))", False),
        ("len(set(words)) == len(words)", False),
        ("words in {'a', 'b'}", False),
        ("set()", False),
        ("words - others", False),
    ],
)
def test_sources_whose_sets_have_an_order_are_asked(
    body: str, asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are spared the time: a process imports vLLM for them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"asked_{abs(hash(body))}"
    source = f"class Plugin:\n    def answer(self, words, *_):\n        return {body}\n"
    (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")

    assert hash_seeds.may_depend(__import__(name).Plugin) is asked


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ("seen = set()\n        seen.update(words)\n        return list(seen)", True),
        ("self.seen = set()\n        return [word for word in self.seen]", True),
        ("groups = defaultdict(set)\n        return list(groups[words])", True),
        ("seen = set()\n        seen.add(words)\n        return words in seen", False),
        ("seen = set()\n        seen.add(words)\n        return sorted(seen)", False),
        ("groups = defaultdict(list)\n        return groups", False),
    ],
)
def test_sets_that_are_empty_at_first_are_followed_by_their_names(
    body: str, asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in which texts are only looked up has no order that anybody sees."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"followed_{abs(hash(body))}"
    source = (
        "from collections import defaultdict\n\n\n"
        f"class Plugin:\n    def answer(self, words, *_):\n        {body}\n"
    )
    (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")

    assert hash_seeds.may_depend(__import__(name).Plugin) is asked


def listed(words: list[str]) -> list[Any]:
    """Return answers, of which one has the order of a set."""
    return [sorted(set(words)), list(set(words))]


def timed(words: list[str]) -> list[Any]:
    """Return what differs in any two processes."""
    return [time.time_ns(), os.getpid(), words]


def test_an_order_of_hashes_is_told_apart_from_what_differs_anyway() -> None:
    """What each process has of its own is no doing of the hashes."""
    words = ["red", "green", "blue", "white", "black", "brown"]
    here = "test_hash_seeds"

    found = hash_seeds.apart(f"{here}:listed", words)

    assert found is not None
    assert found[0] == 1
    assert hash_seeds.apart(f"{here}:timed", words) is None
    assert hash_seeds.apart(f"{here}:missing", words) is None
    assert hash_seeds.apart(f"{here}:listed", lambda: None) is None
