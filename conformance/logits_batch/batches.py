# SPDX-License-Identifier: Apache-2.0
"""Checks about a batch as a whole: idle, laid out with padding, as full as it may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from vllm.v1.sample.logits_processor import BatchUpdate

from conformance.logits_batch import host
from conformance.logits_batch.bench import PluginRaised, Watched, call, limited
from conformance.logits_batch.checks import Finding, failed, passed
from conformance.logits_batch.play import differing, same
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm.v1.sample.logits_processor import LogitsProcessor

    from conformance.history import Choice
    from conformance.logits_batch.bench import Bench
    from conformance.logits_batch.simulator import Trial

#: Rows of logits in memory are this much longer than the vocabulary, as vLLM pads it to 64.
PADDING = 12

#: A batch far larger than those of the histories, in an engine that allows it.
FULL = 300
MAX_FULL = 512


def comes_back(trial: Trial) -> Finding:
    """LB-28: where nobody opted in, ``apply`` returns its argument and does not work on it."""
    bench = trial.bench
    off = [choice for choice in bench.parameters if choice[0] == "off"]
    if not off or not trial.parameters.on:
        return Finding(Verdict.NOT_APPLICABLE, message="the plugin has no opt-in")
    on = next(choice for choice in bench.parameters if choice[0] == "on")
    instance = bench.new()
    with limited():
        for examples, (when, before) in enumerate(
            (("from the start", ()), ("after one that did has finished", (on,))), 1
        ):
            if before:
                _serve(bench, instance, before)
                instance.apply(bench.table[:1].clone())
                instance.update_state(BatchUpdate(0, [0], [], []))
            _serve(bench, instance, off)
            logits = bench.table[: len(off)].clone()
            with _FullRows(logits) as work:
                result = instance.apply(logits)
            instance.update_state(BatchUpdate(0, list(range(len(off) - 1, -1, -1)), [], []))
            if not _same_memory(result, logits):
                return failed(
                    f"with no opted-in request in the batch ({when}), apply returns another "
                    "tensor than it was given",
                    examples,
                )
            if work.operations:
                return failed(
                    f"with no opted-in request in the batch ({when}), apply works on all logits: "
                    f"{', '.join(dict.fromkeys(work.operations))}",
                    examples,
                )
    return Finding(Verdict.PASS, examples, examples)


class _FullRows(TorchDispatchMode):
    """Notes the operations that read or write as many numbers as the logits have."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.size = logits.numel()
        self.operations: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204 - torch's signature
        result = function(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        # A view costs nothing, and neither does an index that selects nothing.
        if not function.is_view and any(t.numel() == self.size for t in tensors):
            empty = any(t.numel() == 0 for t in tensors)
            if not empty:
                self.operations.append(str(function.overloadpacket))
        return result


def takes_views(trial: Trial) -> Finding:
    """LB-29: rows with padding behind them, in inference mode, give what plain tensors give."""
    bench = trial.bench
    acted = 0
    choices = list(bench.parameters)
    for examples, steps in enumerate((1, 3), 1):
        with limited():
            plain = _rows(bench, choices, steps, torch.Tensor.clone)
            padded = _rows(bench, choices, steps, _padded)
        if isinstance(plain, PluginRaised):
            if not minds_inference_mode(bench):
                raise plain  # not about how logits are handed over
            return failed(f"under torch.inference_mode, in which engines run, {plain}", examples)
        if isinstance(padded, PluginRaised):
            return failed(
                f"for logits that are a view (shape [{len(choices)}, {bench.vocabulary}], stride "
                f"({bench.vocabulary + PADDING}, 1)) {padded}",
                examples,
            )
        acted += not torch.equal(plain, bench.table[: len(choices)])
        if not same(padded, plain):
            row = next(row for row in range(len(choices)) if not same(padded[row], plain[row]))
            token, got, expected = differing(padded[row], plain[row])[0]
            return failed(
                f"for logits that are a view row {row} differs: token {token} is {got:.5g}, "
                f"expected {expected:.5g} as for logits that are not",
                examples,
            )
    return passed(examples, acted)


def minds_inference_mode(bench: Bench) -> bool:
    """Tell whether the plugin raises in inference mode, and only there."""
    choices = list(bench.parameters)
    with limited():
        inside = _rows(bench, choices, 3, torch.Tensor.clone)
        outside = _rows(bench, choices, 3, torch.Tensor.clone, inference=False)
    return isinstance(inside, PluginRaised) and not isinstance(outside, PluginRaised)


def serves_full_batches(trial: Trial) -> Finding:
    """LB-30: the rows of a batch of hundreds are those of a batch of a few."""
    bench = trial.bench
    choices = list(bench.parameters)
    config = host.vllm_config(bench.model, MAX_FULL)
    with limited():
        arguments = (config, host.CPU, False)
        instance = Watched(call("__init__", bench.plugin, *arguments))
        small = _rows(bench, choices, 2, torch.Tensor.clone)
        if isinstance(small, PluginRaised):
            raise small
        try:
            rows = [choices[row % len(choices)] for row in range(FULL)]
            lists = _serve(bench, instance, rows)
            logits = result = bench.table[torch.arange(FULL) % len(choices)]
            for step in range(2):
                if step:
                    instance.update_state(None)
                result = instance.apply(logits.clone())
                for outputs in lists:
                    outputs.append(bench.tokens[step])
        except PluginRaised as error:
            return failed(f"with {FULL} requests and max_num_seqs={MAX_FULL}, {error}")
    for row in range(FULL):
        expected = small[row % len(choices)]
        if not same(result[row], expected):
            token, got, wanted = differing(result[row], expected)[0]
            return failed(
                f"row {row} of {FULL} (max_num_seqs={MAX_FULL}) differs: token {token} is "
                f"{got:.5g}, expected {wanted:.5g} as in a batch of {len(choices)}",
            )
    return passed(1, int(not torch.equal(result, logits)))


def _rows(
    bench: Bench,
    choices: list[Choice],
    steps: int,
    layout: Callable[[torch.Tensor], torch.Tensor],
    *,
    inference: bool = True,
) -> torch.Tensor | PluginRaised:
    """Return the rows of the last of some steps with one request for each choice."""
    instance = Watched(bench.new().plugin, inference=inference)
    result = bench.table[:0]
    try:
        lists = _serve(bench, instance, choices)
        for step in range(steps):
            if step:
                instance.update_state(None)
            logits = layout(bench.table[: len(choices)])
            result = instance.apply(logits)
            for outputs in lists:
                outputs.append(bench.tokens[step])
    except PluginRaised as error:
        return error
    bench.retire(instance, len(choices))
    return result


def _serve(bench: Bench, instance: LogitsProcessor, choices: Sequence[Choice]) -> list[list[int]]:
    """Fill an empty batch with a request for each choice; return their output lists."""
    lists = [list[int]() for _ in choices]
    added = [
        (row, bench.params(choice), [bench.tokens[0]], lists[row])
        for row, choice in enumerate(choices)
    ]
    instance.update_state(BatchUpdate(len(choices), [], added, []))
    return lists


def _padded(logits: torch.Tensor) -> torch.Tensor:
    """Return logits as a view of longer rows."""
    longer = torch.full((logits.shape[0], logits.shape[1] + PADDING), -torch.inf)
    longer[:, : logits.shape[1]] = logits
    return longer[:, : logits.shape[1]]


def _same_memory(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first is second or (
        first.data_ptr() == second.data_ptr()
        and first.shape == second.shape
        and first.stride() == second.stride()
    )
