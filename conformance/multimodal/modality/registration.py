# SPDX-License-Identifier: Apache-2.0
"""Checks of what a plugin is and says of itself, before it is given anything."""

from __future__ import annotations

import inspect
import re
from typing import Any

from conformance.checking import checks
from conformance.findings import Finding, failed, passed
from conformance.multimodal.modality.calls import ask, runtime
from conformance.multimodal.modality.trial import Trial
from conformance.watching.comparison import shortened
from conformance.watching.raised import said

METHODS = (
    "get_max_per_prompt",
    "parse_input",
    "validate",
    "estimate_tokens",
    "preprocess",
    "count_tokens",
)


@checks("MM-41")
def made(trial: Trial) -> Finding:
    """The plugin can be made twice, has every method, and is taken by a registry."""
    for _ in range(2):
        plugin = trial.bench.make()
        if why := _incomplete(plugin):
            return failed(why)
        registry = runtime("registry").MultiModalRegistry()
        found = ask("registering the plugin", registry.register_plugin, plugin)
        # A modality that is no name is the next rule's.
        if not found.good and not _names(plugin):
            assert found.error is not None
            return failed(f"registering the plugin raised {said(found.error)}")
    return passed(2)


def _incomplete(plugin: object) -> str | None:
    for name in METHODS:
        method = getattr(plugin, name, None)
        if not callable(method):
            return f"the plugin has no method {name}"
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            return f"{name} is a coroutine function, and nobody waits for it"
    for name in ("modality", "part_types", "limits"):
        found = ask(name, getattr, plugin, name)
        if not found.good:
            assert found.error is not None
            return f"the plugin has no attribute {name}: {said(found.error)}"
    return None


@checks("MM-42")
def named(trial: Trial) -> Finding:
    """The names are names, and the same for every instance and after items were served."""
    bench = trial.bench
    plugin = bench.make()
    if why := _names(plugin):
        return failed(why)
    before = _read(plugin)
    if (other := _read(bench.make())) != before:
        return failed(f"two instances, made alike, say {before} and {other} of themselves")
    served = 0
    for sample in trial.known():
        bench.serve(plugin, sample)
        served += 1
        if (after := _read(plugin)) != before:
            return failed(f"after {sample} the plugin said {after} of itself, before it {before}")
    return passed(served + 2)


def _names(plugin: object) -> str | None:
    """Say which name of a plugin is invalid, or return None."""
    modality, part_types = _read(plugin)
    if not isinstance(modality, str) or not re.fullmatch(r"\w+", modality):
        return (
            f"modality is {shortened(modality)}, and models declare it in the keyword "
            "max_..._per_prompt"
        )
    if isinstance(part_types, str):
        return f"part_types is the text {part_types!r}, and stands for its letters"
    try:
        every = list(part_types)
    except TypeError:
        return f"part_types is {shortened(part_types)}, where a sequence must be"
    for part in every:
        if not isinstance(part, str) or not part:
            return f"part_types has {shortened(part)} in it, where a text must be"
    return None


def _read(plugin: Any) -> tuple[Any, Any]:  # noqa: ANN401 - a plugin
    found = plugin.part_types
    listed = isinstance(found, list | tuple | set | frozenset)
    return plugin.modality, tuple(found) if listed else found
