# SPDX-License-Identifier: Apache-2.0
"""Checks of what a step costs, by counting, and of what requests leave behind in an instance."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate

from conformance.findings import Finding, failed
from conformance.logits import costs, memory
from conformance.logits.calls import PluginRaised, call
from conformance.logits.configuration import MAX_REQUESTS, vllm_config
from conformance.logits.costs import Batch
from conformance.logits.findings import refused
from conformance.logits.requests import LAST_SPECIAL, Stock
from conformance.logits.trial import Trial
from conformance.logits_batch import host
from conformance.logits_batch.bench import Bench, Watched, all_join, all_leave
from conformance.settings import Budget
from conformance.verdict import Verdict
from conformance.watching.interruption import limited
from conformance.watching.leaks import Given

#: Requests of an idle batch, when it is large.
MANY = 128


def idles(trial: Trial) -> Finding:
    """LB-35: where nobody opts in, a large batch costs what a small one does."""
    bench: Bench = trial.bench
    # Others that change nothing may have to be followed all the same.
    off = tuple(choice for choice, keywords in bench.parameters.items() if not keywords)
    if not off or off[0][0] == "on" or not trial.parameters.on:
        return Finding(Verdict.NOT_APPLICABLE, message="the plugin has no opt-in")
    try:
        with limited(costs.LIMIT):
            small, large = (
                costs.counted(bench, start, costs.Batch(off, bench.vocabulary, requests))
                for requests in (costs.FEW, MANY)
            )
    except PluginRaised as error:
        return refused(error, max(costs.SIZES))
    if large > small * costs.MOST_LONGER + costs.NOISE:
        return failed(
            f"a step in which no request opts in executes {large} instructions of Python with "
            f"{MANY} requests, and {small} with {costs.FEW}",
            2,
        )
    return Finding(Verdict.PASS, 2, 2)


def start(bench: Bench, batch: Batch) -> Callable[[], None]:
    """Serve a batch, one request in each row; return the calls of its next step.

    Raises:
        PluginRaised: the plugin raised.

    """
    config = vllm_config(bench.model, max(costs.SIZES), batch.vocabulary)
    instance = Watched(call("__init__", bench.plugin, config, host.CPU, False))  # noqa: FBT003 - as vLLM calls it
    joined, outputs = all_join(bench, [batch.choice(row) for row in range(batch.requests)])
    logits = batch.logits(bench)
    for step in range(batch.history + costs.WARM_UP):
        instance.update_state(None if step else joined)
        result = instance.apply(logits.clone())
        for row, tokens in enumerate(outputs):
            if bench.goes_on(batch.choice(row), tokens):
                said = bench.tokens[(row + step) % len(bench.tokens)]
                tokens.append(bench.takes(result[row], said))

    def again() -> None:
        instance.update_state(None)
        instance.apply(logits)

    return again


#: What a request hands over.
NAMES = ("SamplingParams", "prompt token ids", "output token ids")

#: Most of the rows change hands in every step. The others stay for as many steps as it takes to
#: have an effect that comes late.
LEAVING = MAX_REQUESTS - 2
LONG = 12


def look(bench: Bench, budget: Budget) -> Finding:
    """Return what ten thousand requests leave behind in an instance."""

    def begin(requests: memory.Requests) -> tuple[object, memory.Serve]:
        instance = bench.new()
        return instance.plugin, partial(_serve, requests, instance)

    return memory.look(bench, begin, NAMES, budget)


def _serve(
    requests: memory.Requests,
    instance: Watched,
    count: int,
    given: list[Given],
    applied: bool,  # noqa: FBT001 - the type of ``memory.Serve`` has no names
) -> int:
    """Take requests through an empty batch and out again; return in how many steps rows changed.

    All rows are kept busy: those that leave are replaced at once, as an engine with a queue does.
    """
    acted, bench = 0, requests.bench
    live: list[tuple[SamplingParams, list[int], list[int]]] = []
    long = bench.served(LONG + bench.words.longest, *bench.choices)
    for step in range(count // LEAVING + 1):
        added = []
        for index in range(LEAVING if step % long else MAX_REQUESTS):
            request = _request(bench, *requests.following())
            given.append(request)
            live[index : index + 1] = [request]
            added.append((index, *request))
        instance.update_state(BatchUpdate(MAX_REQUESTS, [], added, []))
        result = None
        if applied:
            start = step * 3 % (len(bench.table) - MAX_REQUESTS)
            logits = bench.masking.unmasked(range(start, start + MAX_REQUESTS))
            result = instance.apply(logits.clone())
            acted += not torch.equal(result, logits)
        for row, (_, _, outputs) in enumerate(live):
            # Those that stay say the likeliest phrases first.
            said = bench.words.saying(row - LEAVING + step // long)
            token = said[len(outputs) % len(said)]
            outputs.append(token if result is None else bench.takes(result[row], token))
    instance.update_state(all_leave(MAX_REQUESTS))
    instance.update_state(None)
    return acted


def _request(
    bench: Stock, number: int, params: SamplingParams
) -> tuple[SamplingParams, list[int], list[int]]:
    """Return what the request with a number hands over: no two have the same prompt."""
    high, low = divmod(number, bench.vocabulary - LAST_SPECIAL - 1)
    token = bench.tokens[number % len(bench.tokens)]
    own = [token, LAST_SPECIAL + 1 + low, LAST_SPECIAL + 1 + high]
    return params, [*own, *bench.words.phrase(number), *bench.words.prompt(number)], []
