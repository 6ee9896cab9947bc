# SPDX-License-Identifier: Apache-2.0
"""A token id that is no int, as an IO processor may give one, ends the engine's receiving thread.

    python undecodable_request.py FOLDER

FOLDER holds a small embedding model.
A request is answered; another one, with the token id 5.0, is not; nor is the first one, sent again.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import asyncio
import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm import PoolingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM

#: Seconds that an answer may take: the first one takes less than one.
PATIENCE = 10


async def answered(engine: AsyncLLM, tokens: list[float], name: str) -> bool:
    """Send a prompt, and tell whether it is answered, or refused, in time."""
    prompt = {"prompt_token_ids": tokens}

    async def ask() -> None:
        async for _ in engine.encode(prompt, PoolingParams(task="embed"), name):
            pass

    try:
        await asyncio.wait_for(ask(), PATIENCE)
    except TimeoutError:
        print(f"{tokens} is not answered in {PATIENCE} s")
        return False
    except Exception as error:  # noqa: BLE001 - a refusal is an answer
        print(f"{tokens} is refused: {type(error).__name__}")
        return True
    print(f"{tokens} is answered")
    return True


async def main(model: str) -> int:
    """Send a request, one that the engine cannot decode, and the first one again."""
    arguments = AsyncEngineArgs(
        model=model,
        runner="pooling",
        enforce_eager=True,
        dtype="float32",
        kv_cache_memory_bytes=2**24,
        disable_log_stats=True,
    )
    engine = AsyncLLM.from_engine_args(arguments)
    try:
        if not await answered(engine, [5, 6, 7], "first"):
            return 2
        await answered(engine, [5.0, 6, 7], "odd")
        goes_on = await answered(engine, [5, 6, 7], "second")
        await engine.check_health()  # raises where the engine is known to be dead
        print("the engine says that it is healthy")
    finally:
        engine.shutdown()
    if goes_on:
        print("GONE: an engine goes on after a request that it cannot decode")
        return 0
    print("FOUND: one request ends the receiving thread, and nobody is told")
    return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
