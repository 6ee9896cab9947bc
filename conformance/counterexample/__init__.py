# SPDX-License-Identifier: Apache-2.0
"""From a case document to a program that shows the failure without this harness.

Knows neither vLLM nor torch: what was done to the plugin is in the document, call by call.
"""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any

from conformance.generations import named
from conformance.plugin.target import Plugin

#: What only a program needs of a counterexample.
FIELDS = frozenset({"calls", "events", "expect", "bare", "logits", "program", "variables"})

__all__ = ["FIELDS", "of_loading", "program"]


def program(case: Mapping[str, Any]) -> str:
    """Return the source of a program that shows a failure.

    It imports what the plugin imports, vLLM and torch, and nothing of this project.  It exits with
    status 1 and says what it got and what it expected while the fault is there, and with 0 when it
    is gone.

    Args:
        case: a case document whose counterexample has some of :data:`FIELDS`.

    """
    name = named(case["generation"]).program
    assert name is not None, case["generation"]
    source: str = resolve_name(name)(case)
    return source


def of_loading(plugin: Plugin) -> dict[str, Any] | None:
    """Return the counterexample of a class that vLLM's loader refuses, if it can be named."""
    generation = named(plugin.generation)
    if not plugin.qualname or generation.loader is None:
        return None
    return {
        "kind": "calls",
        "rule": generation.loading_rule,
        "seed": 0,
        "parameters": [],
        "logits": None,
        "calls": [{"do": "load", "loader": generation.loader, "fqcn": plugin.fqcn}],
        "expect": {"is": "raises-nothing"},
        "bare": True,
    }
