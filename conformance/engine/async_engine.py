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
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from conformance.engine import model_runner
from conformance.engine.fork import drop_sockets, may_fork
from conformance.engine.offline import engine_arguments
from conformance.interruption import HEARTBEAT, progressed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkProcess, SpawnProcess

    from vllm.sampling_params import SamplingParams

    from conformance.engine.model_runner import Runner

#: Seconds in which an engine on a tiny model has started, and has answered, or has got further.
LIMIT = 120.0

#: Seconds in which an engine that has nothing to do has ended.
GRACE = 5.0


class AsyncEngineFailed(Exception):
    """The engine did not start, or did not answer: one sentence."""


class AsyncEngineSlow(AsyncEngineFailed):
    """Nothing was heard of the engine for too long."""


class _Said(NamedTuple):
    """What the process says; a failure is a sentence."""

    failure: str | None = None
    tokens: list[tuple[int, ...]] | None = None
    working: bool = False  #: it got on, and is not done


@attrs.define
class AsyncEngine:
    """One ``AsyncLLM``; make one with :meth:`start`."""

    _process: ForkProcess | SpawnProcess
    _connection: Connection

    @classmethod
    def start(
        cls,
        model: str,
        logits_processors: Sequence[str | type] = (),
        *,
        python_path: Sequence[str] = (),
        device: str = "cpu",
        runner: Runner = "v1",
    ) -> AsyncEngine:
        """Start an engine in the background and return at once.

        Args:
            model: folder of the model.
            logits_processors: classes, or names ``package.module:Class``.
            python_path: goes before ``sys.path``: folders of synthetic entry points.
            device: ``cpu`` or ``cuda``.
            runner: the model runner, ``v1`` or ``v2``.

        """
        ours, theirs = multiprocessing.Pipe()
        arguments = engine_arguments(model, logits_processors, device)
        fork, spawn = multiprocessing.get_context("fork"), multiprocessing.get_context("spawn")
        start = fork.Process if may_fork() else spawn.Process
        path = [*python_path, *model_runner.python_path(runner, device)]
        process = start(target=_serve, args=(theirs, arguments, path, device, runner))
        process.start()
        theirs.close()
        return cls(process, ours)

    def generate(
        self, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]
    ) -> list[tuple[int, ...]]:
        """Put all prompts to ``AsyncLLM.generate`` at once and return the output tokens of each.

        Raises:
            AsyncEngineFailed: the engine failed.
            AsyncEngineSlow: it does not get on.

        """
        with contextlib.suppress(OSError):  # it has ended; why is in what it said
            self._connection.send([(list(p), q) for p, q in zip(prompts, params, strict=True)])
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

    def close(self) -> None:
        """End the engine and its core."""
        end(self._connection, self._process)

    def _hear(self) -> _Said:
        """Return the next thing that is said of something that is done."""
        while (said := self._next()).working:
            progressed()
        progressed()
        return said

    def _next(self) -> _Said:
        ready = connections.wait([self._connection, self._process.sentinel], LIMIT)
        if not ready:
            raise AsyncEngineSlow(f"AsyncLLM got no further for {LIMIT:.0f} s")
        try:
            # What was said before the end is still to be read.
            if self._connection in ready or self._connection.poll():
                said: _Said = self._connection.recv()
                if said.failure:
                    raise AsyncEngineFailed(said.failure)
                return said
        except (EOFError, ConnectionResetError):
            pass
        self._process.join(GRACE)
        raise AsyncEngineFailed(f"its process ended with status {self._process.exitcode}")


def end(connection: Connection, process: ForkProcess | SpawnProcess) -> None:
    """End the process of an engine, and the engine's core."""
    import psutil

    connection.close()
    with contextlib.suppress(psutil.NoSuchProcess):
        started = psutil.Process(process.pid).children(recursive=True)
        process.join(GRACE)
        for each in [psutil.Process(process.pid), *started]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
    process.join()


def _serve(
    connection: Connection,
    arguments: dict[str, Any],
    python_path: list[str],
    device: str,
    runner: Runner,
) -> None:
    """Run in the engine's process."""
    drop_sockets(connection.fileno())
    os.environ.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    os.environ.update(model_runner.environment(runner))
    sys.path[:0] = python_path
    model_runner.prepare()
    try:
        asyncio.run(_answer(connection, arguments, device))
    except EOFError:
        pass  # nobody asks any more
    except Exception as error:  # noqa: BLE001 - whatever ends an engine
        traceback.print_exc()
        with contextlib.suppress(OSError):
            connection.send(_Said(failure=f"{type(error).__name__}: {error}"))


async def _answer(connection: Connection, arguments: dict[str, Any], device: str) -> None:
    from vllm import AsyncEngineArgs, envs
    from vllm.v1.engine.async_llm import AsyncLLM

    if device == "cpu":
        # The default executor for CPUs would add a worker process; only the full name of this one
        # is not turned back into it.  Making the configuration asks for spawned processes.
        arguments["distributed_executor_backend"] = (
            "vllm.v1.executor.uniproc_executor.UniProcExecutor"
        )
        envs.VLLM_WORKER_MULTIPROC_METHOD = "fork"
    llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))

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
    finally:
        llm.shutdown()
