# SPDX-License-Identifier: Apache-2.0
"""Limits of a plugin, whatever they are an instance of, with other numbers."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import attrs

from conformance.multimodal.modality.calls import ask, refused
from conformance.watching.raised import said


def tightened(limits: object) -> Any:  # noqa: ANN401 - limits of any kind
    """Return limits whose maxima are all next to zero, or None where they have none."""
    # One instead of none: some take 0 for no limit at all.
    small = {name: 1 if isinstance(value, int) else 1e-9 for name, value in numbers(limits)}
    return replaced(limits, small) if small else None


def numbers(limits: object) -> list[tuple[str, int | float]]:
    """Return the numbers that bound something from above, by their names."""
    return [
        (name, value)
        for name, value in _fields(limits).items()
        if name.startswith("max") and isinstance(value, int | float) and not isinstance(value, bool)
    ]


def _fields(limits: Any) -> dict[str, Any]:  # noqa: ANN401 - limits of any kind
    if isinstance(limits, Mapping):
        return {str(key): value for key, value in limits.items()}
    if attrs.has(type(limits)):
        return {
            field.name: getattr(limits, field.name)
            for field in attrs.fields(type(limits))
            if field.init
        }
    if dataclasses.is_dataclass(limits):
        return {
            field.name: getattr(limits, field.name)
            for field in dataclasses.fields(limits)
            if field.init
        }
    if hasattr(limits, "_asdict"):
        return dict(limits._asdict())
    return dict(getattr(limits, "__dict__", {}))


def replaced(limits: Any, new: Mapping[str, Any]) -> object:  # noqa: ANN401 - limits of any kind
    """Return limits with other numbers."""
    if isinstance(limits, Mapping):
        return type(limits)({**limits, **new}) if isinstance(limits, dict) else {**limits, **new}
    if attrs.has(type(limits)):
        changes = {
            field.alias: new[field.name]
            for field in attrs.fields(type(limits))
            if field.name in new
        }
        return attrs.evolve(limits, **changes)
    if dataclasses.is_dataclass(limits) and not isinstance(limits, type):
        return dataclasses.replace(limits, **new)
    if hasattr(limits, "_replace"):
        return limits._replace(**new)
    changed = copy.copy(limits)
    vars(changed).update(new)
    return changed


def wrong_beyond(plugin: Any, items: Mapping[str, Any]) -> str | None:  # noqa: ANN401 - a plugin, and items of its own
    """Say what validate raised, if not the client's error, where a deployment allows little."""
    if (tight := tightened(plugin.limits)) is None:
        return None
    for name, item in items.items():
        error = ask("validate", plugin.validate, [item], tight).error
        # Of what is no refusal at all, MM-47 tells.
        if isinstance(error, ValueError) and not refused(error):
            return f"{name}: validate raised {said(error)} with the limits {tight!r}"
    return None
