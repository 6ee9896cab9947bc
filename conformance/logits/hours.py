# SPDX-License-Identifier: Apache-2.0
"""Whether time may pass between two calls.

A plugin that looks at a clock, to log or to tidy up, may go wrong there when an hour has passed,
and no history of a few milliseconds shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from conformance.counterexample.clock_player import Clock, clock_of
from conformance.findings import Finding, failed
from conformance.inputs.history import Choice, label
from conformance.logits.calls import PluginRaised
from conformance.logits.trial import Trial
from conformance.verdict import Verdict
from conformance.watching.interruption import limited

#: Steps for which two requests are served: in them, more than an hour passes.
STEPS = 4


@attrs.frozen
class Pauses:
    """Seconds that pass before each step of requests, and between these."""

    steps: int = 20 * 60
    requests: int = 25 * 60 * 60


#: Serves two requests twice with one instance, with pauses.
Serve = Callable[[Any, tuple[Choice, Choice], Clock, Pauses], None]


def judge(trial: Trial, serve: Serve) -> Finding:
    """Judge that no call raises where time passes between two of them.

    Args:
        trial: of the plugin.
        serve: how a generation serves two requests.

    Raises:
        PluginRaised: the plugin raised where no time passed, too.

    """
    bench = trial.bench
    chosen, off = bench.pair
    chosen = chosen or [*bench.choices[:1]]
    count = 0
    for count, choice in enumerate(chosen, 1):
        pair = (off or chosen[count - 2], choice)
        with limited(), clock_of(bench.plugin) as clock:
            serve(bench, pair, clock, Pauses(0, 0))
        pauses = Pauses()
        try:
            with limited(), clock_of(bench.plugin) as clock:
                serve(bench, pair, clock, pauses)
        except PluginRaised as error:
            minutes, hours = pauses.steps // 60, pauses.requests // 3600
            why = (
                f"with {minutes} minutes before each step, and {hours} hours between requests "
                f"({' and '.join(map(label, pair))}), {error}"
            )
            case = {"choices": list(pair), "pauses": [pauses.steps, pauses.requests]}
            return failed(why, count, count, case=case)
    return Finding(Verdict.PASS, count, count)
