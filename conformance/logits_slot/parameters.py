# SPDX-License-Identifier: Apache-2.0
"""How a slot logits processor is watched, and one request of it alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from conformance.logits import parameters
from conformance.logits_slot.bench import Alone, Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor

    from conformance.history import Choice
    from conformance.logits.parameters import Parameters
    from conformance.logits_slot.bench import Watched


def find(
    plugin: type[LogitsProcessor],
    section: Mapping[str, Any],
    *,
    origin: str | None,
    model: str,
    seed: int,
) -> Parameters:
    """Return the parameters a plugin is tried with, whatever the plugin does meanwhile.

    Raises:
        UsageError: the profile's keywords are not those of ``SamplingParams``.

    """
    tried = parameters.Tried(
        plugin,
        bench=lambda sets: Bench(plugin, model, sets, seed),
        begin=lambda instance, params: Alone(instance, params, [7, 11]).begin(),
        rows_alone=rows_alone,
    )
    return parameters.find(section, origin=origin, seed=seed, tried=tried)


def rows_alone(
    bench: Bench,
    choice: Choice,
    steps: int,
    *,
    turned: bool = False,
    prepare: Callable[[Watched], None] = lambda _: None,
    masked: torch.Tensor | None = None,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Run one request alone and yield its logits before and after, ``[1, vocabulary]`` each.

    The request gets the tokens of the bench in turn as its outputs; the logits depend on the
    step only.

    Args:
        bench: the plugin.
        choice: the parameter set of the request.
        steps: how many rows.
        turned: whether the buffers of the states are turned over before each step, as happens
            when others are added.
        prepare: what happens to the instance before the request comes.
        masked: tokens that are masked in each row, a bool ``[vocabulary]``.

    Raises:
        PluginRaised: the plugin raised.

    """
    instance = bench.new()
    prepare(instance)
    prompt = [bench.tokens[0], bench.tokens[-1]]
    alone = Alone(instance, bench.params(choice), prompt, turned=turned)
    for step in range(steps):
        before = bench.table[step : step + 1]
        if masked is not None:
            before = before.masked_fill(masked, -torch.inf)
        yield before, alone.row(before[0]).unsqueeze(0)
        alone.append(bench.tokens[step % len(bench.tokens)])
    bench.retire(instance)
