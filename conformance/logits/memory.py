# SPDX-License-Identifier: Apache-2.0
"""Ten thousand requests through one instance, and what is left of them."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from conformance.findings import Finding, failed, passed
from conformance.logits.configuration import MAX_REQUESTS
from conformance.logits.trial import Trial
from conformance.settings import Budget
from conformance.watching.interruption import limited
from conformance.watching.leaks import LAST, Given, growing, kept, open_files, size_of, threads

#: Serves so many requests, all finished in the end, with ``apply`` or without; notes what each
#: handed over; returns in how many steps rows changed.
Serve = Callable[[int, list[Given], bool], int]

REQUESTS = {Budget.QUICK: 2_000, Budget.STANDARD: 10_000, Budget.DEEP: 10_000}

#: One part in so many of the requests in each round without ``apply``.
IDLE = 10

#: The first requests, after which libraries have started what they start, and then as many more.
FIRST = 200

#: How often the plugin is measured, with no request in it.
MEASUREMENTS = 5

#: A plugin may keep what it was last given until something else takes its place.
KEPT = 2 * MAX_REQUESTS

#: Seconds for all of it: each call is as long as in any other check, there are only more.
LIMIT = 60.0


def forgets(trial: Trial) -> Finding:
    """Nothing of finished requests is kept, and nothing grows."""
    return trial.leaks or trial.contract.look(trial.bench, trial.budget)


def look(plugin: object, serve: Serve, names: tuple[str, ...], budget: Budget) -> Finding:
    """Return what is found of an instance."""
    count = REQUESTS[budget]
    given: list[Given] = []
    sizes: list[int] = []
    acted, files = 0, open_files()
    with limited(LIMIT):
        serve(FIRST, given, True)  # noqa: FBT003 - with apply
        before = threads()
        serve(FIRST, given, True)  # noqa: FBT003 - with apply
        if (left := threads() - before) > KEPT:
            said = f"{left} threads that {FIRST} finished requests started still run"
            return attrs.evolve(failed(said, FIRST), exhausts=True)
        for _ in range(MEASUREMENTS):
            acted += serve(count // MEASUREMENTS, given, True)  # noqa: FBT003 - with apply
            sizes.append(size_of(plugin))
            if (left := open_files() - files) > KEPT:
                return failed(
                    f"after {len(given)} requests {left} more files are open", count, acted
                )
        if what := kept(given, names, KEPT) or growing(sizes, count // MEASUREMENTS):
            return failed(f"after {count} requests {what}", count, acted)
        # Ranks of a pipeline but the last, and batches of greedy requests, never get to ``apply``.
        given, sizes = [], sizes[-1:]
        for _ in range(LAST):
            serve(count // IDLE, given, False)  # noqa: FBT003 - without apply
            sizes.append(size_of(plugin))
        if what := kept(given, names, KEPT) or growing(sizes, count // IDLE):
            return failed(f"after {len(given)} requests without apply {what}", count, acted)
    return passed(count, acted)
