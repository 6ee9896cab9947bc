# SPDX-License-Identifier: Apache-2.0
"""Checks of what clients send: answered, refused, and left as it is."""

from __future__ import annotations

import copy
from typing import Any

import attrs

from conformance.checking import checks
from conformance.findings import Finding, failed, inapplicable, passed, waiting
from conformance.io_processor.answers import Answer, Kind
from conformance.io_processor.bench import Bench
from conformance.io_processor.classics import IDS
from conformance.io_processor.direct import finished, prepared
from conformance.io_processor.engine import UNKNOWN, made_up
from conformance.io_processor.messages import request_of
from conformance.io_processor.parameters import asks
from conformance.io_processor.trial import SURVIVES, Trial
from conformance.verdict import Verdict
from conformance.watching.comparison import difference, plain, shortened
from conformance.watching.raised import said


@checks("IO-07")
def answered(trial: Trial) -> Finding:
    """Valid requests are answered, online and offline: judged once, whatever else is broken."""
    return trial.answered()


@checks(SURVIVES)
def survives(trial: Trial) -> Finding:
    """All that the other rules do with the plugin ends."""
    count = sum(trial.find(rule).examples for rule in trial.checks if rule != SURVIVES)
    return unanswered(trial) or passed(count)


def answers(trial: Trial) -> Finding:
    """Valid requests are answered, online and offline."""
    bench = trial.bench
    guessed: Finding | None = None
    nothing = True
    for index, data in enumerate(bench.stock.originals):
        for request_id, where in (("id-0", ""), (None, "offline, without a request id, ")):
            answer = bench.alone(index, request_id) if request_id else bench.try_offline(data)
            if answer.guessed:
                answer = _by_its_id(bench, data, request_id) or answer
            what = _ended(where, "valid", data, answer)
            if answer.guessed:
                guessed = guessed or made_up(what)
            elif answer.kind is not Kind.ANSWERED:
                return failed(what, case={"data": data, "index": index})
            nothing = nothing and answer.data is None
    if nothing and not guessed:
        return _nothing(bench)
    if why := guessed or _by_any_id(bench):
        return why
    return guessed or passed(2 * bench.stock.given)


def _both(bench: Bench, data: object) -> tuple[tuple[str, Answer], ...]:
    """Return what a request gets online and offline, each behind how a sentence begins then."""
    return ("", bench.answer_to(data)), ("offline, ", bench.try_offline(data))


def _ended(where: str, kind: str, data: object, answer: Answer) -> str:
    """Say how a request ended: online, or *where* else, in which there is no HTTP."""
    how = answer.describe(served=not where)
    return f"{where}the {kind} request {shortened(data)} {how}"


def _by_any_id(bench: Bench) -> Finding | None:
    """Return which id of a client a request is not answered by, as a finding, or None."""
    for name in sorted({name for pair in IDS for name in pair}):
        answer = bench.alone(0, name)
        if answer.kind is not Kind.ANSWERED:
            data = bench.stock.valid[0]
            what = f"the valid request {shortened(data)} with the request id {name!r}"
            return failed(f"{what} {answer.describe()}", case={"data": data})
    return None


def _nothing(bench: Bench) -> Finding:
    """Return what it is that every valid request is answered with nothing."""
    what = "every valid request was answered with nothing: post_process returned None"
    plugin = bench.make()
    asks(plugin, bench)()
    return made_up(what) if plugin.guessing else failed(what)


def no_longer(trial: Trial) -> Finding | None:
    """Return which valid request is answered no more, though it was, by a new instance."""
    bench = trial.bench
    if trial.answered().verdict is not Verdict.PASS:
        return None
    for data in bench.stock.originals:
        for where, answer in _both(bench, data):
            if answer.kind is not Kind.ANSWERED:
                return failed(
                    f"{_ended(where, 'valid', data, answer)}; before, it was answered: "
                    "what requests leave behind outlives the instance",
                    case={"data": data, "late": True},
                )
    return None


def _by_its_id(
    bench: Bench,
    data: object,
    request_id: str | None,
) -> Answer | None:
    """Return what goes wrong with a request id, or without, and only so, on the same outputs.

    Then it is no matter of the outputs, whoever made them up.
    """
    try:
        outputs = prepared(bench.make(), bench, data)
    except Exception:  # noqa: BLE001 - told where the request is served
        return None
    raised: dict[str | None, Answer] = {}
    for one in ("id-0", None):
        plugin = bench.make()
        try:
            prepared(plugin, bench, data, one)
            finished(plugin, bench, copy.deepcopy(outputs), one)
        except Exception as error:  # noqa: BLE001 - an answer like any other
            raised[one] = attrs.evolve(plugin.answer(error), guessed=False)
    return raised.get(request_id) if len(raised) == 1 else None


def unanswered(trial: Trial) -> Finding | None:
    """Return why a rule has to wait where valid requests may not be answered, or None."""
    found = trial.answered()
    return waiting("IO-07", UNKNOWN) if found.verdict is Verdict.NOT_VERIFIED else None


@checks("IO-08", after=("IO-38",))
def refuses(trial: Trial) -> Finding:
    """Requests that the profile calls invalid are answered neither online nor offline."""
    if why := _no_invalid(trial.bench) or unserved(trial):
        return why
    guessed: Finding | None = None
    for data in trial.bench.stock.invalid:
        for where, answer in _both(trial.bench, data):
            if answer.kind is Kind.REFUSED or (answer.kind is Kind.FAILED and not answer.guessed):
                continue
            what = _ended(where, "invalid", data, answer)
            if not answer.guessed:
                return failed(what, case={"data": data})
            guessed = guessed or made_up(what)
    return guessed or passed(2 * len(trial.bench.stock.invalid))


def _no_invalid(bench: Bench) -> Finding | None:
    """Return the finding that a rule about invalid requests does not apply, or None."""
    if bench.stock.invalid:
        return None
    return inapplicable("the profile names no invalid request")


def unserved(trial: Trial) -> Finding | None:
    """Return the finding that a rule has to wait where valid requests are not answered, or None."""
    bench = trial.bench
    kinds = {bench.alone(index).kind for index in range(bench.stock.given)}
    if kinds == {Kind.ANSWERED}:
        return None
    return unanswered(trial) or waiting("IO-07")


@checks("IO-11")
def pure(trial: Trial) -> Finding:
    """The data of a request are the same afterwards."""
    bench = trial.bench
    for data in bench.stock.originals:
        mine = copy.deepcopy(data)
        plugin = bench.make()
        bench.offline.serve(plugin, mine, task=bench.task_to_name)
        if what := difference(plain(mine), plain(data)):
            return failed(
                f"after the request {shortened(data)} was served, its data had {what}",
                case={"data": data},
            )
    return passed(bench.stock.given)


@checks("IO-12")
def forms(trial: Trial) -> Finding:
    """``parse_request`` gives the same for every form of the same data."""
    bench = trial.bench
    for data in bench.stock.originals:
        wanted = _prompts(trial, request_of(copy.deepcopy(data)))
        for what, form in (
            ("the dictionary of offline inference", {"data": copy.deepcopy(data)}),
            ("bare data", copy.deepcopy(data)),
        ):
            try:
                got = _prompts(trial, form)
            except Exception as error:  # noqa: BLE001 - the plugin may raise anything
                why = said(error, bench.path)
                return failed(
                    f"parse_request of {what} {shortened(form)} raised {why}", case={"data": data}
                )
            if found := difference(got, wanted):
                return failed(
                    f"parse_request of {what} {shortened(form)} gave {found}", case={"data": data}
                )
    return passed(2 * bench.stock.given)


def _prompts(trial: Trial, form: object) -> Any:  # noqa: ANN401 - any form of a request
    made = trial.bench.make()
    return plain(made.pre_process(prompt=made.parse_request(form), request_id="id-0"))
