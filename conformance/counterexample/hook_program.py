# SPDX-License-Identifier: Apache-2.0
"""The program of a classifier hook's counterexample: its player, and the case as a literal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.counterexample import helpers
from conformance.counterexample.assembly import loading, played
from conformance.counterexample.source import Group, Named, Node, call, decoded, flat, literal

#: A text whose literal is longer is written in pieces of so many characters, each of which may be
#: ten columns wide.
_WIDEST, _PIECE = 80, 8


def program(case: Mapping[str, Any]) -> str:
    """Return the source of a program that shows a failure.

    Args:
        case: a case document whose counterexample has a ``program``: which function of
            :mod:`conformance.counterexample.hook_player` or ``hook_crowd_player`` plays it
            (``is``), with which arguments, and those of the hook's constructor (``arguments``).

    """
    shown = dict(case["counterexample"]["program"])
    name = "check_" + shown.pop("is").replace("-", "_")
    player, needs = helpers.player("hook", "hook_crowd"), "the plugin"
    arguments = decoded(shown.pop("arguments", {}))
    given_to = [Named("**", literal(arguments))] if arguments else []
    if name == "check_loading":
        new = Named("lambda plugin: ", call("plugin", *given_to))
        return loading(case, player, new, needs=f"torch and {needs}")
    make: Node = Named("lambda: ", call("Plugin", *given_to)) if arguments else "Plugin"
    if name == "check_shares":
        needs = f"torch and {needs}"
    given = [Named(f"{key}=", _node(decoded(value))) for key, value in shown.items()]
    return played(case, player, name, [make, *given], needs=needs)


def _node(value: object, brackets: str = "[]") -> Node:
    """Return an argument as Python source; a list within a list is a tuple."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return Group(brackets[0], [_node(item, "()") for item in value], brackets[1])
    return literal(value)


def _text(text: str) -> Node:
    """Return a text as Python source, in pieces where it is long and does not repeat itself."""
    if len(flat(literal(text))) <= _WIDEST:
        return literal(text)
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    return Group('"".join([', [literal(piece) for piece in pieces], "])")
