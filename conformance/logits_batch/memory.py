# SPDX-License-Identifier: Apache-2.0
"""Check LB-27: ten thousand requests through the rows of one instance."""

from __future__ import annotations

from functools import partial

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate

from conformance.findings import Finding
from conformance.leaks import Given
from conformance.logits import memory
from conformance.logits.configuration import MAX_REQUESTS
from conformance.logits.requests import LAST_SPECIAL
from conformance.logits_batch.bench import Bench, Watched
from conformance.settings import Budget

#: What a request hands over.
NAMES = ("SamplingParams", "prompt token ids", "output token ids")

#: Most of the rows change hands in every step. The others stay for as many steps as it takes to
#: have an effect that comes late.
LEAVING = MAX_REQUESTS - 2
LONG = 12


def look(bench: Bench, budget: Budget) -> Finding:
    """Return what ten thousand requests leave behind in an instance."""
    instance = bench.new()
    return memory.look(instance.plugin, partial(_serve, bench, instance), NAMES, budget)


def _serve(
    bench: Bench,
    instance: Watched,
    count: int,
    given: list[Given],
    applied: bool,  # noqa: FBT001
) -> int:
    """Take requests through an empty batch and out again; return in how many steps rows changed.

    All rows are kept busy: those that leave are replaced at once, as an engine with a queue does.
    """
    acted = 0
    live: list[tuple[SamplingParams, list[int], list[int]]] = []
    long = bench.lasting(LONG, *bench.choices)
    for step in range(count // LEAVING + 1):
        added = []
        for index in range(LEAVING if step % long else MAX_REQUESTS):
            request = _request(bench, len(given))
            given.append(request)
            live[index : index + 1] = [request]
            added.append((index, *request))
        instance.update_state(BatchUpdate(MAX_REQUESTS, [], added, []))
        if applied:
            start = step * 3 % (len(bench.table) - MAX_REQUESTS)
            logits = bench.table[start : start + MAX_REQUESTS]
            acted += not torch.equal(instance.apply(logits.clone()), logits)
        for row, (_, _, outputs) in enumerate(live):
            said = bench.words.saying(row + step // long)
            outputs.append(said[len(outputs) % len(said)])
    instance.update_state(BatchUpdate(0, list(range(MAX_REQUESTS - 1, -1, -1)), [], []))
    instance.update_state(None)
    return acted


def _request(bench: Bench, number: int) -> tuple[SamplingParams, list[int], list[int]]:
    """Return what the request with a number hands over: no two have the same prompt."""
    choice = bench.choices[number % len(bench.choices)]
    params = bench.params(choice)
    if bench.most(choice) is None and params.max_tokens is not None:
        params.max_tokens += number
    high, low = divmod(number, bench.vocabulary - LAST_SPECIAL - 1)
    token = bench.tokens[number % len(bench.tokens)]
    own = [token, LAST_SPECIAL + 1 + low, LAST_SPECIAL + 1 + high]
    return params, [*own, *bench.words.phrase(number)], []
