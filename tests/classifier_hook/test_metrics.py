# SPDX-License-Identifier: Apache-2.0
"""What is counted, and what is written to the log."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import prometheus_client  # type: ignore[import-not-found, unused-ignore] # it comes with vLLM
import pytest

from reference_plugins.classifier_hook.events import CallEnded, CancellationIgnored, log
from reference_plugins.classifier_hook.metrics import Metrics

_names = (f"hook{number}" for number in itertools.count())


@pytest.fixture
def hook() -> str:
    """Return a name that no other test counts for: the registry is the process's."""
    return next(_names)


def ended(hook: str, **changes: object) -> CallEnded:
    """Return the event of a call."""
    values: dict[str, Any] = {
        "request_id": "r",
        "index": 0,
        "outcome": "ok",
        "seconds": 0.25,
        "longest_step": 0.001,
        "blocks": False,
    }
    return CallEnded(hook, **values | changes)


def value(name: str, hook: str, **labels: str) -> float | None:
    """Return a value of the registry that vLLM's `/metrics` shows."""
    labels = {"hook": hook, **labels}
    found: float | None = prometheus_client.REGISTRY.get_sample_value(
        f"classifier_hook_{name}", labels
    )
    return found


def test_a_hook_is_shown_before_its_first_call(hook: str) -> None:
    """With zeros."""
    Metrics().announce(hook)

    for name in ("calls_total", "blocks_total", "timeouts_total", "latency_seconds_count"):
        assert value(name, hook) == 0
    assert value("errors_total", hook, type="exception") == 0


def test_all_engines_of_a_process_count_together(hook: str) -> None:
    """A second engine registers nothing a second time."""
    Metrics().observe(ended(hook))
    Metrics().observe(ended(hook))

    assert value("calls_total", hook) == 2
    assert value("latency_seconds_sum", hook) == 0.5


@pytest.mark.parametrize(
    ("changes", "name", "labels"),
    [
        ({"blocks": True}, "blocks_total", {}),
        ({"outcome": "timeout"}, "timeouts_total", {}),
        ({"outcome": "exception"}, "errors_total", {"type": "exception"}),
        ({"outcome": "invalid"}, "errors_total", {"type": "invalid"}),
        ({"outcome": "cancelled"}, "cancelled_total", {}),
    ],
)
def test_what_becomes_of_calls_is_counted(
    hook: str, changes: dict[str, Any], name: str, labels: dict[str, str]
) -> None:
    """Once each, besides the call itself; what went well counts for nothing else."""
    metrics = Metrics()
    metrics.announce(hook)
    metrics.observe(ended(hook))
    assert not value(name, hook, **labels)
    metrics.observe(ended(hook, **changes))

    assert value(name, hook, **labels) == 1
    assert value("calls_total", hook) == 2


def test_work_without_an_await_is_counted_and_named(
    hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its seconds, from 50 ms on; the log has the milliseconds and the name."""
    metrics = Metrics()
    with caplog.at_level(logging.WARNING, "vllm.classifier_hook"):
        for event in (ended(hook, longest_step=0.049), ended(hook, longest_step=0.3)):
            metrics.observe(event)
            log(event)

    assert value("loop_held_seconds_total", hook) == pytest.approx(0.3)
    assert len(caplog.messages) == 1
    assert f"Classifier hook '{hook}' held the event loop for 300 ms" in caplog.text


def test_ignored_cancellations_are_counted_and_named(
    hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With the request that it happened in."""
    event = CancellationIgnored(hook, "r", 1)
    with caplog.at_level(logging.WARNING, "vllm.classifier_hook"):
        Metrics().observe(event)
        log(event)

    assert value("ignored_cancellations_total", hook) == 1
    assert f"'{hook}' goes on after its cancellation (request r[1])" in caplog.text


def test_failures_are_in_the_log(hook: str, caplog: pytest.LogCaptureFixture) -> None:
    """With their reason, and whether they replaced the answer."""
    with caplog.at_level(logging.WARNING, "vllm.classifier_hook"):
        log(ended(hook, outcome="exception", message="ValueError: no model", blocks=True))
        log(ended(hook))

    (message,) = caplog.messages
    assert message.startswith(f"Classifier hook '{hook}': exception, ValueError: no model")
    assert message.endswith("(request r[0]; the answer is replaced)")
