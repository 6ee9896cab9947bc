"""IO-09 Whatever a client sends is answered or refused, not the client's own HTTP 500.

Plugin    entry-point:vllm.io_processor_plugins/lfm2_colbert_io@io/data
Did       the request {"text": []} ended with HTTP 500 in pre_process (IndexError: list index out of
          range)
Expected  Missing, surplus and nested keys, other types, empty, huge and odd values end with an
          answer or with a status of 400 to 499, not with one of 500 and more; so do valid data with
          truncate_prompt_tokens or padding beside them.
Check     Check type and presence before use: data['text'] raises KeyError, data.get raises
          AttributeError where data is a list; both are HTTP 500. In post_process, raise ValueError
          for outputs of prompts that came back cut or padded.

Needs vLLM, torch and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

import copy
import hashlib
import itertools
import json
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from starlette.exceptions import HTTPException
from vllm import PoolingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.pooling.pooling.protocol import IOProcessorRequest, IOProcessorResponse
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.inputs import split_enc_dec_input
from vllm.outputs import PoolingOutput, PoolingRequestOutput
from vllm.renderers import renderer_from_config
from vllm.renderers.inputs.preprocess import parse_model_prompt, prompt_to_seq
from vllm.v1.engine.input_processor import InputProcessor

sys.path.insert(0, "PLUGIN")

from plugins.lfm2_colbert.io_processor import LFM2ColBERTIOProcessor as Plugin


class PoolerFailed(Exception):
    """The author's ``pooled.py`` raised: nothing follows for the plugin."""


@cache
def own_pooler(model: str) -> Callable[[Any, Any], Any] | None:
    """Return ``pooled`` of the ``pooled.py`` in a model's folder, where its author wrote one."""
    path = Path(model) / "pooled.py"
    return runpy.run_path(str(path))["pooled"] if path.is_file() else None


def output_of(name: str, prompt: Any, params: Any, config: Any) -> PoolingRequestOutput:
    """Return what an engine gives for a rendered prompt.

    Its shape is that of the model's pooler for the task: ``[size]``, or ``[tokens, size]``; what a
    pooler of the model's own returns, ``pooled(prompt, params)`` of its folder says.
    """
    tokens = list(prompt.get("prompt_token_ids") or ())
    if (pooled := own_pooler(str(config.model_config.model))) is not None:
        try:
            given = PoolingOutput(torch.as_tensor(pooled(prompt, params)))
        except Exception as error:
            raise PoolerFailed(f"pooled.py raised {type(error).__name__}: {error}") from error
        return PoolingRequestOutput(name, given, tokens, num_cached_tokens=0, finished=True)
    activated = params.use_activation is not False  # None is the pooler's own choice
    scores = "classify" in (params.task or "")
    size = params.dimensions or config.model_config.get_hidden_size()
    if scores:
        size = getattr(config.model_config.hf_config, "num_labels", 3)
    shape = (size,) if params.task in ("embed", "classify") else (max(1, len(tokens)), size)
    digest = hashlib.blake2b(repr(tokens).encode(), digest_size=7)
    for part in (prompt.get("prompt_embeds"), prompt.get("mm_hashes")):
        if isinstance(part, torch.Tensor):
            digest.update(part.detach().cpu().float().numpy().tobytes())
        elif part is not None:
            digest.update(repr(part).encode())
    digest.update(repr((params.task, activated, params.dimensions)).encode())
    generator = torch.Generator().manual_seed(int.from_bytes(digest.digest(), "big"))
    data = torch.randn(shape, generator=generator)
    if activated and params.task != "plugin":
        data = data.softmax(-1) if scores else torch.nn.functional.normalize(data, dim=-1)
    given = PoolingOutput(data)
    return PoolingRequestOutput(name, given, tokens, num_cached_tokens=0, finished=True)


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


def rendered(
    host: Host, prompts: Any, beside: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return prompts as the engine gets them, where the client set parameters beside its data."""
    parsed = [
        prompt
        if isinstance(prompt, bytes)
        else parse_model_prompt(host.config.model_config, prompt)
        for prompt in prompt_to_seq(prompts)
    ]
    if not parsed:
        raise ValueError("You must pass at least one prompt")
    renderer = host.renderer
    params, extras = renderer.default_cmpl_tok_params, {}
    if beside:
        request = IOProcessorRequest(data=None, **beside)
        params = request.build_tok_params(host.config.model_config)
        extras = {"cache_salt": request.cache_salt} if request.cache_salt else {}
    found: list[dict[str, Any]] = renderer.render_cmpl(
        prompts=parsed, tok_params=params, prompt_extras=extras
    )
    for prompt in found:
        InputProcessor(host.config, renderer)._validate_model_inputs(*split_enc_dec_input(prompt))
    return found


@dataclass(frozen=True)
class Refused:
    """That a request was refused, or failed."""

    status: int

    def __repr__(self) -> str:
        return f"HTTP {self.status}"


def refused(error: Exception) -> Refused:
    """Return what the client gets for an exception, as vLLM answers it."""
    print(f"{type(error).__name__}: {error}")
    if isinstance(error, HTTPException):
        return Refused(error.status_code)
    return Refused(int(create_error_response(error).error.code))


def written(response: IOProcessorResponse) -> Any:
    """Return the data of a response as the client reads them."""
    try:
        from vllm.entrypoints.pooling.utils import get_json_response_cls
    except ImportError:  # since 0.33
        from vllm.entrypoints.serve.utils.api_utils import create_json_response

        whole = create_json_response(response)
    else:
        whole = get_json_response_cls()(content=response.model_dump())
    return json.loads(whole.body)["data"]


def named(request_id: str | None) -> dict[str, str]:
    """Return the keyword arguments that say which request it is: none of one that is offline."""
    return {"request_id": request_id} if request_id else {}


def begin(
    host: Host,
    plugin: Any,
    data: Any,
    request_id: str | None = "id-0",
    beside: Mapping[str, Any] | None = None,
) -> list[PoolingRequestOutput] | Exception:
    """Take a request to where its outputs are there; return them, or what was raised."""
    try:
        prompt = host.parsed(plugin, data, request_id)
        prompts = rendered(host, plugin.pre_process(prompt=prompt, **named(request_id)), beside)
        params = host.params(plugin)
        host.verify(params)
        names = (f"{request_id}-{number}" for number in itertools.count())
        return [output_of(next(names), each, params, host.config) for each in prompts]
    except Exception as error:
        return error


@torch.inference_mode()
def finish(
    host: Host, plugin: Any, outputs: list[Any] | Exception, request_id: str | None = "id-0"
) -> Any:
    """Return what the client gets: the answer, or that its request was refused."""
    if isinstance(outputs, Exception):
        return refused(outputs)
    try:
        result = host.post(plugin, outputs, **named(request_id))
        return written(host.response(plugin, result, request_id))
    except Exception as error:
        return refused(error)


def served(
    host: Host,
    plugin: Any,
    data: Any,
    request_id: str | None = "id-0",
    beside: Mapping[str, Any] | None = None,
) -> Any:
    """Serve a request from its beginning to its end; return what the client gets."""
    outputs = begin(host, plugin, copy.deepcopy(data), request_id, beside)
    return finish(host, plugin, outputs, request_id)


def check_hostile(host: Host, data: Any, beside: dict[str, Any] | None = None) -> str | None:
    """The request is answered, or refused as its client's error."""
    got = served(host, host.new(), data, beside=beside)
    if isinstance(got, Refused) and got.status >= 500:
        return f"the request got {got}, the server's error\nexpected: an answer, or HTTP 400 to 499"
    return None


fault = check_hostile(
    Host(Plugin, "CACHE/tiny-llama-6fcf9a032f21"), data={"text": []}
)
print(f"FAILS: {fault}" if fault else f"OK: {check_hostile.__doc__}")
sys.exit(1 if fault else 0)
