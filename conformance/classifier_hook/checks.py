# SPDX-License-Identifier: Apache-2.0
"""All checks of hooks, and the trial that makes them."""

from __future__ import annotations

from collections.abc import Callable

from conformance.checking import collected
from conformance.classifier_hook import (
    attributes,
    demonstrations,
    isolation,
    meaning,
    memory,
    process,
    scoring,
    texts,
    timing,
)
from conformance.classifier_hook.bench import Bench
from conformance.classifier_hook.trial import Trial
from conformance.settings import Budget
from conformance.watching.untouched import Untouched

CHECKS = collected(attributes, isolation, meaning, memory, process, scoring, texts, timing)

#: Must hold before anything can be scored, nearest to the cause first.
BASIC: tuple[tuple[str, Callable[[Bench], object]], ...] = (
    ("CH-05", attributes.unawaited),
    ("CH-22", timing.endless),
    ("CH-16", scoring.needs),
    ("CH-15", scoring.raises),
    ("CH-10", scoring.no_dict),
    ("CH-38", scoring.invalid),
    ("CH-35", memory.starts_threads),
)


def trial(bench: Bench, budget: Budget, untouched: Untouched | None = None) -> Trial:
    """Return the trial of a hook in the simulator."""
    return Trial(bench, budget, untouched, basic=BASIC, show=demonstrations.shown, checks=CHECKS)
