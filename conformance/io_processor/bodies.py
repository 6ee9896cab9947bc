# SPDX-License-Identifier: Apache-2.0
"""Checks of whatever a client may send, in a process that it may end, stall or fill.

Each place of a valid request gets values of other types, sizes and structures, the smallest first,
and becomes as long as a megabyte; Hypothesis draws others.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice, product
from operator import itemgetter
from typing import Any

import attrs
from hypothesis.errors import HypothesisException
from vllm.renderers.inputs.preprocess import prompt_to_seq

from conformance.checking import checks
from conformance.coverage import lines
from conformance.findings import Finding, failed, inapplicable, passed
from conformance.inputs import literals, oddities
from conformance.inputs.oddities import spread
from conformance.io_processor import stock
from conformance.io_processor.addresses import PATIENCE, SilentServer, naming
from conformance.io_processor.admission import unserved
from conformance.io_processor.answers import Answer, Kind
from conformance.io_processor.bench import Bench
from conformance.io_processor.engine import EngineEnded, made_up
from conformance.io_processor.host import Beside
from conformance.io_processor.parameters import asks
from conformance.io_processor.prompts import prompts_of
from conformance.io_processor.trial import Trial
from conformance.io_processor.watched import AFTER_OUTPUTS
from conformance.search import IO_BODIES, draw
from conformance.search import Found as Shown
from conformance.settings import Budget
from conformance.watching import endurance
from conformance.watching.comparison import shortened
from conformance.watching.descriptors import Descriptors
from conformance.watching.endurance import Growth, Guard, Sent, Shares, Stalled, Trouble
from conformance.watching.interruption import OutOfTime, PluginExited, PluginHung, place_in
from conformance.watching.untouched import Untouched

#: Prompts of a long request that an engine serves, at most: that of the simulator, or a real one.
PROMPTS = 64

#: What clients may set beside data: fewer outputs come of a prompt then, or more.
BESIDE: tuple[Beside, ...] = (
    (("truncate_prompt_tokens", 1),),
    (("truncate_prompt_tokens", 2), ("truncation_side", "left")),
    (("padding", "max_length"),),
)

#: What a message shows of a request.
SHOWN = 60

#: Requests that reach new lines, and of each outcome, for a real server, if none does harm here.
NEAREST = 8

#: What messages say of a call that waits for a server which never answers.
_FOR_EVER = (
    "fetches from an address that the client names and sets no time limit: it waits for ever for a "
    "server that takes the connection and says nothing"
)


@attrs.frozen
class Asked:
    """What the other process needs to send everything."""

    generation: str
    model: str
    seed: int
    most: int  #: requests that Hypothesis draws
    valid: tuple[Any, ...]
    invalid: tuple[Any, ...]
    keys: tuple[str, ...] = ()  #: what the plugin looks for


@attrs.frozen
class Found:
    """What became of everything that was sent."""

    count: int
    refused: int
    answered: int
    failed: tuple[Any, Answer] | None = None  #: the smallest that ended with the server's error
    guessed: str | None = None  #: trouble that proves nothing, since an output was made up
    late: tuple[Any, Answer] | None = None  #: the smallest that was refused after the engine's work
    broken_off: bool = False  #: whether nothing could be sent after that
    #: Requests that reach new lines, of all outcomes, from all over, and the one that took longest.
    nearest: tuple[Any, ...] = ()


def asking(bench: Bench, budget: Budget) -> Asked:
    """Return what the other process needs to send what the plugin of a bench is to survive."""
    known = bench.stock
    return Asked(
        bench.generation,
        bench.model,
        bench.seed,
        IO_BODIES.most(budget),
        known.originals,
        known.invalid,
        known.keys,
    )


def body_of(asked: Asked, sent: Sent) -> Any:  # noqa: ANN401 - JSON values
    """Return the data of a request that did harm, also where they were too long to be told."""
    if not sent.name:
        return sent.value
    every = stock.bodies(asked.valid, asked.invalid, asked.keys)
    return next(islice(every, sent.number - 1, None))[1]


@checks("IO-38")
def survives(trial: Trial) -> Finding:
    """No body ends, stalls or fills the server."""
    if why := unserved(trial):
        return why
    found = trial.once(sent)
    if isinstance(found, Trouble):
        case = {} if found.sent.name else {"data": found.sent.value}
        return failed(f"{called(found.sent)} {found.what}", found.sent.number, case=case)
    if found.broken_off:
        return made_up(found.guessed or "")
    return passed(found.count)


@checks("IO-09", after=("IO-38",))
def answered(trial: Trial) -> Finding:
    """Whatever JSON a client sends is answered or refused."""
    if why := unserved(trial):
        return why
    found = trial.once(sent)
    assert isinstance(found, Found)  # else this rule waits for another one
    if found.failed is not None:
        data, answer = found.failed
        return failed(
            f"the request {shortened(data, SHOWN)} {answer.describe()}",
            found.count,
            case={"data": data},
        )
    if why := _of_valid(trial.bench):
        return why
    return (
        made_up(found.guessed)
        if found.guessed
        else passed(found.count, found.refused + found.answered)
    )


def _of_valid(bench: Bench) -> Finding | None:
    """Return which valid data fail, by their size or what is set beside them, or None."""
    sizes = (((), data) for data in bench.stock.sizes())
    for beside, data in (*product(BESIDE, bench.stock.originals), *sizes):
        answer = bench.try_online(data, beside=beside).answers[0]
        if answer.kind is Kind.FAILED and not answer.guessed:
            told = ", ".join(f"{name}={value!r}" for name, value in beside)
            told = f" with {told} beside data" if beside else ""
            case = {"data": data, **({"beside": dict(beside)} if beside else {})}
            return failed(
                f"the request {shortened(data, SHOWN)}{told} {answer.describe()}", case=case
            )
    return None


@checks("IO-10", after=("IO-38",))
def early(trial: Trial) -> Finding:
    """Invalid requests never get to the engine."""
    if why := unserved(trial):
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
    found = trial.once(sent)
    assert not isinstance(found, Trouble)  # else this rule waits for another one
    if found.late is not None:
        data, answer = found.late
        return failed(
            f"the engine worked for the request {shortened(data)} before it {answer.describe()}",
            found.count,
            case={"data": data},
        )
    count = found.refused + len(trial.bench.stock.invalid)
    if not count:
        return inapplicable("nothing was refused", found.count)
    return passed(count)


def sent(trial: Trial) -> Found | Trouble:
    """Send everything, in a process in which nothing has been done with the plugin."""
    assert trial.untouched is not None
    return endured(trial.untouched, trial.bench, asking(trial.bench, trial.budget))


def endured(untouched: Untouched, bench: Bench, asked: Asked) -> Found | Trouble:
    """Send everything, in a process of its own."""
    found: Found | Trouble = endurance.endured(
        untouched, f"{__name__}:send", asked, path=bench.path
    )
    return found


def send(plugin: type[Any], errand: endurance.Errand) -> Found | Trouble | Stalled:
    """Send everything; this is the other process."""
    asked: Asked = errand.asked
    watched = Descriptors.watched(errand.path)  # before the plugin opens any of its own
    bench = Bench.open(plugin, asked.generation, asked.model, asked.seed)
    lines.watch_alone(errand.path)  # trials in engines watch none
    for data in asked.valid:
        bench.try_online(data)  # whatever is made or compiled only once
    asking = bench.make()
    with suppress(Exception):
        asks(asking, bench)()
    with Guard.open(errand) as guard:
        sending = _Sending(bench, guard, errand.first, watched, guessing=asking.guessing)
        try:
            for name, data, form in stock.bodies(asked.valid, asked.invalid, asked.keys):
                sending.ask(data, name, form)
            sending.draw(stock.hostile(asked.valid), asked.most)
            with SilentServer.listening() as server:
                if server is not None:
                    words = list(literals.texts(plugin))
                    named = naming(server.address, asked.valid, asked.keys, words)
                    sending.name_server(server, named)
        except _Stopped as stopped:
            return stopped.why
    sys.setrecursionlimit(100 * oddities.DEPTH)  # lists within lists are told, too
    return sending.found()


class _Stopped(Exception):
    """Nothing can be sent to this process any more."""

    def __init__(self, why: Found | Trouble | Stalled) -> None:
        super().__init__()
        self.why = why


@attrs.define
class _Sending:
    """Requests, one after the other, each to a plugin of its own."""

    _bench: Bench
    _guard: Guard
    _first: int
    _descriptors: Descriptors  #: of this process
    guessing: bool  #: whether outputs are made up
    refused: int = 0
    answered: int = 0
    guessed: str | None = None
    _failed: list[tuple[Any, Answer]] = attrs.field(factory=list)
    _late: list[tuple[Any, Answer]] = attrs.field(factory=list)
    _short: dict[Kind, list[Any]] = attrs.field(factory=dict)  #: requests by how they ended
    _new: list[Any] = attrs.field(factory=list)  #: those with which lines ran that never had
    _slowest: tuple[float, Any] = (0.0, None)  #: of the long ones
    _growth: Growth = attrs.field(factory=Growth)
    _shares: Shares = attrs.field(factory=Shares)

    def found(self, *, broken_off: bool = False) -> Found:
        """Return what became of what was sent so far."""
        failed, late = _smallest(self._failed), _smallest(self._late)
        count = self._guard.number - self._shares.left_out
        lists = (self._new, *self._short.values())
        nearest = [data for several in lists for data in spread(several, NEAREST)]
        if self._slowest[1] is not None:
            nearest.append(self._slowest[1])
        return Found(
            count,
            self.refused,
            self.answered,
            failed,
            self.guessed,
            late,
            broken_off,
            tuple(nearest),
        )

    def draw(self, requests: Any, most: int) -> None:  # noqa: ANN401 - a strategy
        """Send requests that Hypothesis draws, and look for the smallest that goes wrong.

        Raises:
            _Stopped: one ended, stalled or filled this process.

        """

        def look(data: object) -> None:
            if self.ask(data, kind="drawn") is Kind.FAILED:
                raise Shown

        try:
            draw(requests, look, most, self._bench.seed, shrinks=True)
        except (Shown, HypothesisException):
            if not self._failed:
                raise

    def name_server(self, server: SilentServer, requests: Iterable[object]) -> None:
        """Send requests that name a server which never answers.

        Raises:
            _Stopped: one waits for it and has no time limit, or ended this process.

        """
        for data in requests:
            with self._guard.sending(data, seconds=PATIENCE) as sent:
                if sent.number < self._first or self._shares.enough("naming"):
                    continue
                try:
                    with self._shares.taken("naming"):
                        self._served(data)
                except OutOfTime:
                    return
                except PluginHung as error:
                    if not server.waited_for:
                        return  # it has a time limit, which each of the others would take as well
                    place = place_in(error, self._bench.path)
                    where = f" (at {place})" if place else ""
                    raise _Stopped(_stalling(sent, error, f"{_FOR_EVER}{where}")) from error
                except PluginExited as error:
                    raise _Stopped(_ending(sent, error)) from error

    def ask(
        self, data: object, name: str = "", form: object = None, *, kind: str = "odd"
    ) -> Kind | None:
        """Send a request; return how it ended, where that is known.

        Raises:
            _Stopped: it ended, stalled or filled this process.

        """
        goes_on = self._growth.goes_on(form)
        seconds = self._growth.limit
        with (
            self._guard.sending(data, name, seconds=seconds) as sent,
            self._descriptors.kept(lambda what: _Stopped(Trouble(sent, what))),
        ):
            if data is None or sent.number < self._first or not goes_on:
                return None  # vLLM itself refuses a request without data
            kind = kind if form is None else "long"
            if self._shares.enough(kind):
                return None
            ran = lines.news()
            try:
                with self._shares.taken(kind), self._growth.measured():
                    answer, prompts = (self._served(data), 0) if form is None else self._begun(data)
            except OutOfTime:
                return None  # the host itself, or this machine
            except PluginHung as error:
                if self.guessing and error.call in AFTER_OUTPUTS:
                    self.guessed = f"{called(sent)}: {error}"
                    raise _Stopped(self.found(broken_off=True)) from error
                took = f"takes more than {seconds:.0f} s"
                raise _Stopped(Stalled(_stalling(sent, error, took))) from error
            except PluginExited as error:
                raise _Stopped(_ending(sent, error)) from error
        # Many prompts are the engine's work, which any client of vLLM can ask for.
        if form is not None and prompts <= PROMPTS:
            self._slowest = max(self._slowest, (self._growth.took[-1], data), key=itemgetter(0))
        if answer is None or answer.slow:
            return None
        if form is None:
            new = lines.news() > ran
            (self._new if new else self._short.setdefault(answer.kind, [])).append(data)
        return self._note(sent, data, answer)

    def _served(self, data: object) -> Answer:
        return self._bench.answer_to(data)

    def _begun(self, data: object) -> tuple[Answer | None, int]:
        """Serve a long request, to its end where that takes no time; count its prompts."""
        plugin = self._bench.make()
        started = time.monotonic()
        try:
            prompts = prompt_to_seq(prompts_of(plugin, self._bench, data))
        except OutOfTime:
            raise
        except SystemExit as error:
            why = f"{plugin.raised(error)} raised SystemExit, which ends the server"
            raise PluginExited(why) from error
        except Exception as error:  # noqa: BLE001 - an answer like any other
            return plugin.answer(error), 0
        quick = len(prompts) <= PROMPTS and time.monotonic() - started < endurance.LONG
        return self._served(data) if quick else None, len(prompts)

    def _note(self, sent: Sent, data: object, answer: Answer) -> Kind | None:
        self.refused += answer.kind is Kind.REFUSED
        self.answered += answer.kind is Kind.ANSWERED
        if answer.kind is Kind.REFUSED and answer.call in AFTER_OUTPUTS and not answer.guessed:
            self._late.append((data, answer))
        if answer.kind is not Kind.FAILED:
            return answer.kind
        if answer.guessed:
            self.guessed = self.guessed or f"{called(sent)} {answer.describe()}"
            return None
        if endurance.no_memory(answer.error) and answer.call:
            what = f"{answer.call} needs more than {endurance.FILL >> 30} GiB in all"
            what = f"fills the server: {what} ({answer.error})"
            raise _Stopped(Trouble(sent, what, fills=True))
        self._failed.append((data, answer))
        return Kind.FAILED


def _smallest(found: list[tuple[Any, Answer]]) -> tuple[Any, Answer] | None:
    return min(found, key=lambda entry: len(shortened(entry[0], 10_000)), default=None)


def called(sent: Sent) -> str:
    """Return what messages call something that was sent."""
    return sent.name or f"the request {shortened(sent.value, SHOWN)}"


def _ending(sent: Sent, error: PluginExited) -> Trouble:
    what = "the engine" if isinstance(error, EngineEnded) else "the process"
    return Trouble(sent, f"ends {what}: {error}")


def _stalling(sent: Sent, error: PluginHung, what: str) -> Trouble:
    return Trouble(sent, f"stalls the server: {error.call} {what}")
