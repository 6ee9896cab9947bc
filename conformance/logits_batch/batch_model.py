# SPDX-License-Identifier: Apache-2.0
"""The persistent batch of vLLM's document "Custom Logits Processors", in plain Python.

The model stands beside vLLM's own ``InputBatch``, which makes every update in the simulator:
it says which ``BatchUpdate`` is legal, so that our drivers, recorded streams and any fork's host
can be judged.  It imports neither vLLM nor torch.

Where the document and vLLM 0.10.2 to 0.32 differ, :func:`judge` accepts both:

- "Requests which finished" are, in vLLM, all that are not scheduled in this step: preempted
  requests, and running ones that got no tokens, leave in the same way and join again later.
- The document removes every request that is not replaced, and then fills the holes with moves.
  vLLM lists in ``removed`` only holes that stay empty: the destination of a one-way move is
  listed neither there nor in ``added``.
- The document says nothing on the order of ``removed``; vLLM's is descending.
- A row that a one-way move has left is listed nowhere, and is empty nevertheless.
- The document numbers additional requests from ``current_max_batch_index + 1``; that is the
  number of rows, also in an empty batch.
- ``None`` stands for no change in both, and swaps alone are a change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import attrs

T = TypeVar("T")
S = TypeVar("S")

#: Source, destination and direction, with vLLM's names for the directions.
Move = tuple[int, int, str]
ONE_WAY = "UNIDIRECTIONAL"
SWAP = "SWAP"


@attrs.frozen
class Update(Generic[T]):
    """A ``BatchUpdate``, with whoever is added in place of the parameters."""

    batch_size: int
    removed: tuple[int, ...] = ()
    added: tuple[tuple[int, T], ...] = ()
    moved: tuple[Move, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing is listed."""
        return not (self.removed or self.added or self.moved)


@attrs.frozen
class Judgement(Generic[T]):
    """What :func:`judge` says about one update."""

    findings: tuple[tuple[str, str], ...]  #: (rule, sentence)
    rows: tuple[T, ...] | None  #: who is in which row after it; None where that cannot be told


def condensation(occupied: Collection[int]) -> tuple[Move, ...]:
    """Return the one-way moves that make a batch contiguous: lowest hole from highest row."""
    size = len(occupied)
    holes = [row for row in range(size) if row not in occupied]
    sources = sorted((row for row in occupied if row >= size), reverse=True)
    return tuple((a, b, ONE_WAY) for a, b in zip(sources, holes, strict=True))


def judge(
    update: Update[T] | None, before: Sequence[T], leaving: Collection[T] | None = None
) -> Judgement[T]:
    """Judge whether an update is legal, given who was in which row.

    Args:
        update: the update.
        before: who was in which row.
        leaving: who is known to leave; without it, those whose rows are removed, added to, or
            the destination of a one-way move.

    """
    if update is None:
        return Judgement((), tuple(before))
    if leaving is None:
        freed = _freed(update, len(before))
    else:
        freed = {row for row, who in enumerate(before) if who in leaving}
    found = [*_listing(update, len(before)), *_removes(update, len(before), freed)]
    found += _adds(update, len(before), freed)
    if found:
        return Judgement(tuple(found), None)
    rows = {row: who for row, who in enumerate(before) if row not in freed}
    rows.update(update.added)
    found += _moves(update, rows)
    if not found:
        _apply(update.moved, rows)
        if update.batch_size != len(rows):
            found.append(("HB-07", f"batch_size is {update.batch_size} for {len(rows)} requests"))
    after = None if found else tuple(rows[row] for row in range(len(rows)))
    return Judgement(tuple(found), after)


def _listing(update: Update[T], size: int) -> Iterator[tuple[str, str]]:
    """Judge what is listed, in a batch of ``size`` rows."""
    if update.empty:
        yield "HB-01", "an update that lists nothing was sent instead of None"
    for index in update.removed:
        if not 0 <= index < size:
            yield "HB-02", f"removed index {index} is no row of the {size} there were"
    for index in _repeated(update.removed):
        yield "HB-02", f"index {index} is removed twice"
    for index in sorted({index for index, _ in update.added} & set(update.removed)):
        yield "HB-03", f"index {index} is both added and removed"


def _removes(update: Update[T], size: int, freed: set[int]) -> Iterator[tuple[str, str]]:
    """Judge ``removed`` against the rows whose requests have left."""
    sources = {source for source, _, way in update.moved if way == ONE_WAY}
    for index in update.removed:
        if index in sources:
            yield "HB-02", f"index {index} is removed, and moved from afterwards"
        elif index not in freed and 0 <= index < size:
            yield "HB-02", f"index {index} is removed, and its request stays"
    moved_to = {target for _, target, _ in update.moved}
    for index in freed - {*update.removed, *(index for index, _ in update.added), *moved_to}:
        yield "HB-02", f"the request in row {index} has left, and the row is listed nowhere"


def _adds(update: Update[T], size: int, freed: set[int]) -> list[tuple[str, str]]:
    """Judge the order of ``added``: the lowest row that is free, else the next one."""
    indices = [index for index, _ in update.added]
    expected = [*sorted(freed), *range(size, size + len(indices))][: len(indices)]
    if indices == expected:
        return []
    return [("HB-04", f"requests are added at {indices}, expected {expected}")]


def _moves(update: Update[T], rows: Mapping[int, T]) -> list[tuple[str, str]]:
    """Judge ``moved`` against the rows after removes and adds."""
    expected = condensation(rows)
    first_swap = next((i for i, move in enumerate(update.moved) if move[2] == SWAP), None)
    one_way = tuple(move for move in update.moved if move[2] != SWAP)
    if first_swap is not None and first_swap < len(one_way):
        return [("HB-06", f"swaps come before one-way moves: {_text(update.moved)}")]
    if one_way != expected:
        wanted = _text(expected) or "none"
        return [("HB-05", f"one-way moves are {_text(one_way) or 'none'}, expected {wanted}")]
    return [
        ("HB-06", f"{_text((move,))} in a batch of {len(rows)} rows")
        for move in update.moved[len(one_way) :]
        if move[0] == move[1] or not all(0 <= row < len(rows) for row in move[:2])
    ]


def _freed(update: Update[T], size: int) -> set[int]:
    """Return the rows whose occupants have left, as far as the update tells."""
    return {
        *update.removed,
        *(index for index, _ in update.added if 0 <= index < size),
        *(target for _, target, way in update.moved if way == ONE_WAY and 0 <= target < size),
    } - {source for source, _, way in update.moved if way == ONE_WAY}


def _apply(moves: Sequence[Move], rows: dict[int, T]) -> None:
    for a, b, way in moves:
        if way == SWAP:
            rows[a], rows[b] = rows[b], rows[a]
        else:
            rows[b] = rows.pop(a)


def _repeated(items: Sequence[S]) -> list[S]:
    return [item for item in dict.fromkeys(items) if items.count(item) > 1]


def _text(moves: Sequence[Move]) -> str:
    """Return moves as messages show them."""
    return ", ".join(f"{a} {'<->' if way == SWAP else '->'} {b}" for a, b, way in moves)
