# SPDX-License-Identifier: Apache-2.0
"""One item on its way through a plugin, method by method, in the order of the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from conformance.multimodal.modality.calls import ask, missing, refused
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


def finished(
    plugin: Any,  # noqa: ANN401 - a plugin
    item: Any,  # noqa: ANN401 - and what it parsed
    config: Any,  # noqa: ANN401 - a model's configuration
    asking: Callable[..., Answer] = ask,
    *,
    begin: str = "validate",
    end: str = "count_tokens",
) -> Served:
    """Take an item that is parsed through the other methods, in the order of the pipeline.

    Args:
        plugin: what takes it.
        item: what the plugin parsed.
        config: of the model.
        asking: calls a method.
        begin: the first of the methods.
        end: the last of them.

    """
    got: dict[str, Any] = {"item": item}
    # Of each step the field that has what it returns, and the call.
    steps: dict[str, tuple[str, Callable[[], Any]]] = {
        "validate": ("", lambda: plugin.validate([item], plugin.limits)),
        "content_hash": ("hash", lambda: item.content_hash),
        "estimate_tokens": ("estimate", lambda: plugin.estimate_tokens(item, config)),
        "preprocess": ("features", lambda: plugin.preprocess(item, config)),
        "count_tokens": ("count", lambda: plugin.count_tokens(got["features"], config)),
    }
    names = list(steps)
    for step in names[names.index(begin) : names.index(end) + 1]:
        field, call = steps[step]
        found = asking(step, call)
        if not found.good:
            return Served(step, found.error, **got)
        if field:
            got[field] = found.value
    return Served(**got)


def run_through(
    plugin: object,
    data: object,
    config: object,
    asking: Callable[..., Answer] = ask,
    *,
    end: str = "count_tokens",
) -> Served:
    """Take one item from what a client sends to its tokens, or as far as the step ``end``."""
    found = parsed(plugin, data, asking)
    return finished(plugin, found.item, config, asking, end=end) if found.good else found
