# SPDX-License-Identifier: Apache-2.0
"""The programs of checks of logits processors call what they hold as it wants to be called."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from conformance.counterexample import program
from conformance.counterexample.logits_checks import PLAYED

#: What checks say of their failures, all of it at once.
SAID: dict[str, Any] = {
    "choice": ["on", 0],
    "masked": [[67], 0, 512, 7],
    "warm": "dummy runs",
    "waits": "item",
    "lengths": [2, 0, 2103],
    "pauses": [1200, 90_000],
    "invalid": [{"extra_args": {"target": "x"}}],
}


@pytest.mark.parametrize("bare", [True, False])
@pytest.mark.parametrize("draws", ["", "random"])
@pytest.mark.parametrize("rule", PLAYED)
def test_what_plays_a_failure_gets_what_it_takes(rule: str, draws: str, *, bare: bool) -> None:
    """Every argument that has no default, and none that it does not know."""
    said = {**SAID, "draws": draws}
    tree = ast.parse(program(_case(rule, said, bare=bare)))
    called = _called(tree)
    assert isinstance(called.func, ast.Name)
    (played,) = (
        node.args
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == called.func.id
    )
    names = [argument.arg for argument in (*played.args, *played.kwonlyargs)][1:]

    given = [keyword.arg for keyword in called.keywords]

    assert set(given) <= set(names)
    assert set(names[: len(names) - len(played.defaults)]) <= set(given)


def _called(tree: ast.Module) -> ast.Call:
    """Return the call at the end of a program, of which it says what is wrong."""
    (found,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "fault"
    )
    assert isinstance(found, ast.Call)
    return found


def _case(rule: str, said: dict[str, Any], *, bare: bool) -> dict[str, Any]:
    return {
        "rule": rule,
        "generation": "logits/batch" if rule.startswith("LB") else "logits/slot",
        "target": "lines:Lines",
        "plugin": {"module": "lines", "qualname": "Lines", "root": None},
        "counterexample": {
            "rule": rule,
            "seed": 7,
            "bare": bare,
            "calls": [],
            "logits": {"vocabulary": 512, "tokens": [67, 5], "prompt": [67, 5]},
            "parameters": [
                {"choice": ["on", 0], "keywords": {"extra_args": {"target": 67}}},
                {"choice": ["off", 0], "keywords": {}},
            ],
            "expect": {"is": "script", **said},
        },
    }
