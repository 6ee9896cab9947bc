# SPDX-License-Identifier: Apache-2.0
"""From a case document to a program that shows the failure without this harness.

Knows neither vLLM nor torch: what was done to the plugin is in the document, call by call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conformance.counterexample.program import program

if TYPE_CHECKING:
    from conformance.target import Plugin

#: What only a program needs of a counterexample.
FIELDS = frozenset({"calls", "expect", "bare", "logits"})

__all__ = ["FIELDS", "of_loading", "program"]


def of_loading(plugin: Plugin) -> dict[str, Any] | None:
    """Return the counterexample of a class that vLLM's loader refuses, if it can be named."""
    if not plugin.qualname or plugin.generation != "logits/batch":
        return None
    return {
        "kind": "calls",
        "rule": "LB-01",
        "seed": 0,
        "parameters": [],
        "logits": None,
        "calls": [{"do": "load", "fqcn": plugin.fqcn}],
        "expect": {"is": "raises-nothing"},
        "bare": True,
    }
