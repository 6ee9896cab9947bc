# SPDX-License-Identifier: Apache-2.0
"""From a case document to a program that shows the failure without this harness.

Knows neither vLLM nor torch: what was done to the plugin is in the document, call by call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conformance.counterexample.program import program
from conformance.generations import named

if TYPE_CHECKING:
    from conformance.target import Plugin

#: What only a program needs of a counterexample.
FIELDS = frozenset({"calls", "events", "expect", "bare", "logits", "program"})

#: vLLM's function that finds a class by its name, for each generation.
LOADERS = {
    "logits/batch": "_load_logitsprocs_by_fqcns",
    "logits/slot": "_load_v2_logitsprocs_by_fqcns",
}

__all__ = ["FIELDS", "of_loading", "program"]


def of_loading(plugin: Plugin) -> dict[str, Any] | None:
    """Return the counterexample of a class that vLLM's loader refuses, if it can be named."""
    if not plugin.qualname or plugin.generation not in LOADERS:
        return None
    return {
        "kind": "calls",
        "rule": named(plugin.generation).loading_rule,
        "seed": 0,
        "parameters": [],
        "logits": None,
        "calls": [{"do": "load", "loader": LOADERS[plugin.generation], "fqcn": plugin.fqcn}],
        "expect": {"is": "raises-nothing"},
        "bare": True,
    }
