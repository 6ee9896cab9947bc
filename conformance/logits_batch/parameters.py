# SPDX-License-Identifier: Apache-2.0
"""How a batch logits processor is watched, and one request of it alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate

from conformance.inputs.history import Choice
from conformance.logits.calls import PluginMisshapen, PluginRaised
from conformance.logits.configuration import ROOM
from conformance.logits.waiting import Observed, Token, TokenList
from conformance.logits_batch.bench import Bench, Watched


def begin(instance: Watched, params: SamplingParams) -> None:
    """Give a request to an instance."""
    instance.begin(params, [7, 11], [])


def rows_alone(
    bench: Bench,
    choice: Choice,
    steps: int,
    tokens: Sequence[int] = (),
    *,
    prompt: Sequence[int] = (),
    quiet: BatchUpdate | None = None,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Run one request alone and yield its logits before and after, ``[1, vocabulary]`` each.

    The request gets the tokens in turn as its outputs (default: those of the bench that its rows
    allow);
    the logits depend on the step only, so that other tokens mean other outputs and no more.
    Its prompt are two tokens of the bench, unless one is given.
    ``quiet`` is what ``update_state`` gets after the first step; an engine sends None.

    Raises:
        PluginRaised: the plugin raised.

    """
    instance = bench.new()
    outputs: list[int] = []
    prompt = prompt or bench.prompt
    instance.begin(bench.params(choice), list(prompt), outputs)
    for step in range(bench.served(steps, choice, prompt=prompt)):
        if step:
            instance.update_state(quiet)
        before = bench.given(step)
        after = instance.apply(before.clone())
        taken = bench.takes(after[0], bench.words.said(step))
        yield before, after
        outputs.append(tokens[step % len(tokens)] if tokens else taken)
    bench.retire(instance, 1)


def observe(bench: Bench, choice: Choice) -> Observed:
    """Serve requests alone whose tokens note what they are compared with."""
    read: set[str] = set()
    compared: list[int] = []
    served = [
        _served(bench, choice, [Token(token, compared) for token in piece], read)
        for piece in bench.words.pieces(ROOM)
    ]
    given = tuple(tokens for _, *request in served for tokens in request)
    return Observed(served[-1][0].plugin, compared, given, bool(read))


def _served(
    bench: Bench, choice: Choice, script: Sequence[Token], read: set[str]
) -> tuple[Watched, TokenList, TokenList]:
    """Return an instance that has served a request, and the lists that it was given."""
    prompt = TokenList([*script, *script[:1]], "prompt", read)
    outputs = TokenList([], "outputs", read)
    instance = bench.new()
    with suppress(PluginRaised, PluginMisshapen):
        instance.begin(bench.params(choice), prompt, outputs)
        for step, token in enumerate(script[: bench.lasting(len(script), choice)]):
            if step:
                instance.update_state(None)
            instance.apply(bench.given(step).clone())
            outputs.append(token)
        # Whoever copies the list sees tokens in that of a request that is resumed.
        resumed = bench.new()
        resumed.begin(bench.params(choice), prompt, TokenList(script, "outputs", read))
        resumed.apply(bench.table[:1].clone())
    return instance, prompt, outputs
