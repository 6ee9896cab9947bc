# SPDX-License-Identifier: Apache-2.0
"""Check IO-40: requests are answered what the author says, alone, offline and among others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance.checking import checks
from conformance.findings import Finding, failed, inapplicable, passed, unjudged
from conformance.io_processor.answers import Answer, Kind
from conformance.io_processor.bench import Bench
from conformance.io_processor.direct import prepared, served
from conformance.io_processor.meaning import RTOL, SILENT, Meaning
from conformance.io_processor.traffic import Asked, Do, History, Move
from conformance.io_processor.trial import Trial
from conformance.plugin.expectation import OracleFailed
from conformance.watching.comparison import shortened


def _unsaid(trial: Trial) -> Finding | None:
    """Return why the rule does not apply where the profile has no `expected`, or None."""
    if Meaning.of(trial.section) is not None:
        return None
    return inapplicable(SILENT)


@checks("IO-40", after=("IO-07", "IO-24"), beside=_unsaid)
def means(trial: Trial) -> Finding:
    """Each request is answered what its author says, alone and with all others at a time."""
    bench, meaning = trial.bench, Meaning.of(trial.section)
    assert meaning is not None
    told = [data for data, _ in meaning.told]
    given = range(bench.stock.given)
    wanted: dict[int, Any] = {}
    try:
        for index, data in enumerate(bench.stock.valid):
            if told and data not in told:
                continue
            try:
                wanted[index] = meaning.answer(data, prepared(bench.make(), bench, data))
            except OracleFailed:
                if index in given:  # of what the harness made of them, it need not know
                    raise
    except OracleFailed as error:
        return unjudged(str(error), len(wanted), len(wanted))
    count = 0
    for index, how, got in _answers(bench, wanted):
        count += 1
        if what := meaning.wrong(bench, got, wanted[index]):
            data = bench.stock.valid[index]
            case = {"data": data, "wanted": wanted[index], RTOL: meaning.rtol}
            why = f"for {shortened(data)} the plugin gave{how} {what}"
            return failed(why, count, case=case)
    return passed(count)


def _answers(bench: Bench, wanted: Mapping[int, Any]) -> Iterator[tuple[int, str, Any]]:
    """Yield every answer that requests get, and how they were asked for."""
    for index in wanted:
        for answer, how in (
            (bench.alone(index), ""),
            (bench.alone(index, awaited=True), ", by the awaited hooks,"),
        ):
            if answer.kind is Kind.ANSWERED:
                yield index, how, answer.data
        yield index, " offline", served(bench, bench.stock.valid[index], None)
    for index, answer in zip(wanted, _crowd(bench, list(wanted)), strict=True):
        if answer.kind is Kind.ANSWERED:
            yield index, ", among all others,", answer.data


def _crowd(bench: Bench, which: Sequence[int]) -> Sequence[Answer]:
    """Have one instance serve requests at the same time; return their answers."""
    requests = tuple(Asked(index, f"id-{place}") for place, index in enumerate(which))
    arrivals = tuple(Move(Do.ARRIVE, place) for place in range(len(which)))
    answers = bench.play(History(requests, arrivals)).answers
    return [answers[place] for place in range(len(which))]
