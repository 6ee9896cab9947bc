# SPDX-License-Identifier: Apache-2.0
"""Drawing examples with Hypothesis until one breaks a rule, and shrinking it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import hypothesis
from hypothesis import HealthCheck, Phase

from conformance.settings import Budget

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from conformance.multimodal.modality.trial import Trial

EXAMPLES = {Budget.QUICK: 10, Budget.STANDARD: 40, Budget.DEEP: 300}

#: Seconds of processor time, and so many times as many of any, after which the fewest examples
#: must do, for plugins that take long.
SECONDS = {Budget.QUICK: 0.0, Budget.STANDARD: 3.0, Budget.DEEP: 60.0}
WAITING = 4


class Found(Exception):
    """The example breaks the rule."""


def quietly(
    trial: Trial,
    strategy: SearchStrategy[Any],
) -> Callable[[Callable[[Any], None]], Callable[[], None]]:
    """Return a decorator: the function is called with examples until one of them raises `Found`.

    What raises is called again with smaller and smaller examples; the last call that raised is
    the smallest. Nothing is printed, and nothing but `Found` and errors of the harness come out.
    """
    budget = trial.budget

    def decorate(body: Callable[[Any], None]) -> Callable[[], None]:
        count = 0
        found = False
        worked = time.process_time() + SECONDS[budget]
        waited = time.monotonic() + WAITING * SECONDS[budget]

        def limited(example: Any) -> None:  # noqa: ANN401 - whatever is drawn
            nonlocal count, found
            late = time.process_time() > worked or time.monotonic() > waited
            if late and count >= EXAMPLES[Budget.QUICK] and not found:
                return
            count += 1
            try:
                body(example)
            except Found:
                found = True
                raise

        def run() -> None:
            drawn = hypothesis.given(strategy)(limited)
            settings = hypothesis.settings(
                max_examples=EXAMPLES[budget],
                database=None,
                phases=(Phase.generate, Phase.shrink),
                deadline=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
                verbosity=hypothesis.Verbosity.quiet,
            )
            try:
                hypothesis.seed(trial.bench.seed)(settings(drawn))()
            except hypothesis.errors.HypothesisException as error:
                if not found:
                    raise
                # What broke the rule once and not again still broke it.
                raise Found from error

        return run

    return decorate
