"""IO-36 Refused, failed and cancelled requests are forgotten.

Plugin    bge_m3_sparse_processor.sparse_embeddings_processor:BgeM3SparseEmbeddingsProcessor
Did       after 40000 abandoned requests the plugin holds 9581955 bytes with no request in it, and
          it grows by 782 bytes with every request
Expected  After ten thousand requests that were refused, or never came to post_process, the plugin
          holds no more than a bounded number of them.
Check     Keep nothing between pre_process and post_process, or bound it: nobody tells the plugin
          that a request failed.

Needs vLLM, torch and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

import copy
import functools
import gc
import hashlib
import itertools
import os
import runpy
import sys
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from vllm import PoolingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.pooling.pooling.protocol import IOProcessorResponse
from vllm.inputs import split_enc_dec_input
from vllm.outputs import PoolingOutput, PoolingRequestOutput
from vllm.renderers import renderer_from_config
from vllm.renderers.inputs.preprocess import parse_model_prompt, prompt_to_seq
from vllm.v1.engine.input_processor import InputProcessor

sys.path.insert(0, "PLUGIN")

from bge_m3_sparse_processor.sparse_embeddings_processor import BgeM3SparseEmbeddingsProcessor as Plugin


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


def rendered(host: Host, prompts: Any) -> list[dict[str, Any]]:
    """Return prompts as the engine gets them."""
    parsed = [
        prompt
        if isinstance(prompt, bytes)
        else parse_model_prompt(host.config.model_config, prompt)
        for prompt in prompt_to_seq(prompts)
    ]
    if not parsed:
        raise ValueError("You must pass at least one prompt")
    renderer = host.renderer
    params = renderer.default_cmpl_tok_params
    found: list[dict[str, Any]] = renderer.render_cmpl(prompts=parsed, tok_params=params)
    for prompt in found:
        InputProcessor(host.config, renderer)._validate_model_inputs(*split_enc_dec_input(prompt))
    return found


def named(request_id: str | None) -> dict[str, str]:
    """Return the keyword arguments that say which request it is: none of one that is offline."""
    return {"request_id": request_id} if request_id else {}


def begin(
    host: Host, plugin: Any, data: Any, request_id: str | None = "id-0"
) -> list[PoolingRequestOutput] | Exception:
    """Take a request to where its outputs are there; return them, or what was raised."""
    try:
        prompt = host.parsed(plugin, data, request_id)
        prompts = rendered(host, plugin.pre_process(prompt=prompt, **named(request_id)))
        params = host.params(plugin)
        host.verify(params)
        names = (f"{request_id}-{number}" for number in itertools.count())
        return [output_of(next(names), each, params, host.config) for each in prompts]
    except Exception as error:
        return error


def rounds(
    host: Host, data: list[Any], changed: list[Any], *, answered: bool
) -> Callable[[int], Any]:
    """Return what serves the request with a number, and returns one of its outputs.

    ``changed`` is the place of a text in the data that is another one for each request.
    """
    plugin = host.new()
    outputs: list[Any] = [begin(host, host.new(), copy.deepcopy(each), "id") for each in data]

    def go_through(number: int) -> Any:
        given, request_id = copy.deepcopy(data[number % len(data)]), f"id-{number}"
        if changed:
            *above, last = changed
            inner = functools.reduce(lambda value, key: value[key], above, given)
            inner[last] += f" {number}"
        plugin.pre_process(prompt=host.parsed(plugin, given), request_id=request_id)
        getattr(plugin, host.asks)()
        mine = [copy.copy(output) for output in outputs[number % len(data)]]
        if answered:
            plugin.post_process(mine, request_id=request_id)
        return mine[0]

    return go_through


def check_growth(
    host: Host, data: list[Any], changed: list[Any] | None = None, *, answered: bool = False
) -> str | None:
    """No more memory is held when requests have come and gone."""
    go_through, held, each = rounds(host, data, changed or [], answered=answered), list[int](), 2000
    tracemalloc.start()
    for index in range(5):
        for number in range(index * each, (index + 1) * each):
            go_through(number)
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])
    growth = [after - before for before, after in itertools.pairwise(held)]
    if min(growth[-3:]) > 0 and sum(growth[-3:]) > 4 * each:
        what = f"more memory is held after each {each} requests: got {held} bytes"
        return f"{what}\nexpected: as much as before"
    return None


fault = check_growth(
    Host(Plugin, "bge-m3-sparse"),
    data=[
        {"input": "What is BGE M3?", "embed_task": "sparse", "return_tokens": True},
        {
            "input": ["Definition of BM25", "another document with more of it"],
            "embed_task": "dense&sparse",
        },
    ],
)
print(f"FAILS: {fault}" if fault else f"OK: {check_growth.__doc__}")
sys.exit(1 if fault else 0)
