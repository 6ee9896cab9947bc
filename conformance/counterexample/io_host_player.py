# SPDX-License-Identifier: Apache-2.0
"""As much of vLLM as an IO processor meets: part of the programs of counterexamples.

Parsing, prompts, parameters and the response go through vLLM's own code; outputs are those of
:mod:`conformance.counterexample.io_engine_player`.
"""

import asyncio
import copy
import itertools
import json
import math
import re
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from starlette.exceptions import HTTPException
from vllm import PoolingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.pooling.pooling.protocol import IOProcessorRequest, IOProcessorResponse
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.inputs import split_enc_dec_input
from vllm.outputs import PoolingRequestOutput
from vllm.plugins.io_processors.interface import IOProcessor
from vllm.renderers import renderer_from_config
from vllm.renderers.inputs.preprocess import parse_model_prompt, prompt_to_seq
from vllm.v1.engine.input_processor import InputProcessor

from conformance.counterexample.io_engine_player import output_of

#: Seconds that a server gets to bring everything to where it waits for the engine.
PAUSE = 0.05


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

    def instance_of(self, plugin: Any) -> Any:
        """Make an instance of another plugin."""
        self.plugin = plugin
        return self.new()

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


class Documented(Host):
    """Makes and calls a plugin as the document of the interface says, and vLLM did up to 0.28."""

    asks = "validate_or_generate_params"

    def __init__(self, plugin: Callable[..., Any], model: str) -> None:
        if not hasattr(IOProcessor, self.asks):
            # What the document gives the base class, and later releases have taken away from it.
            made = IOProcessor.__init__
            IOProcessor.__init__ = lambda self, config, renderer=None: made(self, config, renderer)
            IOProcessor.validate_or_generate_params = lambda _, params=None: (
                params or PoolingParams()
            )
        super().__init__(plugin, model)

    def new(self) -> Any:
        """Make an instance."""
        return self.plugin(self.config)

    def parsed(self, plugin: Any, data: Any, request_id: str | None = "id-0") -> Any:
        """Have a request parsed; offline it is a dictionary, and has no id."""
        return plugin.parse_request(IOProcessorRequest(data=data) if request_id else {"data": data})

    def verify(self, params: PoolingParams) -> None:
        """Check nothing, as vLLM did not."""

    def post(self, plugin: Any, outputs: Any, **named: Any) -> Any:
        """Return what the plugin makes of outputs."""
        return plugin.post_process(model_output=outputs, **named)

    async def post_awaited(self, plugin: Any, outputs: Any, request_id: str) -> Any:
        """Return what the awaited hook makes of outputs."""
        return await plugin.post_process_async(model_output=outputs, request_id=request_id)

    def response(self, plugin: Any, result: Any, _request_id: str | None) -> IOProcessorResponse:
        """Return the response to a request."""
        return plugin.output_to_response(result)


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


class Reusing:
    """Copies data to the address of earlier data that nobody holds any more.

    Sooner or later every server sees that.
    """

    place: Any = None

    def __call__(self, data: Any) -> Any:
        """Return a copy."""
        if type(self.place) is type(data) and sys.getrefcount(self.place) == 2:
            self.place.clear()
            (self.place.update if isinstance(data, dict) else self.place.extend)(
                copy.deepcopy(data)
            )
        else:
            self.place = copy.deepcopy(data)
        return self.place


async def arriving(
    outputs: list[PoolingRequestOutput], ready: asyncio.Queue[int | None]
) -> AsyncGenerator[tuple[int, PoolingRequestOutput], None]:
    """Yield outputs with their numbers, in the order in which the engine is done with them."""
    for _ in outputs:
        number = await ready.get()
        if number is None:
            raise RuntimeError("the engine could not serve a prompt")
        yield number, outputs[number]


async def awaited(
    host: Host, plugin: Any, data: Any, request_id: str, ready: asyncio.Queue[int | None]
) -> Any:
    """Serve a request with the awaited hooks; `ready` gives the number of the next output."""
    try:
        prompt = host.parsed(plugin, data, request_id)
        prompts = await plugin.pre_process_async(prompt=prompt, request_id=request_id)
        params = host.params(plugin)
        names = (f"{request_id}-{number}" for number in itertools.count())
        given = rendered(host, prompts)
        outputs = [output_of(next(names), each, params, host.config) for each in given]
        result = await host.post_awaited(plugin, arriving(outputs, ready), request_id)
        return written(host.response(plugin, result, request_id))
    except Exception as error:
        return refused(error)


async def alone(host: Host, plugin: Any, data: Any, request_id: str = "id-0") -> Any:
    """Serve one request by itself with the awaited hooks; return what the client gets."""
    ready: asyncio.Queue[int | None] = asyncio.Queue()
    for number in range(1000):  # in the order of the prompts, however many there are
        ready.put_nowait(number)
    return await awaited(host, plugin, copy.deepcopy(data), request_id, ready)


class Server:
    """One plugin, and requests that its awaited hooks serve at the same time.

    ``requests`` are data and an id by name; ``copied`` copies data.
    """

    def __init__(
        self, host: Host, requests: Mapping[str, tuple[Any, str]], copied: Callable[[Any], Any]
    ) -> None:
        self.host, self.requests, self.copied = host, requests, copied
        self.plugin = host.new()
        self.tasks: dict[str, asyncio.Task[Any]] = {}
        self.ready: dict[str, asyncio.Queue[int | None]] = {}

    async def arrive(self, name: str, pause: float = PAUSE) -> None:
        """Begin with a request, up to where it waits for its outputs if there is a pause."""
        self.ready[name] = asyncio.Queue()
        data, request_id = self.requests[name]
        work = awaited(self.host, self.plugin, self.copied(data), request_id, self.ready[name])
        self.tasks[name] = asyncio.create_task(work)
        await asyncio.sleep(pause)

    async def deliver(self, name: str, number: int | None, pause: float = PAUSE) -> None:
        """Give a request the output of one of its prompts."""
        self.ready[name].put_nowait(number)
        await asyncio.sleep(pause)

    async def fail(self, name: str) -> None:
        """Have the engine fail one of the prompts of a request."""
        await self.deliver(name, None)

    async def leave(self, name: str) -> None:
        """Disconnect the client of a request."""
        self.tasks[name].cancel()
        await asyncio.sleep(PAUSE)

    def got(self, name: str) -> Any:
        """Return what the client of a request has got by now."""
        task = self.tasks[name]
        if not task.done():
            return "nothing yet"
        return "the end of its request" if task.cancelled() else task.result()


def apart(
    got: Any, expected: Any, hidden: Collection[str] = (), place: str = "answer"
) -> str | None:
    """Say where two answers differ, if they do; the last digits of floats do not count.

    ``hidden`` are places that differ from one time to the next anyway.
    """
    pairs: list[tuple[Any, Any, str]] = []
    if re.sub(r"\[\d+\]", "[*]", place) in hidden:
        return None
    if isinstance(got, dict) and isinstance(expected, dict) and got.keys() == expected.keys():
        pairs = [(got[key], expected[key], f"{place}[{key!r}]") for key in expected]
    elif isinstance(got, list) and isinstance(expected, list) and len(got) == len(expected):
        both = zip(got, expected, strict=True)
        pairs = [(one, other, f"{place}[{index}]") for index, (one, other) in enumerate(both)]
    elif isinstance(got, float) and isinstance(expected, int | float):
        if not math.isclose(got, expected, rel_tol=1e-4, abs_tol=1e-5):
            return f"{place}: got {got}, expected {expected}"
    elif type(got) is not type(expected) or got != expected:
        return f"{place}: got {got!r:.200}, expected {expected!r:.200}"
    found = (apart(one, other, hidden, where) for one, other, where in pairs)
    return next(filter(None, found), None)
