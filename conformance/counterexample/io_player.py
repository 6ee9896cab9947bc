# SPDX-License-Identifier: Apache-2.0
"""Plays a case against an IO processor, and says what is wrong.

The program of a counterexample is the function of this module that plays its case, with what that
function uses of :mod:`conformance.counterexample.io_host_player`.  A function returns what happened
and what was expected, or None where it is as the docstring says.
"""

import asyncio
import copy
import functools
import inspect
import traceback
from collections.abc import AsyncIterator, Collection
from typing import Any

from vllm import PoolingParams, SamplingParams
from vllm.entrypoints.pooling.pooling.protocol import IOProcessorRequest, IOProcessorResponse
from vllm.tasks import POOLING_TASKS

from conformance.counterexample.io_engine_player import Noted, settings_of
from conformance.counterexample.io_host_player import (
    Host,
    Refused,
    alone,
    apart,
    begin,
    finish,
    refused,
    rendered,
    served,
    written,
)
from conformance.counterexample.process_player import changed_by


def check_constructed(host: Host) -> str | None:
    """Two instances can be made, and the configuration stays as it is."""
    before = settings_of(host.config)
    for time in ("the first", "the second"):
        try:
            host.new()
        except Exception as error:
            traceback.print_exc()
            what = f"making {time} instance raised {type(error).__name__}: {error}"
            return f"{what}\nexpected: it raises nothing"
    for name, value in settings_of(host.config).items():
        if value != before.get(name):
            what = f"the constructor changed {name} of the configuration: got {value}"
            return f"{what}\nexpected: {before.get(name)}, as it was"
    return None


def check_with_renderer(host: Host) -> str | None:
    """The constructor takes the configuration and a renderer."""
    try:
        host.plugin(host.config, host.renderer)
    except TypeError as error:
        what = f"making an instance raised TypeError: {error}"
        return f"{what}\nexpected: the constructor takes the configuration and a renderer"
    return None


def check_callable(host: Host, hook: str) -> str | None:
    """The hook can be called as hosts call it."""
    forms: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((), {}), ((None,), {})]
    if hook.startswith("pre_process"):
        prompt = {"prompt": "a prompt"}
        forms = [((), {**prompt, "request_id": "id"}), ((), prompt)]
    elif hook == "post_process":
        forms = [(([],), {"request_id": "id"}), (([],), {})]
    elif hook == "post_process_async":
        forms = [(([],), {"request_id": "id"}), ((), {"model_output": [], "request_id": "id"})]
    elif hook.startswith("parse"):
        forms = [(({},), {})]
    for arguments, keywords in forms:
        try:
            inspect.signature(getattr(host.new(), hook)).bind(*arguments, **keywords)
        except TypeError as error:
            given = f"it takes {arguments} and {keywords}, as hosts call it"
            return f"{hook}: {error}\nexpected: {given}"
    return None


def check_awaitable(host: Host, hook: str, data: Any) -> str | None:
    """What the hook with async in its name returns can be awaited; data are of a valid request."""

    async def no_outputs() -> AsyncIterator[Any]:
        none: tuple[Any, ...] = ()
        for output in none:
            yield output

    async def returned() -> Any:
        plugin = host.new()
        given = {"model_output": no_outputs()}
        if hook.startswith("pre_process"):
            given = {"prompt": host.parsed(plugin, copy.deepcopy(data))}
        answer = getattr(plugin, hook)(**given, request_id="id-0")
        if inspect.isawaitable(answer):
            await asyncio.gather(answer, return_exceptions=True)
        return answer

    answer = asyncio.run(returned())
    if inspect.isawaitable(answer):
        return None
    what = f"{hook} returned {type(answer).__name__}, which cannot be awaited"
    return f"{what}\nexpected: a coroutine, as of async def, or a future"


def check_answers(host: Host, data: Any, request_id: str | None) -> str | None:
    """The valid request is answered."""
    got = served(host, host.new(), data, request_id)
    where = "" if request_id else ", offline, without a request id"
    if isinstance(got, Refused):
        return f"the valid request got {got}{where}\nexpected: an answer"
    return None


def check_refuses(host: Host, data: Any, request_id: str | None) -> str | None:
    """The invalid request is refused."""
    got = served(host, host.new(), data, request_id)
    where = "" if request_id else ", offline, without a request id"
    if isinstance(got, Refused):
        return None
    return f"the invalid request got {got!r:.200}{where}\nexpected: it is refused"


def check_hostile(host: Host, data: Any, beside: dict[str, Any] | None = None) -> str | None:
    """The request is answered, or refused as its client's error."""
    got = served(host, host.new(), data, beside=beside)
    if isinstance(got, Refused) and got.status >= 500:
        return f"the request got {got}, the server's error\nexpected: an answer, or HTTP 400 to 499"
    return None


def check_early(host: Host, data: Any) -> str | None:
    """The invalid request is refused before the engine works for it."""
    outputs = begin(host, host.new(), copy.deepcopy(data))
    if isinstance(outputs, Exception):
        return None
    what = f"the engine got {len(outputs)} prompts of an invalid request"
    return f"{what}\nexpected: it is refused before the engine works for it"


def check_pure(host: Host, data: Any) -> str | None:
    """Serving a request leaves its data as they are."""
    plugin, given = host.new(), copy.deepcopy(data)
    finish(host, plugin, begin(host, plugin, given, None), None)
    if what := apart(given, data, place="data"):
        return f"serving the request changed its data: {what}\nexpected: they are as they were"
    return None


def check_forms(host: Host, data: Any) -> str | None:
    """Every form of the request becomes the same prompts."""

    def tokens(form: Any) -> list[Any]:
        plugin = host.new()
        given = plugin.pre_process(prompt=plugin.parse_request(form), request_id="id-0")
        return [prompt.get("prompt_token_ids") for prompt in rendered(host, given)]

    expected = tokens(IOProcessorRequest(data=copy.deepcopy(data)))
    for what, form in (("{'data': DATA}", {"data": data}), ("DATA", data)):
        got: Any
        try:
            got = tokens(copy.deepcopy(form))
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
        if got != expected:
            wanted = f"prompts of the tokens {expected!r:.200}, as of IOProcessorRequest"
            return f"parse_request({what}): got {got!r:.200}\nexpected: {wanted}"
    return None


def check_prompts(host: Host, data: Any) -> str | None:
    """The engine takes the prompts."""
    plugin = host.new()
    prompt = host.parsed(plugin, copy.deepcopy(data))
    prompts = plugin.pre_process(prompt=prompt, request_id="id-0")
    try:
        rendered(host, prompts)
    except Exception as error:
        what = f"vLLM does not take {prompts!r:.200}: {type(error).__name__}: {error}"
        return f"{what}\nexpected: one prompt or a list of prompts that vLLM can render"
    return None


def check_params(host: Host) -> str | None:
    """Parameters are returned, with the same task whatever is asked."""
    good = PoolingParams if host.asks == "merge_pooling_params" else PoolingParams | SamplingParams
    tasks: dict[str, str] = {}
    for arguments in ((), (None,), (PoolingParams(),)):
        plugin = host.new()
        for _ in range(2):
            got: Any
            try:
                got = getattr(plugin, host.asks)(*copy.deepcopy(arguments))
            except Exception as error:
                got = error
            task = getattr(got, "task", None) or "plugin"  # as vLLM makes it
            if not (task in POOLING_TASKS and isinstance(got, good)):
                wanted = "parameters with a task that vLLM knows, or with none"
                return f"{host.asks}{arguments}: got {got!r:.200}\nexpected: {wanted}"
            tasks[str(arguments)] = task
    if len(set(tasks.values())) > 1:
        return f"{host.asks}: got another task for other parameters: {tasks}\nexpected: the same"
    return None


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


def check_fresh(host: Host) -> str | None:
    """Every request gets parameters of its own."""
    plugin = host.new()
    made = [getattr(each, host.asks)() for each in (plugin, plugin, host.new())]
    made += [getattr(plugin, host.asks)(PoolingParams()) for _ in range(2)]
    if len({id(params) for params in made}) == len(made):
        return None
    what = f"{host.asks} returned the same object twice"
    return f"{what}\nexpected: an object for each request, since hosts write to them"


def check_same_awaited(host: Host, data: Any, hidden: Collection[str] = ()) -> str | None:
    """The awaited hooks give what the others give."""
    got = asyncio.run(alone(host, host.new(), data))
    if what := apart(got, served(host, host.new(), data), hidden):
        return f"the awaited hooks do not give what the others give\n  {what}"
    return None


def check_prompts_awaited(host: Host, data: Any) -> str | None:
    """The awaited hook gives the prompts of the other one."""
    plugin = host.new()
    prompt = host.parsed(plugin, copy.deepcopy(data))
    expected = rendered(host, plugin.pre_process(prompt=prompt, request_id="id-0"))
    plugin = host.new()
    prompt = host.parsed(plugin, copy.deepcopy(data))

    async def ask() -> Any:
        return await plugin.pre_process_async(prompt=prompt, request_id="id-0")

    given = asyncio.run(ask())
    got, wanted = (
        [prompt.get("prompt_token_ids") for prompt in prompts]
        for prompts in (rendered(host, given), expected)
    )
    if what := apart(got, wanted, place="tokens"):
        return f"pre_process_async does not give the prompts of pre_process\n  {what}"
    return None


def check_used(host: Host, data: Any) -> str | None:
    """Every output is read."""
    plugin, read = host.new(), set[int]()
    outputs = begin(host, plugin, copy.deepcopy(data))
    assert isinstance(outputs, list), outputs
    noted = [Noted(each, functools.partial(read.add, at)) for at, each in enumerate(outputs)]
    finish(host, plugin, noted)
    if unread := sorted(set(range(len(outputs))) - read):
        what = f"of {len(outputs)} outputs post_process never read these: {unread}"
        return f"{what}\nexpected: it reads all of them"
    return None


def check_left(host: Host, data: Any) -> str | None:
    """Outputs are as they were after post_process."""

    def described(outputs: list[Any]) -> list[Any]:
        return [[o.request_id, list(o.prompt_token_ids), o.outputs.data.tolist()] for o in outputs]

    plugin = host.new()
    outputs = begin(host, plugin, copy.deepcopy(data))
    assert isinstance(outputs, list), outputs
    before = described(outputs)
    finish(host, plugin, list(outputs))
    if what := apart(described(outputs), before, place="outputs"):
        said = f"post_process changed the outputs that it was given: {what}"
        return f"{said}\nexpected: they are as they were"
    return None


def check_serialisable(host: Host, data: Any) -> str | None:
    """The response can be written."""
    plugin = host.new()
    result = plugin.post_process(begin(host, plugin, copy.deepcopy(data)), request_id="id-0")
    try:
        written(host.response(plugin, result, "id-0"))
    except Exception as error:
        what = f"the response cannot be written: {type(error).__name__}: {error}"
        return f"{what}\nexpected: JSON values; got {result!r:.200}"
    return None


def check_response(host: Host, data: Any) -> str | None:
    """An IOProcessorResponse is returned that can be written."""
    plugin = host.new()
    result = plugin.post_process(begin(host, plugin, copy.deepcopy(data)), request_id="id-0")
    got: Any
    try:
        got = plugin.output_to_response(result)
        written(got)
    except Exception as error:
        print(f"output_to_response, or writing what it gave: {type(error).__name__}: {error}")
        got = error
    if isinstance(got, IOProcessorResponse):
        return None
    return f"got {got!r:.200}\nexpected: an IOProcessorResponse that can be written as JSON"


def check_means(
    host: Host, data: Any, wanted: Any, request_id: str | None, hidden: Collection[str] = ()
) -> str | None:
    """The request is answered what the author says it must be answered."""
    if what := apart(served(host, host.new(), data, request_id), wanted, hidden):
        return f"the answer is not what the author says\n  {what}"
    return None


def check_steady(host: Host, data: Any) -> str | None:
    """The same request gets the same answer every time."""
    first = served(host, host.new(), data)
    for _ in range(3):
        if what := apart(served(host, host.new(), data), first):
            return f"the same request, asked again, got another answer\n  {what}"
    return None


def check_same_offline(host: Host, data: Any, hidden: Collection[str] = ()) -> str | None:
    """The answer is the same with and without a request id."""
    got = served(host, host.new(), data, None)
    if what := apart(got, served(host, host.new(), data), hidden):
        return f"without a request id, as offline, the answer is another one\n  {what}"
    return None


def check_shares(host: Host, data: Any, names: list[str], *, awaited: bool) -> str | None:
    """The request leaves to others what all of the process share."""

    async def serve(plugin: Any) -> None:
        if awaited:
            await alone(host, plugin, data)
        else:
            served(host, plugin, data)

    return changed_by(host.new, serve, names)
