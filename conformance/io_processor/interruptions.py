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
    count = 0
    for history, data, place in _histories(bench, Do.FAIL):
        played = bench.play(history, awaited=True)
        count += 1
        answer = played.answers[0]
        said = f"the engine failed output {place} of {shortened(data)}"
        case = {"data": data, "place": place}
        if answer.kind is not Kind.FAILED:
            return failed(f"{said}, and the request {answer.describe()}", count, case=case)
        if played.open:
            left = f"{said}, and outputs that it waited for were left open"
            return failed(left, count, case=case)
    return passed(count, count)


@checks("IO-34", after=("IO-06", "IO-18"))
def cancelled(trial: Trial) -> Finding:
    """A client that leaves ends its request, whatever it waits for."""
    bench = trial.bench
    if not overridden(bench):
        return none_awaited()
    count = 0
    for history, data, place in _histories(bench, Do.LEAVE):
        played = bench.play(history, awaited=True)
        count += 1
        answer = played.answers[0]
        said = f"the client of {shortened(data)} disconnected after {place} outputs"
        case = {"data": data, "place": place}
        if played.late:
            return failed(f"{said}, and the request went on", count, case=case)
        if answer.kind is not Kind.CANCELLED:
            return failed(f"{said}, and the request {answer.describe()}", count, case=case)
        if played.open:
            left = f"{said}, and outputs that it waited for were left open"
            return failed(left, count, case=case)
    return passed(count, count)


def _histories(bench: Bench, what: Do) -> Iterator[tuple[History, Any, int]]:
    """Yield histories of one request to which something happens, its data, and after what."""
    stock = bench.stock
    for index in stock.several() or range(stock.given):
        for place in range(min(max(stock.prompts[index], 1), MOST)):
            moves = (Move(Do.ARRIVE, 0), *[Move(Do.DELIVER, 0)] * place, Move(what, 0))
            yield History((Asked(index, "id-0"),), moves), stock.valid[index], place
