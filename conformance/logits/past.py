# SPDX-License-Identifier: Apache-2.0
"""Whether the rows of a request depend on which requests the process has served before.

What a module or a class keeps, such as a cache with too small a key, is filled by the first
requests of a process.  All later ones then get the same, alone or in a batch, so no history shows
it: only another process does, which has served them in another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import attrs

from conformance.counterexample.source import encoded
from conformance.findings import Finding, failed
from conformance.inputs.history import Choice
from conformance.logits.calls import PluginRaised, call
from conformance.logits.fuzzing.values import positions, readable
from conformance.logits.neighbours import near
from conformance.logits.processes import Errand, Rows, apart, asking, rows_for
from conformance.logits.rows import RowsAlone
from conformance.logits.trial import Trial
from conformance.settings import UsageError
from conformance.verdict import Verdict
from conformance.watching.interruption import PluginHung, limited
from conformance.watching.untouched import ERRANDS

#: Requests that are served in one order and in the other, at most.
MOST = 12

#: Steps of each.
STEPS = 4


@attrs.frozen
class Order:
    """An errand: serve requests one after the other, each by an instance of its own."""

    plain: Errand  #: what the bench is made of
    order: tuple[Choice, ...]
    what: str = "past"


def _serve(plugin: type[Any], asked: Order) -> dict[Choice, Rows]:
    bench = asked.plain.bench_of(plugin)
    return {choice: _rows(bench, choice, asked.plain.rows_alone) for choice in asked.order}


def _rows(bench: Any, choice: Choice, rows_alone: RowsAlone) -> Rows:  # noqa: ANN401 - the bench of a generation
    try:
        with limited():
            call("validate_params", bench.plugin.validate_params, bench.params(choice))
        return rows_for(bench, choice, rows_alone, STEPS)
    except (PluginRaised, PluginHung, UsageError) as error:
        return str(error)


ERRANDS["past"] = _serve


def independent(trial: Trial) -> Finding:
    """Serve requests in a process that has served none, in one order and in the other."""
    sets = {**trial.bench.parameters, **dict(_more(trial.bench.parameters))}
    plain = attrs.evolve(asking(trial, "past"), parameters=sets)

    def served(*order: Choice) -> dict[Choice, Rows]:
        rows: dict[Choice, Rows] = trial.untouched.run(Order(plain, order))
        return rows

    passed = Finding(Verdict.PASS, len(sets), len(sets))
    try:
        first, last = served(*sets), served(*reversed(sets))
        changed = [choice for choice in sets if apart(last[choice], first[choice])]
        if not changed:
            return passed
        again = served(*sets)  # what is drawn at random is another rule's
        for choice in changed:
            if apart(again[choice], first[choice]):
                continue
            alone = served(choice)[choice]
            for other, before in sets.items():
                if other != choice and (what := apart(served(other, choice)[choice], alone)):
                    return _failure(before, sets[choice], what, len(sets))
    except EOFError:
        return passed  # the rules about ending and hanging say so
    return passed


def _more(parameters: Mapping[Choice, Mapping[str, Any]]) -> Iterator[tuple[Choice, Any]]:
    """Yield requests that differ from one that switches on in a single value."""
    given = [dict(keywords) for choice, keywords in parameters.items() if choice[0] == "on"]
    start = len(parameters)
    streams = [near(keywords, path) for keywords in given for path in positions(keywords)]
    drawn = (each for stream in streams for each in stream)
    for index, keywords in enumerate(islice(drawn, MOST - min(MOST, start)), start):
        yield ("near", index), keywords


def _failure(before: Any, request: Any, what: str, count: int) -> Finding:  # noqa: ANN401 - keywords
    said = (
        f"SamplingParams({readable(request)}) gets another row where "
        f"SamplingParams({readable(before)}) was served before it in the same process, by another "
        f"instance: {what}"
    )
    past = [encoded(before), encoded(request)]
    case = {"calls": [], "expect": {"is": "script", "past": past}, "hangs": False}
    return failed(said, count, case=case)
