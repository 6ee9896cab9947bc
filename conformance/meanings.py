# SPDX-License-Identifier: Apache-2.0
"""Ready functions for ``expected`` of a profile: what most logits processors are for.

Each returns a function of ``(params, prompt, output, logits)`` that leaves requests alone which do
not opt in.  Arguments are keys of ``extra_args``, or functions of ``SamplingParams``::

    from conformance.meanings import adds, bans, in_order

    expected = in_order(bans("banned"), adds("biased_tokens", "token_bias"))

A row ``[vocab_size]`` of which every token would be masked stays as it was: a token has to be left
to sample.  Tokens that the model does not have are passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from vllm.sampling_params import SamplingParams

    Function = Callable[[SamplingParams, list[int], list[int], torch.Tensor], torch.Tensor]
    #: Where a value is: a key of ``extra_args``, or what finds it; None where nobody opted in.
    Argument = str | Callable[[SamplingParams], Any]


def bans(tokens: Argument) -> Function:
    """Return the meaning of a plugin that masks the tokens of a request: an id, or several."""

    def expected(
        params: SamplingParams, _prompt: list[int], _output: list[int], logits: torch.Tensor
    ) -> torch.Tensor:
        banned = _known(_value(params, tokens), logits)
        return _left(logits, logits.index_fill(0, banned, -torch.inf))

    return expected


def allows(tokens: Argument) -> Function:
    """Return the meaning of a plugin that masks all but the tokens of a request."""

    def expected(
        params: SamplingParams, _prompt: list[int], _output: list[int], logits: torch.Tensor
    ) -> torch.Tensor:
        named = _value(params, tokens)
        if named is None:
            return logits
        allowed = _known(named, logits)
        kept = torch.full_like(logits, -torch.inf)
        return _left(logits, kept.index_copy(0, allowed, logits[allowed]))

    return expected


def adds(tokens: Argument, amount: Argument) -> Function:
    """Return the meaning of a plugin that adds an amount to each of some tokens, once."""

    def expected(
        params: SamplingParams, _prompt: list[int], _output: list[int], logits: torch.Tensor
    ) -> torch.Tensor:
        added = _value(params, amount)
        if added is None:
            return logits
        named = _known(_value(params, tokens), logits)
        return logits.index_copy(0, named, logits[named] + added)

    return expected


def forces(token: Argument, *, after: int = 0, first: Argument | None = None) -> Function:
    """Return the meaning of a plugin that leaves one token.

    Args:
        token: the token.
        after: outputs that come before it is forced.
        first: for how many outputs it is then forced; for all of them where nothing is given.

    """

    def expected(
        params: SamplingParams, prompt: list[int], output: list[int], logits: torch.Tensor
    ) -> torch.Tensor:
        count = None if first is None else _value(params, first)
        done = count is not None and len(output) >= after + count
        return logits if len(output) < after or done else alone(params, prompt, output, logits)

    alone = allows(token)
    return expected


def leaves(
    _params: SamplingParams, _prompt: list[int], _output: list[int], logits: torch.Tensor
) -> torch.Tensor:
    """Return the row as it is; with ``tolerance = { top_k = 1 }``: the likeliest token stays."""
    return logits


def in_order(*meanings: Function) -> Function:
    """Return the meaning of a plugin that does one thing after the other."""

    def expected(
        params: SamplingParams, prompt: list[int], output: list[int], logits: torch.Tensor
    ) -> torch.Tensor:
        for meaning in meanings:
            logits = meaning(params, prompt, output, logits)
        return logits

    return expected


def _value(params: SamplingParams, argument: Argument) -> Any:  # noqa: ANN401 - a client's value
    if callable(argument):
        return argument(params)
    return (params.extra_args or {}).get(argument)


def _known(tokens: int | Iterable[int] | None, logits: torch.Tensor) -> torch.Tensor:
    """Return those of some token ids that the model has, each once."""
    if tokens is None:
        named: list[int] = []
    else:
        named = [tokens] if isinstance(tokens, int) else list(dict.fromkeys(tokens))
    known = [token for token in named if 0 <= token < len(logits)]
    return torch.tensor(known, dtype=torch.long, device=logits.device)


def _left(logits: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    return logits if row.isneginf().all() else row
