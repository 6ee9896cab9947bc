# SPDX-License-Identifier: Apache-2.0
"""Which file descriptors count as closed by a client's number."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

import attrs
import pytest

from conformance.watching.descriptors import Descriptors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class _Closed(Exception):
    """What a block is stopped with."""


@attrs.frozen
class _Pipe:
    """A pipe that was open before, and what watches it."""

    number: int
    kept: Descriptors
    hear: Callable[[str, tuple[object, ...]], None]

    def opened(self, *, closefd: bool = True) -> IO[Any]:
        """Open it as a plugin does."""
        self.hear("open", (self.number, "r", 0))
        return os.fdopen(self.number, "rb", closefd=closefd)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Pipe]:
    """Watch for a pipe, without a hook that this process would keep for ever."""
    heard: list[Callable[[str, tuple[object, ...]], None]] = []
    monkeypatch.setattr("sys.addaudithook", heard.append)
    reading, writing = os.pipe()
    kept = Descriptors.watched(__file__)
    yield _Pipe(reading, kept, heard[0])
    for number in (reading, writing, *kept._copies.values()):
        with suppress(OSError):
            os.close(number)


def test_a_descriptor_of_others_is_given_back(pipe: _Pipe) -> None:
    """Its number and the line are told, and the same pipe is open again."""
    before = os.fstat(pipe.number)
    told = rf"descriptor {pipe.number}, .*open\(\) at test_descriptors\.py:"

    with pytest.raises(_Closed, match=told), pipe.kept.kept(_Closed), pipe.opened():
        pass

    assert os.path.samestat(before, os.fstat(pipe.number))


def test_what_stays_open_is_no_harm(pipe: _Pipe) -> None:
    """A file object need not close what it was made of."""
    with pipe.kept.kept(_Closed), pipe.opened(closefd=False):
        pass


def test_a_number_that_was_given_away_is_another_one(pipe: _Pipe) -> None:
    """What was open may be closed by its owner, and the plugin gets its number."""
    own = os.open(os.devnull, os.O_RDONLY)
    os.dup2(own, pipe.number)
    os.close(own)

    with pipe.kept.kept(_Closed), pipe.opened():
        pass
