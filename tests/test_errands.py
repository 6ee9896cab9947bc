# SPDX-License-Identifier: Apache-2.0
"""What one trial of a run finds out for the others."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from conformance.logits import errands
from conformance.logits.fuzzing.explorer import Explored
from conformance.logits.parameters import Parameters
from conformance.watching.untouched import ERRANDS, Ended, Untouched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ERRAND = errands.Explore(Parameters("here", True, ({"seed": 1},), (), ()), "model", 1, "explores")


def _explore(_plugin: type[Any], errand: errands.Explore) -> Explored:
    if errand.seed == 0:
        os._exit(1)
    return Explored(tried=os.getpid())  # each errand is done by a process of its own


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Untouched]:
    """A process that explores."""
    monkeypatch.setitem(ERRANDS, "explores", _explore)
    process = Untouched.fork(object)
    yield process
    process.close()


def _opening(folder: Path, target: str = "a.py:A") -> Any:  # noqa: ANN401 - as much as is looked at
    return SimpleNamespace(folder=str(folder), plugin=SimpleNamespace(target=target))


def test_what_was_explored_is_handed_over(untouched: Untouched, tmp_path: Path) -> None:
    """The next trial of the same plugin need not explore; nor does it get an answer to more."""
    first = errands.explored(untouched, ERRAND, _opening(tmp_path))
    again = errands.explored(untouched, ERRAND, _opening(tmp_path))
    other = errands.explored(untouched, attrs.evolve(ERRAND, seed=2), _opening(tmp_path))
    neighbour = errands.explored(untouched, ERRAND, _opening(tmp_path, "a.py:B"))

    assert first == again
    assert len({first.tried, other.tried, neighbour.tried}) == 3


def test_what_another_run_explored_says_nothing(
    untouched: Untouched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier run has left is about an earlier plugin."""
    first = errands.explored(untouched, ERRAND, _opening(tmp_path))
    monkeypatch.setattr(os, "getppid", lambda: 0)

    assert errands.explored(untouched, ERRAND, _opening(tmp_path)) != first


def test_an_explorer_that_ends_hands_nothing_over(untouched: Untouched, tmp_path: Path) -> None:
    """Each trial learns of it by itself."""
    for _ in range(2):
        with pytest.raises(Ended):
            errands.explored(untouched, attrs.evolve(ERRAND, seed=0), _opening(tmp_path))

    assert not list(tmp_path.iterdir())
