# SPDX-License-Identifier: Apache-2.0
"""Histories of calls are ones that the runtime can make, and are made as they say."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import attrs
import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.classifier_hook import traffic
from conformance.classifier_hook.traffic import Arrival, History, Shape, strategy

if TYPE_CHECKING:
    from collections.abc import Callable

TEXTS = 5

SHAPES = (
    Shape("sequence", overlapping=False),
    Shape("together"),
    Shape("same-ids", same_ids=True),
    Shape("leaving", leaving=True),
)
LEAVING = SHAPES[-1]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@given(data=st.data())
def test_a_history_keeps_to_its_shape(shape: Shape, data: st.DataObject) -> None:
    """Nothing happens in a history that its shape does not allow, and one call can be compared."""
    drawn = data.draw(strategy(shape, TEXTS))

    assert 2 <= len(drawn.arrivals) <= traffic.MOST
    assert drawn.arrivals[-1].leaves == 0
    assert len(set(drawn.ids())) == (1 if shape.same_ids else len(drawn.arrivals))
    for arrival in drawn.arrivals:
        assert 0 <= arrival.text < TEXTS
        assert 0 <= arrival.turns <= (traffic.TURNS if shape.overlapping else 0)
        assert 0 <= arrival.leaves <= (traffic.WAITS if shape.leaving else 0)


@given(strategy(LEAVING, TEXTS))
def test_a_part_is_smaller_than_the_whole(drawn: History) -> None:
    """A history is larger than one without its first call, or without its pauses."""
    assert attrs.evolve(drawn, arrivals=drawn.arrivals[1:]).size < drawn.size
    hurried = tuple(attrs.evolve(arrival, turns=0) for arrival in drawn.arrivals)
    assert attrs.evolve(drawn, arrivals=hurried).size <= drawn.size


@pytest.mark.parametrize(
    ("happens", "smallest"),
    [
        (lambda arrival: arrival.leaves == 2, (Arrival(0, leaves=2), Arrival(0))),
        (lambda arrival: arrival.turns, (Arrival(0, turns=1), Arrival(0))),
        (lambda arrival: arrival.text == 3, (Arrival(3), Arrival(0))),
    ],
    ids=["leaves", "turns", "text"],
)
def test_histories_shrink_to_what_matters(
    happens: Callable[[Arrival], object], smallest: tuple[Arrival, ...]
) -> None:
    """The smallest history in which something happens to the first call has nothing else in it."""
    found = hypothesis.find(
        strategy(LEAVING, TEXTS),
        lambda drawn: bool(happens(drawn.arrivals[0])),
        settings=hypothesis.settings(derandomize=True, database=None, max_examples=2000),
    )

    assert found.arrivals == smallest


class Noting:
    """A hook of three waits that notes what it gets to."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    async def score(self, context: str) -> dict[str, Any]:
        """Note every step; *context* is a name here."""
        for step in range(3):
            self.notes.append(f"{context}{step}")
            await asyncio.sleep(0)
        self.notes.append(f"{context}3")
        return {"of": context}


async def _played(*arrivals: Arrival) -> tuple[list[str], list[Any]]:
    from conformance.classifier_hook.calls import many

    hook = Noting()
    calls = await many(hook, "abcd"[: len(arrivals)], arrivals, 5.0)
    return hook.notes, calls


async def test_calls_begin_in_their_order_and_mix() -> None:
    """Without a pause between them, two calls take turns from the first step on."""
    notes, calls = await _played(Arrival(0), Arrival(1))

    assert notes == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"]
    assert [call.value for call in calls] == [{"of": "a"}, {"of": "b"}]
    assert all(call.good for call in calls)


async def test_the_event_loop_turns_between_two_calls() -> None:
    """A call begins as many steps of the other later as the history says."""
    notes, _ = await _played(Arrival(0, turns=2), Arrival(1))

    assert notes[:4] == ["a0", "a1", "a2", "b0"]


@pytest.mark.parametrize("wait", [1, 2, 3])
async def test_a_call_leaves_at_its_wait(wait: int) -> None:
    """It gets no further than to the wait that the history names, and others go on."""
    notes, calls = await _played(Arrival(0, leaves=wait), Arrival(1))

    assert [note for note in notes if note[0] == "a"] == [f"a{step}" for step in range(wait)]
    assert calls[0].cancelled
    assert calls[1].value == {"of": "b"}


async def test_a_call_that_is_over_before_does_not_leave() -> None:
    """A wait that there is not cancels nothing."""
    _, calls = await _played(Arrival(0, leaves=4), Arrival(1))

    assert all(call.good for call in calls)
