# SPDX-License-Identifier: Apache-2.0
"""Places in JSON data, and data with something else there."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from functools import reduce
from operator import getitem
from typing import Any

Path = tuple[str | int, ...]


def places(data: Any, here: Path = ()) -> Iterator[tuple[Path, Any]]:  # noqa: ANN401 - JSON values
    """Yield every place in JSON data with its value."""
    yield here, data
    if isinstance(data, dict):
        for key, value in data.items():
            yield from places(value, (*here, key))
    elif isinstance(data, list):
        for index, value in enumerate(data[:4]):
            yield from places(value, (*here, index))


def subscripts(place: Iterable[str | int]) -> str:
    """Return a place as Python writes it behind the name of the data."""
    return "".join(f"[{part!r}]" for part in place)


def changed(data: Any, place: Path, value: Any) -> Any:  # noqa: ANN401 - JSON values
    """Return data with another value at a place."""
    if not place:
        return value
    fresh = copy.deepcopy(data)
    reduce(getitem, place[:-1], fresh)[place[-1]] = value
    return fresh


def without(data: Any, place: Path) -> Any:  # noqa: ANN401 - JSON values
    """Return data without the value at a place."""
    fresh = copy.deepcopy(data)
    del reduce(getitem, place[:-1], fresh)[place[-1]]
    return fresh
