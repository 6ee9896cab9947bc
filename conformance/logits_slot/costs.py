# SPDX-License-Identifier: Apache-2.0
"""Checks of what a step costs, by counting, and of what requests leave behind in an instance."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from conformance.findings import Finding
from conformance.logits import costs, memory
from conformance.logits.costs import Batch
from conformance.logits_slot.bench import (
    Bench,
    Watched,
    all_join,
    context,
    one_row_each,
    together,
)
from conformance.settings import Budget
from conformance.watching.leaks import Given


def start(bench: Bench, batch: Batch) -> Callable[[], None]:
    """Serve a batch, one row for each request; return the calls of its next step.

    Raises:
        PluginRaised: the plugin raised.

    """
    instance = bench.new(max(costs.SIZES), vocabulary=batch.vocabulary, trusted=True)
    requests = all_join(instance, bench, [batch.choice(row) for row in range(batch.requests)])
    logits = batch.logits(bench)
    for step in range(batch.history + costs.WARM_UP):
        result = together(requests, logits)
        for row, request in enumerate(requests):
            if bench.goes_on(batch.choice(row), request.outputs):
                said = bench.tokens[(row + step) % len(bench.tokens)]
                request.append(bench.takes(result[row], said))
    ctx = context(requests)
    # The model runner does not call apply where no request wants it.
    wanted = any(instance.answers.values())

    def again() -> None:
        with torch.inference_mode():
            instance.apply_staged_writes()
            if wanted:
                instance.apply(logits, ctx)

    return again


#: Equal tokens of a request.
REPEATED = 8

#: Tokens of a request that has only begun.
BEGUN = 2

#: What a request hands over.
NAMES = ("SamplingParams",)


def look(bench: Bench, budget: Budget) -> Finding:
    """Return what ten thousand requests leave behind in an instance."""

    def begin(requests: memory.Requests) -> tuple[object, memory.Serve]:
        # The tests of single calls look whether the plugin writes to the states.
        instance = bench.new(trusted=True)
        return instance.plugin, partial(_serve, requests, instance)

    return memory.look(bench, begin, NAMES, budget)


def _serve(
    requests: memory.Requests,
    instance: Watched,
    count: int,
    given: list[Given],
    applied: bool,  # noqa: FBT001 - the type of ``memory.Serve`` has no names
) -> int:
    """Fill all slots with new requests, again and again; return in how many steps rows changed."""
    states, acted, bench = instance.states, 0, requests.bench
    slots = torch.arange(states.max_num_reqs)
    # One token again and again, for readers of repetitions, and what others wait for.
    waited = (bench.words.phrase(0), *bench.words.prompts[:1])
    same = [0] * max(REPEATED, bench.words.longest, *map(len, waited))
    longest = 1 + len(same)
    fewest = longest - bench.lasting(longest, *bench.choices) + 1
    said = torch.tensor([same, *([*same, *each][-len(same) :] for each in waited)])
    rounds = count // states.max_num_reqs + 1
    with torch.inference_mode():
        for step in range(rounds):
            # Some plugins act on the first tokens only.
            length = longest if step % 5 else BEGUN
            states.prefill_len.np[:] = length
            states.total_len.gpu.fill_(length)
            states.all_token_ids.gpu[:, 1:length] = said[step % len(said)][: length - 1]
            # Now and then as many as can be are outputs, as of requests that are resumed.
            states.prompt_len.np[:] = length if step % 4 < 2 else min(length, fewest)  # noqa: PLR2004 - half of them
            states.prompt_len.copy_to_uva()
            for slot in range(states.max_num_reqs):
                number, params = requests.following()
                given.append((params,))
                states.all_token_ids.gpu[slot, 0] = number % bench.vocabulary
                instance.add_request(slot, params)
            instance.apply_staged_writes()
            if not applied:
                continue
            logits = bench.table[step % 80 : step % 80 + len(slots)]
            ends = torch.full((len(slots),), length - 1)
            newest = states.all_token_ids.gpu[:, length - 1].clone()
            result = instance.apply(logits.clone(), one_row_each(slots, ends, newest))
            acted += not torch.equal(result, logits)
    return acted
