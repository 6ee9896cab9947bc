# SPDX-License-Identifier: Apache-2.0
"""Checks of what a step costs, by counting: idle, as the batch grows, and in memory."""

from __future__ import annotations

from collections.abc import Callable

from vllm.v1.sample.logits_processor import BatchUpdate

from conformance.findings import Finding, failed
from conformance.interruption import limited
from conformance.logits import costs
from conformance.logits.calls import call
from conformance.logits.configuration import vllm_config
from conformance.logits.costs import Batch
from conformance.logits.trial import Trial
from conformance.logits_batch import host
from conformance.logits_batch.bench import Bench, Watched
from conformance.verdict import Verdict

#: Requests of an idle batch, when it is large.
MANY = 128


def idles(trial: Trial) -> Finding:
    """LB-35: where nobody opts in, a large batch costs what a small one does."""
    bench: Bench = trial.bench
    # Others that change nothing may have to be followed all the same.
    off = tuple(choice for choice, keywords in bench.parameters.items() if not keywords)
    if not off or off[0][0] == "on" or not trial.parameters.on:
        return Finding(Verdict.NOT_APPLICABLE, message="the plugin has no opt-in")
    with limited(costs.LIMIT):
        small, large = (
            costs.counted(bench, start, costs.Batch(off, bench.vocabulary, requests))
            for requests in (costs.FEW, MANY)
        )
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
    outputs = batch.outputs(bench)
    added = [
        (row, bench.params(batch.choice(row)), bench.prompt, outputs[row])
        for row in range(batch.requests)
    ]
    logits = batch.logits(bench)
    for step in range(costs.WARM_UP):
        instance.update_state(None if step else BatchUpdate(batch.requests, [], added, []))
        instance.apply(logits.clone())
        for row, tokens in enumerate(outputs):
            if bench.goes_on(batch.choice(row), tokens):
                tokens.append(bench.tokens[(row + step) % len(bench.tokens)])

    def again() -> None:
        instance.update_state(None)
        instance.apply(logits)

    return again
