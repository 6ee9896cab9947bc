# SPDX-License-Identifier: Apache-2.0
"""Ten thousand requests through one instance, answered and abandoned, and what is left of them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from conformance.findings import Finding, failed, passed
from conformance.interruption import limited
from conformance.io_processor.direct import prepared
from conformance.io_processor.parameters import asks, parsed
from conformance.leaks import Given, growing, kept, size_of
from conformance.settings import Budget

if TYPE_CHECKING:
    from vllm.outputs import PoolingRequestOutput

    from conformance.io_processor.bench import Bench
    from conformance.io_processor.trial import Trial
    from conformance.io_processor.watched import Watched

REQUESTS = {Budget.QUICK: 2_000, Budget.STANDARD: 10_000, Budget.DEEP: 10_000}

#: How often the plugin is measured, with no request in it.
MEASUREMENTS = 5

#: Of how many answered requests a plugin may still hold something.
KEPT = 16

#: Seconds for all of it: each call is as long as in any other check, there are only more.
LIMIT = 60.0

NAMES = ("data", "output")


def forgets(trial: Trial) -> Finding:
    """Nothing of answered requests is held."""
    return _look(trial, answered=True)


def abandons(trial: Trial) -> Finding:
    """What is held of requests that never came to ``post_process`` is bounded."""
    return _look(trial, answered=False)


def _look(trial: Trial, *, answered: bool) -> Finding:
    bench = trial.bench
    plugin = bench.make()
    count = REQUESTS[trial.budget]
    given: list[Given] = []
    sizes: list[int] = []
    templates = [
        (data, prepared(bench.make(), bench, data, "id-0"))
        for data in bench.stock.valid[: max(2, bench.stock.given)]
    ]
    serial = 0
    with limited(LIMIT):
        for _ in range(MEASUREMENTS):
            for _ in range(count // MEASUREMENTS):
                template = templates[serial % len(templates)]
                given.append(_serve(plugin, bench, template, f"id-{serial}", answered=answered))
                serial += 1
            plugin.calls.clear()
            sizes.append(size_of(plugin.plugin))
    held = kept(given, NAMES, KEPT) if answered else None
    if what := held or growing(sizes, count // MEASUREMENTS):
        which = "answered" if answered else "abandoned"
        return failed(f"after {count} {which} requests {what}", count)
    return passed(count, count)


def _serve(
    plugin: Watched,
    bench: Bench,
    template: tuple[Any, list[PoolingRequestOutput]],
    request_id: str,
    *,
    answered: bool,
) -> Given:
    """Serve a request, to its end or only to where its outputs would come."""
    data, outputs = template
    mine = copy.deepcopy(data)
    plugin.pre_process(prompt=parsed(plugin, bench, mine), request_id=request_id)
    asks(plugin, bench)()
    fresh = [copy.copy(output) for output in outputs]
    if answered:
        with torch.inference_mode():
            plugin.post_process(fresh, request_id=request_id)
    # A string may be anybody's.
    return (mine if isinstance(mine, dict | list) else [mine], fresh[0])
