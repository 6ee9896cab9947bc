# SPDX-License-Identifier: Apache-2.0
"""How a batch logits processor is watched, and one request of it alone."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from conformance.logits import parameters
from conformance.logits.calls import PluginHung, PluginMisshapen, PluginRaised, call, limited
from conformance.logits.parameters import WATCH_LIMIT, WATCHED_STEPS, Parameters, Read
from conformance.logits_batch.bench import Bench
from conformance.settings import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor

    from conformance.history import Choice
    from conformance.logits.parameters import Keywords


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
    return parameters.find_or_less(
        section,
        origin=origin,
        seed=seed,
        watch=partial(_watch, plugin, model, seed),
        acts=partial(_acts, plugin, model, seed),
    )


def _watch(plugin: type[LogitsProcessor], model: str, seed: int) -> Read:
    bench = Bench(plugin, model, {("off", 0): {}}, seed)
    read = Read((), ())
    with suppress(PluginRaised, PluginHung), limited():
        instance = bench.new()
        with parameters.watching() as watched:
            try:
                with suppress(PluginRaised):
                    call("validate_params", plugin.validate_params, watched.params)
                instance.begin(watched.params, [7, 11], [])
            finally:
                read = watched.read()
    return read


def _acts(plugin: type[LogitsProcessor], model: str, seed: int, keywords: Keywords) -> bool:
    """Tell whether a request with these parameters, alone, ever gets a changed row."""
    try:
        bench = Bench(plugin, model, {("on", 0): keywords}, seed)
        with limited(WATCH_LIMIT):
            call("validate_params", plugin.validate_params, bench.params(("on", 0)))
            return any(
                not torch.equal(before, after)
                for before, after in rows_alone(bench, ("on", 0), WATCHED_STEPS)
            )
    except (PluginHung, PluginMisshapen):
        return True  # a request that the plugin hangs or answers wrongly for has switched it on
    except (PluginRaised, UsageError):
        return False


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
