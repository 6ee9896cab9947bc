# SPDX-License-Identifier: Apache-2.0
"""Several calls of one hook, as Hypothesis strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from hypothesis import strategies as st

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

#: Calls in a history.
MOST = 4
MOST_MOVES = 8


@attrs.frozen
class Move:
    """A call begins, or is cancelled; then the event loop turns so many times."""

    call: int
    leaves: bool = False
    turns: int = 0


@attrs.frozen
class Shape:
    """A family of histories, about one thing."""

    name: str
    rule: str
    overlapping: bool = True
    same_ids: bool = False
    leaving: bool = False


@attrs.frozen
class History:
    """What is scored, by index into the texts, and when."""

    texts: tuple[int, ...]
    moves: tuple[Move, ...]
    same_ids: bool

    @property
    def size(self) -> int:
        """How much there is to read."""
        turns = sum(move.turns for move in self.moves)
        return 8 * len(self.texts) + 4 * len(self.moves) + turns + sum(self.texts)

    def left(self) -> frozenset[int]:
        """Return the calls that are cancelled."""
        return frozenset(move.call for move in self.moves if move.leaves)


def strategy(shape: Shape, texts: int) -> SearchStrategy[History]:
    """Return histories of a shape over so many texts."""
    scored = st.lists(st.integers(0, texts - 1), min_size=2, max_size=MOST)
    moves = st.lists(
        st.builds(
            Move,
            st.integers(0, MOST - 1),
            st.booleans() if shape.leaving else st.just(value=False),
            st.integers(0, 3) if shape.overlapping else st.just(0),
        ),
        max_size=MOST_MOVES,
    )
    return st.builds(lambda t, m: _history(shape, t, m), scored, moves)


def _history(shape: Shape, texts: list[int], moves: list[Move]) -> History:
    known = [move for move in moves if move.call < len(texts)]
    begun: set[int] = set()
    kept: list[Move] = []
    for move in known:
        if move.call in begun or not move.leaves:
            if move.call not in begun or move.leaves:
                kept.append(move)
            begun.add(move.call)
    # The last call stays: something must be there to compare.
    kept = [move for move in kept if not (move.leaves and move.call == len(texts) - 1)]
    kept += [Move(call) for call in range(len(texts)) if call not in begun]
    return History(tuple(texts), tuple(kept), shape.same_ids)
