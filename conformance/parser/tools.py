# SPDX-License-Identifier: Apache-2.0
"""The tools of requests: those that they have without a profile, and such as are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy


def tool(name: str, schema: Mapping[str, Any], **more: object) -> dict[str, Any]:
    """Return a tool as a client sends it, with the schema of its arguments."""
    return {"type": "function", "function": {"name": name, **more, "parameters": schema}}


def an_object(properties: Mapping[str, Any], **more: object) -> dict[str, Any]:
    """Return the schema of an object."""
    return {"type": "object", "properties": properties, **more}


_TEXT = {"type": "string"}

#: The tools of requests, where no profile names others.
TOOLS = (
    tool(
        "get_weather",
        an_object(
            {
                "city": _TEXT,
                "unit": _TEXT,
                "days": {"type": "integer"},
                "options": {"type": "object"},
                "exact": {"type": "boolean"},
                "height": {"type": "number"},
                "limit": {"type": ["integer", "null"]},
            }
        ),
    ),
    tool("get_time", an_object({"city": _TEXT, "name": _TEXT})),
)

#: Tools whose arguments have no single type, as Pydantic writes what may be missing, and one that
#: has no schema at all, as OpenAI's clients leave it out for a function without arguments.
UNTYPED: tuple[dict[str, Any], ...] = (
    tool(
        "get_hours",
        an_object(
            {
                "hours": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
                "remark": {"description": "any"},
            }
        ),
    ),
    {"type": "function", "function": {"name": "ping"}},
)

#: A tool whose argument is an object behind a reference, as Pydantic writes one of a class.
REFERRING: tuple[dict[str, Any], ...] = (
    tool(
        "get_route",
        an_object(
            {"end": {"$ref": "#/$defs/Place"}},
            **{"$defs": {"Place": an_object({"city": _TEXT, "floor": {"type": "integer"}})}},
        ),
    ),
)

_SCALARS: tuple[Mapping[str, Any], ...] = (
    {"type": "string"},
    {"type": "integer"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": ["integer", "null"]},
    {"type": "string", "enum": ["celsius", "kelvin"]},
)
_NAMES = ("city", "unit", "is_on", "n1", "options", "name")


def _objects(values: SearchStrategy[Any]) -> SearchStrategy[dict[str, Any]]:
    """Draw schemas of objects, some of whose properties are required."""
    properties = st.dictionaries(st.sampled_from(_NAMES), values, max_size=3)
    return st.tuples(properties, st.booleans()).map(
        lambda drawn: an_object(drawn[0], required=[*drawn[0]] if drawn[1] else [])
    )


#: Draws schemas of arguments: of scalars, objects and lists, within one another.
SCHEMAS: SearchStrategy[dict[str, Any]] = st.recursive(
    st.sampled_from(_SCALARS),
    lambda inner: _objects(inner) | inner.map(lambda item: {"type": "array", "items": item}),
    max_leaves=4,
)


def drawn_tools(names: Sequence[str]) -> SearchStrategy[tuple[dict[str, Any], ...]]:
    """Draw the tools of a request."""
    named = st.tuples(st.sampled_from(names), _objects(SCHEMAS))
    drawn = st.lists(named, min_size=1, max_size=2, unique_by=lambda each: each[0])
    return drawn.map(lambda tools: tuple(tool(*each) for each in tools))
