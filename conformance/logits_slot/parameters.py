# SPDX-License-Identifier: Apache-2.0
"""How a slot logits processor is watched, and one request of it alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import torch
from vllm.sampling_params import SamplingParams

from conformance.inputs.history import Choice
from conformance.logits.calls import PluginMisshapen, PluginRaised
from conformance.logits.configuration import MAX_REQUESTS, ROOM
from conformance.logits.waiting import Observed
from conformance.logits.watching import attributes
from conformance.logits_slot.bench import Alone, Bench, Watched, together

#: What holds tokens of requests.
_TOKENS = {"all_token_ids", "input_ids", "last_sampled_tokens", "draft_tokens", "prompt_token_ids"}


def begin(instance: Watched, params: SamplingParams) -> None:
    """Give a request to an instance."""
    Alone(instance, params, [7, 11]).begin()


def rows_alone(
    bench: Bench,
    choice: Choice,
    steps: int,
    tokens: Sequence[int] = (),
    *,
    prompt: Sequence[int] = (),
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
        tokens: its outputs, in turn; default: those of the bench that its rows allow.
        prompt: its prompt, if not two tokens of the bench.
        turned: whether the buffers of the states are turned over before each step, as happens
            when others are added.
        prepare: what happens to the instance before the request comes.
        masked: tokens that are masked in each row, a bool ``[vocabulary]``.

    Raises:
        PluginRaised: the plugin raised.

    """
    instance = bench.new()
    prepare(instance)
    prompt = prompt or bench.prompt
    alone = Alone(instance, bench.params(choice), prompt, turned=turned)
    for step in range(bench.served(steps, choice, prompt=prompt)):
        before = bench.given(step)
        if masked is not None:
            before = before.masked_fill(masked, -torch.inf)
        after = alone.row(before[0])
        taken = bench.takes(after, bench.words.said(step))
        yield before, after.unsqueeze(0)
        alone.append(tokens[step % len(tokens)] if tokens else taken)
    bench.retire(instance)


def rows_in_all_slots(
    bench: Bench,
    choice: Choice,
    steps: int,
    tokens: Sequence[int] = (),
    *,
    prompt: Sequence[int] = (),
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Run the same request in every slot, and yield the rows of each step before and after.

    A plugin that takes rows for slots may do nothing for a request alone, which has the last slot
    and the first row.
    """
    instance = bench.new()
    params, prompt = bench.params(choice), prompt or bench.prompt
    names = map(str, range(MAX_REQUESTS))
    requests = [Alone(instance, params, prompt, name=name) for name in names]
    for request in requests:
        request.begin()
    for step in range(bench.served(steps, choice, prompt=prompt)):
        before = bench.given(step).expand(len(requests), -1)
        after = together(requests, before)
        taken = [bench.takes(row, bench.words.said(step)) for row in after]
        yield before, after
        for request, token in zip(requests, taken, strict=True):
            request.append(tokens[step % len(tokens)] if tokens else token)
    bench.retire(instance)


def observe(bench: Bench, choice: Choice) -> Observed:
    """Serve requests alone, and say what the instance of the last one holds then."""
    *_, instance = (_served(bench, choice, piece) for piece in bench.words.pieces(ROOM))
    return Observed(instance.plugin, [], (instance.states,), _reads_tokens(bench.plugin))


def _served(bench: Bench, choice: Choice, script: Sequence[int]) -> Watched:
    """Return an instance that has served a request with this prompt, and outputs like it."""
    instance = bench.new()
    alone = Alone(instance, bench.params(choice), script)
    with suppress(PluginRaised, PluginMisshapen):
        for step, token in enumerate(script[: bench.lasting(len(script), choice)]):
            alone.row(bench.given(step)[0])
            alone.append(token)
    return instance


def _reads_tokens(plugin: type) -> bool:
    """Tell whether the source of a plugin names anything that holds tokens."""
    own = (base for base in plugin.__mro__ if base.__module__.partition(".")[0] != "vllm")
    return any(not _TOKENS.isdisjoint(attributes(base)) for base in own)
