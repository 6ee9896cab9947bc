# SPDX-License-Identifier: Apache-2.0
"""Histories as counterexamples: enough to print one and to play it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from conformance.counterexample.source import encoded
from conformance.inputs import history
from conformance.inputs.history import Choice
from conformance.logits.played import Trouble
from conformance.logits.requests import PENALISED, Stock
from conformance.logits.sweeps import Example


def parameters(sets: Mapping[Choice, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return parameter sets as counterexamples have them."""
    return [
        {"choice": list(choice), "keywords": encoded(keywords)} for choice, keywords in sets.items()
    ]


def validation(keywords: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the calls by which ``validate_params`` is asked about a request."""
    return [
        {"do": "params", "name": "params", "of": "", "keywords": encoded(keywords)},
        {"do": "validate", "params": "params"},
    ]


def history_case(bench: Stock, example: Example, trouble: Trouble) -> dict[str, Any]:
    """Return a counterexample as data."""
    used = {request.choice for step in example.history for request in step.join}
    sets = dict(bench.parameters)
    if history.SENT in used:
        sets.setdefault(history.SENT, PENALISED)
    return {
        "kind": "history",
        "stratum": example.shape.name,
        "seed": bench.seed,
        "waits": bench.waits.document(),
        "history": history.to_json(example.history),
        "parameters": parameters(sets),
        "used": sorted(list(choice) for choice in used),
        "told": bench.told,
        "lines": [attrs.asdict(line) for line in example.played.lines],
        "trouble": attrs.asdict(trouble),
    }
