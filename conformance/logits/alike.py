# SPDX-License-Identifier: Apache-2.0
"""Parameter sets of a profile that nothing here could tell apart: advice, and no verdict."""

from __future__ import annotations

from contextlib import suppress
from itertools import combinations
from typing import Any

from conformance.inputs.history import Choice
from conformance.logits.calls import PluginMisshapen, PluginRaised
from conformance.logits.requests import Stock
from conformance.logits.rows import RowsAlone, alike
from conformance.watching.interruption import limited

ABOUT = "parameters of the profile that do the same, so that exchanging them would not be noticed"

#: Steps of each request, as far as a bench has logits for them.
STEPS = 16


def notes(bench: Stock, rows_alone: RowsAlone, count: int) -> list[dict[str, Any]]:
    """Return what a certificate says of the first sets that switch on, served alone."""
    rows: dict[int, list[Any]] = {}
    acted: set[int] = set()
    with suppress(PluginRaised, PluginMisshapen), limited():
        for index in range(count):
            choice: Choice = ("on", index)
            if choice not in bench.parameters:
                continue  # it is refused
            served = [
                (before.clone(), after.clone())
                for before, after in rows_alone(bench, choice, bench.behind(STEPS, choice))
            ]
            rows[index] = [after for _, after in served]
            if not all(alike(before, after) for before, after in served):
                acted.add(index)
    says = [
        f"on[{first}] and on[{second}] never gave different rows"
        for first, second in combinations(rows, 2)
        if acted & {first, second} and all(map(alike, rows[first], rows[second]))
    ]
    return [{"about": ABOUT, "says": says}] if says else []
