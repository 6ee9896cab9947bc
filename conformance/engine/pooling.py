# SPDX-License-Identifier: Apache-2.0
"""A real offline engine of a tiny pooling model, with an IO processor plugin."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import attrs

from conformance.engine.environment import GPU_SHARE, eager

#: Releases before 0.20 take half of the machine's memory otherwise.
_BLOCKS = 256
_SMALLEST_BLOCK = 16  #: tokens


#: Files of weights, as vLLM looks for them.
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt")


def options(model: Path | str) -> dict[str, Any]:
    """Return arguments of an engine that depend on the folder of its model.

    It may have no weights, which are then made up; plugins that hand over tensors have their users
    switch that on.
    """
    weighted = any(any(Path(model).glob(pattern)) for pattern in _WEIGHTS)
    return {"enable_mm_embeds": True, "load_format": "auto" if weighted else "dummy"}


def blocks(length: int) -> int:
    """Return of how many blocks a cache is in which a prompt of so many tokens fits."""
    return max(_BLOCKS, -(-length // _SMALLEST_BLOCK))


def server_options(model: Path | str, length: int) -> tuple[str, ...]:
    """Return the same for ``vllm serve``, and the tokens that fit into a prompt."""
    return (
        "--enable-mm-embeds",
        f"--load-format={options(model)['load_format']}",
        f"--max-model-len={length}",
        f"--num-gpu-blocks-override={blocks(length)}",
    )


def encoded(llm: Any, data: object, task: str | None) -> Any:  # noqa: ANN401 - vLLM's, and what plugins return
    """Return what vLLM gives the caller of a plugin, who may name a pooling task.

    Raises:
        Exception: what the plugin, the engine or vLLM raised.

    """
    from vllm import PoolingParams

    params = PoolingParams(task=task) if task else None
    (output,) = llm.encode({"data": data}, params, pooling_task="plugin", use_tqdm=False)
    return output.outputs


@attrs.define
class PoolingEngine:
    """One ``vllm.LLM`` with ``runner="pooling"``."""

    llm: Any
    task: str | None = None  #: that the caller names, and not the plugin alone

    @classmethod
    def start(
        cls, model: Path | str, length: int, *, plugin: str | None = None, device: str = "cpu"
    ) -> PoolingEngine:
        """Start an engine in this process.

        Args:
            model: folder of the model.
            length: tokens that fit into a prompt.
            plugin: name of the plugin for the engine arguments; without it config.json may name
                one.
            device: ``"cpu"`` or ``"cuda"``.

        Raises:
            Exception: whatever vLLM raises when it cannot start with the plugin.

        """
        # One process: nothing is imported a second time.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from vllm import LLM

        memory = {"gpu_memory_utilization": GPU_SHARE} if device == "cuda" else {}
        llm = LLM(
            model=str(model),
            runner="pooling",
            io_processor_plugin=plugin,
            enforce_eager=eager(device),
            max_model_len=length,
            max_num_seqs=8,
            dtype="float32",
            seed=0,
            kv_cache_memory_bytes=32 << 20,
            num_gpu_blocks_override=blocks(length),
            **options(model),
            **memory,
        )
        return cls(llm)

    def encode(self, data: object) -> Any:  # noqa: ANN401 - JSON values, and whatever is made of them
        """Return what the plugin makes of data.

        Raises:
            Exception: what the plugin, the engine or vLLM raised.

        """
        return encoded(self.llm, data, self.task)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The pooling tasks of the model; none where the release does not say."""
        return tuple(getattr(self.llm, "supported_tasks", ()))

    def plugin(self) -> tuple[Any, str]:
        """Return the object that holds the plugin, and the name of its attribute.

        Raises:
            LookupError: this release keeps it elsewhere.

        """
        fronts = getattr(self.llm, "pooling_io_processors", {})
        if "plugin" in fronts:
            return fronts["plugin"], "io_processor"
        for holder in (self.llm, self.llm.llm_engine):
            if getattr(holder, "io_processor", None) is not None:
                return holder, "io_processor"
        raise LookupError("the engine's IO processor was not found")
