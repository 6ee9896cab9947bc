"""IO-15 Parameters that were asked for are not dropped.

Plugin    bge_m3_sparse_processor.sparse_embeddings_processor:BgeM3SparseEmbeddingsProcessor
Did       merge_pooling_params was given PoolingParams(use_activation=False) and returned
          use_activation=True
Expected  What the caller set is in the parameters that are returned (use_activation and dimensions
          as they were; of the others the plugin may have values of its own), or the request is
          refused.
Check     Change the parameters that were given; make new ones only where there are none.

Needs vLLM, torch and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

import copy
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm import PoolingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.pooling.pooling.protocol import IOProcessorResponse
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.renderers import renderer_from_config

sys.path.insert(0, "PLUGIN")

from bge_m3_sparse_processor.sparse_embeddings_processor import BgeM3SparseEmbeddingsProcessor as Plugin


class Host:
    """Makes and calls a plugin as vLLM does.

    ``model`` is the folder of a pooling model; any other will do that suits the plugin.
    """

    asks = "merge_pooling_params"

    def __init__(self, plugin: Callable[..., Any], model: str) -> None:
        arguments = EngineArgs(
            model=model,
            runner="pooling",
            enforce_eager=True,
            max_model_len=512,
            dtype="float32",
            enable_mm_embeds=True,
        )
        self.plugin, self.config = plugin, arguments.create_engine_config()
        self.renderer = renderer_from_config(self.config)

    def new(self) -> Any:
        """Make an instance."""
        return self.plugin(self.config, self.renderer)

    def parsed(self, plugin: Any, data: Any, _request_id: str | None = "id-0") -> Any:
        """Have the data of a request parsed."""
        return plugin.parse_data(data)

    def params(self, plugin: Any) -> PoolingParams:
        """Return the parameters of a request, as vLLM completes them."""
        params = getattr(plugin, self.asks)()
        params.task = params.task or "plugin"
        return params

    def verify(self, params: PoolingParams) -> None:
        """Check parameters, as vLLM does before it serves a request."""
        params.verify(self.config.model_config)

    def post(self, plugin: Any, outputs: Any, **named: Any) -> Any:
        """Return what the plugin makes of outputs."""
        return plugin.post_process(outputs, **named)

    async def post_awaited(self, plugin: Any, outputs: Any, request_id: str) -> Any:
        """Return what the awaited hook makes of outputs."""
        return await plugin.post_process_async(outputs, request_id=request_id)

    def response(self, _plugin: Any, result: Any, request_id: str | None) -> IOProcessorResponse:
        """Return the response to a request."""
        return IOProcessorResponse(request_id=request_id, data=result)


@dataclass(frozen=True)
class Refused:
    """That a request was refused, or failed."""

    status: int

    def __repr__(self) -> str:
        return f"HTTP {self.status}"


def refused(error: Exception) -> Refused:
    """Return what the client gets for an exception, as vLLM answers it."""
    print(f"{type(error).__name__}: {error}")
    return Refused(int(create_error_response(error).error.code))


def named(request_id: str | None) -> dict[str, str]:
    """Return the keyword arguments that say which request it is: none of one that is offline."""
    return {"request_id": request_id} if request_id else {}


def check_kept(host: Host, asked: dict[str, Any]) -> str | None:
    """What the caller asked for is kept."""
    try:
        got = getattr(host.new(), host.asks)(PoolingParams(**copy.deepcopy(asked)))
    except Exception as error:
        if refused(error).status >= 500:
            what = f"{host.asks}: got {type(error).__name__}: {error}"
            return f"{what}\nexpected: {asked} is there again, or refused as the client's error"
        return None
    for key, value in asked.items():
        found = getattr(got, key, None)
        if found != value and (key in ("use_activation", "dimensions") or not found):
            what = f"{host.asks}: got {key}={found!r}"
            return f"{what}\nexpected: {key}={value!r}, which it was given"
    return None


fault = check_kept(Host(Plugin, "bge-m3-sparse"), asked={"use_activation": False})
print(f"FAILS: {fault}" if fault else f"OK: {check_kept.__doc__}")
sys.exit(1 if fault else 0)
