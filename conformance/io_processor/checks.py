# SPDX-License-Identifier: Apache-2.0
"""All checks of IO processors, and the trial that makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.checking import collected
from conformance.generations import named
from conformance.io_processor import (
    admission,
    agreement,
    bodies,
    calling,
    demonstrations,
    isolation,
    lasting,
    loop,
    memory,
    outcomes,
    parameters,
    process,
    prompts,
    threads,
)
from conformance.io_processor.bench import Bench
from conformance.io_processor.trial import Questions, Trial
from conformance.settings import Budget
from conformance.watching.untouched import Untouched

CHECKS = collected(
    admission,
    agreement,
    bodies,
    calling,
    isolation,
    loop,
    memory,
    outcomes,
    parameters,
    process,
    prompts,
    threads,
)

QUESTIONS = Questions(
    basic=(
        ("IO-05", calling.uncallable),
        ("IO-14", parameters.params_trouble),
        ("IO-13", prompts.refused),
        ("IO-22", outcomes.unserialisable),
        ("IO-23", outcomes.unwrapped),
        ("IO-31", threads.bound),
    ),
    answers=admission.answers,
    no_longer=admission.no_longer,
    outliving=lasting.outliving,
    needs=prompts.needed,
    asks=parameters.asks,
    show=demonstrations.shown,
)


def trial(
    bench: Bench,
    section: Mapping[str, Any],
    origin: str | None,
    budget: Budget,
    untouched: Untouched | None = None,
) -> Trial:
    """Return the trial of a plugin in the simulator."""
    rules = (rule.id for rule in named(bench.generation).rules)
    own = {rule: CHECKS[rule] for rule in rules if rule in CHECKS}
    return Trial(bench, section, origin, budget, untouched, questions=QUESTIONS, checks=own)
