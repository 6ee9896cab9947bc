# SPDX-License-Identifier: Apache-2.0
"""How vLLM looks at the classes of models."""

from __future__ import annotations

from vllm.model_executor.models import registry


def inspect_models_here() -> None:
    """Have vLLM look at model classes in this process.

    It does so in a process of its own, where that cannot disturb CUDA, and keeps the result on
    disk; the first time costs one more import of vLLM, which a worker that is forked and ends
    soon can do without.
    """
    if hasattr(registry, "_run_in_subprocess"):
        registry._run_in_subprocess = lambda inspect: inspect()  # noqa: SLF001 - see above
