# SPDX-License-Identifier: Apache-2.0
"""Random launches of the kernels of Model Runner V2.

A case makes the same launch whenever it is given the same seed, so that a kernel and its stand-in
can each have one of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

SLOTS = 6
LENGTH = 48
VOCABULARY = 1100  # more than one block of the kernels that divide rows into blocks of 1024
WORDS = -(-VOCABULARY // 32)


class Launch(NamedTuple):
    """What a kernel is launched with."""

    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    options: dict[str, Any]  #: what vLLM passes by keyword
    #: What the kernel may write to, and what it is only given the address of.
    watched: tuple[torch.Tensor, ...]
    exact: bool = True


class Draw:
    """A random batch."""

    def __init__(self, seed: int) -> None:
        """Choose requests for some of the slots."""
        self.rng = np.random.default_rng(seed)
        self.rows = int(self.rng.integers(1, SLOTS + 1))
        self.slots = torch.from_numpy(self.rng.permutation(SLOTS)[: self.rows].astype(np.int32))
        self.prompt_len = self.ints(4, 12, SLOTS)
        self.prefill_len = self.prompt_len + self.ints(0, 8, SLOTS)
        self.total_len = self.prefill_len + self.ints(0, 8, SLOTS)
        self.computed = self.ints(0, 20, SLOTS)
        self.queries = self.bounds(self.ints(1, 9, self.rows))
        self.tokens = self.ints(0, VOCABULARY, (SLOTS, LENGTH))

    def ints(
        self, low: int, high: int, shape: int | tuple[int, ...], dtype: torch.dtype = torch.int32
    ) -> torch.Tensor:
        """Return whole numbers of a range that excludes its end."""
        return torch.from_numpy(self.rng.integers(low, high, shape)).to(dtype)

    def floats(self, *shape: int) -> torch.Tensor:
        """Return numbers around zero."""
        return torch.from_numpy(self.rng.normal(0, 3, shape).astype(np.float32))

    def some(self, values: list[float]) -> torch.Tensor:
        """Return one of some values for each slot."""
        return torch.from_numpy(self.rng.choice(values, SLOTS).astype(np.float32))

    def flip(self) -> bool:
        """Return yes or no."""
        return bool(self.rng.integers(2))

    @staticmethod
    def bounds(counts: torch.Tensor) -> torch.Tensor:
        """Return where each of several runs starts, and the end."""
        return torch.cat((torch.zeros(1, dtype=torch.int32), counts.cumsum(0).to(torch.int32)))

    def expanded(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the slot of every row where requests have up to three, and its place there."""
        counts = self.ints(1, 4, self.rows)
        offsets = torch.cat([torch.arange(int(count)) for count in counts]).to(torch.int32)
        return self.slots.repeat_interleave(counts), offsets


def apply_write(draw: Draw) -> Launch:
    """Pieces of one tensor."""
    kind = torch.float32 if draw.flip() else torch.int32
    output = draw.ints(0, 99, (SLOTS, LENGTH)).to(kind)
    ends = draw.bounds(draw.ints(1, 9, draw.rows))[1:]
    contents = draw.ints(0, 99, int(ends[-1])).to(kind)
    starts = draw.ints(0, 20, draw.rows)
    arguments = (output, LENGTH, draw.slots, starts, contents, ends, None)
    return Launch((draw.rows,), arguments, {"BLOCK_SIZE": 4, "MULTI_GROUP": False}, (output,))


def apply_write_to_groups(draw: Draw) -> Launch:
    """Pieces of several tensors, given by their addresses."""
    tables = [draw.ints(0, 99, (SLOTS, width)) for width in (32, 16)]
    ends = draw.bounds(draw.ints(1, 9, draw.rows))[1:]
    arguments = (
        *_layout(tables),
        draw.slots,
        draw.ints(0, 6, draw.rows),
        draw.ints(0, 99, int(ends[-1])),
        ends,
        draw.ints(0, 2, draw.rows),
    )
    return Launch((draw.rows,), arguments, {"BLOCK_SIZE": 4, "MULTI_GROUP": True}, (*tables,))


def prepare_prefill_inputs(draw: Draw) -> Launch:
    """Prefills and decodes, with looks ahead."""
    ahead = int(draw.rng.integers(1, 4))
    inputs = draw.ints(0, 99, int(draw.queries[-1]))
    following = draw.ints(0, 99, (ahead, SLOTS))
    arguments = (
        *(inputs, following, SLOTS, ahead, draw.slots, draw.queries, draw.tokens, LENGTH),
        *(draw.prefill_len, draw.computed),
    )
    return Launch(
        (draw.rows,), arguments, {"BLOCK_SIZE": 4, "LOOKAHEAD_BLOCK": 4}, (inputs, following)
    )


def prepare_pos_seq_lens(draw: Draw) -> Launch:
    """Positions, with lengths of requests that are gone."""
    positions = draw.ints(0, 99, int(draw.queries[-1]), torch.int64)
    lengths = draw.ints(0, 99, SLOTS)
    arguments = (positions, lengths, draw.slots, draw.queries, draw.computed, SLOTS)
    return Launch((draw.rows + 1,), arguments, {"BLOCK_SIZE": 4}, (positions, lengths))


def combine_sampled_and_draft_tokens(draw: Draw) -> Launch:
    """Prefills, decodes and drafts."""
    new = int(draw.flip())
    logits = draw.ints(1, 4, draw.rows)
    queries = draw.bounds(logits + draw.ints(0, 3, draw.rows))
    starts = draw.bounds(logits)
    inputs = draw.ints(0, 99, int(queries[-1]))
    indices = draw.ints(0, 99, int(starts[-1]), torch.int64)
    arguments = (
        *(inputs, draw.slots, draw.ints(100, 200, (SLOTS, 1), torch.int64), queries),
        *(draw.ints(4, 30, draw.rows), draw.prefill_len),
        *(draw.ints(200, 300, (SLOTS, 4), torch.int64), 4, starts, indices),
    )
    options = {"NUM_NEW_SAMPLED_TOKENS": new, "BLOCK_SIZE": 4}
    return Launch((draw.rows,), arguments, options, (inputs, indices))


def get_num_sampled_and_rejected(draw: Draw) -> Launch:
    """Finished and unfinished prefills."""
    logits = draw.ints(1, 4, draw.rows)
    sampled, rejected = draw.ints(1, 4, draw.rows), draw.ints(0, 9, draw.rows)
    lengths = draw.ints(4, 24, draw.rows)
    arguments = (sampled, rejected, lengths, draw.bounds(logits), draw.slots, draw.prefill_len)
    return Launch((draw.rows,), arguments, {}, (sampled, rejected))


def post_update(draw: Draw) -> Launch:
    """Up to three tokens for each request, with and without counts, and rows to be left out."""
    counts = draw.ints(0, 3, (SLOTS, VOCABULARY)) if draw.flip() else None
    queries = draw.queries if draw.flip() else None
    slots = draw.slots.clone()
    slots[draw.rng.integers(draw.rows)] = -1
    last = draw.ints(0, 99, (SLOTS, 1), torch.int64)
    sampled = draw.ints(0, VOCABULARY, (draw.rows, 3), torch.int64)
    arguments = (
        *(slots, draw.computed, last, counts, 0 if counts is None else VOCABULARY, sampled, 3),
        *(draw.ints(0, 4, draw.rows), draw.ints(0, 2, draw.rows), queries),
        *(draw.tokens, LENGTH, draw.total_len),
    )
    watched = (draw.computed, last, draw.tokens, draw.total_len)
    watched += () if counts is None else (counts,)
    return Launch((draw.rows,), arguments, {"num_warps": 1}, watched)


def expand_idx_mapping(draw: Draw) -> Launch:
    """Up to three rows for each request."""
    starts = draw.bounds(draw.ints(1, 4, draw.rows))
    slots, places = (draw.ints(50, 99, int(starts[-1])) for _ in range(2))
    arguments = (draw.slots, slots, places, starts)
    return Launch((draw.rows,), arguments, {"BLOCK_SIZE": 4}, (slots, places))


def gather_block_tables(draw: Draw) -> Launch:
    """Two groups; all rows that no request has are asked for, too."""
    sources, targets = ([draw.ints(0, 99, (SLOTS, width)) for width in (32, 16)] for _ in range(2))
    addresses, strides = _layout(sources)
    arguments = (
        *(draw.slots, addresses, _layout(targets)[0], strides),
        *(draw.ints(0, 16, (2, SLOTS)), SLOTS, draw.rows),
    )
    return Launch((2, SLOTS), arguments, {"BLOCK_SIZE": 4}, (*sources, *targets))


def compute_slot_mappings(draw: Draw) -> Launch:
    """Two groups, one of which may have no cache, and rows of dummy requests."""
    tables = [draw.ints(0, 99, (SLOTS, width)) for width in (32, 16)]
    slots = draw.slots.clone()
    if draw.flip():
        slots[draw.rng.integers(draw.rows)] = -1
    mappings = draw.ints(0, 99, (2, 64), torch.int64)
    arguments = (
        *(64, slots, draw.queries, draw.ints(0, 60, int(draw.queries[-1]), torch.int64)),
        *(*_layout(tables), torch.tensor([4, 8], dtype=torch.int32)),
        *(torch.tensor([True, draw.flip()]), None, mappings, 64, 0),
    )
    options = {"CP_SIZE": 1, "CP_INTERLEAVE": 1, "PAD_ID": -1, "TRITON_BLOCK_SIZE": 16}
    return Launch((2, draw.rows + 1), arguments, options, (mappings, *tables))


def temperature(draw: Draw) -> Launch:
    """Greedy and random rows, several for one request."""
    slots, _ = draw.expanded()
    logits = draw.floats(len(slots), VOCABULARY)
    arguments = (logits, VOCABULARY, slots, draw.some([0, 0.7, 1, 1.3]), VOCABULARY)
    return Launch((len(slots), 2), arguments, {"BLOCK_SIZE": 1024}, (logits,))


def min_p(draw: Draw) -> Launch:
    """Rows with and without a threshold."""
    slots, _ = draw.expanded()
    logits = draw.floats(len(slots), VOCABULARY)
    arguments = (logits, VOCABULARY, slots, draw.some([0, 0.01, 0.2, 1]), VOCABULARY)
    return Launch((len(slots),), arguments, {"BLOCK_SIZE": 1024}, (logits,))


def gumbel_sample(draw: Draw) -> Launch:
    """Greedy and random rows, masked tokens, and rows of dummy requests."""
    slots, _ = draw.expanded()
    slots[draw.rng.integers(len(slots))] = -1
    logits = draw.floats(len(slots), VOCABULARY)
    logits[torch.from_numpy(draw.rng.random(logits.shape) < 0.3)] = -float("inf")
    best = torch.zeros((len(slots), 2), dtype=torch.int64)
    highest = torch.zeros((len(slots), 2))
    seeds = torch.from_numpy(draw.rng.integers(-(2**63), 2**63, SLOTS))
    arguments = (
        *(best, 2, highest, 2, None, 0, 0, None, None, 0),
        *(logits.bfloat16() if draw.flip() else logits, VOCABULARY, slots, seeds),
        *(draw.ints(0, 5000, len(slots), torch.int64), draw.some([0, 0.7, 1]), VOCABULARY),
    )
    options = {
        "BLOCK_SIZE": 1024,
        "IS_DRAFTING": False,
        "APPLY_TEMPERATURE": draw.flip(),
        "USE_FP64": False,
        "PER_TOKEN_COL": False,
    }
    return Launch((len(slots), 2), arguments, options, (best, highest))


def bias(draw: Draw) -> Launch:
    """Allowed tokens, biases and stop tokens, each for some; one row may be masked whole."""
    slots, _ = draw.expanded()
    logits = draw.floats(len(slots), VOCABULARY)
    lists = [
        torch.from_numpy(
            np.array([draw.rng.permutation(VOCABULARY)[:16] for _ in range(SLOTS)], dtype=np.int32)
        )
        for _ in range(3)
    ]
    counts = [draw.ints(0, 5, SLOTS) for _ in range(3)]
    # Where what is allowed is what stops, nothing is left.
    lists[2][0], counts[0][0], counts[2][0] = lists[0][0], 2, 4
    arguments = (
        *(logits, VOCABULARY, VOCABULARY, slots, counts[0], lists[0], 16),
        *(counts[1], lists[1], 16, draw.floats(SLOTS, 16), 16),
        *(draw.ints(0, 3, len(slots), torch.int64), draw.ints(0, 5, SLOTS)),
        *(counts[2], draw.ints(0, 2, SLOTS), lists[2], 16),
    )
    options = {"BLOCK_SIZE": 16, "LOGITS_BLOCK_SIZE": 1024, "CHECK_ALL_MASKED_ROWS": draw.flip()}
    return Launch((len(slots),), arguments, options, (logits,))


def bincount(draw: Draw) -> Launch:
    """New requests and resumed ones."""
    mask = torch.zeros((SLOTS, WORDS), dtype=torch.int32)
    counts = torch.zeros((SLOTS, VOCABULARY), dtype=torch.int32)
    tokens = draw.ints(0, 40, (SLOTS, LENGTH))
    arguments = (
        *(draw.slots.long(), tokens, LENGTH, draw.prompt_len, draw.prefill_len),
        *(mask, WORDS, counts, VOCABULARY),
    )
    return Launch((draw.rows, 4), arguments, {"BLOCK_SIZE": 8}, (mask, counts))


def penalties(draw: Draw) -> Launch:
    """Each penalty for some, and drafts."""
    slots, offsets = draw.expanded()
    logits = draw.floats(len(slots), VOCABULARY)
    arguments = (
        *(logits, VOCABULARY, slots, draw.ints(0, VOCABULARY, len(slots)), offsets),
        *(draw.some([1, 1.1, 0.8]), draw.some([0, 0.3]), draw.some([0, -0.2])),
        *(draw.ints(-(2**31), 2**31, (SLOTS, WORDS)), WORDS),
        *(draw.ints(0, 3, (SLOTS, VOCABULARY)), VOCABULARY, VOCABULARY),
    )
    return Launch((len(slots), 2), arguments, {"BLOCK_SIZE": 1024}, (logits,))


def bad_words(draw: Draw) -> Launch:
    """Words of up to three of a few tokens, so that some were just output, and drafts."""
    slots, offsets = draw.expanded()
    logits = draw.floats(len(slots), VOCABULARY)
    words = torch.stack([draw.bounds(draw.ints(1, 4, 8)) for _ in range(SLOTS)])
    arguments = (
        *(logits, VOCABULARY, slots, draw.ints(0, 3, (SLOTS, 32)), 32, words, 9),
        *(draw.ints(0, 9, SLOTS), draw.ints(0, 3, (SLOTS, LENGTH)), LENGTH),
        *(draw.prompt_len, draw.total_len, draw.ints(0, 3, len(slots)), offsets),
    )
    return Launch((len(slots), 8), arguments, {}, (logits,))


def topk_log_softmax(draw: Draw) -> Launch:
    """Several tokens of each row, masked ones among them."""
    logits = draw.floats(draw.rows, VOCABULARY)
    logits[:, ::3] = -float("inf")
    output = torch.zeros((draw.rows, 5))
    tokens = draw.ints(0, VOCABULARY, (draw.rows, 5), torch.int64)
    arguments = (output, logits, VOCABULARY, tokens, 5, 5, VOCABULARY)
    options = {"BLOCK_SIZE": 1024, "TOPK_BLOCK_SIZE": 8}
    # Sums of another order.
    return Launch((draw.rows,), arguments, options, (output,), exact=False)


def ranks(draw: Draw) -> Launch:
    """One token of each row; many have the same logit."""
    logits = draw.floats(draw.rows, VOCABULARY).round()
    output = torch.zeros(draw.rows, dtype=torch.int64)
    tokens = draw.ints(0, VOCABULARY, draw.rows, torch.int64)
    arguments = (output, logits, VOCABULARY, tokens, VOCABULARY)
    return Launch((draw.rows,), arguments, {"BLOCK_SIZE": 1024}, (output,))


def fill_logprob_token_ids(draw: Draw) -> Launch:
    """Some requests name their tokens, others get the best."""
    output = torch.zeros((draw.rows, 5), dtype=torch.int64)
    valid = torch.zeros((draw.rows, 5), dtype=torch.bool)
    arguments = (
        *(output, 5, valid, 5, draw.ints(0, 99, draw.rows, torch.int64)),
        *(draw.ints(0, 99, (draw.rows, 3)), 3, draw.slots, draw.ints(0, 5, SLOTS)),
        *(draw.ints(100, 200, (SLOTS, 8)), 8),
    )
    return Launch((draw.rows,), arguments, {"NUM_TOPK": 3, "PADDED_COLS": 4}, (output, valid))


def prompt_logprobs_token_ids(draw: Draw) -> Launch:
    """Prompts, some begun before."""
    tokens = draw.ints(0, 99, int(draw.queries[-1]), torch.int64)
    arguments = (tokens, draw.queries, draw.slots, draw.computed, draw.tokens, LENGTH)
    return Launch((draw.rows,), arguments, {"BLOCK_SIZE": 4}, (tokens,))


def apply_grammar_bitmask(draw: Draw) -> Launch:
    """Some rows of requests with drafts, and places that have no row."""
    starts = draw.bounds(draw.ints(1, 4, draw.rows))
    logits = draw.floats(int(starts[-1]), VOCABULARY)
    places = torch.from_numpy(draw.rng.permutation(draw.rows * 4)[: draw.rows * 2].astype(np.int32))
    masks = draw.ints(-(2**31), 2**31, (len(places), WORDS))
    arguments = (logits, VOCABULARY, places, starts, masks, WORDS, VOCABULARY)
    options = {"MASK_STRIDE": 4, "BLOCK_SIZE": 1024}
    return Launch((len(places), 2), arguments, options, (logits,))


def apply_prompt_embeds(draw: Draw) -> Launch:
    """Some requests bring rows, some of these rows and tokens; some have used them up."""
    width, block = 5, 4
    lengths = draw.ints(0, LENGTH, SLOTS)
    rows = [draw.floats(LENGTH, width) for _ in range(SLOTS)]
    tokens = [draw.ints(0, 2, LENGTH, torch.uint8) for _ in range(SLOTS)]
    masks = torch.tensor([one.data_ptr() * draw.flip() for one in tokens], dtype=torch.uint64)
    output = draw.floats(int(draw.queries[-1]), width)
    longest = int((draw.queries[1:] - draw.queries[:-1]).max())
    arguments = (
        *(output, output.stride(0), _layout(rows)[0], masks, lengths, draw.slots, draw.queries),
        *(draw.computed, width),
    )
    options = {"TOKEN_BLOCK": block, "BLOCK_SIZE": 8}
    return Launch((draw.rows, -(-longest // block)), arguments, options, (output, *rows, *tokens))


def _layout(tables: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return addresses and strides, as vLLM keeps them for block tables."""
    addresses = torch.tensor([table.data_ptr() for table in tables], dtype=torch.uint64)
    return addresses, torch.tensor([table.stride(0) for table in tables], dtype=torch.int64)


#: Cases by the name of the stand-in; some have two.
CASES: dict[str, tuple[Callable[[Draw], Launch], ...]] = {
    case.__name__: (case,)
    for case in (
        *(prepare_prefill_inputs, prepare_pos_seq_lens, combine_sampled_and_draft_tokens),
        *(get_num_sampled_and_rejected, post_update, expand_idx_mapping, gather_block_tables),
        *(compute_slot_mappings, temperature, min_p, gumbel_sample, bias, bincount, penalties),
        *(bad_words, topk_log_softmax, ranks, fill_logprob_token_ids, prompt_logprobs_token_ids),
        *(apply_grammar_bitmask, apply_prompt_embeds),
    )
} | {"apply_write": (apply_write, apply_write_to_groups)}
