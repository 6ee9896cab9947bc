# SPDX-License-Identifier: Apache-2.0
"""Rows of logits: which are the same, and in which tokens others differ."""

from __future__ import annotations

import torch

#: Float tolerance between a batch and a request alone: reductions over other shapes may round
#: differently; a leak from another request is far larger.
TOLERANCE = 1e-4


def same(row: torch.Tensor, expected: torch.Tensor) -> bool:
    """Tell whether two rows are equal, but for rounding."""
    if torch.equal(row, expected):
        return True
    if row.shape != expected.shape:
        return False
    near = torch.allclose(row, expected, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    return bool(near)


def differing(
    got: torch.Tensor, expected: torch.Tensor, most: int = 4
) -> tuple[tuple[int, float, float], ...]:
    """Return the first tokens in which two rows differ: (token, got, expected)."""
    where = (got != expected).nonzero().flatten().tolist()
    return tuple((token, got[token].item(), expected[token].item()) for token in where[:most])


def delta(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Return where and how much a row was changed; unchanged and masked tokens give 0 and -inf."""
    return torch.where(before == after, torch.zeros_like(after), after - before)


def alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Tell whether rows ``[1, vocabulary]`` are equal, but for rounding."""
    return same(first.flatten(), second.flatten())
