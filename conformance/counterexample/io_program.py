# SPDX-License-Identifier: Apache-2.0
"""The program of an IO processor's counterexample: its player, and the case as literals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.counterexample import helpers
from conformance.counterexample.assembly import loading, played
from conformance.counterexample.source import Group, Named, Node, call, decoded, flat, literal

#: A text or a list that is one thing again and again, so many times, is written as a product.
_REPEATED = 20

#: Arguments that are any JSON values, encoded.
_DATA = frozenset(("data", "other", "wanted"))


def program(case: Mapping[str, Any]) -> str:
    """Return the source of a program that shows a failure.

    Args:
        case: a case document whose counterexample has a ``program``: which function of
            :mod:`conformance.counterexample.io_player` or ``io_crowd_player`` plays it (``is``),
            with which arguments, and the folder of a ``model``.

    """
    shown = dict(case["counterexample"]["program"])
    name = "check_" + shown.pop("is").replace("-", "_")
    host = "Documented" if case["generation"] == "io/request" else "Host"
    model = literal(shown.pop("model"))
    player = helpers.player("io_engine", "io_host", "io", "io_crowd")
    if name == "check_loading":
        return loading(case, player, f"{host}(None, {flat(model)}).instance_of", uses=(host,))
    given: list[Node] = [call(host, "Plugin", model)]
    given += [Named(f"{key}=", _argument(key, value)) for key, value in shown.items()]
    return played(case, player, name, given, uses=(host,))


def _argument(key: str, value: Any) -> Node:  # noqa: ANN401 - of a player's function
    if key in _DATA:
        return _node(decoded(value))
    if key == "requests":
        entries = [
            Named(f"{literal(name)}: ", Group("(", [_node(decoded(data)), *map(literal, own)], ")"))
            for name, (data, *own) in value.items()
        ]
        return Group("{", entries, "}")
    if key == "events":
        return Group("[", [literal(tuple(event)) for event in value], "]")
    return literal(value)


def _node(value: object) -> Node:
    """Return data as Python source, what is repeated as a product."""
    if isinstance(value, str | list) and len(value) > _REPEATED and value == value[:1] * len(value):
        return f"{flat(literal(value[:1]))} * {len(value)}"
    if isinstance(value, dict):
        entries = [Named(f"{flat(literal(key))}: ", _node(item)) for key, item in value.items()]
        return Group("{", entries, "}")
    if isinstance(value, list):
        return Group("[", [_node(item) for item in value], "]")
    return literal(value)
