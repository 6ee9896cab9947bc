# SPDX-License-Identifier: Apache-2.0
"""Differences are blamed on the addresses of lists where they come and go with these alone."""

from __future__ import annotations

from itertools import cycle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from conformance.logits.played import Kind
from conformance.logits_batch import strata

if TYPE_CHECKING:
    from collections.abc import Iterator

TROUBLE = SimpleNamespace(kind=Kind.ROW)


def _played(*faults: object) -> Any:  # noqa: ANN401 - stands for what was played
    return SimpleNamespace(troubles=faults, faults=faults)


@pytest.mark.parametrize(
    ("again", "minds"),
    [([TROUBLE], True), ([], False), ([TROUBLE, None], False)],
    ids=["always", "never again", "now and then"],
)
def test_what_comes_back_with_used_lists_is_blamed_on_them(
    monkeypatch: pytest.MonkeyPatch, again: list[object], minds: bool
) -> None:
    """A row that differs now and then, as where a thread is not ready, is blamed on nothing."""
    turns: Iterator[object] = cycle(again or [None])

    def play(*_: object, reuses: bool = True) -> Any:  # noqa: ANN401 - as above
        found = next(turns) if reuses else None
        return _played(*filter(None, [found]))

    monkeypatch.setattr(strata, "play", play)

    found: Any = strata._minds_addresses(None, (), strata.PLAIN, _played(TROUBLE))  # type: ignore[arg-type]

    assert found is minds
