# SPDX-License-Identifier: Apache-2.0
"""How a batch logits processor is watched, and one request of it alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conformance.logits import parameters
from conformance.logits_batch.bench import Bench

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch
    from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor

    from conformance.history import Choice
    from conformance.logits.parameters import Parameters


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
        begin=lambda instance, params: instance.begin(params, [7, 11], []),
        rows_alone=rows_alone,
    )
    return parameters.find(section, origin=origin, seed=seed, tried=tried)


def rows_alone(
    bench: Bench,
    choice: Choice,
    steps: int,
    tokens: Sequence[int] = (),
    *,
    quiet: BatchUpdate | None = None,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Run one request alone and yield its logits before and after, ``[1, vocabulary]`` each.

    The request gets the tokens in turn as its outputs (default: those of the bench);
    the logits depend on the step only, so that other tokens mean other outputs and no more.
    ``quiet`` is what ``update_state`` gets after the first step; an engine sends None.

    Raises:
        PluginRaised: the plugin raised.

    """
    tokens = tokens or bench.tokens
    instance = bench.new()
    outputs: list[int] = []
    instance.begin(bench.params(choice), [bench.tokens[0], bench.tokens[-1]], outputs)
    for step in range(steps):
        if step:
            instance.update_state(quiet)
        before = bench.table[step : step + 1]
        yield before, instance.apply(before.clone())
        outputs.append(tokens[step % len(tokens)])
    bench.retire(instance, 1)
