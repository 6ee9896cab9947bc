# SPDX-License-Identifier: Apache-2.0
"""What the runtime does, as it happens: for metrics, logs and tests."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

# A child of vLLM's logger, whose handlers it shares.
logger = logging.getLogger("vllm.classifier_hook")

#: Seconds of work without an await after which a hook is named in the log.
LONG_STEP = 0.05

Outcome = Literal["ok", "timeout", "exception", "invalid", "cancelled"]


@dataclass(frozen=True, slots=True)
class CallEnded:
    """One call of one hook, and what came of it."""

    hook: str
    request_id: str
    index: int  #: of the completion
    outcome: Outcome
    seconds: float  #: from its first step
    longest_step: float  #: seconds of work without an await, in which no other request went on
    blocks: bool  #: whether it wants the answer replaced, as a blocker or by closing
    message: str = ""  #: why there are no scores


@dataclass(frozen=True, slots=True)
class CancellationIgnored:
    """A hook still ran when it had been cancelled for longer than the margin."""

    hook: str
    request_id: str
    index: int


Event = CallEnded | CancellationIgnored
Observer = Callable[[Event], None]


def log(event: Event) -> None:
    """Write down what an operator should know of."""
    where = f"{event.request_id}[{event.index}]"
    if isinstance(event, CancellationIgnored):
        logger.warning(
            "Classifier hook %r goes on after its cancellation (request %s)", event.hook, where
        )
        return
    if event.outcome in ("timeout", "exception", "invalid"):
        logger.warning(
            "Classifier hook %r: %s, %s (request %s%s)",
            event.hook,
            event.outcome,
            event.message,
            where,
            "; the answer is replaced" if event.blocks else "",
        )
    if event.longest_step >= LONG_STEP:
        logger.warning(
            "Classifier hook %r held the event loop for %.0f ms without an await, "
            "and every other request with it (request %s)",
            event.hook,
            event.longest_step * 1000,
            where,
        )
