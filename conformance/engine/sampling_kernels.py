# SPDX-License-Identifier: Apache-2.0
# Launches say how many arguments there are, and how they are spelt:
# ruff: noqa: N803, PLR0917
"""The kernels of Model Runner V2 that change and sample logits, on CPU tensors.

Logits are float32 of shape [rows, vocabulary], except in :func:`gumbel_sample`, and are changed in
place; see :mod:`conformance.engine.kernels` for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_INFINITY = float("inf")


def temperature(
    logits: torch.Tensor,
    _stride: int,
    idx_mapping: torch.Tensor,
    temperatures: torch.Tensor,
    _vocab_size: int,
    **_: object,
) -> None:
    """Divide each row by its temperature; 0 stands for greedy."""
    for row, slot in enumerate(idx_mapping.tolist()):
        if temperatures[slot] != 0:
            logits[row] /= temperatures[slot]


def min_p(
    logits: torch.Tensor,
    _stride: int,
    idx_mapping: torch.Tensor,
    values: torch.Tensor,
    _vocab_size: int,
    **_: object,
) -> None:
    """Mask what is less probable than a share of the most probable token."""
    for row, slot in enumerate(idx_mapping.tolist()):
        if values[slot] != 0:
            threshold = logits[row].max() + values[slot].log()
            logits[row].masked_fill_(logits[row] < threshold, -_INFINITY)


def gumbel_sample(
    local_argmax: torch.Tensor,
    _argmax_stride: int,
    local_max: torch.Tensor,
    _max_stride: int,
    logits_cache: torch.Tensor | None,
    _cache_stride_0: int,
    _cache_stride_1: int,
    _cache_col: torch.Tensor | None,
    _cache_source: torch.Tensor | None,
    _cache_source_stride: int,
    logits: torch.Tensor,
    _logits_stride: int,
    idx_mapping: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    temperatures: torch.Tensor,
    vocab_size: int,
    *,
    BLOCK_SIZE: int = 1024,
    IS_DRAFTING: bool = False,
    APPLY_TEMPERATURE: bool = False,
    USE_FP64: bool = False,
    **_: object,
) -> None:
    """Find the highest of each block of tokens, after noise where the temperature is not 0.

    Raises:
        NotImplementedError: a draft model samples, or noise is to have double precision.

    """
    if logits_cache is not None or IS_DRAFTING or USE_FP64:
        raise NotImplementedError("drafting and double precision are not for this stand-in")
    values = logits.float().numpy()
    tokens = np.arange(vocab_size, dtype=np.uint32)
    for row, slot in enumerate(idx_mapping.tolist()):
        # A dummy request has no slot.
        heat = np.float32(temperatures[slot]) if slot >= 0 else np.float32(0)
        noised = values[row]
        if heat != 0:
            noised = noised / heat if APPLY_TEMPERATURE else noised
            noised = noised + _noise(int(seeds[slot]), int(positions[row]), tokens)
        for block, start in enumerate(range(0, vocab_size, BLOCK_SIZE)):
            part = noised[start : start + BLOCK_SIZE]
            best = int(part.argmax())
            local_argmax[row, block] = start + best
            local_max[row, block] = float(part[best])


def bias(
    logits: torch.Tensor,
    _stride: int,
    vocab_size: int,
    idx_mapping: torch.Tensor,
    num_allowed: torch.Tensor,
    allowed: torch.Tensor,
    _allowed_stride: int,
    num_bias: torch.Tensor,
    bias_tokens: torch.Tensor,
    _bias_tokens_stride: int,
    biases: torch.Tensor,
    _bias_stride: int,
    positions: torch.Tensor,
    min_lens: torch.Tensor,
    num_stop: torch.Tensor,
    restored: torch.Tensor,
    stop_tokens: torch.Tensor,
    _stop_stride: int,
    *,
    CHECK_ALL_MASKED_ROWS: bool = False,
    **_: object,
) -> None:
    """Apply allowed tokens, then biases, then the least number of tokens."""
    for row, slot in enumerate(idx_mapping.tolist()):
        values = logits[row, :vocab_size].numpy()
        if count := int(num_allowed[slot]):
            tokens = allowed[slot, :count].numpy()
            kept = values[tokens]
            values[:] = -_INFINITY
            values[tokens] = kept
        if count := int(num_bias[slot]):
            values[bias_tokens[slot, :count].numpy()] += biases[slot, :count].numpy()
        if (count := int(num_stop[slot])) and int(positions[row]) + 1 < int(min_lens[slot]):
            tokens = stop_tokens[slot, :count].numpy()
            kept = values[tokens]
            values[tokens] = -_INFINITY
            if CHECK_ALL_MASKED_ROWS and restored[slot] and values.max() == -_INFINITY:
                values[tokens] = np.where(np.isfinite(kept), kept, -_INFINITY)


def bincount(
    idx_mapping: torch.Tensor,
    all_token_ids: torch.Tensor,
    _token_stride: int,
    prompt_len: torch.Tensor,
    prefill_len: torch.Tensor,
    prompt_bin_mask: torch.Tensor,
    _mask_stride: int,
    output_bin_counts: torch.Tensor,
    _counts_stride: int,
    **_: object,
) -> None:
    """Note which tokens a prompt has, one bit each, and how often each was output before."""
    for slot in idx_mapping.tolist():
        prompt, prefill = int(prompt_len[slot]), int(prefill_len[slot])
        tokens = all_token_ids[slot].numpy()
        bits = np.uint32(1) << (tokens[:prompt] % 32).astype(np.uint32)
        np.bitwise_or.at(prompt_bin_mask[slot].numpy().view(np.uint32), tokens[:prompt] // 32, bits)
        np.add.at(output_bin_counts[slot].numpy(), tokens[prompt:prefill], 1)


def penalties(
    logits: torch.Tensor,
    _stride: int,
    idx_mapping: torch.Tensor,
    token_ids: torch.Tensor,
    local_pos: torch.Tensor,
    repetition_penalty: torch.Tensor,
    frequency_penalty: torch.Tensor,
    presence_penalty: torch.Tensor,
    prompt_bin_mask: torch.Tensor,
    _mask_stride: int,
    output_bin_counts: torch.Tensor,
    _counts_stride: int,
    vocab_size: int,
    **_: object,
) -> None:
    """Apply the repetition, frequency and presence penalties."""
    for row, slot in enumerate(idx_mapping.tolist()):
        repetition = repetition_penalty.numpy()[slot]
        frequency = frequency_penalty.numpy()[slot]
        presence = presence_penalty.numpy()[slot]
        if repetition == 1 and frequency == 0 and presence == 0:
            continue
        values = logits[row, :vocab_size].numpy()
        counts = output_bin_counts[slot, :vocab_size].numpy().copy()
        # Drafts before this row count as output.
        np.add.at(counts, token_ids[row - int(local_pos[row]) + 1 : row + 1].numpy(), 1)
        seen = counts > 0
        if repetition != 1:
            packed = prompt_bin_mask[slot].numpy().view(np.uint8)
            in_prompt = np.unpackbits(packed, bitorder="little")[:vocab_size].astype(bool)
            scale = np.where(in_prompt | seen, repetition, np.float32(1))
            values *= np.where(values > 0, np.float32(1) / scale, scale)
        values -= frequency * counts.astype(np.float32)
        values -= presence * seen.astype(np.float32)


def bad_words(
    logits: torch.Tensor,
    _stride: int,
    idx_mapping: torch.Tensor,
    word_tokens: torch.Tensor,
    _word_stride: int,
    word_offsets: torch.Tensor,
    _offset_stride: int,
    num_words: torch.Tensor,
    all_token_ids: torch.Tensor,
    _token_stride: int,
    prompt_len: torch.Tensor,
    total_len: torch.Tensor,
    input_ids: torch.Tensor,
    local_pos: torch.Tensor,
) -> None:
    """Mask the last token of every bad word whose other tokens were just output."""
    for row, slot in enumerate(idx_mapping.tolist()):
        drafts = input_ids[row - int(local_pos[row]) + 1 : row + 1].tolist()
        output = all_token_ids[slot, int(prompt_len[slot]) : int(total_len[slot])].tolist() + drafts
        for word in range(int(num_words[slot])):
            first, last = word_offsets[slot, word : word + 2].tolist()
            *prefix, banned = word_tokens[slot, first:last].tolist()
            if output[max(0, len(output) - len(prefix)) :] == prefix:
                logits[row, banned] = -_INFINITY


def apply_grammar_bitmask(
    logits: torch.Tensor,
    _stride: int,
    places: torch.Tensor,
    cu_num_logits: torch.Tensor,
    bitmask: torch.Tensor,
    _mask_stride: int,
    vocab_size: int,
    *,
    MASK_STRIDE: int,
    **_: object,
) -> None:
    """Mask what a grammar forbids: one bit for each token, 0 where it may not come."""
    for mask, place in zip(bitmask.numpy(), places.tolist(), strict=False):
        request, position = divmod(place, MASK_STRIDE)
        row = int(cu_num_logits[request]) + position
        if row < int(cu_num_logits[request + 1]):
            allowed = np.unpackbits(mask.view(np.uint8), bitorder="little")[:vocab_size]
            logits[row, :vocab_size].numpy()[allowed == 0] = -_INFINITY


def topk_log_softmax(
    output: torch.Tensor,
    logits: torch.Tensor,
    _stride: int,
    tokens: torch.Tensor,
    _tokens_stride: int,
    topk: int,
    vocab_size: int,
    **_: object,
) -> None:
    """Compute the log probability of the chosen tokens of each row."""
    logarithms = logits[: len(output), :vocab_size].float().log_softmax(-1)
    output.view(-1, topk)[:] = logarithms.gather(-1, tokens[:, :topk])


def ranks(
    output: torch.Tensor,
    logits: torch.Tensor,
    _stride: int,
    tokens: torch.Tensor,
    vocab_size: int,
    **_: object,
) -> None:
    """Count the tokens of each row that are at least as probable as the given one."""
    values = logits[: len(output), :vocab_size]
    output[:] = (values >= values.gather(-1, tokens.view(-1, 1))).sum(-1)


def fill_logprob_token_ids(
    output: torch.Tensor,
    _output_stride: int,
    valid: torch.Tensor,
    _valid_stride: int,
    sampled: torch.Tensor,
    top: torch.Tensor,
    _top_stride: int,
    idx_mapping: torch.Tensor,
    num_asked: torch.Tensor,
    asked: torch.Tensor,
    _asked_stride: int,
    *,
    NUM_TOPK: int,
    **_: object,
) -> None:
    """List the tokens to report for each row: the sampled one, then those asked for or the best."""
    for row, slot in enumerate(idx_mapping.tolist()):
        count = int(num_asked[slot])
        others = asked[slot, :count] if count else top[row, :NUM_TOPK]
        output[row, 0] = sampled[row]
        output[row, 1 : len(others) + 1] = others
        valid[row, : len(others) + 1] = True


def prompt_logprobs_token_ids(
    tokens: torch.Tensor,
    query_start_loc: torch.Tensor,
    idx_mapping: torch.Tensor,
    num_computed_tokens: torch.Tensor,
    all_token_ids: torch.Tensor,
    _token_stride: int,
    **_: object,
) -> None:
    """List for each scheduled token of a prompt the one that follows it."""
    bounds = query_start_loc.tolist()
    for row, slot in enumerate(idx_mapping.tolist()):
        following = int(num_computed_tokens[slot]) + 1
        count = bounds[row + 1] - bounds[row]
        tokens[bounds[row] : bounds[row + 1]] = all_token_ids[slot, following : following + count]


def _noise(seed: int, position: int, tokens: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Return vLLM's Gumbel noise of every token, as its kernel computes it."""
    hashed = _hash(seed, position, tokens)
    high = (hashed >> np.uint32(16)).astype(np.float32) * np.float32(2**-16)
    low = ((hashed & np.uint32(0xFFFF)).astype(np.float32) + np.float32(0.5)) * np.float32(2**-32)
    uniform = high + low
    # The kernel's own series for log(1 - u), whose errors decide between near ties.
    series = np.full_like(uniform, 1 / 8)
    for power in range(7, 0, -1):
        series = np.float32(1 / power) + uniform * series
    direct = np.log(np.maximum(np.float32(1) - uniform, np.float32(2**-24)))
    logarithm = np.where(uniform < np.float32(0.25), -uniform * series, direct)
    noise: NDArray[np.float32] = -np.log(-logarithm)
    return noise


def _hash(seed: int, position: int, tokens: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return MurmurHash3 (32 bits) of the seed's two words, the position's low one, and a token."""
    words = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF, position & 0xFFFFFFFF)
    hashed = np.zeros_like(tokens)
    for word in (*(np.full_like(tokens, word) for word in words), tokens):
        mixed = _rotate(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        hashed = _rotate(hashed ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashed ^= np.uint32(16)  # the length in bytes
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashed = (hashed ^ hashed >> np.uint32(shift)) * np.uint32(factor)
    return hashed ^ hashed >> np.uint32(16)


def _rotate(words: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)


_SAMPLE = "vllm.v1.worker.gpu.sample"

#: The sampler's kernels that have a stand-in, by the name that vLLM's dispatcher knows them by.
SAMPLING_KERNELS: Mapping[str, Callable[..., Any]] = {
    f"{_SAMPLE}.gumbel._temperature_kernel": temperature,
    f"{_SAMPLE}.gumbel._gumbel_sample_kernel": gumbel_sample,
    f"{_SAMPLE}.min_p._min_p_kernel": min_p,
    f"{_SAMPLE}.logit_bias._bias_kernel": bias,
    f"{_SAMPLE}.penalties._bincount_kernel": bincount,
    f"{_SAMPLE}.penalties._penalties_kernel": penalties,
    f"{_SAMPLE}.bad_words._bad_words_kernel": bad_words,
    f"{_SAMPLE}.logprob._topk_log_softmax_kernel": topk_log_softmax,
    f"{_SAMPLE}.logprob._ranks_kernel": ranks,
    f"{_SAMPLE}.logprob._fill_logprob_token_ids_kernel": fill_logprob_token_ids,
    f"{_SAMPLE}.prompt_logprob._prompt_logprobs_token_ids_kernel": prompt_logprobs_token_ids,
    "vllm.v1.worker.gpu.structured_outputs._apply_grammar_bitmask_kernel": apply_grammar_bitmask,
}
