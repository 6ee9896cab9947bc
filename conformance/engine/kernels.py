# SPDX-License-Identifier: Apache-2.0
# Launches say how many arguments there are, and how they are spelt:
# ruff: noqa: N803, PLR0917
"""The kernels of Model Runner V2 that keep its states and batches, on CPU tensors.

vLLM writes them in Triton, which has no CPU backend to install, and whose interpreter takes
milliseconds for every row.
These do the same to the same tensors and are registered the way a platform registers its own
(``vllm.triton_utils.dispatcher``), so no file of vLLM is changed.
The kernels of the sampler are in :mod:`conformance.engine.sampling_kernels`.

Every function takes what the kernel of its name takes, in that order; what only tells Triton how
to divide the work is swallowed by ``**_``.
A request's row in the batch is ``row`` here, its row in the states ``slot``.
Only numpy and torch are imported; vLLM is where :func:`install` is called.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from conformance.engine.kernel_releases import fitted, unfit
from conformance.engine.sampling_kernels import SAMPLING_KERNELS


@functools.cache
def install() -> str | None:
    """Register all kernels with vLLM, once in a process, whether it has Triton or not.

    In a process that is to run a model on a GPU this would be wrong: the kernels take CPU tensors.

    Returns:
        Why engines of the installed vLLM cannot run with them, or None.

    """
    # Before anything of vllm.v1.worker.gpu: it gives that package buffers that need no GPU.
    import vllm.v1.worker.cpu.shm  # noqa: F401 - imported for what it replaces
    from vllm.triton_utils import HAS_TRITON, triton
    from vllm.triton_utils.dispatcher import register_kernels
    from vllm.utils.math_utils import next_power_of_2

    if not HAS_TRITON:
        # What stands in for Triton lacks it, and launches ask for it.
        triton.next_power_of_2 = next_power_of_2
    problem = unfit(KERNELS)  # afterwards the stand-ins are found in place of the kernels
    with warnings.catch_warnings():
        # It looks at every attribute of every module, and torch has deprecated some.
        warnings.simplefilter("ignore", FutureWarning)
        register_kernels({name: fitted(name, found) for name, found in KERNELS.items()})
    return problem


def apply_write(
    output: torch.Tensor,
    stride: torch.Tensor | int,
    indices: torch.Tensor,
    starts: torch.Tensor,
    contents: torch.Tensor,
    ends: torch.Tensor,
    groups: torch.Tensor | None,
    *,
    MULTI_GROUP: bool = False,
    **_: object,
) -> None:
    """Write each staged piece of ``contents`` to its slot, from its start on.

    With ``MULTI_GROUP``, ``output`` holds the addresses of int32 tensors, and ``stride`` theirs.
    """
    pieces = np.split(contents.numpy()[: int(ends[-1])], ends.numpy()[:-1])
    for number, (slot, start) in enumerate(zip(indices.tolist(), starts.tolist(), strict=True)):
        piece = pieces[number]
        if MULTI_GROUP:
            assert groups is not None
            group = int(groups[number])
            row = _table_row(output, stride, group, slot, start + len(piece))
            row[start:] = piece
        else:
            first = slot * int(stride) + start
            output.view(-1).numpy()[first : first + len(piece)] = piece


def prepare_prefill_inputs(
    input_ids: torch.Tensor,
    next_prefill_tokens: torch.Tensor,
    _stride: int,
    lookahead: int,
    idx_mapping: torch.Tensor,
    query_start_loc: torch.Tensor,
    all_token_ids: torch.Tensor,
    _token_stride: int,
    prefill_lens: torch.Tensor,
    num_computed_tokens: torch.Tensor,
    **_: object,
) -> None:
    """Copy the scheduled tokens of prefills to the model's input, and note those that follow."""
    for slot, first, last in _queries(idx_mapping, query_start_loc):
        computed, prefill = int(num_computed_tokens[slot]), int(prefill_lens[slot])
        if computed >= prefill:
            continue
        end = computed + last - first
        input_ids[first:last] = all_token_ids[slot, computed:end]
        following = all_token_ids[slot, end : min(end + lookahead, prefill)]
        next_prefill_tokens[:lookahead, slot] = 0
        next_prefill_tokens[: len(following), slot] = following


def prepare_pos_seq_lens(
    positions: torch.Tensor,
    seq_lens: torch.Tensor,
    idx_mapping: torch.Tensor,
    query_start_loc: torch.Tensor,
    num_computed_tokens: torch.Tensor,
    max_num_reqs: int,
    **_: object,
) -> None:
    """Say at which position every scheduled token stands, and how long each sequence is then."""
    lengths, places = seq_lens.numpy(), positions.numpy()
    lengths[len(idx_mapping) : max_num_reqs] = 0
    for row, (slot, first, last) in enumerate(_queries(idx_mapping, query_start_loc)):
        computed = int(num_computed_tokens[slot])
        lengths[row] = computed + last - first
        places[first:last] = np.arange(computed, computed + last - first)


def combine_sampled_and_draft_tokens(
    input_ids: torch.Tensor,
    idx_mapping: torch.Tensor,
    last_sampled_tokens: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    prefill_len: torch.Tensor,
    draft_tokens: torch.Tensor,
    _draft_stride: int,
    cu_num_logits: torch.Tensor,
    logits_indices: torch.Tensor,
    *,
    NUM_NEW_SAMPLED_TOKENS: int = 1,
    **_: object,
) -> None:
    """Put the last sampled token and the drafts of each decode into the model's input."""
    wanted = cu_num_logits.tolist()
    for row, (slot, _first, last) in enumerate(_queries(idx_mapping, query_start_loc)):
        logits = wanted[row + 1] - wanted[row]
        drafts = logits - NUM_NEW_SAMPLED_TOKENS
        logits_indices.numpy()[wanted[row] : wanted[row + 1]] = np.arange(last - logits, last)
        length, prefill = int(seq_lens[row]), int(prefill_len[slot])
        if length <= prefill:
            continue
        if NUM_NEW_SAMPLED_TOKENS and length - logits >= prefill:
            input_ids[last - logits] = last_sampled_tokens.view(-1)[slot]
        if drafts > 0:
            input_ids[last - drafts : last] = draft_tokens[slot, :drafts]


def get_num_sampled_and_rejected(
    num_sampled: torch.Tensor,
    num_rejected: torch.Tensor,
    seq_lens: torch.Tensor,
    cu_num_logits: torch.Tensor,
    idx_mapping: torch.Tensor,
    prefill_len: torch.Tensor,
) -> None:
    """Count nothing as sampled or rejected where a prefill is not finished."""
    rows = len(idx_mapping)
    logits = cu_num_logits[1 : rows + 1] - cu_num_logits[:rows]
    unfinished = seq_lens[:rows] < prefill_len[idx_mapping]
    num_sampled[:rows].masked_fill_(unfinished, 0)
    num_rejected[:rows] = (logits - num_sampled[:rows]).masked_fill_(unfinished, 0)


def post_update(
    idx_mapping: torch.Tensor,
    num_computed_tokens: torch.Tensor,
    last_sampled_tokens: torch.Tensor,
    output_bin_counts: torch.Tensor | None,
    _counts_stride: int,
    sampled_tokens: torch.Tensor,
    _sampled_stride: int,
    num_sampled: torch.Tensor,
    num_rejected: torch.Tensor,
    query_start_loc: torch.Tensor | None,
    all_token_ids: torch.Tensor,
    _token_stride: int,
    total_len: torch.Tensor,
    **_: object,
) -> None:
    """Take what was sampled into the states of the requests."""
    bounds = None if query_start_loc is None else query_start_loc.tolist()
    for row, slot in enumerate(idx_mapping.tolist()):
        if slot < 0:
            continue
        count, length = int(num_sampled[row]), int(total_len[slot])
        if count > 0:
            tokens = sampled_tokens[row, :count]
            last_sampled_tokens.view(-1)[slot] = tokens[-1]
            total_len[slot] = length + count
            all_token_ids[slot, length : length + count] = tokens
            if output_bin_counts is not None:
                np.add.at(output_bin_counts[slot].numpy(), tokens.numpy(), 1)
        computed = 0 if bounds is None else bounds[row + 1] - bounds[row]
        num_computed_tokens[slot] += computed - int(num_rejected[row])


def expand_idx_mapping(
    idx_mapping: torch.Tensor,
    expanded_idx_mapping: torch.Tensor,
    expanded_local_pos: torch.Tensor,
    cu_num_logits: torch.Tensor,
    **_: object,
) -> None:
    """Say for every row of the logits whose it is, and its place among the request's own."""
    bounds = cu_num_logits.tolist()
    for row, slot in enumerate(idx_mapping.tolist()):
        rows = slice(bounds[row], bounds[row + 1])
        expanded_idx_mapping[rows] = slot
        expanded_local_pos.numpy()[rows] = np.arange(bounds[row + 1] - bounds[row])


def gather_block_tables(
    idx_mapping: torch.Tensor,
    sources: torch.Tensor,
    targets: torch.Tensor,
    strides: torch.Tensor,
    num_blocks: torch.Tensor,
    _stride: int,
    num_reqs: int,
    **_: object,
) -> None:
    """Copy the block table of each scheduled request from its slot to its row.

    Rows that no request has are filled with zeros, whether a launch asks for them or not.
    """
    for group in range(len(sources)):
        width = int(strides[group])
        for row, slot in enumerate(idx_mapping.tolist()[:num_reqs]):
            count = int(num_blocks[group, slot])
            source = _table_row(sources, strides, group, slot, count)
            _table_row(targets, strides, group, row, count)[:] = source
        for row in range(num_reqs, num_blocks.shape[1]):
            _table_row(targets, strides, group, row, width)[:] = 0


def compute_slot_mappings(
    max_num_tokens: int,
    idx_mapping: torch.Tensor,
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    tables: torch.Tensor,
    strides: torch.Tensor,
    block_sizes: torch.Tensor,
    enabled: torch.Tensor,
    _sharded: torch.Tensor | None,
    slot_mappings: torch.Tensor,
    _stride: int,
    _rank: int,
    *,
    CP_SIZE: int = 1,
    PAD_ID: int = -1,
    **_: object,
) -> None:
    """Say where in the KV cache each scheduled token is kept.

    Raises:
        NotImplementedError: the context is divided among several ranks.

    """
    if CP_SIZE != 1:
        raise NotImplementedError("context parallelism is not for Model Runner V2 on CPU")
    for group, size in enumerate(block_sizes.tolist()):
        found = slot_mappings[group].numpy()
        found[int(query_start_loc[len(idx_mapping)]) : max_num_tokens] = PAD_ID
        for slot, first, last in _queries(idx_mapping, query_start_loc):
            # A dummy request has no slot.
            if slot < 0 or not enabled[group]:
                found[first:last] = PAD_ID
                continue
            place = positions[first:last].numpy()
            table = _table_row(tables, strides, group, slot, int(strides[group]))
            found[first:last] = table[place // size].astype(np.int64) * size + place % size


def apply_prompt_embeds(
    inputs_embeds: torch.Tensor,
    _stride: int,
    addresses: torch.Tensor,
    masks: torch.Tensor,
    lengths: torch.Tensor,
    idx_mapping: torch.Tensor,
    query_start_loc: torch.Tensor,
    num_computed_tokens: torch.Tensor,
    hidden_size: int,
    **_: object,
) -> None:
    """Put the rows that requests bring in place of those of their tokens.

    ``addresses`` are of rows in the type of ``inputs_embeds``, ``masks`` of bytes that are 0 where
    a prompt has a row and no token; the address 0 is no mask.
    """
    for slot, first, last in _queries(idx_mapping, query_start_loc):
        computed = int(num_computed_tokens[slot])
        end = min(computed + last - first, int(lengths[slot]))
        if computed >= end:
            continue
        brought = _memory(int(addresses[slot]), end * hidden_size, inputs_embeds.dtype)
        rows = brought.view(end, hidden_size)[computed:]
        kept = torch.zeros(len(rows), dtype=torch.bool)
        if mask := int(masks[slot]):
            kept = _memory(mask, end, torch.uint8)[computed:] != 0
        inputs_embeds[first : first + len(rows)][~kept] = rows[~kept]


def _memory(address: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Return the elements of a tensor at an address."""
    size = count * dtype.itemsize
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=dtype)


def _queries(
    idx_mapping: torch.Tensor, query_start_loc: torch.Tensor
) -> list[tuple[int, int, int]]:
    """Return for each row its slot, its first scheduled token, and the one after its last."""
    bounds = query_start_loc.tolist()
    return list(zip(idx_mapping.tolist(), bounds, bounds[1:], strict=False))


def _table_row(
    addresses: torch.Tensor, strides: torch.Tensor | int, group: int, row: int, length: int
) -> NDArray[np.int32]:
    """Return the first ``length`` elements of a row of the int32 tensor at an address."""
    assert not isinstance(strides, int)
    width = ctypes.sizeof(ctypes.c_int32)
    address = int(addresses[group]) + width * int(strides[group]) * row
    return np.ctypeslib.as_array((ctypes.c_int32 * length).from_address(address))


def _has(file: str) -> bool:
    """Tell whether the installed vLLM has a module, without importing any of it."""
    spec = importlib.util.find_spec("vllm")
    places = spec.submodule_search_locations if spec is not None else None
    return any((Path(place) / file).is_file() for place in places or ())


_RUNNER = "vllm.v1.worker.gpu"

#: Every kernel that has a stand-in, by the name that vLLM's dispatcher knows it by.
KERNELS: Mapping[str, Callable[..., Any]] = {
    f"{_RUNNER}.buffer_utils._apply_write_kernel": apply_write,
    f"{_RUNNER}.input_batch._prepare_prefill_inputs_kernel": prepare_prefill_inputs,
    f"{_RUNNER}.input_batch._prepare_pos_seq_lens_kernel": prepare_pos_seq_lens,
    f"{_RUNNER}.input_batch._combine_sampled_and_draft_tokens_kernel": (
        combine_sampled_and_draft_tokens
    ),
    f"{_RUNNER}.input_batch._get_num_sampled_and_rejected_kernel": get_num_sampled_and_rejected,
    f"{_RUNNER}.input_batch._post_update_kernel": post_update,
    f"{_RUNNER}.input_batch._expand_idx_mapping_kernel": expand_idx_mapping,
    f"{_RUNNER}.block_table._gather_block_tables_kernel": gather_block_tables,
    f"{_RUNNER}.block_table._compute_slot_mappings_kernel": compute_slot_mappings,
    **(
        {f"{_RUNNER}.model_states.prompt_embeds._apply_prompt_embeds_kernel": apply_prompt_embeds}
        if _has("v1/worker/gpu/model_states/prompt_embeds.py")
        else {}
    ),
    **SAMPLING_KERNELS,
}
