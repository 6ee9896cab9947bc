# SPDX-License-Identifier: Apache-2.0
"""vLLM's ``AsyncLLM``, in a process of its own that is forked from this one.

``AsyncLLM`` keeps its engine core in another process.
Both are forked from a process that has imported vLLM, so nothing is imported a second time;
where this process already runs several threads, or the engine uses a GPU, vLLM starts the core
as it likes best.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import sys
import time
import traceback
from multiprocessing import connection as connections
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import attrs

from conformance.engine import model_runner
from conformance.engine.fork import drop_sockets, may_fork
from conformance.engine.offline import engine_arguments
from conformance.watching.interruption import HEARTBEAT, progressed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkProcess, SpawnProcess

    from vllm.sampling_params import SamplingParams

    from conformance.engine.model_runner import Runner

#: Seconds in which an engine on a tiny model has started, and has answered, or has got further.
LIMIT = 120.0

#: Seconds in which a process that has let go of its connection has ended.
GRACE = 5.0


class AsyncEngineFailed(Exception):
    """The engine did not start, or did not answer: one sentence."""


class AsyncEngineSlow(AsyncEngineFailed):
    """Nothing was heard of the engine for too long."""


class _Said(NamedTuple):
    """What the process says."""

    tokens: list[tuple[int, ...]] | None = None
    working: bool = False  #: it got on, and is not done


@attrs.define
class EngineProcess:
    """A process that runs an ``AsyncLLM`` and answers, with a connection to it."""

    _process: ForkProcess | SpawnProcess
    _connection: Connection

    @classmethod
    def running(cls, serve: Callable[..., None], *arguments: object) -> Self:
        """Start a process that runs a function, which gets a connection and these arguments."""
        ours, theirs = multiprocessing.Pipe()
        fork, spawn = multiprocessing.get_context("fork"), multiprocessing.get_context("spawn")
        start = fork.Process if may_fork() else spawn.Process
        process = start(target=serve, args=(theirs, *arguments))
        process.start()
        theirs.close()
        return cls(process, ours)

    def send(self, what: object) -> None:
        """Tell the process something; where it has ended, that is noticed when it should answer."""
        with contextlib.suppress(OSError):
            self._connection.send(what)

    def hear(self, limit: float) -> Any:  # noqa: ANN401 - what the process says
        """Return the next thing that the process says.

        Raises:
            AsyncEngineFailed: it failed, or ended.
            AsyncEngineSlow: it says nothing.

        """
        ready = connections.wait([self._connection, self._process.sentinel], limit)
        if not ready:
            raise AsyncEngineSlow(f"AsyncLLM got no further for {limit:.0f} s")
        with contextlib.suppress(EOFError, ConnectionResetError):
            # What was said before the end is still to be read.
            if self._connection in ready or self._connection.poll():
                said = self._connection.recv()
                if isinstance(said, AsyncEngineFailed):
                    raise said
                return said
        self._process.join(GRACE)
        raise AsyncEngineFailed(f"its process ended with status {self._process.exitcode}")

    def close(self) -> None:
        """End the engine and its core."""
        import psutil

        # Killed at once: a core that ends by itself collects all the garbage of its process first.
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            for each in [*process.children(recursive=True), process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        self._process.join()
        self._connection.close()


def answering(connection: Connection, run: Callable[[], None]) -> None:
    """Run the loop that answers, in an engine's process; send the error that ends it, if any."""
    os.environ.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    model_runner.prepare()
    try:
        run()
    except EOFError:
        pass  # the other end has closed the connection
    except Exception as error:  # noqa: BLE001 - whatever ends an engine
        traceback.print_exc()
        with contextlib.suppress(OSError):
            connection.send(AsyncEngineFailed(f"{type(error).__name__}: {error}"))


def in_one_process(device: str) -> dict[str, str]:
    """Return the argument by which an engine on a CPU computes in the process of its core.

    The default executor for CPUs would add a worker process; only the full name of this one is not
    turned back into it.  Making the configuration asks for spawned processes.
    """
    from vllm import envs

    if device != "cpu":
        return {}
    envs.VLLM_WORKER_MULTIPROC_METHOD = "fork"
    return {
        "distributed_executor_backend": "vllm.v1.executor.uniproc_executor.UniProcExecutor",
    }


@attrs.define
class AsyncEngine(EngineProcess):
    """One ``AsyncLLM``; make one with :meth:`start`."""

    @classmethod
    def start(
        cls,
        model: str,
        logits_processors: Sequence[str | type] = (),
        *,
        python_path: Sequence[str] = (),
        device: str = "cpu",
        runner: Runner = "v1",
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> AsyncEngine:
        """Start an engine in the background and return at once.

        Args:
            model: folder of the model.
            logits_processors: classes, or names ``package.module:Class``.
            python_path: goes before ``sys.path``: folders of synthetic entry points.
            device: ``cpu`` or ``cuda``.
            runner: the model runner, ``v1`` or ``v2``.
            options: more of vLLM's own.

        """
        arguments = {**engine_arguments(model, logits_processors, device), **options}
        path = [*python_path, *model_runner.python_path(runner, device)]
        return cls.running(_serve, arguments, path, device, runner)

    def generate(
        self, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]
    ) -> list[tuple[int, ...]]:
        """Put all prompts to ``AsyncLLM.generate`` at once and return the output tokens of each.

        Raises:
            AsyncEngineFailed: the engine failed.
            AsyncEngineSlow: it does not get on.

        """
        self.send([(list(p), q) for p, q in zip(prompts, params, strict=True)])
        tokens = self._hear().tokens
        assert tokens is not None
        return tokens

    def wait_started(self) -> None:
        """Return when the engine has started; to be called once, before :meth:`generate`.

        Raises:
            AsyncEngineFailed: it did not start.
            AsyncEngineSlow: it has not started in time.

        """
        self._hear()

    def _hear(self) -> _Said:
        """Return the next thing that is said of something that is done."""
        while True:
            said: _Said = self.hear(LIMIT)
            progressed()
            if not said.working:
                return said


def _serve(
    connection: Connection,
    arguments: dict[str, Any],
    python_path: list[str],
    device: str,
    runner: Runner,
) -> None:
    """Run in the engine's process."""
    drop_sockets(connection.fileno())
    os.environ.update(model_runner.environment(runner))
    sys.path[:0] = python_path
    answering(connection, lambda: asyncio.run(_answer(connection, arguments, device)))


async def _answer(connection: Connection, arguments: dict[str, Any], device: str) -> None:
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments, **in_one_process(device)))

    told = time.monotonic()

    async def put(name: int, prompt: list[int], params: SamplingParams) -> tuple[int, ...]:
        nonlocal told
        tokens: tuple[int, ...] = ()
        async for answer in llm.generate({"prompt_token_ids": prompt}, params, str(name)):
            tokens = tuple(answer.outputs[0].token_ids)
            if time.monotonic() - told > HEARTBEAT:
                told = time.monotonic()
                connection.send(_Said(working=True))
        return tokens

    try:
        connection.send(_Said())
        requests = connection.recv()
        tokens = await asyncio.gather(*(put(n, *one) for n, one in enumerate(requests)))
        connection.send(_Said(tokens=tokens))
        connection.recv()  # nothing comes: the process that asked kills this one
    finally:
        llm.shutdown()
