# SPDX-License-Identifier: Apache-2.0
"""Values of a profile as TOML writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tomlkit


def listed(values: Sequence[Any]) -> Any:  # noqa: ANN401 - tomlkit's
    """Return the values of a profile's key, one on each line."""
    array = tomlkit.array()
    for value in values:
        array.append(inline(value))
    return array.multiline(multiline=len(values) > 1)


def inline(value: object, *, null: object = None) -> Any:  # noqa: ANN401 - tomlkit's
    """Return a value on one line, with what stands for null; TOML has none, so it is left out."""
    if value is None:
        return null
    if isinstance(value, dict):
        table = tomlkit.inline_table()
        for key, item in value.items():
            if (written := inline(item, null=null)) is not None:
                table.append(key, written)
        return table
    if isinstance(value, list | tuple):
        array = tomlkit.array()
        for item in value:
            if (written := inline(item, null=null)) is not None:
                array.append(written)
        return array
    return tomlkit.item(value)
