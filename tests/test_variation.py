# SPDX-License-Identifier: Apache-2.0
"""Histories are varied in what requests are told, and made smaller in everything."""

from __future__ import annotations

import random

import attrs

from conformance.inputs import edits, history
from conformance.inputs.history import History, Request, Step
from conformance.inputs.words import Words
from conformance.logits.trails import Trail
from conformance.logits.variation import MOST_OUTPUTS, Material, led, smaller, varied

WORDS = Words((7, 11, 13), (499,))
HISTORY: History = (
    Step(join=(Request("A", (7, 11), ("on", 0), outputs=(7, 7)), Request("B", (7,), ("off", 0)))),
    Step(pause=("B",), repeat=3),
    Step(finish=("A",), join=(Request("C", (13,), ("on", 1), outputs=(11, 13, 11)),)),
    Step(chunk=(("B", 1),)),
)
MATERIAL = Material(WORDS, (("on", 0), ("on", 1), ("off", 0)), 34, [HISTORY])


def _ordered(one: History) -> History:
    """Return what the scheduler orders."""
    return tuple(attrs.evolve(step, join=()) for step in one)


def test_what_the_scheduler_orders_stays() -> None:
    """Requests keep their names and the lengths of their prompts; only steps are added."""
    for seed in range(200):
        found = varied(HISTORY, MATERIAL, random.Random(seed))
        joined = [request for step in found for request in step.join]

        assert _ordered(found)[: len(HISTORY)] == _ordered(HISTORY)
        assert all(step == Step(repeat=step.repeat) for step in found[len(HISTORY) :])
        assert [(each.name, len(each.prompt)) for each in joined] == [("A", 2), ("B", 1), ("C", 1)]
        assert all(len(each.outputs) <= MOST_OUTPUTS for each in joined)
        assert found == varied(HISTORY, MATERIAL, random.Random(seed))


def test_smaller_histories_are_those_of_a_scheduler() -> None:
    """One that is not there any more is nowhere, and somebody stays where others are preempted."""
    found = list(smaller(HISTORY))

    assert all(history.size(each) < history.size(HISTORY) for each in found)
    for each in found:
        live: set[str] = set()
        for step in each:
            assert live.issuperset(step.finish)
            live = live.difference(step.finish).union(request.name for request in step.join)
            assert live.issuperset((*step.pause, *dict(step.chunk)))
            assert not step.pause or live.difference(step.pause)


def test_requests_are_led() -> None:
    """Every request is told what leads on, and every other one has the parameters for it."""
    trails = [Trail(("on", 1), (7,), (13, 13)), Trail(("on", 0), (7,), (11,) * 4)]
    found = led(HISTORY, trails, chunks=False)
    joined = [request for step in found for request in step.join]

    assert [each.outputs for each in joined] == [(13, 13), (11,) * 4, (11,) * 4]
    assert [each.choice for each in joined] == [("on", 1), ("off", 0), ("on", 0)]
    assert found[1] == found[-1] == Step(repeat=5)
    assert len(led(HISTORY, trails, chunks=True)) == len(HISTORY) + 1


def test_the_same_requests_may_just_advance() -> None:
    """The first of them join when they did, and nothing else happens."""
    found = edits.unordered(HISTORY, 2)

    assert [[request.name for request in step.join] for step in found] == [["A", "B"], [], [], []]
    assert _ordered(found) == tuple(Step(repeat=step.repeat) for step in HISTORY)
