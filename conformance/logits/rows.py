# SPDX-License-Identifier: Apache-2.0
"""Rows of logits: which are the same, and in which tokens others differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch

from conformance.inputs.history import Choice
from conformance.logits.calls import note

#: Float tolerance between a batch and a request alone: reductions over other shapes may round
#: differently; a leak from another request is far larger.
TOLERANCE = 1e-4


class RowsAlone(Protocol):
    """Runs a request with a parameter set alone for so many steps.

    Yields its logits before and after, ``[1, vocabulary]`` each.
    """

    def __call__(
        self,
        bench: Any,  # noqa: ANN401 - the bench of a generation
        choice: Choice,
        steps: int,
        tokens: Sequence[int] = (),
        /,
        *,
        prompt: Sequence[int] = (),
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Run the request."""


@torch.inference_mode()
def handed_over(logits: torch.Tensor) -> torch.Tensor:
    """Return a copy as engines hand it over: threads out of inference mode cannot write to it."""
    return logits.clone()


@torch.inference_mode()
def sampled(result: torch.Tensor, given: torch.Tensor, states: object) -> None:
    """Write to what ``apply`` returned, as the sampler and processors behind the plugin do."""
    if result.data_ptr() != given.data_ptr():
        result += 1.0
        note("sampled", states)


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


def dethroned(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Tell whether another token than the one that greedy sampling takes has become the highest.

    A logit that is lower by a rounding step is no other where both probabilities are equal in
    float32: a processor that keeps the best of a softmax may keep either.
    """
    best, other = int(before.argmax()), int(after.argmax())
    if after[best] >= after[other]:
        return False
    if before[best] == before[other]:
        return True  # of equal logits the first is taken
    chances = before.softmax(-1, dtype=torch.float32)
    return bool(chances[other] < chances[best])


def delta(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Return where and how much a row was changed; unchanged and masked tokens give 0 and -inf."""
    return torch.where(before == after, torch.zeros_like(after), after - before)


def alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Tell whether rows ``[1, vocabulary]`` are equal, but for rounding."""
    return same(first.flatten(), second.flatten())
