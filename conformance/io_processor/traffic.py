# SPDX-License-Identifier: Apache-2.0
"""What clients and the engine do, move by move, as Hypothesis strategies, and playing it.

A move that does not apply (a delivery to a request that waits for nothing) is left out, so every
list of moves is a history that a server can see.
When the moves are over, whatever still waits is delivered in order.
"""

from __future__ import annotations

import asyncio
import copy
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from conformance.io_processor.answers import Answer, Kind, of_error
from conformance.io_processor.engine import EngineEnded, EngineFailed, ScriptedEngine, serving
from conformance.io_processor.host import Beside, Online, Surroundings
from conformance.io_processor.watched import Call, Watched
from conformance.watching.comparison import letter
from conformance.watching.interruption import PluginExited, PluginHung, in_plugin, limited
from conformance.watching.stretches import watch

#: Requests in a history.
MOST = 4
MOST_MOVES = 16

#: Turns that the event loop gets to bring everything to where it waits for the engine.
TURNS = 6
#: Seconds between two looks at what another thread works on.
POLL = 0.0005
#: Calls within calls while data are copied.
_DEEPEST = 10_000
#: What is counted for a value that only a variable refers to.
_ALONE = 2
#: Seconds after which a request that neither ends nor waits for the engine has been forgotten.
STUCK = 2.0


class Do(StrEnum):
    """What happens in a move; ``counterexample`` and ``reporting`` know these words."""

    ARRIVE = "arrives"
    DELIVER = "output delivered"
    FAIL = "engine fails"
    LEAVE = "client disconnects"


#: How a person reads what happens to a request's output of a number.
_IN_WORDS = {Do.DELIVER: "output {} arrives", Do.FAIL: "the engine fails its prompt {}"}


@attrs.frozen
class Move:
    """One thing that happens to one request."""

    do: Do
    request: int
    pick: int = 0  #: which of the prompts that wait, counted around
    #: Whether the next thing happens at once, before the hooks that are awaited have ended.
    hurried: bool = False
    #: Whether all outputs that wait are delivered, and not one.
    rest: bool = False


@attrs.frozen
class Asked:
    """A request: its data by index into the stock, its id, and what else its client sets."""

    data: int
    id: str
    valid: bool = True
    beside: Beside = ()


@attrs.frozen
class History:
    """Requests, and what happens to them."""

    asked: tuple[Asked, ...]
    moves: tuple[Move, ...]

    @property
    def size(self) -> int:
        """How much there is to read."""
        return 4 * len(self.asked) + len(self.moves) + sum(asked.data for asked in self.asked)

    @property
    def hurried(self) -> bool:
        """Whether something happens while a hook is awaited, which one that is not never is."""
        return any(move.hurried for move in self.moves)


@attrs.frozen
class Shape:
    """A family of histories, about one thing that happens on a server."""

    name: str
    same_ids: bool = False
    overlapping: bool = True
    invalid: bool = False  #: some requests are refused
    trouble: bool = False  #: the engine fails some, and some clients leave
    #: A single request whose outputs arrive in any order.
    single: bool = False


@attrs.frozen
class Step:
    """One move that applied, and how a person reads it."""

    do: Do
    request: str
    output: int | None  #: of which prompt, where it is delivered or fails
    waits: int  #: how many outputs its request waits for afterwards
    over: bool  #: whether its request is over then
    what: str  #: what happened, in words
    then: str  #: what the host did with it, in words
    hurried: bool = False  #: whether the next one happened at once


@attrs.frozen
class Played:
    """What came of a history."""

    answers: dict[int, Answer]
    steps: tuple[Step, ...]
    calls: tuple[Call, ...]
    untouched: frozenset[int]  #: requests that neither the engine nor a client interfered with
    late: tuple[int, ...] = ()  #: requests that went on although their clients had left
    open: tuple[int, ...] = ()  #: requests that left an output of the engine unclosed


def strategy(shape: Shape, valid: int, invalid: int) -> SearchStrategy[History]:
    """Return histories of a shape over so many valid and invalid data."""
    good = st.integers(0, valid - 1).map(lambda index: (index, True))
    bad = st.integers(0, invalid - 1).map(lambda index: (index, False))
    data = st.one_of(good, bad) if shape.invalid and invalid else good
    count = (1, 1) if shape.single else (2, MOST)
    asked = st.lists(data, min_size=count[0], max_size=count[1])
    happenings = [Do.DELIVER, Do.FAIL, Do.LEAVE] if shape.trouble else [Do.DELIVER]
    move = st.builds(
        Move,
        st.sampled_from([Do.ARRIVE, *happenings] if shape.overlapping else happenings),
        st.integers(0, 0 if shape.single else MOST - 1),
        # The order of one request's own outputs is a family's own affair.
        st.integers(0, 3 if shape.single else 0),
    )
    # Most lists are short of themselves, and what is left to the end happens in one order.
    moves = st.lists(move, max_size=MOST_MOVES)
    moves |= st.lists(move, min_size=MOST_MOVES // 2, max_size=MOST_MOVES)
    return st.builds(lambda a, m: _history(shape, a, m), asked, moves)


def _history(shape: Shape, asked: Sequence[tuple[int, bool]], moves: Sequence[Move]) -> History:
    requests = tuple(
        Asked(data, "same" if shape.same_ids else f"id-{index}", valid)
        for index, (data, valid) in enumerate(asked)
    )
    known = [attrs.evolve(move, request=move.request % len(requests)) for move in moves]
    if shape.overlapping and not shape.single:
        arrived = {move.request for move in known if move.do is Do.ARRIVE}
        # Everybody arrives, those that nothing was said about at the beginning.
        first = [Move(Do.ARRIVE, r) for r in range(len(requests)) if r not in arrived]
        return History(requests, (*first, *known))
    # One after the other: each is over before the next arrives.
    ordered: list[Move] = []
    for request in range(len(requests)):
        ordered.append(Move(Do.ARRIVE, request))
        ordered += [m for m in known if m.request == request and m.do is not Do.ARRIVE]
        ordered.append(Move(Do.DELIVER, request, rest=True))
    return History(requests, tuple(ordered))


@contextmanager
def _deeply() -> Iterator[None]:
    """Let the harness itself go as deep as data may be."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(_DEEPEST)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


@attrs.define
class _Play:
    """A history in progress."""

    online: Online
    plugin: Watched
    engine: ScriptedEngine
    history: History
    data: Sequence[Any]
    tasks: dict[int, asyncio.Task[Any]] = attrs.field(factory=dict)
    steps: list[Step] = attrs.field(factory=list)
    touched: set[int] = attrs.field(factory=set)
    left: set[int] = attrs.field(factory=set)
    late: list[int] = attrs.field(factory=list)
    #: The data that requests were made with, as long as their addresses may be used again.
    given: dict[int, Any] = attrs.field(factory=dict)

    async def run(self) -> None:
        watch(asyncio.get_running_loop())
        for move in self.history.moves:
            await self._make(move)
        await self._settle()
        for request in list(self.tasks):
            while waiting := self.engine.waiting(request):
                await self._deliver(request, waiting[0].index)
        for task in self.tasks.values():
            if not task.done():
                task.cancel()
        await asyncio.wait(self.tasks.values(), timeout=STUCK)

    async def _make(self, move: Move) -> None:
        request = move.request
        if move.do is Do.ARRIVE:
            if request not in self.tasks:
                serving.set(request)
                asked = self.history.asked[request]
                data = self._given(request)
                work = self.online.serve(self.plugin, self.engine, data, asked.id, asked.beside)
                self.tasks[request] = asyncio.create_task(work)
                await self._settle(hurried=move.hurried)
                self._note(Do.ARRIVE, request, hurried=move.hurried)
            return
        if request not in self.tasks or self.tasks[request].done():
            return
        if move.do is Do.LEAVE:
            self.touched.add(request)
            self.left.add(request)
            self.tasks[request].cancel()
            await self._settle(leaving=request)
            if not self.tasks[request].done() or self.engine.waiting(request):
                self.late.append(request)
            self._note(Do.LEAVE, request)
            return
        while waiting := self.engine.waiting(request):
            entry = waiting[move.pick % len(waiting)]
            if move.do is Do.FAIL:
                self.touched.add(request)
                self.engine.fail(entry)
                await self._settle()
                self._note(Do.FAIL, request, entry.index)
            else:
                await self._deliver(request, entry.index, hurried=move.hurried)
            if not move.rest:
                return

    def _given(self, request: int) -> Any:  # noqa: ANN401 - JSON values
        """Return the data of a request, at the address of data that are gone, if there are some.

        Sooner or later every server sees that; here it happens whenever it can.
        """
        with _deeply():
            fresh = copy.deepcopy(self.data[request])
        for other in [r for r in self.given if self.tasks[r].done()]:
            old = self.given.pop(other)
            # Held by nobody but this function: gone, but for us.
            if type(old) is type(fresh) and sys.getrefcount(old) == _ALONE:
                old.clear()
                (old.update if isinstance(old, dict) else old.extend)(fresh)
                fresh = old
                break
        if type(fresh) in (dict, list):
            self.given[request] = fresh
        return fresh

    async def _deliver(self, request: int, index: int, *, hurried: bool = False) -> None:
        entry = next(e for e in self.engine.waiting(request) if e.index == index)
        self.engine.deliver(entry)
        await self._settle(hurried=hurried)
        self._note(Do.DELIVER, request, index, hurried=hurried)

    async def _settle(self, leaving: int | None = None, *, hurried: bool = False) -> None:
        """Wait until every request is over or waits for the engine; not if there is a hurry."""
        if hurried:
            await asyncio.sleep(0)
            return
        for _ in range(TURNS):
            await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        end = loop.time() + STUCK
        while loop.time() < end:
            busy = [
                task
                for request, task in self.tasks.items()
                if not task.done() and (request == leaving or not self.engine.waiting(request))
            ]
            if not busy:
                return
            await asyncio.wait(busy, timeout=POLL, return_when=asyncio.FIRST_COMPLETED)

    def _note(
        self, do: Do, request: int, output: int | None = None, *, hurried: bool = False
    ) -> None:
        over = self.tasks[request].done()
        waits = 0 if over else len(self.engine.waiting(request))
        then = ""
        if over:
            then = self.answer(request).describe()
        elif waits:
            then = f"waits for {waits} output{'s' if waits > 1 else ''}"
        what = _IN_WORDS.get(do, do.value).format(output)
        self.steps.append(Step(do, letter(request), output, waits, over, what, then, hurried))

    def answer(self, request: int) -> Answer:
        task = self.tasks[request]
        if not task.done():
            return Answer(Kind.UNFINISHED)
        if task.cancelled():
            return Answer(Kind.CANCELLED)
        if (error := task.exception()) is not None:
            if isinstance(error, PluginHung):
                raise error
            if isinstance(error, EngineFailed):
                return of_error(error, "")
            return self.plugin.answer(error)
        received = task.result()
        salts = tuple(self.engine.salts.get(request, ()))
        return Answer(Kind.ANSWERED, received.data, request_id=received.request_id, salts=salts)


def play(
    online: Online, plugin: Watched, around: Surroundings, history: History, data: Sequence[Any]
) -> Played:
    """Play a history with one plugin instance.

    Raises:
        PluginHung: a call into the plugin did not return.
        PluginExited: a call ended the process, or a prompt the engine.

    """
    engine = ScriptedEngine(around.config, around.renderer, around.admit)
    playing = _Play(online, plugin, engine, history, data)
    try:
        with limited():
            asyncio.run(playing.run())
            while in_plugin():  # on another thread, where no exception reaches it
                time.sleep(POLL)
    except SystemExit as error:
        call = plugin.raised(error) or "a call"
        raise PluginExited(f"{call} raised SystemExit, which ends the server") from None
    if engine.ended:
        raise EngineEnded(engine.ended)
    return Played(
        answers={request: playing.answer(request) for request in playing.tasks},
        steps=tuple(playing.steps),
        calls=tuple(plugin.calls),
        untouched=frozenset(set(playing.tasks) - playing.touched),
        late=tuple(playing.late),
        open=tuple(
            request
            for request, taken in engine.taken.items()
            if engine.closed.get(request, 0) < taken
        ),
    )
