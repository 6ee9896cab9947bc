# SPDX-License-Identifier: Apache-2.0
"""Metrics of hooks, in the registry that vLLM's ``/metrics`` shows.

Where several processes serve, ``prometheus_client`` writes them to files that are summed up:
vLLM sets that up before it starts those processes, and counters and histograms need no more.
The names do not start with ``vllm:``: each engine that starts removes what has that prefix.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from reference_plugins.classifier_hook.events import LONG_STEP, CallEnded

if TYPE_CHECKING:
    # It comes with vLLM, and types are checked without that.
    from prometheus_client import (  # type: ignore[import-not-found, unused-ignore] # see above
        Counter,
        Histogram,
    )

    from reference_plugins.classifier_hook.events import Event

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class _Collectors(NamedTuple):
    calls: Counter
    blocks: Counter
    timeouts: Counter
    errors: Counter
    cancelled: Counter
    ignored: Counter
    held: Counter
    latency: Histogram


class Metrics:
    """Counts what hooks do; all engines of a process share the counters."""

    def announce(self, hook: str) -> None:
        """Show a hook with zeros before it was first called."""
        for collector in _collectors():
            if collector is not _collectors().errors:
                collector.labels(hook=hook)
        for kind in ("exception", "invalid"):
            _collectors().errors.labels(hook=hook, type=kind)

    def observe(self, event: Event) -> None:
        """Count an event."""
        collectors = _collectors()
        name = event.hook
        if not isinstance(event, CallEnded):
            collectors.ignored.labels(hook=name).inc()
            return
        collectors.calls.labels(hook=name).inc()
        collectors.latency.labels(hook=name).observe(event.seconds)
        if event.blocks:
            collectors.blocks.labels(hook=name).inc()
        if event.outcome == "timeout":
            collectors.timeouts.labels(hook=name).inc()
        elif event.outcome == "cancelled":
            collectors.cancelled.labels(hook=name).inc()
        elif event.outcome != "ok":
            collectors.errors.labels(hook=name, type=event.outcome).inc()
        if event.longest_step >= LONG_STEP:
            collectors.held.labels(hook=name).inc(event.longest_step)


@functools.cache
def _collectors() -> _Collectors:
    # Not at import: vLLM decides where metrics of several processes go before it makes engines.
    from prometheus_client import Counter, Histogram

    def counter(name: str, text: str, *labels: str) -> Counter:
        return Counter(f"classifier_hook_{name}", text, ("hook", *labels))

    return _Collectors(
        calls=counter("calls", "Calls of a classifier hook that ended, however they did."),
        blocks=counter("blocks", "Calls that asked for the answer to be replaced, or closed."),
        timeouts=counter("timeouts", "Calls that gave no scores within the hook's timeout."),
        errors=counter("errors", "Calls that raised, or answered with no valid scores.", "type"),
        cancelled=counter("cancelled", "Calls cancelled because nobody waited any more."),
        ignored=counter("ignored_cancellations", "Calls that went on after their cancellation."),
        held=counter(
            "loop_held_seconds",
            f"Seconds of work without an await, of calls with {LONG_STEP} s of it or more.",
        ),
        latency=Histogram(
            "classifier_hook_latency_seconds",
            "Seconds from the start of a call to its end.",
            ("hook",),
            buckets=_SECONDS,
        ),
    )
