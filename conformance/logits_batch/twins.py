# SPDX-License-Identifier: Apache-2.0
"""A request alone: what its row is to be, and what it would be with other outputs."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import torch
from vllm.sampling_params import SamplingParams

from conformance.inputs.history import Request
from conformance.logits.calls import PluginMisshapen, PluginRaised, serving
from conformance.logits.played import Kind
from conformance.logits.rows import same
from conformance.logits_batch.bench import Bench, Watched

#: Stands for a token that is sampled and has not reached the CPU.
PLACEHOLDER = -1


@attrs.define
class Twin:
    """A request alone."""

    instance: Watched
    params: SamplingParams
    prompt: list[int]
    outputs: list[int]
    started: bool = False

    def row(self, logits: torch.Tensor, shown: Sequence[list[int]] = ()) -> torch.Tensor:
        """Advance one step and return the processed row for logits ``[vocabulary]``.

        ``shown`` are the outputs as they are to be in ``update_state``, and in ``apply``.
        """
        if shown:
            self.outputs[:] = shown[0]
        if self.started:
            self.instance.update_state(None)
        else:
            self.instance.begin(self.params, self.prompt, self.outputs)
            self.started = True
        if shown:
            self.outputs[:] = shown[-1]
        row: torch.Tensor = self.instance.apply(logits.clone().unsqueeze(0))
        return row[0]


def alone(bench: Bench, request: Request) -> Twin:
    """Make an instance that is to serve a request by itself."""
    serving(request.name)
    params = bench.params(request.choice, greedy=request.greedy)
    return Twin(bench.new(), params, list(request.prompt), [])


def taken_for_last(
    bench: Bench,
    request: Request,
    outputs: Sequence[int],
    before: torch.Tensor,
    after: torch.Tensor,
) -> tuple[Kind, str, torch.Tensor] | None:
    """Tell whether -1 counts as the last token of the vocabulary, as an index of Python's does.

    That is so where the last token's logit becomes what it becomes if that token stands in place
    of the placeholders, and does not if any of some others does: two that the logits favour, and
    two that they do not.

    Args:
        bench: the plugin with what it is tried on.
        request: whose row it is.
        outputs: as the plugin found them in ``apply``.
        before: the row ``[vocabulary]`` as the model gave it.
        after: the row as the plugin left it.

    Returns:
        What went wrong, the sentence for it, and the row with that token's logit as it is to be;
        None where -1 is not taken for it.

    """
    last = bench.vocabulary - 1
    if PLACEHOLDER not in outputs or after[last] == before[last]:
        return None
    favoured = [token for token in bench.words.tokens if token != last]
    others = [*favoured[:2], last - 1, last - 2]
    rows = []
    try:
        for token in (*others, last):  # that of the last one is what a program compares
            twin = alone(bench, request)
            twin.outputs += [token if each == PLACEHOLDER else each for each in outputs]
            rows.append(twin.row(before))
            bench.retire(twin.instance, 1)
    except (PluginRaised, PluginMisshapen):
        return None  # it is not what the plugin does to -1
    *plain, taken = rows
    if not same(after, taken) or any(row[last] == taken[last] for row in plain):
        return None
    expected = after.clone()
    expected[last] = plain[0][last]
    message = "-1 among its outputs does to the row what the last token of the vocabulary does"
    return Kind.PLACEHOLDER, message, expected
