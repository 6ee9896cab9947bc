# SPDX-License-Identifier: Apache-2.0
"""What every engine on a CPU does when it starts, done once in the process that they are forks of.

Half of the time in which an engine on a tiny model starts is spent on this, and what it leaves is
the same each time.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: What every engine of ``LLM`` on a tiny model imports when it starts, on any device.
ENGINE_MODULES = ("vllm.entrypoints.llm", "vllm.model_executor.models.llama")

#: What engines, and servers and theirs, import besides on a CPU, and what is called then.
_MODULES = (
    *ENGINE_MODULES,
    "vllm.entrypoints.cli.serve",
    "vllm.entrypoints.cli.benchmark.main",
    "vllm.entrypoints.generate.api_router",
    "vllm.entrypoints.launchers.render.entry",
    "vllm.entrypoints.serve.instrumentator.metrics",
    "vllm.distributed.elastic_ep.elastic_execute",
    "vllm.model_executor.layers.quantization.compressed_tensors.utils",
    "vllm.model_executor.layers.quantization.online.base",
    "vllm.v1.attention.backends.cpu_attn",
    "vllm.v1.core.sched.scheduler",
    "vllm.v1.engine.async_llm",
    "vllm.v1.worker.cpu_worker",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
    "uvicorn.lifespan.on",
    "conformance.engine.beforehand:economise",
)


def modules() -> tuple[str, ...]:
    """Return what is to be imported; nothing where engines run on another device than the CPU."""
    from vllm.platforms import current_platform

    return _MODULES if current_platform.is_cpu() else ()


def economise() -> None:
    """Have engines of this process, and of its forks, leave out what changes nothing any more."""
    _register_kernels_once()
    _count_uncompiled()


def _register_kernels_once() -> None:
    """Register vLLM's own kernels for CPUs now, and not with each engine.

    Registering looks at every attribute of every module.
    """
    from vllm.platforms.cpu import CpuPlatform

    register = getattr(CpuPlatform, "register_triton_kernel_overrides", None)
    if register is not None:  # older releases have none
        register()
        once: Any = staticmethod(lambda: None)
        CpuPlatform.register_triton_kernel_overrides = once


def _count_uncompiled() -> None:
    """Have the ranks of log probabilities counted by torch, which it compiles for each engine.

    The engines of trials are told to compile nothing (``enforce_eager``), and this they do compile.
    """
    logprobs: Any = import_module("vllm.v1.sample.ops.logprobs")
    sampler: Any = import_module("vllm.v1.sample.sampler")
    compiled = logprobs.batched_count_greater_than
    plain = getattr(compiled, "_torchdynamo_orig_callable", compiled)
    logprobs.batched_count_greater_than = plain
    if hasattr(sampler, "batched_count_greater_than"):
        sampler.batched_count_greater_than = plain
