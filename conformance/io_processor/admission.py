# SPDX-License-Identifier: Apache-2.0
"""Checks of what clients send: answered, refused, and left as it is."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import attrs
import hypothesis
from hypothesis import HealthCheck, Phase

from conformance.comparison import difference, first_line, plain, shortened
from conformance.findings import Finding, failed, passed, waiting
from conformance.io_processor import stock
from conformance.io_processor.answers import Kind
from conformance.io_processor.direct import finished, prepared
from conformance.io_processor.host import request_of
from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from conformance.io_processor.answers import Answer
    from conformance.io_processor.bench import Bench
    from conformance.io_processor.trial import Trial

HOSTILE = {Budget.QUICK: 60, Budget.STANDARD: 150, Budget.DEEP: 600}


def answers(trial: Trial) -> Finding:
    """Valid requests are answered, online and offline."""
    bench = trial.bench
    guessed: Finding | None = None
    for index in range(bench.stock.given):
        data = bench.stock.valid[index]
        for request_id, where in (("id-0", ""), (None, "offline, without a request id, ")):
            answer = bench.alone(index, request_id) if request_id else bench.try_offline(data)[0]
            if answer.guessed:
                answer = _by_its_id(bench, data, request_id) or answer
            if answer.guessed:
                guessed = guessed or made_up(
                    f"{where}the valid request {shortened(data)} {answer.describe()}"
                )
            elif answer.kind is not Kind.ANSWERED:
                return failed(
                    f"{where}the valid request {shortened(data)} {answer.describe()}",
                    case={"data": data, "index": index},
                )
    count = 2 * bench.stock.given
    return guessed or passed(count, count)


#: Why others wait then.
UNKNOWN = "what the model's own pooler returns is not known here"


def made_up(trouble: str) -> Finding:
    """Return that trouble proves nothing, since an output was made up for the plugin."""
    return Finding(
        Verdict.NOT_VERIFIED,
        message=f"{trouble}, on an output that the simulator made up, since only a model can tell "
        "what its own pooler returns: offline evidence shows it, with the plugin's model in "
        "[io-processor] model",
    )


def _by_its_id(
    bench: Bench,
    data: Any,  # noqa: ANN401 - JSON values
    request_id: str | None,
) -> Answer | None:
    """Return what goes wrong with a request id, or without, and only so, on the same outputs.

    Then it is no matter of the outputs, whoever made them up.
    """
    try:
        outputs = prepared(bench.make(), bench, data, "id-0")
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
    """Return that a rule has to wait, where it is not known whether valid requests are answered."""
    found = trial.answered()
    return waiting("IO-07", UNKNOWN) if found.verdict is Verdict.NOT_VERIFIED else None


def refuses(trial: Trial) -> Finding:
    """Requests that the profile calls invalid are the client's error, online and offline."""
    if why := _no_invalid(trial.bench) or _unserved(trial):
        return why
    guessed: Finding | None = None
    for data in trial.bench.stock.invalid:
        for where, answer in (
            ("", trial.bench.try_online(data).answers[0]),
            ("offline, ", trial.bench.try_offline(data)[0]),
        ):
            if answer.kind is Kind.REFUSED:
                continue
            what = f"{where}the invalid request {shortened(data)} {answer.describe()}"
            if not answer.guessed:
                return failed(what, case={"data": data})
            guessed = guessed or made_up(what)
    count = 2 * len(trial.bench.stock.invalid)
    return guessed or passed(count, count)


def _no_invalid(bench: Bench) -> Finding | None:
    """Return that a rule about invalid requests does not apply, or None."""
    if bench.stock.invalid:
        return None
    return Finding(Verdict.NOT_APPLICABLE, message="the profile names no invalid request")


def _unserved(trial: Trial) -> Finding | None:
    """Return that a rule has to wait where valid requests are not answered, or None."""
    bench = trial.bench
    kinds = {bench.alone(index, "id-0").kind for index in range(bench.stock.given)}
    if kinds == {Kind.ANSWERED}:
        return None
    return unanswered(trial) or waiting("IO-07")


def early(trial: Trial) -> Finding:
    """Invalid requests never get to the engine."""
    if why := _no_invalid(trial.bench) or _unserved(trial):
        return why
    for data in trial.bench.stock.invalid:
        played = trial.bench.try_online(data)
        if played.answers[0].kind is not Kind.REFUSED:
            continue  # another rule is about that
        if any(call.name.startswith("post_process") for call in played.calls):
            return failed(
                f"the engine worked for the invalid request {shortened(data)} before it "
                + played.answers[0].describe(),
                case={"data": data},
            )
    return passed(len(trial.bench.stock.invalid), len(trial.bench.stock.invalid))


class _Broken(Exception):
    """The example breaks the rule."""


def hostile(trial: Trial) -> Finding:
    """Whatever JSON a client sends is answered or refused."""
    bench = trial.bench
    valid = bench.stock.valid[: bench.stock.given]
    if why := _unserved(trial):
        return why
    tried = _Tried(trial)
    try:
        _draw(tried, stock.hostile(valid), HOSTILE[trial.budget])
        for data in stock.extreme(valid):
            tried.ask(data)
    except _Broken:
        data, answer = min(tried.failed, key=lambda entry: len(shortened(entry[0], 10_000)))
        return failed(
            f"the request {shortened(data)} {answer.describe()}", tried.count, case={"data": data}
        )
    return tried.guessed or passed(tried.count, tried.refused)


@attrs.define
class _Tried:
    """What a plugin did with the requests of hostile clients."""

    trial: Trial
    count: int = 0
    refused: int = 0
    failed: list[tuple[Any, Answer]] = attrs.field(factory=list)
    #: The first that ended with an error which proves nothing.
    guessed: Finding | None = None

    def ask(self, data: Any) -> None:  # noqa: ANN401 - JSON values
        """Make a request.

        Raises:
            _Broken: it ended with the server's error.

        """
        self.count += 1
        if data is None:
            return  # vLLM itself refuses a request without data
        answer = self.trial.bench.try_online(data).answers[0]
        self.refused += answer.kind is Kind.REFUSED
        if answer.guessed and answer.kind is Kind.FAILED:
            self.guessed = self.guessed or made_up(
                f"the request {shortened(data)} {answer.describe()}"
            )
        elif answer.kind is Kind.FAILED:
            self.failed.append((data, answer))
            raise _Broken


def _draw(tried: _Tried, requests: SearchStrategy[Any], most: int) -> None:
    """Make requests that Hypothesis draws, and look for the smallest that goes wrong.

    Raises:
        _Broken: one did.

    """

    @hypothesis.seed(tried.trial.bench.seed)
    @hypothesis.settings(
        max_examples=most,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(requests)
    def body(data: Any) -> None:  # noqa: ANN401 - JSON values
        tried.ask(data)

    try:
        body()
    except hypothesis.errors.HypothesisException as error:
        if tried.failed:
            raise _Broken from error
        raise


def pure(trial: Trial) -> Finding:
    """The data of a request are the same afterwards."""
    bench = trial.bench
    for index in range(bench.stock.given):
        data = bench.stock.valid[index]
        mine = copy.deepcopy(data)
        plugin = bench.make()
        bench.offline.serve(plugin, mine)
        if what := difference(plain(mine), plain(data)):
            return failed(
                f"after the request {shortened(data)} was served, its data had {what}",
                case={"data": data},
            )
    return passed(bench.stock.given, bench.stock.given)


def forms(trial: Trial) -> Finding:
    """``parse_request`` gives the same for every form of the same data."""
    bench = trial.bench
    for index in range(bench.stock.given):
        data = bench.stock.valid[index]
        wanted = _prompts(trial, request_of(copy.deepcopy(data)))
        for what, form in (
            ("the dictionary of offline inference", {"data": copy.deepcopy(data)}),
            ("bare data", copy.deepcopy(data)),
        ):
            try:
                got = _prompts(trial, form)
            except Exception as error:  # noqa: BLE001 - the plugin may raise anything
                why = f"raised {type(error).__name__}: {first_line(str(error))}"
                return failed(f"parse_request of {what} {shortened(form)} {why}")
            if found := difference(got, wanted):
                return failed(f"parse_request of {what} {shortened(form)} gave {found}")
    return passed(2 * bench.stock.given, 2 * bench.stock.given)


def _prompts(trial: Trial, form: Any) -> Any:  # noqa: ANN401 - any form of a request
    made = trial.bench.make()
    return plain(made.pre_process(prompt=made.parse_request(form), request_id="id-0"))
