# SPDX-License-Identifier: Apache-2.0
"""The program of a classifier hook's counterexample: texts, what is done with them, the verdict."""

from __future__ import annotations

import re
from string import Template
from typing import TYPE_CHECKING, Any

from conformance.counterexample.hook_functions import FUNCTIONS
from conformance.counterexample.hook_scripts import SCRIPTS
from conformance.counterexample.source import Group, Node, decoded, flat, laid_out, literal

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A text that is one thing again and again, so many times, is written as a product.
_REPEATED = 20

#: A text whose literal is longer is written in pieces of so many characters, each of which may be
#: ten columns wide.
_WIDEST, _PIECE = 80, 8

#: What an attribute must be, as an expression and in words.
_GOOD = {
    "name": (
        "isinstance(value, str) and value.strip() and value == new().name",
        "a text that is not empty, the same for every instance",
    ),
    "blocking": ("isinstance(value, bool)", "True or False"),
    "timeout_ms": (
        "isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 86_400_000",
        "an int of 1 to the milliseconds of a day",
    ),
    "on_error": ('value in ("block", "allow")', "'block' or 'allow'"),
}


def parts(case: Mapping[str, Any]) -> tuple[list[str], str]:
    """Return the functions of a program, and its statements.

    Args:
        case: a case document whose counterexample has a ``program``; see
            :mod:`conformance.classifier_hook.demonstrations`.

    """
    shown = case["counterexample"]["program"]
    body = Template(SCRIPTS[shown["is"]]).substitute(_words(shown))
    found = _functions(body)
    needed = "\n".join([*found, body])
    constants = []
    if re.search(r"\bARGUMENTS\b", needed):
        constants.append(_constant("ARGUMENTS", literal(decoded(shown.get("arguments", {})))))
    if re.search(r"\bHIDDEN\b", needed):
        about = "# Places that differ from one time to the next anyway.\n"
        hidden = list(shown.get("hidden", ()))
        constants.append((about if hidden else "") + _constant("HIDDEN", literal(hidden)))
    if re.search(r"\bTEXT\b", needed):
        constants.append(_constant("TEXT", _text(decoded(shown["text"]))))
    if re.search(r"\bTEXTS\b", needed):
        texts = [_text(decoded(text)) for text in shown["texts"]]
        constants.append(_constant("TEXTS", Group("[", texts, "]")))
    if re.search(r"\bCALLS\b", needed):
        about = (
            "# Text, request id, turns of the loop until the next call, the wait it leaves at.\n"
        )
        calls = [
            Group("(", [_text(decoded(text)), *map(literal, rest)], ")")
            for text, *rest in shown["calls"]
        ]
        constants.append(about + _constant("CALLS", Group("[", calls, "]")))
    return [*constants, *found], body


def _constant(name: str, value: Node) -> str:
    return "\n".join(laid_out(value, before=f"{name} = ")) + "\n"


def _text(text: str) -> Node:
    """Return a text as Python source, what is repeated as a product."""
    for size in (1, 5):
        first = text[:size]
        if len(text) > _REPEATED * size and text == first * (len(text) // size):
            return f"{flat(literal(first))} * {len(text) // size}"
    if len(flat(literal(text))) <= _WIDEST:
        return literal(text)
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    return Group('"".join([', [literal(piece) for piece in pieces], "])")


def _words(shown: Mapping[str, Any]) -> dict[str, str]:
    """Return the words of a script that its counterexample chooses."""
    good, wanted = _GOOD.get(shown.get("attribute", ""), ("", ""))
    blocks = shown.get("blocks")
    decision = "a truthy 'block'" if blocks else "no truthy 'block'"
    what = shown.get("what", "")
    return {
        "attribute": shown.get("attribute", ""),
        "good": good,
        "wanted": decision if blocks is not None else wanted,
        "blocks": str(blocks),
        "what": what,
        "which": str(int(what == "worked")),
        "wait": str(shown.get("wait", 1)),
        "turns": str(shown.get("turns", 0)),
        "changes": "".join(
            f", {name}={_change(decoded(value))}"
            for name, value in shown.get("changes", {}).items()
        ),
    }


def _change(value: Any) -> str:  # noqa: ANN401 - a field of a context
    """Return a field as it is in contexts: read-only."""
    source = flat(literal(value))
    if isinstance(value, dict):
        return f"MappingProxyType({source})"
    return source


def _functions(body: str) -> list[str]:
    """Return the functions that a program needs."""
    needed: set[str] = set()
    waiting = [body]
    while waiting:
        text = waiting.pop()
        for name in FUNCTIONS.keys() - needed:
            if re.search(rf"\b{name}\b[(),]", text):
                needed.add(name)
                waiting.append(FUNCTIONS[name])
    return [text for name, text in FUNCTIONS.items() if name in needed]
