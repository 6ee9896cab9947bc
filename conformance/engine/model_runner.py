# SPDX-License-Identifier: Apache-2.0
"""Which of vLLM's two model runners an engine runs, and Model Runner V2 on a CPU.

V2 keeps its states and batches with Triton kernels, so vLLM refuses to start it without Triton,
which has no CPU backend on PyPI.
Everything else of it runs on a CPU (vLLM has a worker for that), and the kernels that a plain
engine launches have stand-ins (:mod:`conformance.engine.kernels`).
So :func:`prepare` registers these and takes the refusal away.
A kernel without a stand-in then fails when it is launched; where Triton's interpreter is installed
(``tests/interpreter.py``) it is interpreted instead.

On a GPU nothing of this applies: vLLM runs V2 by itself.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

Runner = Literal["v1", "v2"]

#: A distribution whose ``vllm.general_plugins`` entry point is :func:`prepare`.
_SITE = Path(__file__).with_name("sites") / "model_runner_v2"
PLUGIN = "conformance-model-runner-v2"


def environment(runner: Runner) -> dict[str, str]:
    """Return the variables that make an engine choose a runner.

    Where Triton works vLLM would choose by itself, and a plugin's interface is one runner's only.

    Raises:
        ValueError: there is no such runner.

    """
    if runner not in get_args(Runner):
        raise ValueError(f"there is no model runner {runner!r}: name v1 or v2")
    return {"VLLM_USE_V2_MODEL_RUNNER": str(int(runner == "v2"))}


#: What shows sampled tokens to a processor of the V1 runner that is an entry point alone: with
#: asynchronous scheduling, the default on a GPU, its lists hold -1 to the end of a request
#: (vLLM issue 52461).  As an option of engines, and of ``vllm serve``.
SYNCHRONOUS: Mapping[Runner, Mapping[str, bool]] = {"v1": {"async_scheduling": False}, "v2": {}}
SYNCHRONOUS_FLAGS: Mapping[Runner, Sequence[str]] = {"v1": ["--no-async-scheduling"], "v2": []}


def described(runner: Runner, device: str) -> str:
    """Return what a certificate says about a runner."""
    if runner == "v1" or device != "cpu":
        return runner.upper()
    return "V2 on a CPU: its Triton kernels were replaced, since no GPU ran them"


def python_path(runner: Runner, device: str) -> list[str]:
    """Return what a new process needs on ``PYTHONPATH`` for its engines to run a runner.

    Nothing changes for processes that do not have :func:`environment`, too.
    """
    return [str(_SITE)] if runner == "v2" and device == "cpu" else []


def prepare() -> None:
    """Make Model Runner V2 start in this process, if its environment asks for it on a CPU.

    To be called before an engine is configured, as often as one likes; the children of this
    process need it again, unless they are forks.
    """
    from vllm import envs
    from vllm.platforms import current_platform

    if envs.VLLM_USE_V2_MODEL_RUNNER and current_platform.is_cpu():
        _switch_on()


@functools.cache
def _switch_on() -> None:
    import vllm.config.vllm as configuration
    import vllm.v1.sample.ops.topk_topp_sampler as sampler
    from vllm.platforms.cpu import CpuPlatform
    from vllm.triton_utils import HAS_TRITON

    if HAS_TRITON:
        # The interpreter gives loops over tl.range plain integers, which this kernel cannot bear.
        sampler.apply_top_k_top_p_triton = _apply_top_k_top_p
    else:
        # Its one use for V2: "Model Runner V2 requires Triton." Since 0.33 workers say so.
        configuration.HAS_TRITON = True
    # A worker calls it before it imports the model runner; other processes do without the kernels.
    register = CpuPlatform.register_triton_kernel_overrides
    CpuPlatform.register_triton_kernel_overrides = staticmethod(_then_install(register))


def _then_install(register: Callable[[], None]) -> Callable[[], None]:
    def both() -> None:
        from conformance.engine import kernels

        register()
        kernels.install()
        import vllm.v1.worker.gpu_worker as worker

        if hasattr(worker, "HAS_TRITON"):
            worker.HAS_TRITON = True

    return both


def _apply_top_k_top_p(
    logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None
) -> torch.Tensor:
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch

    masked: torch.Tensor = apply_top_k_top_p_pytorch(logits, k, p, allow_cpu_sync=True)
    return masked
