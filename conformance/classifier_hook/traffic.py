# SPDX-License-Identifier: Apache-2.0
"""Several calls of one hook, as Hypothesis strategies."""

from __future__ import annotations

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

#: Calls in a history; turns of the event loop between two; waits of one at which it may leave.
MOST = 4
TURNS = 3
WAITS = 3


@attrs.frozen
class Arrival:
    """A call begins; then the event loop turns so many times."""

    text: int  #: which text is scored
    turns: int = 0
    leaves: int = 0  #: at which of its waits it is cancelled, the first being 1; 0 for at none


@attrs.frozen
class Shape:
    """A family of histories, about one thing."""

    name: str
    overlapping: bool = True
    same_ids: bool = False
    leaving: bool = False


@attrs.frozen
class History:
    """What is scored, and when; the last call is never cancelled."""

    arrivals: tuple[Arrival, ...]
    same_ids: bool

    @property
    def size(self) -> int:
        """How much there is to read."""
        return sum(8 + a.text + a.turns + 4 * a.leaves for a in self.arrivals)

    def ids(self) -> list[str]:
        """Return the request id of each call."""
        return ["id" if self.same_ids else f"id-{call}" for call in range(len(self.arrivals))]


def strategy(shape: Shape, texts: int) -> SearchStrategy[History]:
    """Return histories of a shape over so many texts."""
    text = st.integers(0, texts - 1)
    turns = st.integers(0, TURNS) if shape.overlapping else st.just(0)
    stays = st.builds(Arrival, text, turns)
    leaves = st.integers(0, WAITS) if shape.leaving else st.just(0)
    others = st.lists(st.builds(Arrival, text, turns, leaves), min_size=1, max_size=MOST - 1)
    # Somebody must be there to compare.
    return st.builds(lambda some, last: History((*some, last), shape.same_ids), others, stays)
