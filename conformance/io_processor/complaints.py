# SPDX-License-Identifier: Apache-2.0
"""What a pydantic model says of data that it refuses, and data as it asks for them.

Its core reads a dictionary without asking it for a key, so nothing is seen of what it looks for.
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
from pydantic import BaseModel, ValidationError

from conformance.inputs.places import Path

TEXT = "the quick brown fox jumps over the lazy dog and runs away from the hounds"

#: A value of each type that is asked for, by how pydantic's names of errors begin.
_VALUES: tuple[tuple[str, Any], ...] = (
    ("string_type", TEXT),
    ("int_", 4),
    ("float_", 0.5),
    ("decimal_", 0.5),
    ("bool_", True),
    ("list_", [TEXT, "and so on"]),
    ("tuple_", [TEXT, "and so on"]),
    ("set_", [TEXT, "and so on"]),
    ("iterable_", [TEXT, "and so on"]),
    ("dict_", {}),
    ("model_", {}),
    ("dataclass_", {}),
    ("mapping_", {}),
    ("url_", "https://example.org/a"),
    ("datetime_", "2026-01-01T00:00:00Z"),
    ("date_", "2026-01-01"),
    ("time_", "12:00:00"),
    ("uuid_", "00000000-0000-4000-8000-000000000000"),
    ("bytes_type", TEXT),
)

#: A text that may stand somewhere, as messages name it.
QUOTED = re.compile(r"'([^']*)'")


@attrs.frozen
class Complaint:
    """One place that is missing or wrong."""

    place: Path
    kind: str  #: pydantic's name of the type of error
    context: Mapping[str, Any]  #: limits, and what is expected


def declared(plugin: type[Any], data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the other keys of each model in a plugin's module that has all keys of some data."""
    for model in vars(sys.modules[plugin.__module__]).values():
        if not isinstance(model, type) or not issubclass(model, BaseModel):
            continue
        fields = model.model_fields.items()
        names = [
            alias if isinstance(alias := field.validation_alias, str) else name
            for name, field in fields
        ]
        if data and data.keys() <= set(names):
            yield from (name for name in names if name not in data)


def complaints(error: BaseException | None) -> tuple[Complaint, ...]:
    """Return what the model says of which an error tells, or the one that it was raised for."""
    for _ in range(8):  # more than anybody wraps
        if isinstance(error, ValidationError):
            told = error.errors(include_url=False, include_input=False)
            return tuple(
                Complaint(tuple(each["loc"]), each["type"], each.get("ctx", {})) for each in told
            )
        if error is None:
            break
        error = error.__cause__ or error.__context__
    return ()


def mended(data: Any, told: tuple[Complaint, ...]) -> Any:  # noqa: ANN401 - JSON values
    """Return data with every place as the model asks for it, as far as that can be told."""
    fresh = copy.deepcopy(data)
    for complaint in told:
        try:
            _mend(fresh, complaint)
        except (LookupError, TypeError):
            continue  # a branch of a union, which no data have
    return fresh


def missing(told: tuple[Complaint, ...]) -> Iterator[str]:
    """Yield the keys of an object that the model complains about."""
    for complaint in told:
        if complaint.place and isinstance(complaint.place[0], str):
            yield complaint.place[0]


def _mend(data: Any, complaint: Complaint) -> None:  # noqa: ANN401 - JSON values
    *outer, place = complaint.place or ("",)
    last: Any = place  # of a list, or of an object
    inner = data
    for part in outer:
        inner = inner[part]
    if complaint.kind == "extra_forbidden":
        del inner[last]
    elif isinstance(inner, dict) or (isinstance(inner, list) and isinstance(last, int)):
        inner[last] = _value(complaint, inner[last] if complaint.kind != "missing" else None)


def _value(complaint: Complaint, value: Any) -> Any:  # noqa: ANN401 - JSON values
    """Return a value that has what the model wants of it."""
    kind, context = complaint.kind, complaint.context
    if kind == "missing":
        return TEXT
    if kind in ("literal_error", "enum"):
        quoted = QUOTED.search(str(context.get("expected")))
        return quoted[1] if quoted else int(re.findall(r"-?\d+", str(context.get("expected")))[0])
    for limit, beyond in (("ge", 0), ("gt", 1), ("le", 0), ("lt", -1), ("multiple_of", 0)):
        if limit in context:
            return context[limit] + beyond
    least, most = context.get("min_length"), context.get("max_length")
    if kind.endswith("too_short") and value:
        return (value * (1 + int(least or 1)))[: int(least or 1)]
    if kind.endswith("too_long") and most is not None:
        return value[: int(most)]
    return next((copy.deepcopy(v) for name, v in _VALUES if kind.startswith(name)), value)
