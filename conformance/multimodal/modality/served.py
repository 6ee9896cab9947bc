# SPDX-License-Identifier: Apache-2.0
"""One item on its way through a plugin, method by method, in the order of the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from conformance.multimodal.modality.calls import answered, ask, missing, refused
from conformance.multimodal.processor.answers import Answer
from conformance.watching.raised import said


@attrs.frozen(eq=False)
class Served:
    """What came of one item on its way through a plugin."""

    step: str = ""  #: the method that raised; empty where none did
    error: Exception | None = None
    item: Any = attrs.field(default=None, repr=False)
    hash: Any = None
    estimate: Any = None
    features: Any = attrs.field(default=None, repr=False)
    count: Any = None

    @property
    def good(self) -> bool:
        """Whether no method raised."""
        return self.error is None

    @property
    def refused(self) -> bool:
        """Whether the item is the client's mistake."""
        return refused(self.error)

    @property
    def missing(self) -> bool:
        """Whether a library is not installed that would read it."""
        return missing(self.error)

    @property
    def broken(self) -> bool:
        """Whether something else was raised."""
        return not (self.good or self.refused or self.missing)

    def trouble(self) -> str:
        """Say what was raised, and where."""
        assert self.error is not None
        return f"{self.step} raised {said(self.error)}"


def parsed(plugin: Any, data: Any, asking: Callable[..., Answer] = ask) -> Served:  # noqa: ANN401 - a plugin, and what clients send
    """Parse one item."""
    found = asking("parse_input", plugin.parse_input, data)
    return Served("" if found.good else "parse_input", found.error, item=found.value)


def estimated(plugin: Any, data: Any, config: Any) -> Served:  # noqa: ANN401 - a plugin, what clients send, a model's configuration
    """Take one item to its estimate: whatever its size, nothing is made of it by then."""
    served = parsed(plugin, data)
    if not served.good:
        return served
    item = served.item
    calls: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("validate", lambda: plugin.validate([item], plugin.limits)),
        ("content_hash", lambda: item.content_hash),
        ("estimate_tokens", lambda: plugin.estimate_tokens(item, config)),
    )
    for step, call in calls:
        found = ask(step, call)
        if not found.good:
            return Served(step, found.error, item)
    return served


def finished(
    plugin: Any,  # noqa: ANN401 - a plugin
    item: Any,  # noqa: ANN401 - and what it parsed
    config: Any,  # noqa: ANN401 - a model's configuration
    asking: Callable[..., Answer] = ask,
    *,
    validated: bool = True,
) -> Served:
    """Take an item that is parsed through the other methods, in the order of the pipeline."""
    so_far: dict[str, Any] = {"item": item}

    def stopped(step: str, found: Answer) -> Served:
        return Served(step, found.error, **so_far)

    if validated:
        found = asking("validate", lambda: plugin.validate([item], plugin.limits))
        if not found.good:
            return stopped("validate", found)
    found = asking("content_hash", lambda: item.content_hash)
    if not found.good:
        return stopped("content_hash", found)
    so_far["hash"] = found.value
    found = asking("estimate_tokens", plugin.estimate_tokens, item, config)
    if not found.good:
        return stopped("estimate_tokens", found)
    so_far["estimate"] = found.value
    found = asking("preprocess", plugin.preprocess, item, config)
    if not found.good:
        return stopped("preprocess", found)
    so_far["features"] = found.value
    found = asking("count_tokens", plugin.count_tokens, found.value, config)
    if not found.good:
        return stopped("count_tokens", found)
    return Served(count=found.value, **so_far)


def run_through(
    plugin: object,
    data: object,
    config: object,
) -> Served:
    """Take one item the whole way on another thread, where no signal limits the time."""
    found = parsed(plugin, data, answered)
    return finished(plugin, found.item, config, answered) if found.good else found
