# SPDX-License-Identifier: Apache-2.0
"""Jobs that compare operations computed with torch with those that vLLM has compiled for a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import vllm._custom_ops  # noqa: F401 - imports the kernels that there are

from conformance.foreign_build.operations import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

#: Requests by their computed tokens and those of the step.
REQUESTS = ((0, 7), (40, 1), (0, 1), (33, 21), (5, 2))
BLOCK, HEADS, KEY_HEADS, SIZE = 32, 4, 2, 32


def compare(connection: Connection, name: str) -> None:
    """Answer with what both give for an operation, as lists."""
    connection.recv()
    compiled, (_, ours) = getattr(torch.ops._C, name), OPERATIONS[name]
    connection.send([_CASES[name](operation) for operation in (compiled, ours)])


def schemas(connection: Connection, names: list[str]) -> None:
    """Answer with the schemas of the compiled operations, and with those of ours."""
    connection.recv()
    theirs = {name: str(getattr(torch.ops._C, name).default._schema) for name in names}
    connection.send((theirs, {name: f"_C::{name}{OPERATIONS[name][0]}" for name in names}))


def _greedy(operation: Callable[..., torch.Tensor]) -> Any:  # noqa: ANN401 - lists of numbers
    infinity, nan = float("inf"), float("nan")
    special = [[1.0, 3, 3, 2], [-infinity] * 4, [0, 0, -0.0, 0], [1, nan, 5, nan], [infinity] * 4]
    drawn = torch.randint(-3, 3, (64, 33), generator=torch.Generator().manual_seed(1)).float()
    return [operation(each).tolist() for each in (torch.tensor(special), drawn, drawn[:, 3:20])]


def _drawn(operation: Callable[..., torch.Tensor]) -> Any:  # noqa: ANN401 - as above
    """How often each of three tokens is drawn, to a tenth; the same seed draws the same."""
    rows = torch.tensor([0.7, 0.2, 0.1]).log().expand(4000, 3).contiguous()
    seeds = torch.arange(4000)
    tokens = operation(rows, seeds)
    assert torch.equal(tokens, operation(rows, seeds))
    return [round(float(part), 1) for part in tokens.bincount(minlength=3) / 4000]


def _slots(operation: Callable[..., None]) -> Any:  # noqa: ANN401 - as above
    starts, positions, table = _batch()
    slots = torch.full((40,), -7, dtype=torch.int64)
    operation(starts, positions, table, slots, BLOCK)
    return slots.tolist()


def _attended(operation: Callable[..., None]) -> Any:  # noqa: ANN401 - as above
    """What tokens attend to, with caches that the operation's own companions have filled."""
    ours = operation is OPERATIONS["cpu_attention_with_kv_cache"][1]

    def call(name: str, *arguments: Any) -> Any:  # noqa: ANN401 - an operation's
        of_vllm = getattr(torch.ops._C, name)
        return (OPERATIONS[name][1] if ours else of_vllm)(*arguments)

    generator = torch.Generator().manual_seed(2)
    whole = [sum(request) for request in REQUESTS]
    starts, _, table = _batch()
    cache = torch.zeros(16, KEY_HEADS, 2 * BLOCK, SIZE)
    keys, values = cache.chunk(2, dim=2)
    for row, length in enumerate(whole):
        places = torch.arange(length)
        slots = table[row, places // BLOCK] * BLOCK + places % BLOCK
        pair = torch.randn(2, length, KEY_HEADS, SIZE, generator=generator)
        call("cpu_attn_reshape_and_cache", *pair, keys, values, slots.long(), "vec")
    query = torch.randn(int(starts[-1]), HEADS, SIZE, generator=generator)
    lengths = torch.tensor(whole, dtype=torch.int32)
    found = []
    for causal, window, softcap in (
        (True, -1, 0.0),
        (False, -1, 0.0),
        (True, 9, 0.0),
        (True, -1, 2.0),
    ):
        shape = (len(REQUESTS), HEADS, KEY_HEADS, SIZE)
        metadata = call(
            "get_scheduler_metadata", *shape, lengths, torch.float32, starts, causal, window,
            "vec", False, None, "auto",
        )  # fmt: skip
        output = torch.zeros_like(query)
        operation(
            query, keys, values, output, starts, lengths, 0.2, causal, None, window, table,
            softcap, metadata, None, None, 1.0, 1.0, "auto",
        )  # fmt: skip
        found.append(output.tolist())
    return found


def _batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return where requests start, the positions of their tokens, and the blocks they have."""
    counts = torch.tensor([count for _, count in REQUESTS])
    starts = torch.cat((torch.zeros(1), counts.cumsum(0))).int()
    positions = torch.cat([torch.arange(done, done + count) for done, count in REQUESTS])
    table = torch.randperm(16, generator=torch.Generator().manual_seed(3))[:15].view(5, 3).int()
    return starts, positions, table


_CASES: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "greedy_argmax": _greedy,
    "fused_gumbel_argmax": _drawn,
    "compute_slot_mapping_kernel_impl": _slots,
    "cpu_attention_with_kv_cache": _attended,
}
