# SPDX-License-Identifier: Apache-2.0
"""The operations that vLLM's code for a CPU calls, computed with torch.

They stand in for those that a build for another device has not compiled, and take what these take.
The caches that :func:`write` fills are read by :func:`attend` alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch

Computes = Callable[..., torch.Tensor | None]

#: By name: the arguments of the operation, and what computes it.
OPERATIONS: dict[str, tuple[str, Computes]] = {}


def _operation(name: str, schema: str) -> Callable[[Computes], Computes]:
    """Have a function compute an operation of vLLM's library ``_C``."""

    def keep(function: Computes) -> Computes:
        OPERATIONS[name] = (schema, function)
        return function

    return keep


@_operation(
    "greedy_argmax",
    "(Tensor logits) -> Tensor",
)
def greedy_argmax(logits: torch.Tensor) -> torch.Tensor:
    """Take the first of the highest logits, as ``Sampler.greedy_sample`` does elsewhere."""
    return logits.argmax(dim=-1).view(-1)


@_operation(
    "fused_gumbel_argmax",
    "(Tensor logits, Tensor seeds) -> Tensor",
)
def fused_gumbel_argmax(logits: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
    """Draw a token of each row as ``TopKTopPSampler.forward_native`` does, with the row's seed.

    The kernel has a generator of its own: it draws other tokens of the same distribution.
    """
    probabilities = logits.softmax(dim=-1, dtype=torch.float32)
    noise = torch.empty_like(probabilities)
    for row, seed in zip(noise, seeds.tolist(), strict=True):
        row.exponential_(generator=torch.Generator().manual_seed(seed))
    return (probabilities / noise).argmax(dim=-1).view(-1)


@_operation(
    "init_cpu_memory_env",
    "(SymInt[] node_ids) -> ()",
)
def init_cpu_memory_env(_: list[int]) -> None:
    """Leave the memory where it is: what is tried here is small."""


@_operation(
    "compute_slot_mapping_kernel_impl",
    "(Tensor query_start_loc, Tensor positions, Tensor block_table, Tensor(a3!) slot_mapping, "
    "SymInt block_size) -> ()",
)
def compute_slot_mapping(
    starts: torch.Tensor,
    positions: torch.Tensor,
    block_table: torch.Tensor,
    slot_mapping: torch.Tensor,
    block_size: int,
) -> None:
    """Write the place in the cache of each token.

    Args:
        starts: of requests ``[requests + 1]`` among the tokens.
        positions: of the tokens in their requests.
        block_table: numbers of the blocks of each request ``[requests, blocks]``.
        slot_mapping: is written to, up to the last token.
        block_size: tokens in a block.

    """
    lengths = starts.diff()
    count = int(starts[-1])
    rows = torch.arange(len(lengths)).repeat_interleave(lengths.long())
    at = positions[:count].long()
    slot_mapping[:count] = block_table[rows, at // block_size] * block_size + at % block_size


@_operation(
    "get_scheduler_metadata",
    "(int num_req, int num_heads_q, int num_heads_kv, int head_dim, Tensor seq_lens, "
    "ScalarType dtype, Tensor query_start_loc, bool casual, int window_size, str isa_hint, "
    'bool enable_kv_split, Tensor? dynamic_causal, str kv_cache_dtype="auto") -> Tensor',
)
def get_scheduler_metadata(*_: object) -> torch.Tensor:
    """Return nothing of use: work is not divided here."""
    return torch.zeros(1, dtype=torch.int8)


@_operation(
    "cpu_attn_reshape_and_cache",
    "(Tensor key, Tensor value, Tensor(a2!) key_cache, Tensor(a3!) value_cache, "
    "Tensor slot_mapping, str isa, float k_scale=1., float v_scale=1., "
    'str kv_cache_dtype="auto") -> ()',
)
def write(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    _isa: str,
    _k_scale: float = 1.0,
    _v_scale: float = 1.0,
    _kv_cache_dtype: str = "auto",
) -> None:
    """Keep keys and values ``[tokens, heads, size]`` in caches ``[blocks, heads, place, size]``."""
    kept = (slot_mapping >= 0).nonzero().flatten()
    slots = slot_mapping[kept]
    size = key_cache.shape[2]
    for cache, given in ((key_cache, key), (value_cache, value)):
        cache[slots // size, :, slots % size] = given[kept].to(cache.dtype)


@_operation(
    "cpu_attention_with_kv_cache",
    "(Tensor query, Tensor key_cache, Tensor value_cache, Tensor(a3!) output, "
    "Tensor query_start_loc, Tensor seq_lens, float scale, bool causal, Tensor? alibi_slopes, "
    "SymInt sliding_window_size, Tensor block_table, float softcap, Tensor scheduler_metadata, "
    "Tensor? s_aux, Tensor? dynamic_causal, float k_scale=1., float v_scale=1., "
    'str kv_cache_dtype="auto") -> ()',
)
def attend(  # noqa: PLR0917 - the arguments of the operation
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    output: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    causal: bool,  # noqa: FBT001 - as above
    alibi_slopes: torch.Tensor | None,
    window: int,
    block_table: torch.Tensor,
    softcap: float,
    _metadata: torch.Tensor,
    sinks: torch.Tensor | None,
    dynamic_causal: torch.Tensor | None,
    _k_scale: float = 1.0,
    _v_scale: float = 1.0,
    kv_cache_dtype: str = "auto",
) -> None:
    """Write what each token attends to, one request after the other.

    Args:
        query: ``[tokens, heads, size]``.
        key_cache: ``[blocks, heads of keys, places, size]``.
        value_cache: of the same shape.
        output: of the shape of the queries; is written to.
        starts: of requests ``[requests + 1]`` among the tokens.
        lengths: of requests, with these tokens.
        scale: of products of queries and keys.
        causal: whether tokens see none that follows.
        alibi_slopes: must be None.
        window: how many tokens are seen, or -1.
        block_table: numbers of the blocks of each request ``[requests, blocks]``.
        softcap: bound of the products, or 0.
        sinks: must be None.
        dynamic_causal: must be None.
        kv_cache_dtype: of the caches; not a quantised one.

    Raises:
        NotImplementedError: for slopes, sinks, a mask for each request, or a quantised cache.

    """
    if any(each is not None for each in (alibi_slopes, sinks, dynamic_causal)):
        raise NotImplementedError("attention with slopes, sinks or a mask for each request")
    if kv_cache_dtype.startswith("fp8"):
        raise NotImplementedError(f"attention with a cache of {kv_cache_dtype}")
    places, heads = key_cache.shape[2], key_cache.shape[1]
    bounds = starts.tolist()
    for row, (first, last) in enumerate(itertools.pairwise(bounds)):
        count, length = last - first, int(lengths[row])
        if not count:
            continue
        blocks = block_table[row, : -(-length // places)].long()
        key, value = (
            cache[blocks].transpose(0, 1).flatten(1, 2)[:, :length].float()
            for cache in (key_cache, value_cache)
        )
        # Neighbouring heads of queries share one of keys.
        asked = query[first:last].float().transpose(0, 1).unflatten(0, (heads, -1))
        scores = asked @ key.unsqueeze(1).transpose(-1, -2) * scale
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        seen = _seen(length - count, count, length, causal=causal, window=window)
        weights = scores.masked_fill(~seen, -torch.inf).softmax(dim=-1)
        found = (weights @ value.unsqueeze(1)).flatten(0, 1).transpose(0, 1)
        output[first:last] = found.reshape(output[first:last].shape).to(output.dtype)


def _seen(before: int, count: int, length: int, *, causal: bool, window: int) -> torch.Tensor:
    """Return which of all tokens each of the last ones sees, ``[count, length]``."""
    distance = torch.arange(before, before + count)[:, None] - torch.arange(length)[None, :]
    seen = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    return seen & (distance.abs() < window) if window > 0 else seen
