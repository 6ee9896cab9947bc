# SPDX-License-Identifier: Apache-2.0
"""Rows of logits that come with tokens masked, as processors before a plugin leave them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import torch

KINDS, MASKED = 8, 5  # of rows: one in eight is masked


@attrs.define
class Masking:
    """Which rows of a table come masked although their requests ask for no mask."""

    table: torch.Tensor  #: ``[rows, vocabulary]``
    wanted: bool = True  #: whether histories have such rows
    #: How many tokens are masked of the rows that were asked for.
    _counts: dict[int, int] = attrs.field(init=False, factory=dict)

    def drop(self) -> None:
        """Put the row before it in the place of each that is masked."""
        self.wanted = False
        self._counts.clear()
        masked = range(MASKED, len(self.table), KINDS)
        self.table[masked] = self.table[[row - 1 for row in masked]]

    def plain(self, row: int) -> int:
        """Return which row stands in for one that may be masked."""
        return row - 1 if row % KINDS == MASKED else row

    def unmasked(self, numbers: Iterable[int]) -> torch.Tensor:
        """Return rows in turn, and none that is masked: no request of a check asks for that."""
        return self.table[[self.plain(number % len(self.table)) for number in numbers]]

    def counts(self, index: Sequence[int]) -> dict[int, int]:
        """Return how many tokens of which of these rows of the table are masked."""
        rows = {place: row for place, row in enumerate(index) if row % KINDS == MASKED}
        return {place: count for place, row in rows.items() if (count := self._count(row))}

    def _count(self, row: int) -> int:
        if row not in self._counts:
            self._counts[row] = int(torch.isneginf(self.table[row]).sum())
        return self._counts[row]

    def spoils(self, index: Sequence[int], after: torch.Tensor) -> bool:
        """Tell whether a row has no token left that came masked, though no request asked for it.

        No token can be sampled from it, and the plugin is not to blame: it may force one that the
        mask rules out.  From then on no rows of histories come masked.

        Args:
            index: of each row in the table, as the model gave it.
            after: the rows as the plugin left them.

        """
        found = any(bool(torch.isneginf(after[row]).all()) for row in self.counts(index))
        self.wanted &= not found
        return found


def preferred(
    tokens: Iterable[int], free: Iterable[tuple[torch.Tensor, torch.Tensor]]
) -> list[int]:
    """Return what a grammar masks that allows nothing of what a plugin may prefer.

    Args:
        tokens: those that parameters and outputs name.
        free: logits before and after of rows without a mask, ``[1, vocabulary]`` each.

    Returns:
        The token ids: half of the vocabulary, at the most.

    """
    found, size = {*tokens}, 0
    for before, after in free:
        found |= {*_favoured(before, after)[0].nonzero().flatten().tolist()}
        size = before.numel()
    return sorted(found)[: size // 2]


def _favoured(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Tell of which tokens a plugin changes the logits, or which alone it leaves, where few are."""
    left = ~torch.isneginf(after)
    moved = left & (after != before)
    found = moved if moved.any() else left
    return found if int(found.sum()) <= found.numel() // 2 else torch.zeros_like(found)
