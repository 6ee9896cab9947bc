# SPDX-License-Identifier: Apache-2.0
"""What the reference logits processors mean: one request at a time, plainly, whatever it costs.

Profiles name these functions as ``expected``: rows that the plugins give are held against what
they return for the same parameters, prompt, outputs and logits ``[vocab_size]``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Collection

    from vllm.sampling_params import SamplingParams


def target_token(
    params: SamplingParams, prompt: list[int], output: list[int], logits: torch.Tensor
) -> torch.Tensor:
    """Return the row in which the target alone is left."""
    target = (params.extra_args or {}).get("target_token")
    return logits if target is None else only({target}, logits)


def target_token_and_prompt(
    params: SamplingParams, prompt: list[int], output: list[int], logits: torch.Tensor
) -> torch.Tensor:
    """Return the row in which the target and the tokens of the prompt are left."""
    target = (params.extra_args or {}).get("target_token")
    return logits if target is None else only({target, *prompt}, logits)


def token_bias(
    params: SamplingParams, prompt: list[int], output: list[int], logits: torch.Tensor
) -> torch.Tensor:
    """Return the row with the bias added to each of the tokens, once."""
    arguments = params.extra_args or {}
    for token in set(arguments.get("biased_tokens", ())):
        if token < len(logits):
            logits[token] += arguments["token_bias"]
    return logits


def probability_floor(
    params: SamplingParams, prompt: list[int], output: list[int], logits: torch.Tensor
) -> torch.Tensor:
    """Return the row without tokens that are less likely than a share of the likeliest."""
    floor = (params.extra_args or {}).get("probability_floor")
    if not floor:
        return logits
    return logits.masked_fill(logits < logits.max() + math.log(floor), -torch.inf)


def no_repeat_ngram(
    params: SamplingParams, prompt: list[int], output: list[int], logits: torch.Tensor
) -> torch.Tensor:
    """Return the row without tokens that would complete a run of n tokens once more."""
    arguments = params.extra_args or {}
    if (size := arguments.get("no_repeat_ngram")) is None:
        return logits
    said = [*prompt, *output] if arguments.get("no_repeat_ngram_history") == "all" else output
    runs = [said[end - size : end] for end in range(size, len(said) + 1)]
    newest = said[-(size - 1) :]
    return without({token for *before, token in runs if before == newest}, logits)


def thinking_budget(
    params: SamplingParams, prompt: list[int], output: list[int], logits: torch.Tensor
) -> torch.Tensor:
    """Return the row in which the next token of the end marker is left, once thinking is over."""
    arguments = params.extra_args or {}
    if (budget := arguments.get("thinking_budget")) is None:
        return logits
    start, end = (_listed(arguments[key]) for key in ("thinking_start", "thinking_end"))
    thoughts: list[int] | None = None  # since the newest start marker
    before: list[int] = []
    for token in [*prompt, *output]:
        (before if thoughts is None else thoughts).append(token)
        if thoughts is None and before[-len(start) :] == start:
            thoughts = []
        elif thoughts is not None and thoughts[-len(end) :] == end:
            thoughts, before = None, []
    if thoughts is None or len(thoughts) < budget or max(end) >= len(logits):
        return logits
    there = max(n for n in range(len(end)) if thoughts[len(thoughts) - n :] == end[:n])
    return only({end[there]}, logits)


def _listed(marker: int | list[int]) -> list[int]:
    return [marker] if isinstance(marker, int) else marker


def only(tokens: Collection[int], logits: torch.Tensor) -> torch.Tensor:
    """Return the row in which these tokens are left; as it was, where none of them can be."""
    kept = torch.full_like(logits, -torch.inf)
    for token in tokens:
        if 0 <= token < len(logits):
            kept[token] = logits[token]
    return logits if kept.isneginf().all() else kept


def without(tokens: Collection[int], logits: torch.Tensor) -> torch.Tensor:
    """Return the row without these tokens; as it was, where no other is left."""
    return only(set(range(len(logits))) - set(tokens), logits)
