# SPDX-License-Identifier: Apache-2.0
"""Histories are ones that a scheduler can order, travel as JSON, and are ordered by size."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING

import attrs
import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.inputs import edits, history
from conformance.inputs.history import (
    Choice,
    History,
    Request,
    Shape,
    Step,
    from_json,
    size,
    strategy,
    to_json,
)
from conformance.inputs.words import Words

if TYPE_CHECKING:
    from collections.abc import Callable

CHOICES: tuple[Choice, ...] = (("on", 0), ("on", 1), ("off", 0))
TOKENS = (5, 7, 11, 13)
WORDS = Words(TOKENS, rare=(3, 499))

EVERYTHING = Shape(
    name="everything", title="", finish="free", pause=True, chunk=True, first=4, prompt=5
)
REPLACED = Shape(name="replaced", title="", finish="replaced")
LOST = Shape(name="lost", title="", pause=True, chunk=True, lost=True, join_later=False)
SHAPES = (
    EVERYTHING,
    REPLACED,
    LOST,
    Shape(name="plain", title=""),
    Shape(name="alone", title="", finish="alone", first=4),
    Shape(name="stack", title="", finish="stack"),
    Shape(name="churn", title="", finish="stack", stays=True),
    Shape(name="resume", title="", pause=True, join_later=False, repeat=False),
    Shape(name="skipped", title="", finish="free", idle=True, greedy=True, steps=9, shortest=2),
)


class Scheduler:
    """What vLLM's scheduler knows of each request; refuses orders that it could not give."""

    def __init__(self) -> None:
        self.prompts: dict[str, int] = {}  # live requests
        self.outputs: Counter[str] = Counter()
        self.computed: Counter[str] = Counter()
        self.known: set[str] = set()
        self.away: set[str] = set()  # not in the batch in the step before

    def order(self, step: Step) -> None:
        """Carry out one step, or raise ``AssertionError``."""
        for name in step.finish:
            del self.prompts[name]
        new = {request.name for request in step.join}
        assert not new & self.known, "a name is used once"
        assert len(new) == len(step.join)
        self.known |= new
        self.prompts |= {request.name: len(request.prompt) for request in step.join}
        assert set(step.pause) <= set(self.prompts) - new, "only running requests are preempted"
        chunks = dict(step.chunk)
        assert set(chunks) <= set(self.prompts) - set(step.pause)
        entering = (new | self.away & set(self.prompts)) - set(step.pause)
        assert set(step.lost) <= entering - set(chunks), "only who enters loads anything"
        assert step.repeat == 1 or not (step.finish or step.pause or chunks or step.lost)
        self.away = set(step.pause)
        for _ in range(step.repeat):
            for name, prompt in self.prompts.items():
                total = prompt + self.outputs[name]
                if name in step.pause:
                    self.computed[name] = 0
                elif name in chunks:
                    assert 0 < chunks[name] < total - self.computed[name], "a part of the prefill"
                    self.computed[name] += chunks[name]
                elif name in step.lost:
                    assert total > 1, "the last token is computed here"
                    self.computed[name] = 0
                else:
                    self.computed[name] = total
                    self.outputs[name] += 1


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@given(data=st.data())
def test_a_scheduler_can_order_every_history(shape: Shape, data: st.DataObject) -> None:
    """A history never finishes, preempts or splits what is not there to be."""
    drawn = data.draw(strategy(shape, CHOICES, WORDS, life=9))
    scheduler = Scheduler()

    for step in drawn:
        scheduler.order(step)
        assert len(scheduler.prompts) <= max(shape.live, shape.first)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@given(data=st.data())
def test_a_history_keeps_to_its_shape(shape: Shape, data: st.DataObject) -> None:
    """Nothing happens in a history that its shape does not allow."""
    drawn = data.draw(strategy(shape, CHOICES, WORDS, life=9))
    requests = [request for step in drawn for request in step.join]

    assert 1 <= len(drawn) <= shape.steps
    assert all(1 <= len(request.prompt) <= shape.prompt for request in requests)
    assert {token for request in requests for token in request.prompt} <= set(TOKENS)
    assert {request.choice for request in requests} <= set(CHOICES)
    assert shape.pause or not any(step.pause for step in drawn)
    assert shape.chunk or not any(step.chunk for step in drawn)
    assert shape.lost or not any(step.lost for step in drawn)
    assert shape.repeat or {step.repeat for step in drawn} == {1}
    assert shape.finish != "never" or not any(step.finish for step in drawn)
    assert shape.join_later or not any(step.join for step in drawn[1:])
    for step in drawn[1:]:
        assert shape.finish != "replaced" or len(step.join) == len(step.finish)
        assert shape.finish != "alone" or not (step.join and step.finish)


@given(strategy(EVERYTHING, CHOICES, WORDS) | strategy(LOST, CHOICES, WORDS))
def test_a_plainer_history_can_be_ordered_too(drawn: History) -> None:
    """What is left without preemptions, chunks or failed loads is still a history."""
    for plain in edits.plainer(drawn):
        assert plain != drawn
        scheduler = Scheduler()
        for step in plain:
            scheduler.order(step)


def test_all_failed_loads_are_left_out_at_once() -> None:
    """A request that only has to be preempted may need either all failed loads, or none."""
    joins = Step(join=(Request("A", TOKENS, ("on", 0)),), lost=("A",))
    drawn = (joins, Step(pause=("A",)), Step(lost=("A",)), Step())
    without = (attrs.evolve(joins, lost=()), Step(pause=("A",)), Step(), Step())

    assert without in list(edits.plainer(drawn))


@given(strategy(EVERYTHING, CHOICES, WORDS) | strategy(LOST, CHOICES, WORDS))
def test_a_history_travels_as_json(drawn: History) -> None:
    """What is written as JSON is read back as the same history."""
    assert from_json(json.loads(json.dumps(to_json(drawn)))) == drawn


@given(strategy(EVERYTHING, CHOICES, WORDS))
def test_a_beginning_is_smaller_than_the_whole(drawn: History) -> None:
    """A history without its last step is smaller."""
    assert size(drawn[:-1]) < size(drawn)


def test_fewer_steps_come_before_fewer_requests() -> None:
    """A person reads steps first: one step with two requests is less than two steps with one."""
    a, b = (Request(name, (7, 7, 7), ("on", 0)) for name in "AB")

    assert size((Step(join=(a, b)),)) < size((Step(join=(a,)), Step()))
    assert size((Step(join=(a,)), Step())) < size((Step(join=(a,)), Step(repeat=4)))


def test_nothing_is_written_that_is_not_there() -> None:
    """In JSON a step holds only what happens in it."""
    plain = (Step(join=(Request("A", (7,), ("on", 0)),)), Step())

    assert to_json(plain) == [{"join": [{"name": "A", "prompt": [7], "params": ["on", 0]}]}, {}]


def _asking(name: str, *prompt: int) -> Request:
    return Request(name, prompt, ("on", 0), outputs=(5,))


@pytest.mark.parametrize(
    ("shape", "happens", "expected"),
    [
        (
            EVERYTHING,
            lambda step: step.pause,
            (
                Step(join=(_asking("A", 5), _asking("B", 5))),
                Step(pause=("A",)),
            ),
        ),
        (
            REPLACED,
            lambda step: step.finish,
            (
                Step(join=(_asking("A", 5),)),
                Step(finish=("A",), join=(_asking("B", 5),)),
            ),
        ),
        (
            EVERYTHING,
            lambda step: step.chunk,
            (Step(join=(_asking("A", 5, 7),), chunk=(("A", 1),)),),
        ),
        (
            LOST,
            lambda step: step.lost and not step.join,
            (
                Step(join=(_asking("A", 5), _asking("B", 5))),
                Step(pause=("A",)),
                Step(lost=("A",)),
            ),
        ),
    ],
    ids=["pause", "replace", "chunk", "lost"],
)
def test_histories_shrink_to_what_matters(
    shape: Shape, happens: Callable[[Step], object], expected: History
) -> None:
    """The smallest history in which something happens has nothing else in it."""
    found = [
        hypothesis.find(
            strategy(shape, CHOICES, WORDS),
            lambda drawn: any(happens(step) for step in drawn),
            settings=hypothesis.settings(database=None, max_examples=2000),
            random=random.Random(seed),
        )
        for seed in range(3)  # one of them may be a history from which no single change is smaller
    ]

    assert min(found, key=size) == expected


@pytest.mark.parametrize(
    ("number", "name"), [(0, "A"), (25, "Z"), (26, "A1"), (27, "B1"), (52, "A2")]
)
def test_names_go_on_after_the_alphabet(number: int, name: str) -> None:
    """The twenty-seventh request has a name of its own."""
    assert history._name(number) == name


def test_every_other_request_has_a_whole_prompt() -> None:
    """What a plugin waits for in prompts is there in every other one, each in turn."""
    words = Words(TOKENS, prompts=((11, 401), (7, 402, 403)))
    names = ("A", "B", "C", "D")
    joins = (Step(join=tuple(Request(name, (5,), ("on", 0)) for name in names)), Step())

    step, last = edits.prompted(joins, words)
    assert [request.prompt for request in step.join] == [(11, 401), (5,), (7, 402, 403), (5,)]
    assert last == Step()
