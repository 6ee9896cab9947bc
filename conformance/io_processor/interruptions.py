# SPDX-License-Identifier: Apache-2.0
"""Checks of awaited hooks whose request fails, or whose client disconnects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance.checking import checks
from conformance.comparison import shortened
from conformance.findings import Finding, failed, passed
from conformance.io_processor.answers import Kind
from conformance.io_processor.bench import Bench
from conformance.io_processor.calling import none_awaited, overridden
from conformance.io_processor.traffic import Asked, Do, History, Move
from conformance.io_processor.trial import Trial

#: After how many outputs something happens, at most.
MOST = 3


@checks("IO-20", after=("IO-06", "IO-18"))
def errors(trial: Trial) -> Finding:
    """An engine that fails reaches the client, and every generator is closed."""
    bench = trial.bench
    if "post_process_async" not in overridden(bench):
        return none_awaited()
    return _judged(bench, Do.FAIL, Kind.FAILED, "the engine failed output {place} of {data}")


@checks("IO-34", after=("IO-06", "IO-18"))
def cancelled(trial: Trial) -> Finding:
    """A client that leaves ends its request, whatever it waits for."""
    bench = trial.bench
    if not overridden(bench):
        return none_awaited()
    said = "the client of {data} disconnected after {place} outputs"
    return _judged(bench, Do.LEAVE, Kind.CANCELLED, said)


def _judged(bench: Bench, what: Do, end: Kind, said: str) -> Finding:
    """Judge that requests to which something happens end in a way, and leave nothing open."""
    count = 0
    for count, (history, data, place) in enumerate(_histories(bench, what), 1):
        played = bench.play(history, awaited=True)
        answer = played.answers[0]
        wrong = None
        if played.late:
            wrong = "the request went on"
        elif answer.kind is not end:
            wrong = f"the request {answer.describe()}"
        elif played.open:
            wrong = "outputs that it waited for were left open"
        if wrong:
            happened = said.format(data=shortened(data), place=place)
            case = {"data": data, "place": place}
            return failed(f"{happened}, and {wrong}", count, case=case)
    return passed(count, count)


def _histories(bench: Bench, what: Do) -> Iterator[tuple[History, Any, int]]:
    """Yield histories of one request to which something happens, its data, and after what."""
    stock = bench.stock
    for index in stock.several() or range(stock.given):
        for place in range(min(max(stock.prompts[index], 1), MOST)):
            moves = (Move(Do.ARRIVE, 0), *[Move(Do.DELIVER, 0)] * place, Move(what, 0))
            yield History((Asked(index, "id-0"),), moves), stock.valid[index], place
