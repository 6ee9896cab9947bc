# SPDX-License-Identifier: Apache-2.0
"""Whether instances of a plugin share state: a request of one is felt in another one."""

from __future__ import annotations

from collections.abc import Callable

from conformance.findings import Finding, failed
from conformance.inputs.history import Choice, label
from conformance.logits.calls import PluginRaised
from conformance.logits.findings import switched_on
from conformance.logits.requests import Stock
from conformance.logits.rows import RowsAlone, alike
from conformance.verdict import Verdict
from conformance.watching.interruption import limited

#: Steps of each request: what is kept shows only when the plugin acts.
STEPS = 8


def shares_nothing(
    bench: Stock, rows_alone: RowsAlone, raised_again: Callable[[], str | None]
) -> Finding:
    """Serve a request by each of two instances, a step of one and a step of the other in turn.

    Args:
        bench: the plugin.
        rows_alone: serves a request alone.
        raised_again: says what is raised because other instances have served requests before.

    Raises:
        PluginRaised: the plugin raised for a request of the only instance, too.

    """
    pairs = _pairs(bench)
    for pair in pairs:
        try:
            step = _felt(bench, rows_alone, pair)
        except PluginRaised:
            if said := raised_again():
                return failed(said, len(pairs))
            raise
        if step:
            first, second = map(label, pair)
            return failed(
                f"two instances serve a request each ({first} and {second}), and a row is not the "
                "one that its request gets where there is one instance",
                len(pairs),
                case={"choices": list(pair), "steps": step},
            )
    return Finding(Verdict.PASS, len(pairs), len(pairs))


def _pairs(bench: Stock) -> list[tuple[Choice, Choice]]:
    """Return a parameter set that switches on, with itself and two others."""
    on = switched_on(bench)
    choices = [*on, *(choice for choice in bench.parameters if choice[0] == "off")]
    others = dict.fromkeys((*choices[1:2], *choices[2:][-1:], *choices[:1]))
    return [(first, other) for first in choices[:1] for other in others]


def _felt(bench: Stock, rows_alone: RowsAlone, pair: tuple[Choice, Choice]) -> int:
    """Return how many steps it takes until a row is another one than alone; 0 if none is."""
    with limited():
        beside, again = (
            [rows_alone(bench, each, bench.behind(STEPS, each)) for each in pair] for _ in range(2)
        )
        alone = [[after.clone() for _, after in rows] for rows in again]
        try:
            for step in range(min(map(len, alone))):
                for run, expected in zip(beside, alone, strict=True):
                    if not alike(next(run)[1], expected[step]):
                        return step + 1
        except PluginRaised:
            return bench.behind(STEPS, *pair)
    return 0
