# SPDX-License-Identifier: Apache-2.0
"""Exploring what clients may send, in a process of its own with bounded memory.

A value may end the process, hang in code that no signal interrupts, or ask for all memory:
only the explorer notices, and the request that it was at is known.
"""

from __future__ import annotations

import gc
import mmap
import multiprocessing
import os
import pickle
import random
import resource
import signal
import time
import traceback
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from hypothesis.errors import Flaky, HypothesisException

from conformance import lines
from conformance.interruption import CONSTRUCTOR_LIMIT, tell_progress
from conformance.logits.calls import PluginRaised
from conformance.logits.configuration import vllm_config
from conformance.logits.fuzzing import carriers
from conformance.logits.fuzzing.serving import (
    HARMFUL,
    End,
    Outcome,
    Serving,
    Stage,
    histories,
    kind_of,
)
from conformance.logits.fuzzing.values import (
    Keywords,
    Position,
    at,
    edges,
    mutations,
    positions,
    replaced,
    requests,
    size,
    values,
)
from conformance.logits.played import Kind
from conformance.logits.requests import converted
from conformance.logits.watching import LIKELY_FIELDS
from conformance.oddities import spread
from conformance.search import REQUESTS, TRIED, Found, draw
from conformance.settings import Budget

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from conformance.ledger import Ledger
    from conformance.logits.fuzzing.serving import Play
    from conformance.logits.parameters import Parameters
    from conformance.logits.requests import Stock
    from conformance.logits.roles import Roles
    from conformance.logits.sweeps import Strata

#: Requests at the edges, the most telling first.
AT_EDGES = {Budget.QUICK: 200, Budget.STANDARD: 600, Budget.DEEP: 3000}

#: Requests that are served among others as well, of those that a plugin serves alone.
AMONG_OTHERS = {Budget.QUICK: 20, Budget.STANDARD: 40, Budget.DEEP: 500}

#: Requests that are tried to make one that does harm smaller.
SHRINK_EXAMPLES = 300

#: Seconds of work after which a request is small enough.
SHRINK_SECONDS = 3.0

#: Seconds of work after which no more requests are tried with a plugin that is slow.
SECONDS = {Budget.QUICK: 10.0, Budget.STANDARD: 20.0, Budget.DEEP: 300.0}

#: Larger numbers are no easier to read than the one that was found. The least that is too much
#: for a machine takes long to find, and is another on the next machine.
LARGE = 10**6

#: Seconds of work that are spent on finding a request that does harm by HTTP, where one does that
#: only a program which calls vLLM can make.
SECONDS_BY_HTTP = 5.0

#: Requests that are worth sending to a real engine, for want of one that does harm.
NEAREST = 8

#: Requests that a new profile names as invalid.
MAX_REFUSALS = 6

#: Bytes that serving may take beside what the process has.
MEMORY = 2 << 30

#: Seconds without a request that is done, after which the explorer is given up.
STUCK = 120.0

#: How many of the requests that were kept last are changed.
_NEAR = 8

_ROOM = 1 << 20  #: bytes for the request that the explorer is at
_HEAD = 17  #: of them: how many requests there were, a length, and whether it is in the engine
_POLL = 0.5


class ExplorerFailed(Exception):
    """The harness's own failure, with the traceback of the other process."""


@attrs.frozen
class Explored:
    """What became of the requests that a client may send."""

    tried: int = 0  #: requests that vLLM hands to the plugin
    refused: int = 0  #: of them
    acted: int = 0  #: requests whose row was changed
    harm: Outcome | None = None  #: the smallest request found that does harm
    misrefused: Outcome | None = None  #: the smallest that is refused with another status than 400
    #: Requests that were refused or served in the most unlikely ways.
    nearest: tuple[Outcome, ...] = ()
    #: Short requests that were refused, of different kinds: a profile may name them.
    refusals: tuple[Keywords, ...] = ()
    #: Trouble that requests which work meet as well, in every history that could tell.
    usual: frozenset[Kind] = frozenset()

    def settle(self, ledger: Ledger, roles: Roles) -> None:
        """Note which rules about requests do not apply to a plugin in engines and servers."""
        if not self.tried and self.harm is None:
            ledger.beside[roles.harmless] = "the plugin reads nothing of what a client chooses"
        if not self.refused:
            ledger.beside[roles.client_error] = "it refuses no request"


@attrs.define
class Exploring:
    """A forked process that explores what clients may send, while its owner does other things."""

    _pid: int = 0
    _receiver: Connection | None = None
    _at_work: mmap.mmap | None = None
    found: Explored | None = None  #: once it is known

    def result(self) -> Explored:
        """Wait for what the process finds."""
        if self.found is None:
            assert self._receiver is not None
            assert self._at_work is not None
            try:
                self.found = _await(self._receiver, self._at_work, self._pid)
            finally:
                self.close()
        return self.found

    def close(self) -> None:
        """End the process."""
        if self._receiver is None or self._at_work is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        with suppress(ProcessLookupError):  # it may have no group of its own yet
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._receiver.close()
        self._at_work.close()
        self._receiver = self._at_work = None


def explore(
    strata: Strata,
    play: Play,
    bench: Stock,
    parameters: Parameters,
    budget: Budget,
    *,
    shrink: bool = True,
) -> Exploring:
    """Begin to explore what clients may send, in a forked process.

    Args:
        strata: those of the generation; two of their shapes say how its host plays.
        play: plays a history, as that of the generation.
        bench: the plugin, with the parameter sets that it is tried with.
        parameters: where these come from, and what the plugin reads of requests.
        budget: how many requests.
        shrink: whether a request that does harm is made smaller.

    """
    if not parameters.keys and not any(map(positions, _bases(parameters))):
        return Exploring(found=Explored())  # there is nothing that a client chooses
    serving = Serving(bench, vllm_config(bench.model), strata, play, bench.path)
    receiver, sender = multiprocessing.Pipe(duplex=False)
    at_work = mmap.mmap(-1, _ROOM)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setpgid(0, 0)
            gc.freeze()  # Hypothesis collects garbage, and everything imported is none
            try:
                found: Explored | str = _Explorer(
                    serving, parameters, budget, at_work, shrink=shrink
                ).run()
            except MemoryError:
                traceback.print_exc()  # what the plugin keeps has left no room
                raise
            except Exception:  # noqa: BLE001 - the harness's own, and raised by the owner
                found = traceback.format_exc()
            sender.send(found)
            status = 0
        finally:
            os._exit(status)
    sender.close()
    return Exploring(pid, receiver, at_work)


def _await(receiver: Connection, at_work: mmap.mmap, pid: int) -> Explored:
    """Return what the explorer found, or the request that ended it."""
    # An honest constructor may load a model of its own before the first request.
    count, patience = _count(at_work), CONSTRUCTOR_LIMIT + STUCK
    left = patience
    while not receiver.poll(_POLL):
        if (now := _count(at_work)) != count:
            count, patience = now, STUCK
            left = patience
            continue
        left -= _POLL
        if left <= 0:
            said = f"the process got no further for {patience:.0f} s"
            return Explored(count, harm=_lost(at_work, Kind.HUNG, said))
    try:
        found: Explored | str = receiver.recv()
    except EOFError:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return Explored(count, harm=_lost(at_work, Kind.RAISED, f"the process ended ({how})"))
    if isinstance(found, str):
        raise ExplorerFailed(found)
    return found


def _lost(at_work: mmap.mmap, kind: Kind, said: str) -> Outcome:
    """Return the outcome of the request that the explorer did not survive."""
    length, in_engine = int.from_bytes(at_work[8:16]), at_work[16]
    keywords = pickle.loads(at_work[_HEAD : _HEAD + length]) if length else {}  # noqa: S301 - ours
    stage = Stage.ENGINE if in_engine else Stage.ADMISSION
    return Outcome(End.HARMFUL, keywords, stage=stage, kind=kind, said=said)


def _count(at_work: mmap.mmap) -> int:
    return int.from_bytes(at_work[:8])


def _bound_memory() -> None:
    """Let no allocation take more than :data:`MEMORY` beside what there is."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    data = next(int(line.split()[1]) for line in status if line.startswith("VmData"))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (data * 1024 + MEMORY, hard))


@attrs.define
class _Explorer:
    """Tries one request after the other."""

    serving: Serving
    parameters: Parameters
    budget: Budget
    at_work: mmap.mmap
    shrink: bool = True
    outcomes: list[Outcome] = attrs.field(factory=list)
    seen: set[str] = attrs.field(factory=set)
    #: Requests with which lines of the plugin ran that never ran before.
    kept: list[Keywords] = attrs.field(factory=list)
    #: Odd values with which requests were served, by where they stand.
    served: dict[Position, list[Any]] = attrs.field(factory=dict)
    #: Histories among others that are still to be played.
    among_others: int = 0

    def run(self) -> Explored:
        """Explore, and stop at the first request that does harm, by HTTP if one does."""
        bench, parameters = self.serving.bench, self.parameters
        with suppress(PluginRaised):
            # Enough to know whether instances are to be used again.
            for _ in range(3):
                bench.new()
        # An honest constructor may need much.
        _bound_memory()
        self.serving = attrs.evolve(self.serving, entering=self._enter)
        tell_progress(self._count_up)  # torch may compile for longer than a request may take
        self.among_others = AMONG_OTHERS[self.budget]
        bases = _bases(parameters)
        lines.since_now()
        self._learn_what_is_usual(bases)
        at_edges = islice(requests(bases, parameters.keys, bench.vocabulary), AT_EDGES[self.budget])
        kept = AMONG_OTHERS[self.budget] // 4  # for requests that are drawn
        end = time.process_time() + SECONDS[self.budget]
        found: tuple[Outcome, Position] | None = None
        for keywords, path in at_edges:
            if time.process_time() > end:
                break
            public = carriers.public(keywords)
            if found is not None and not public:
                continue
            outcome = self._try(keywords, thorough=self.among_others > kept)
            self._note(outcome, path)
            if outcome is not None and outcome.end is End.HARMFUL:
                found = outcome, path
                if public or outcome.kind is Kind.HUNG:
                    break
                # That only programs of the owner can do harm is said where no request by HTTP does.
                end = min(end, time.process_time() + SECONDS_BY_HTTP)
        else:
            if found is None:
                return self._explored(self._draw(bases) or self._vary())
        if found is None:
            return self._explored(None)
        smallest = self._smaller(*found)
        if smallest.kind is not Kind.HUNG:
            self._admit(at_edges)
        return self._explored(smallest)

    def _admit(self, at_edges: Iterator[tuple[Keywords, Position]]) -> None:
        """Ask for the admission of the other requests: what is refused is worth knowing."""
        for keywords, _ in at_edges:
            self._tell(keywords)
            found = self.serving.admission(keywords)
            if isinstance(found, Outcome):
                if found.end is End.HARMFUL:
                    return  # it hangs, or it would end the process: once is enough
                self.outcomes.append(found)

    def _learn_what_is_usual(self, bases: list[Keywords]) -> None:
        """Find out what trouble there is with requests that work: other rules are about it."""
        usual: dict[int, frozenset[Kind]] = {}
        for keywords in bases[:2] or [{}]:
            self._tell(keywords)
            found = self.serving.outcome(keywords, thorough=False)
            bench = self.serving.bench
            if found.end is End.NOT_SENT or found.stage is Stage.ADMISSION:
                continue
            from vllm.sampling_params import SamplingParams

            params = SamplingParams(**keywords)
            sending = bench.sending(params, keywords)
            for number, (shape, history) in enumerate(histories(self.serving.strata, sending)):
                troubles = self.serving.play(sending, history, shape).troubles
                found_now = HARMFUL.intersection(map(kind_of, troubles))
                if found_now:
                    usual[number] = usual.get(number, frozenset()) | found_now
        self.serving = attrs.evolve(self.serving, usual=usual)

    def _try(self, keywords: Keywords, *, thorough: bool) -> Outcome | None:
        """Serve a request; None where the same one was tried before."""
        *_, said = size(keywords)
        if said in self.seen:
            return None
        self.seen.add(said)
        self._tell(keywords)
        thorough = thorough and self.among_others > 0
        before = lines.news()
        outcome = self.serving.outcome(keywords, thorough=thorough)
        if lines.news() > before:
            self.kept.append(keywords)
        if thorough and outcome.end is End.SERVED:
            self.among_others -= 1
        self.outcomes.append(outcome)
        return outcome

    def _note(self, outcome: Outcome | None, path: Position) -> None:
        """Take note of an odd value that was served."""
        if outcome is not None and outcome.end is End.SERVED:
            with suppress(LookupError):  # a request without it
                self.served.setdefault(path, []).append(at(outcome.keywords, path))

    def _tell(self, keywords: Keywords) -> None:
        """Leave word of the request that comes next, for the case that it is the last."""
        written = pickle.dumps(keywords)
        written = written if len(written) <= _ROOM - _HEAD else b""
        self.at_work[8:16] = len(written).to_bytes(8)
        self.at_work[16] = False
        self.at_work[_HEAD : _HEAD + len(written)] = written
        self._count_up()

    def _count_up(self) -> None:
        """Say that it is getting on."""
        self.at_work[:8] = (_count(self.at_work) + 1).to_bytes(8)

    def _enter(self) -> None:
        """Leave word that the request is in the engine."""
        self.at_work[16] = True

    def _draw(self, bases: list[Keywords]) -> Outcome | None:
        """Draw requests; return the smallest that does harm, if one does."""
        keys = self.parameters.keys
        bases = [base for base in bases if keys or positions(base)]
        if not bases and not keys:
            return None
        drawn = mutations(bases, keys, self.serving.bench.vocabulary)
        found: list[Outcome] = []

        def look(case: tuple[Keywords, Position]) -> None:
            outcome = self._try(case[0], thorough=True)
            if outcome is not None and outcome.end is End.HARMFUL:
                found.append(outcome)
                # A hang is waited for once.
                if outcome.kind is not Kind.HUNG:
                    raise Found

        with suppress(Found, Flaky):
            draw(drawn, look, REQUESTS.most(self.budget), self._seed(), shrinks=True)
        return min(found, key=lambda outcome: size(outcome.keywords), default=None)

    def _vary(self) -> Outcome | None:
        """Change requests that led to new lines, while others never ran; return one that harms.

        What waits for several odd values is reached one after the other: each was served alone.
        """
        chance = random.Random(self._seed())
        left = TRIED.most(self.budget)
        while self.kept and self.served and left > 0 and lines.anything_left():
            known = len(self.kept)
            base = chance.choice(self.kept[-_NEAR:])
            path = chance.choice([*self.served])
            with suppress(TypeError, LookupError):  # what stands there is no table
                keywords = replaced(base, path, chance.choice(self.served[path]))
                outcome = self._try(keywords, thorough=True)
                if outcome is not None and outcome.end is End.HARMFUL:
                    return self._smaller(outcome, path)
            left = TRIED.most(self.budget) if len(self.kept) > known else left - 1
        return None

    def _smaller(self, failing: Outcome, path: Position) -> Outcome:
        """Return the smallest request found that meets the same fault at the same position."""
        if failing.kind is Kind.HUNG or not self.shrink:
            return failing
        best = failing
        left = SHRINK_EXAMPLES
        end = time.process_time() + SHRINK_SECONDS

        def fails(value: object) -> bool:
            nonlocal best, left
            if isinstance(value, int) and abs(value) > LARGE:
                return False
            left -= 1
            if left < 0 or time.process_time() > end:
                return False
            keywords = replaced(failing.keywords, path, value)
            self._tell(keywords)
            outcome = self.serving.outcome(keywords, thorough=True)
            if outcome.same_fault != failing.same_fault:
                return False
            best = min(best, outcome, key=lambda one: size(one.keywords))
            return True

        def look(value: object) -> None:
            if fails(value):
                raise Found

        with suppress(LookupError, TypeError):
            whole = at(failing.keywords, path)
            small = sorted(_small(self.serving.bench.vocabulary), key=lambda v: len(repr(v)))
            for value in chain(small, _shorter(whole)):
                if fails(value):
                    break
            with suppress(Found, HypothesisException):
                draw(values(), look, SHRINK_EXAMPLES, self._seed(), shrinks=True)
        return best

    def _seed(self) -> int:
        """Return a seed for what is drawn."""
        return random.Random(self.serving.bench.seed).getrandbits(64)

    def _explored(self, harm: Outcome | None) -> Explored:
        asked = [outcome for outcome in self.outcomes if outcome.end is not End.NOT_SENT]
        misrefused = [outcome for outcome in asked if outcome.end is End.MISREFUSED]
        served = [outcome for outcome in asked if outcome.end is End.SERVED]
        refused = [outcome for outcome in asked if outcome.end in (End.REFUSED, End.MISREFUSED)]
        return Explored(
            tried=len(asked),
            refused=len(refused),
            acted=sum(outcome.acted for outcome in served),
            harm=harm,
            misrefused=min(misrefused, key=lambda one: size(one.keywords), default=None),
            nearest=tuple(spread(served, NEAREST) + spread(refused, NEAREST)),
            refusals=_different([one for one in refused if one.end is End.REFUSED]),
            usual=self.serving.untold,
        )


def _bases(parameters: Parameters) -> list[Keywords]:
    """Return the requests to begin with: guessed, where nobody knows one that switches it on."""
    bases = [converted(keywords) for keywords in parameters.on]
    guesses = [entry for field in parameters.fields for entry in LIKELY_FIELDS[field][:1]]
    return bases if any(bases) else guesses or bases


def _small(vocabulary: int) -> Iterator[object]:
    """Yield those values at the edges that a person reads at a glance."""
    for value in edges(vocabulary):
        if len(repr(value)) <= 20:  # noqa: PLR2004 - characters
            yield value


def _different(refused: list[Outcome]) -> tuple[Keywords, ...]:
    """Return the shortest request of each combination of types, those with few characters first."""
    found: dict[tuple[object, ...], Keywords] = {}
    for outcome in sorted(refused, key=lambda one: size(one.keywords)):
        arguments = outcome.keywords.get("extra_args")
        if set(outcome.keywords) == {"extra_args"} and isinstance(arguments, dict):
            types = tuple((key, type(value).__name__) for key, value in arguments.items())
            if carriers.REST in carriers.ways(outcome.keywords, carried=outcome.carried):
                found.setdefault(types, outcome.keywords)
    return tuple(islice(found.values(), MAX_REFUSALS))


def _shorter(value: object) -> Iterator[object]:
    """Yield the beginnings of a list or a text, the shortest first."""
    if isinstance(value, list | str):
        length = 1
        while length < len(value):
            yield value[:length]
            length *= 2
