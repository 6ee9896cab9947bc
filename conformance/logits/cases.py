# SPDX-License-Identifier: Apache-2.0
"""Histories as counterexamples: enough to print one and to play it again."""

from __future__ import annotations

from typing import Any

import attrs

from conformance.counterexample.source import encoded
from conformance.inputs import history
from conformance.logits.played import Trouble
from conformance.logits.requests import PENALISED, Stock
from conformance.logits.sweeps import Example


def history_case(bench: Stock, example: Example, trouble: Trouble) -> dict[str, Any]:
    """Return a counterexample as data."""
    used = {request.choice for step in example.history for request in step.join}
    parameters = dict(bench.parameters)
    if history.SENT in used:
        parameters.setdefault(history.SENT, PENALISED)
    return {
        "kind": "history",
        "stratum": example.shape.name,
        "seed": bench.seed,
        "waits": bench.waits.document(),
        "history": history.to_json(example.history),
        "parameters": [
            {"choice": list(choice), "keywords": encoded(keywords)}
            for choice, keywords in parameters.items()
        ],
        "used": sorted(list(choice) for choice in used),
        "told": bench.told,
        "lines": [attrs.asdict(line) for line in example.played.lines],
        "trouble": attrs.asdict(trouble),
    }
