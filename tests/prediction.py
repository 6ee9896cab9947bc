# SPDX-License-Identifier: Apache-2.0
"""What a step must do to the persistent batch, predicted from vLLM's document."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Generic, TypeVar

import attrs

from conformance.logits_batch.batch_model import SWAP, Update, condensation

T = TypeVar("T")


@attrs.frozen
class Prediction(Generic[T]):
    """What a step must do to the batch, up to swaps."""

    update: Update[T] | None  #: None where nobody joins or leaves
    rows: tuple[T, ...]  #: who is in which row before any swap


def predict(before: Sequence[T], leaving: Collection[T], joining: Sequence[T]) -> Prediction[T]:
    """Predict an update and the rows after it.

    Args:
        before: who is in which row.
        leaving: requests that have finished or are not scheduled in this step.
        joining: new requests, then those that come back, in the order of the scheduler.

    Returns:
        The prediction; a backend that reorders batches may append swaps of any two rows.

    """
    rows: dict[int, T] = {row: who for row, who in enumerate(before) if who not in leaving}
    holes = [row for row, who in enumerate(before) if who in leaving]
    added: list[tuple[int, T]] = []
    for who in joining:
        row = holes.pop(0) if holes else len(rows)
        rows[row] = who
        added.append((row, who))
    moved = condensation(rows)
    for source, target, _ in moved:
        rows[target] = rows.pop(source)
    filled = {target for _, target, _ in moved}
    removed = tuple(row for row in reversed(holes) if row not in filled)
    update = Update(len(rows), removed, tuple(added), moved)
    return Prediction(
        None if update.empty else update, tuple(rows[row] for row in range(len(rows)))
    )


def disagreement(
    prediction: Prediction[T], update: Update[T] | None, rows: Sequence[T]
) -> str | None:
    """Say in what an update and the rows after it differ from a prediction, or return None.

    Swaps at the end of the update are free.
    """
    nothing: Update[T] = Update(len(prediction.rows))
    real, expected = update or nothing, prediction.update or nothing
    for what in ("batch_size", "removed", "added"):
        if getattr(real, what) != getattr(expected, what):
            return f"{what} is {getattr(real, what)}, expected {getattr(expected, what)}"
    count = len(expected.moved)
    moves, swaps = real.moved[:count], real.moved[count:]
    if moves != expected.moved:
        return f"moved is {real.moved}, expected {expected.moved} first"
    after = list(prediction.rows)
    for a, b, way in swaps:
        if way != SWAP or not (0 <= a < len(after) and 0 <= b < len(after)):
            return f"moved has {(a, b, way)} in a batch of {len(after)} rows"
        after[a], after[b] = after[b], after[a]
    if update is not None and update.empty:
        return "the update lists nothing, expected None"
    return None if after == list(rows) else f"the rows are {list(rows)}, expected {after}"
