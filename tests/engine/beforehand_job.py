# SPDX-License-Identifier: Apache-2.0
"""A job that starts engines where everything was done beforehand."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from conformance.engine import beforehand

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from multiprocessing.connection import Connection


def engines(connection: Connection, model: str) -> None:
    """Answer with what is missing, what two engines still did, and log probabilities of theirs."""
    connection.recv()
    missing = {name for name in beforehand.modules() if name.partition(":")[0] not in sys.modules}
    import torch
    from vllm import SamplingParams
    from vllm.triton_utils import dispatcher
    from vllm.v1.worker import block_table

    from conformance.engine.offline import OfflineEngine

    registered: list[int] = []
    compiled: list[object] = []
    register = dispatcher.register_kernels

    def watched(kernels: Mapping[str, Callable[..., object]]) -> None:
        registered.append(len(kernels))
        register(kernels)

    dispatcher.register_kernels = watched
    torch._dynamo.callback.on_compile_start(lambda *_: compiled.append(_))
    stands_in = isinstance(block_table.ComputeSlotMappingKernel.kernel, dispatcher.KernelOverride)
    params = SamplingParams(temperature=0, max_tokens=4, logprobs=2)
    ranks = []
    for _ in range(2):
        engine = OfflineEngine.start(model)
        (answer,) = engine.llm.generate({"prompt_token_ids": [5, 6, 7]}, params, use_tqdm=False)
        said = answer.outputs[0]
        steps = zip(said.token_ids, said.logprobs, strict=True)
        ranks.append([found[token].rank for token, found in steps])
    connection.send((missing, stands_in, registered, len(compiled), ranks))
