# SPDX-License-Identifier: Apache-2.0
"""A program that uses vLLM's ``AsyncLLM`` with a hook, in a process of its own.

The hook is made before the event loop runs, as a program makes it, and registered by the method
that the runtime gives the engine.  The process does what it is told, and tells what came of it.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import attrs

from conformance.classifier_hook.live import Answer
from conformance.classifier_hook.witness import Witness
from conformance.engine.async_engine import EngineProcess, answering, in_one_process
from conformance.engine.environment import GPU_SHARE
from conformance.engine.fork import drop_sockets
from conformance.watching.clocks import clocks
from conformance.watching.raised import said

CONTEXT = 512

#: Seconds in which an engine on a tiny model has started; seconds for a number of requests.
START, ANSWER = 60.0, 120.0

#: Seconds after which tasks that were cancelled have ended, and those of requests that are over.
SETTLED, ENDED = 0.2, 0.02

PROMPT = [5, 6, 7]


@attrs.frozen
class Ask:
    """A request."""

    text: str | None = None  #: what the model is made to say; None for whatever it says
    kind: str = "FINAL_ONLY"
    request_id: str = "request"
    n: int = 1
    params: Mapping[str, Any] = attrs.field(factory=dict)
    way: str = "generate"


@attrs.frozen
class Cancelled:
    """What came of a request that was aborted while its hook was at work."""

    at_work: bool  #: whether the hook was
    ignored: bool  #: whether it went on after the runtime's margin
    left: int  #: tasks that were not there before


@attrs.frozen
class Order:
    """What the process is started with."""

    model: str  #: folder of the model
    hook: tuple[str, str]  #: module and qualified name of its class
    arguments: dict[str, Any]  #: of its constructor
    python_path: list[str]  #: goes before ``sys.path``
    device: str  #: ``cpu`` or ``cuda``
    held: bool  #: whether it does nothing before :meth:`Program.begin`


@attrs.define
class Program(EngineProcess):
    """The process; make one with :meth:`start`."""

    @classmethod
    def start(cls, order: Order) -> Program:
        """Start the process in the background and return at once."""
        return cls.running(_serve, order)

    def begin(self) -> None:
        """Have a process that was held start the engine."""
        self.send(None)

    def wait_started(self) -> str | None:
        """Return why the hook cannot be used when the engine has started, or None.

        Raises:
            AsyncEngineFailed: the process ended, or said nothing.

        """
        refused: str | None = self.hear(START)
        return refused

    def do(self, what: str, *arguments: object) -> Any:  # noqa: ANN401 - as each function has it
        """Have the process do something and return what came of it.

        Raises:
            AsyncEngineFailed: the process ended, or said nothing.

        """
        self.send((what, arguments))
        return self.hear(ANSWER)


def _serve(connection: Connection, order: Order) -> None:
    """Run in the process."""
    drop_sockets(connection.fileno())
    if order.held:
        try:
            connection.recv()
        except EOFError:
            return  # nobody asks
    # What an operator configured is not tried here.
    os.environ.pop("CLASSIFIER_HOOKS", None)
    sys.path[:0] = order.python_path
    answering(connection, partial(_make_and_run, connection, order))


def _make_and_run(connection: Connection, order: Order) -> None:
    try:
        made: Any = importlib.import_module(order.hook[0])
        for part in order.hook[1].split("."):
            made = getattr(made, part)
        made = made(**order.arguments)
    except Exception as error:  # noqa: BLE001 - a constructor may raise anything
        connection.send(f"making an instance raised {said(error)}")
        return
    asyncio.run(_run(connection, order, made))


async def _run(connection: Connection, order: Order, hook: object) -> None:
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    from reference_plugins.classifier_hook import HookRefused, Policy, hooks_of, install, register

    more: dict[str, Any] = in_one_process(order.device) or {"gpu_memory_utilization": GPU_SHARE}
    install()
    llm: Any = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=order.model,
            enforce_eager=True,
            max_model_len=CONTEXT,
            max_num_seqs=8,
            dtype="float32",
            seed=0,
            kv_cache_memory_bytes=32 << 20,
            **more,
        )
    )
    try:
        try:
            llm.register_external_classifier_hook(hook)
        except HookRefused as error:
            connection.send(f"an engine refused it: {error}")
            return
        # Held streams: then nothing of a blocked answer may go out, however it was asked for.
        register(llm, Witness(), policy=Policy(streaming="hold"))
        connection.send(None)
        acting = _Acting(llm, hooks_of(llm))
        while True:
            what, arguments = await _next(connection)
            connection.send(await getattr(acting, what)(*arguments))
    finally:
        llm.shutdown()


async def _next(connection: Connection) -> Any:  # noqa: ANN401 - an order
    """Wait for an order while the event loop goes on."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(connection.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection.fileno())
    return connection.recv()


@attrs.define
class _Acting:
    """What can be done in the process."""

    llm: Any
    host: Any

    async def ask(self, asks: Sequence[Ask]) -> list[list[Answer]]:
        """Ask for one completion after the other; return the answers to each request."""
        return [await self._answers(ask) for ask in asks]

    async def waited(self, text: str) -> float:
        """Return for how many seconds a step of a hook, at the most, did nothing but wait."""
        clock = self.host.dispatcher.clock
        events: list[Any] = []
        self.host.dispatcher.clock = _waited
        self.host.dispatcher.observers.append(events.append)
        try:
            await self._answers(Ask(text))
        finally:
            self.host.dispatcher.clock = clock
            self.host.dispatcher.observers.pop()
        name = self.host.registry.entries[0].name
        longest: float = max(
            e.longest_step for e in events if e.hook == name and hasattr(e, "outcome")
        )
        return longest

    async def abort(self, text: str, turns: int) -> Cancelled:
        """Abort a request, so many turns of the event loop after its hooks have begun."""
        dispatcher, name = self.host.dispatcher, self.host.registry.entries[0].name
        events: list[Any] = []
        before = asyncio.all_tasks()
        start = dispatcher.start

        def begin(entries: object, context: object) -> Any:  # noqa: ANN401 - as the runtime has it
            scoring = start(entries, context)
            _after(turns, lambda: aborting.append(asyncio.ensure_future(self.llm.abort("request"))))
            return scoring

        aborting: list[asyncio.Future[Any]] = []
        dispatcher.start = begin
        dispatcher.observers.append(events.append)
        try:
            await self._answers(Ask(text))
            await asyncio.gather(*aborting)
            await asyncio.sleep(SETTLED)
        finally:
            del dispatcher.start
            dispatcher.observers.pop()
        mine = [event for event in events if event.hook == name]
        return Cancelled(
            any(getattr(event, "outcome", "") == "cancelled" for event in mine),
            any(not hasattr(event, "outcome") for event in mine),
            len(asyncio.all_tasks() - before),
        )

    async def crowd(self, asks: Sequence[Ask]) -> list[list[Answer]]:
        """Ask for everything at once; all hooks begin in one turn of the event loop.

        So they do in a server whenever requests end in the same step of the engine.
        """
        dispatcher, start = self.host.dispatcher, self.host.dispatcher.start
        dispatcher.start = partial(_Gathered, start, asyncio.Barrier(len(asks)))
        try:
            return list(await asyncio.gather(*map(self._answers, asks)))
        finally:
            del dispatcher.start

    async def left(self, asks: Sequence[Ask]) -> list[int]:
        """Ask, and return how many tasks there are after each request that were not before it."""
        found = []
        for ask in asks:
            before = asyncio.all_tasks()
            await self._answers(ask)
            await asyncio.sleep(ENDED)
            found.append(len(asyncio.all_tasks() - before))
        return found

    async def _answers(self, ask: Ask) -> list[Answer]:
        """Return what came of each completion of a request, in their order."""
        texts: dict[int, list[str]] = {}
        last: dict[int, Any] = {}
        tokens: dict[int, int] = {}
        metadata = None
        # vLLM says so of a request that another one has the id of, which is not asked here.
        async for output in self.llm.generate(
            {"prompt_token_ids": PROMPT}, _params(ask), ask.request_id
        ):
            metadata = getattr(output, "metadata", None) or metadata
            for one in output.outputs:
                new = [one.text] if ask.kind != "DELTA" else [*texts.get(one.index, ()), one.text]
                texts[one.index] = new
                count = len(one.token_ids) + len(one.logprobs or ())
                tokens[one.index] = count + (tokens.get(one.index, 0) if ask.kind == "DELTA" else 0)
                last[one.index] = one
        scores = (metadata or {}).get("external_scores")
        found = []
        for index, one in sorted(last.items()):
            mine = scores
            if scores is not None and ask.n > 1:
                mine = {name: each[index] for name, each in scores.items() if index in each}
            text = "".join(texts[index])
            whole = json.dumps([text, one.stop_reason], ensure_ascii=False, default=repr)
            found.append(
                Answer(ask.way, text, one.finish_reason, mine, tokens[index], whole, asked=ask.text)
            )
        return found


@attrs.frozen
class _Gathered:
    """Hooks that begin when those of all others do."""

    start: Any
    barrier: asyncio.Barrier
    entries: Any
    context: Any

    async def verdict(self) -> Any:  # noqa: ANN401 - as the runtime has it
        """Wait for all, and then for the hooks."""
        await self.barrier.wait()
        return await self.start(self.entries, self.context).verdict()


def _waited() -> float:
    """Return the seconds in which this thread neither worked nor could have."""
    wall, worked, delayed = clocks()
    return wall - worked - delayed


def _after(turns: int, act: Any) -> None:  # noqa: ANN401 - a function
    """Do something so many turns of the event loop later."""
    if turns:
        asyncio.get_running_loop().call_soon(_after, turns - 1, act)
    else:
        act()


def _params(ask: Ask) -> object:
    from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

    values: dict[str, Any] = {"temperature": 0.0, "max_tokens": 400, **ask.params}
    if ask.text is not None:
        values["structured_outputs"] = StructuredOutputsParams(choice=[ask.text])
    return SamplingParams(n=ask.n, output_kind=RequestOutputKind[ask.kind], **values)
