# SPDX-License-Identifier: Apache-2.0
"""Histories and bodies that are drawn for IO processors have the variety that they are meant to."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from conformance.inputs import places as edited
from conformance.io_processor import isolation, stock
from conformance.io_processor.traffic import Do, History, Shape, strategy
from conformance.search import examples

#: Histories and bodies that are drawn; data that are valid, and data that are not.
DRAWN, VALID, INVALID = 300, 4, 2
SEED = 88

HONEST = ({"text": "a b", "n": 3, "tags": ["x", "y"]}, {"text": "q"})


def _histories(shape: Shape) -> list[History]:
    return examples(strategy(shape, VALID, INVALID), DRAWN, SEED)


def _share(histories: list[History], do: Do) -> float:
    return sum(any(move.do is do for move in each.moves) for each in histories) / len(histories)


@pytest.mark.parametrize("shape", isolation.SHAPES, ids=lambda shape: shape.name)
def test_no_request_is_missing(shape: Shape) -> None:
    """Every number of requests comes up, all data do, and often the same twice."""
    histories = _histories(shape)
    counts = Counter(len(each.asked) for each in histories)
    data = Counter((asked.data, asked.valid) for each in histories for asked in each.asked)
    repeats = sum(len({a.data for a in each.asked}) < len(each.asked) for each in histories)

    assert set(counts) == ({1} if shape.single else {2, 3, 4})
    assert min(counts.values()) >= 0.15 * DRAWN
    assert {index for index, valid in data if valid} == set(range(VALID))
    assert {index for index, valid in data if not valid} == set(range(INVALID * shape.invalid))
    assert shape.single or repeats >= 0.3 * DRAWN
    assert len({repr(each) for each in histories}) >= 0.7 * DRAWN


@pytest.mark.parametrize("shape", [isolation.INTERLEAVED, isolation.SAME_IDS, isolation.TROUBLED])
def test_requests_come_while_others_are_served(shape: Shape) -> None:
    """In most histories an output arrives before the last request does."""
    histories = _histories(shape)
    within = [
        any(a.do is not Do.ARRIVE and b.do is Do.ARRIVE for a, b in pairwise(each.moves))
        for each in histories
    ]

    assert sum(within) >= 0.5 * DRAWN
    assert _share(histories, Do.DELIVER) >= 0.6
    for do in (Do.FAIL, Do.LEAVE):
        assert (_share(histories, do) >= 0.5) is shape.trouble


def test_outputs_come_in_any_order() -> None:
    """The outputs of one request come in their order at times, and mostly otherwise."""
    picked = [any(move.pick for move in each.moves) for each in _histories(isolation.ORDER)]

    assert 0.05 * DRAWN <= DRAWN - sum(picked) <= 0.4 * DRAWN


def _within(data: Any) -> list[Any]:  # noqa: ANN401 - JSON values
    return [value for _, value in edited.places(data)]


def test_bodies_vary() -> None:
    """Bodies are of every type; keys are missing, values odd, and honest places spoilt."""
    bodies = examples(stock.hostile(HONEST), 2 * DRAWN, SEED)
    parts = [_within(body) for body in bodies]
    honest = [
        isinstance(body, dict) and bool(body) and body.keys() <= {*HONEST[0]} for body in bodies
    ]
    shorter = [body for body, own in zip(bodies, honest, strict=True) if own and len(body) == 2]
    odd: tuple[Any, ...] = (2**63, 1e308, "\x00", "x" * 20_000, [0] * 5_000, [[]])

    assert {type(body) for body in bodies} == {dict, list, str, int, float, bool, type(None)}
    assert len({repr(body) for body in bodies}) >= 0.7 * len(bodies)
    assert sum(honest) >= 0.3 * len(bodies)
    assert len(shorter) >= 0.02 * len(bodies)
    for value in odd:
        assert any(type(each) is type(value) and each == value for own in parts for each in own)
    assert (
        sum(any(isinstance(each, str) and not each.isascii() for each in own) for own in parts) > 20
    )
