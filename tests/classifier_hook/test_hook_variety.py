# SPDX-License-Identifier: Apache-2.0
"""Histories of calls, and texts, that are drawn for hooks have the variety they are meant to."""

from __future__ import annotations

from collections import Counter

import pytest

from conformance.classifier_hook import isolation
from conformance.classifier_hook.scoring import drawn, looked_for
from conformance.classifier_hook.traffic import MOST, TURNS, WAITS, Shape, strategy
from conformance.search import examples

#: Histories and texts that are drawn, and different texts of a history.
DRAWN, TEXTS = 300, 5
SEED = 88

SHAPES = (isolation.SEQUENCE, isolation.TOGETHER, isolation.SAME_IDS, isolation.LEAVING)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_calls_vary(shape: Shape) -> None:
    """Calls are few and many, of every text, close together and apart; some are cancelled."""
    histories = examples(strategy(shape, TEXTS), DRAWN, SEED)
    calls = [call for each in histories for call in each.arrivals]
    counts = Counter(len(each.arrivals) for each in histories)
    texts = Counter(call.text for call in calls)
    turns = Counter(call.turns for call in calls)
    leaves = Counter(call.leaves for call in calls)
    again = sum(len({call.text for call in h.arrivals}) < len(h.arrivals) for h in histories)

    assert set(counts) == set(range(2, MOST + 1))
    assert min(counts.values()) >= 0.05 * DRAWN
    assert set(texts) == set(range(TEXTS))
    assert min(texts.values()) >= 0.1 * len(calls)
    assert set(turns) == set(range(TURNS + 1 if shape.overlapping else 1))
    assert min(turns.values()) >= 0.1 * len(calls)
    assert set(leaves) == set(range(WAITS + 1 if shape.leaving else 1))
    assert min(leaves.values()) >= 0.08 * len(calls)
    assert 0.3 * DRAWN <= again <= 0.9 * DRAWN
    assert len(set(histories)) >= 0.9 * DRAWN


def test_texts_vary() -> None:
    """Texts are empty, short and long; of letters, numbers, markup and any other characters."""
    texts = examples(drawn(), DRAWN, SEED)

    assert "" in texts
    assert len(set(texts)) >= 0.9 * DRAWN
    for length, share in ((5, 0.7), (20, 0.4), (50, 0.2), (100, 0.05)):
        assert sum(len(text) >= length for text in texts) >= share * DRAWN
    for holds in (
        str.isascii,
        lambda text: " " in text,
        lambda text: any(map(str.isdigit, text)),
        lambda text: any(character > "\uffff" for character in text),
        lambda text: "<b>" in text or "{" in text,
    ):
        assert sum(map(holds, texts)) >= 0.15 * DRAWN


def test_texts_hold_what_a_hook_looks_for_in_its_order() -> None:
    """Each text of its source, and some that follow each other, with nothing between or a space."""
    hook = type("Hook", (), {"__module__": __name__})

    found = list(looked_for(hook))

    assert "<b>" in found
    assert "<b>{" in found
    assert "<b> {" in found
    assert len(set(found)) == len(found)
