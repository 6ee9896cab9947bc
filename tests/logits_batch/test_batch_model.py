# SPDX-License-Identifier: Apache-2.0
"""The model of the persistent batch: against vLLM's own batch, and against broken updates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prediction import Prediction, disagreement, predict

from conformance.logits_batch.batch_model import ONE_WAY, SWAP, Update, judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.worker import Zygote

HISTORIES = 10_000

Rows = tuple[str, ...]


def test_agrees_with_vllm_in_every_step(zygote: Zygote, tmp_path: Path) -> None:
    """Ten thousand random histories: each of vLLM's updates is the predicted one, and legal."""
    job = zygote.fork(
        "batch_model_job:compare",
        {},
        log=tmp_path / "job.log",
        directory=tmp_path,
        python_path=[str(folder) for folder in Path(__file__).parents[:2]],
    )
    wrong, seen = job.ask((20_261_121, HISTORIES), limit=240)
    job.close()

    assert wrong is None
    assert min(seen[kind] for kind in ("none", "added", "removed", ONE_WAY, SWAP)) > HISTORIES / 4


def test_follows_the_document() -> None:
    """Two of six requests are replaced by one: the highest row fills the hole that is left."""
    assert predict("abcdef", {"b", "d"}, ["x"]) == Prediction(
        Update(5, (), ((1, "x"),), ((5, 3, ONE_WAY),)), ("a", "x", "c", "f", "e")
    )


def test_lists_only_holes_that_stay_empty_as_removed() -> None:
    """Removed indices are descending, and the row that a move fills is not among them."""
    assert predict("abcdef", {"a", "d", "e"}, []) == Prediction(
        Update(3, (4, 3), (), ((5, 0, ONE_WAY),)), ("f", "b", "c")
    )


def test_a_request_may_leave_and_come_back_in_one_step() -> None:
    """A request whose cache was reset is taken out and added like any other."""
    assert predict("ab", {"a", "b"}, ["b"]) == Prediction(Update(1, (1,), ((0, "b"),), ()), ("b",))


@st.composite
def _steps(draw: st.DrawFn) -> tuple[Rows, set[str], list[str]]:
    size = draw(st.integers(0, 9))
    before = tuple("abcdefghi"[:size])
    leaving = draw(st.sets(st.sampled_from(before))) if before else set()
    return before, leaving, list("xyzuvw"[: draw(st.integers(0, 6))])


@given(_steps(), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=3))
def test_predicted_updates_are_legal(
    step: tuple[Rows, set[str], list[str]], pairs: list[tuple[int, int]]
) -> None:
    """What is predicted is legal, with any swaps of two rows behind it, and ends in its rows."""
    before, leaving, joining = step
    prediction = predict(before, leaving, joining)
    size = len(prediction.rows)
    update = prediction.update or Update(size)
    swaps = [(a % size, b % size) for a, b in pairs if size and a % size != b % size]
    rows = list(prediction.rows)
    for a, b in swaps:
        rows[a], rows[b] = rows[b], rows[a]
    update = attrs.evolve(update, moved=(*update.moved, *((a, b, SWAP) for a, b in swaps)))
    judgement = judge(None if update.empty else update, before)

    assert not judgement.findings
    assert judgement.rows == tuple(rows)
    assert disagreement(prediction, None if update.empty else update, rows) is None


@given(_steps())
def test_documents_own_removes_are_legal(step: tuple[Rows, set[str], list[str]]) -> None:
    """A host that also lists the holes that moves fill, as the document does, is within it."""
    before, leaving, joining = step
    prediction = predict(before, leaving, joining)
    if prediction.update is None:
        return
    added = {index for index, _ in prediction.update.added}
    removed = tuple(i for i, who in enumerate(before) if who in leaving and i not in added)
    judgement = judge(attrs.evolve(prediction.update, removed=removed), before)

    assert not judgement.findings
    assert judgement.rows == prediction.rows


LEGAL = Update(5, (), ((1, "x"),), ((5, 3, ONE_WAY), (0, 2, SWAP)))
GROWN = Update(5, (), ((0, "x"), (3, "y"), (4, "z")), ())
SHRUNK: Update[str] = Update(3, (3,), (), ((5, 0, ONE_WAY), (4, 1, ONE_WAY)))
Edit = dict[str, object]


@pytest.mark.parametrize(
    ("rule", "update", "before", "edit"),
    [
        pytest.param("HB-01", LEGAL, "abcdef", {"added": (), "moved": ()}, id="lists nothing"),
        pytest.param("HB-02", SHRUNK, "abcdef", {"removed": (6,)}, id="no such row"),
        pytest.param("HB-02", SHRUNK, "abcdef", {"removed": (-1,)}, id="negative index"),
        pytest.param("HB-02", SHRUNK, "abcdef", {"removed": (3, 3)}, id="twice"),
        pytest.param("HB-02", SHRUNK, "abcdef", {"removed": (5, 3)}, id="removed and moved"),
        pytest.param("HB-03", LEGAL, "abcdef", {"removed": (1,)}, id="added and removed"),
        pytest.param(
            "HB-04", GROWN, "abc", {"added": ((0, "x"), (4, "z"), (3, "y"))}, id="out of order"
        ),
        pytest.param("HB-04", GROWN, "abc", {"added": ((0, "x"), (4, "z"))}, id="add lost"),
        pytest.param("HB-04", GROWN, "abc", {"added": ((0, "x"), (0, "y"))}, id="added twice"),
        pytest.param("HB-04", GROWN, "abc", {"added": ((-1, "x"),)}, id="added below the batch"),
        pytest.param(
            "HB-05",
            SHRUNK,
            "abcdef",
            {"moved": ((4, 1, ONE_WAY), (5, 0, ONE_WAY))},
            id="moves swapped",
        ),
        pytest.param(
            "HB-05",
            SHRUNK,
            "abcdef",
            {"moved": ((4, 0, ONE_WAY), (5, 1, ONE_WAY))},
            id="lowest row first",
        ),
        pytest.param("HB-05", LEGAL, "abcdef", {"removed": (3,), "moved": ()}, id="move lost"),
        pytest.param("HB-05", SHRUNK, "abcdef", {"moved": ((5, 0, "BOTH"),)}, id="no direction"),
        pytest.param(
            "HB-06",
            LEGAL,
            "abcdef",
            {"moved": ((0, 2, SWAP), (5, 3, ONE_WAY))},
            id="swap before move",
        ),
        pytest.param(
            "HB-06",
            LEGAL,
            "abcdef",
            {"moved": ((5, 3, ONE_WAY), (0, 5, SWAP))},
            id="swap with an empty row",
        ),
        pytest.param(
            "HB-06",
            LEGAL,
            "abcdef",
            {"moved": ((5, 3, ONE_WAY), (0, 0, SWAP))},
            id="swap with itself",
        ),
        pytest.param("HB-07", LEGAL, "abcdef", {"batch_size": 6}, id="old size"),
        pytest.param("HB-07", GROWN, "abc", {"batch_size": 3}, id="size before adds"),
        pytest.param("HB-07", LEGAL, "abcdef", {"moved": ()}, id="hole concealed"),
    ],
)
def test_broken_updates_are_illegal(
    rule: str, update: Update[str], before: str, edit: Edit
) -> None:
    """One change to a legal update makes it illegal, by the rule that is about the change."""
    assert not judge(update, before).findings

    judgement = judge(attrs.evolve(update, **edit), before)  # type: ignore[arg-type] # by name

    assert judgement.findings[0][0] == rule
    assert judgement.rows is None


def _with(change: Callable[[Update[str]], Update[str] | None]) -> str | None:
    prediction = predict("abcdef", {"b", "d"}, ["x"])
    assert prediction.update is not None
    return disagreement(prediction, change(prediction.update), prediction.rows)


def test_disagreements_are_named() -> None:
    """What differs from a prediction is said, field by field."""
    assert _with(lambda update: update) is None
    assert "batch_size is 6" in str(_with(lambda u: attrs.evolve(u, batch_size=6)))
    assert "removed is (3,)" in str(_with(lambda u: attrs.evolve(u, removed=(3,))))
    assert "moved is (), expected" in str(_with(lambda u: attrs.evolve(u, moved=())))
    swapped = str(_with(lambda u: attrs.evolve(u, moved=(*u.moved, (0, 1, SWAP)))))
    assert "the rows are" in swapped
    assert "batch of 5 rows" in str(
        _with(lambda u: attrs.evolve(u, moved=(*u.moved, (0, 5, SWAP))))
    )
    assert "added is ()" in str(_with(lambda _: None))
