# SPDX-License-Identifier: Apache-2.0
"""The host in the program of an IO processor's counterexample: as much of vLLM as a plugin meets.

Parsing, prompts, parameters and the response go through vLLM's own code; the outputs are random
numbers of the right shape that depend on the prompt alone.  A program holds the functions that
it calls, and no others.
"""

from __future__ import annotations

import re
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

REQUEST = "io/request"

#: How hosts of each generation make and call a plugin.
_DATA_WORDS = {
    "new": "Plugin(CONFIG, RENDERER)",
    "parse": "plugin.parse_data(data)",
    "asks": "merge_pooling_params",
    "response": "IOProcessorResponse(request_id=request_id, data=result)",
    "good": "PoolingParams",
    "verify": "\n        params.verify(CONFIG.model_config)",
    "outputs": "outputs",
}
_REQUEST_WORDS = {
    "new": "Plugin(CONFIG)",
    "parse": "plugin.parse_request(IOProcessorRequest(data=data))",
    "asks": "validate_or_generate_params",
    "response": "plugin.output_to_response(result)",
    "good": "PoolingParams | SamplingParams",
    "verify": "",
    "outputs": "model_output=outputs",
}

#: Of the documented generation, where some requests are offline and have no id.
_PARSE_EITHER = """\
plugin.parse_request(
            IOProcessorRequest(data=data) if request_id else {"data": data}
        )"""

#: Leaves out what differs from one time to the next.
_HIDING = """
    if re.sub(r"\\[\\d+\\]", "[*]", place) in HIDDEN:
        return None"""

#: The documented base class, where the installed one has another.
_DOCUMENTED = """\
if not hasattr(IOProcessor, "validate_or_generate_params"):
    # What the document gives the base class, and later releases have taken away from it.
    constructor = IOProcessor.__init__
    IOProcessor.__init__ = lambda self, config, renderer=None: constructor(self, config, renderer)
    IOProcessor.validate_or_generate_params = lambda self, params=None: params or PoolingParams()
"""

_SURROUNDINGS = '''\
def surroundings() -> tuple:
    """Return what plugins are made with: the configuration of an engine, and its renderer."""
    arguments = EngineArgs(
        model=MODEL, runner="pooling", enforce_eager=True, max_model_len=512, dtype="float32"
    )
    config = arguments.create_engine_config()
    return config, renderer_from_config(config)


CONFIG, RENDERER = surroundings()
'''

_RENDERED = '''\
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
'''

#: The outputs of ``io_processor.engine.output_of``; a test holds both to be the same.
_OUTPUT = '''\
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
'''

_STATUS = '''\
def status_of(error: Exception) -> int:
    """Return the HTTP status that vLLM answers an exception with."""
    return int(create_error_response(error).error.code)
'''

_WRITTEN = '''\
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
'''

_BEGIN = '''\
def begin(plugin: Plugin, data, request_id: $id) -> list[PoolingRequestOutput] | Exception:
    """Take a request to where its outputs are there; return them, or what was raised."""
    try:
        prompt = $parse
        prompts = rendered(plugin.pre_process(prompt=prompt, $named))
        params = plugin.$asks()
        params.task = params.task or "plugin"$verify
        return [output_of(p, params, f"{request_id}-{i}") for i, p in enumerate(prompts)]
    except Exception as error:
        return error
'''

_FINISH = '''\
@torch.inference_mode()
def finish(plugin: Plugin, outputs: list | Exception, request_id: $id):
    """Return what the client gets: the answer, or the HTTP status of what was raised."""
    try:
        if isinstance(outputs, Exception):
            raise outputs
        result = plugin.post_process(outputs, $named)
        return written($response)
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        return f"HTTP {status_of(error)}"
'''

_NAMED = '''\
def named(request_id: str | None) -> dict[str, str]:
    """Return the keyword arguments that say which request it is: none of one that is offline."""
    return {"request_id": request_id} if request_id else {}
'''

_SERVED = '''\
def served(plugin: Plugin, data, request_id: $id):
    """Serve a request from its beginning to its end; return what the client gets."""
    return finish(plugin, begin(plugin, copy.deepcopy(data), request_id), request_id)
'''

_GIVEN = '''\
def given(data):
    """Return a copy of data, at the address of earlier data that nobody holds any more.

    Sooner or later every server sees that.
    """
    global place
    if type(place) is type(data) and sys.getrefcount(place) == 2:
        place.clear()
        (place.update if isinstance(data, dict) else place.extend)(copy.deepcopy(data))
    else:
        place = copy.deepcopy(data)
    return place


place = None
'''

_ARRIVING = '''\
async def arriving(outputs: list[PoolingRequestOutput], ready: asyncio.Queue):
    """Yield outputs with their numbers, in the order in which the engine is done with them."""
    for _ in outputs:
        number = await ready.get()
        if number is None:
            raise RuntimeError("the engine could not serve a prompt")
        yield number, outputs[number]
'''

_AWAITED = '''\
async def awaited(plugin: Plugin, data, request_id: str, ready: asyncio.Queue):
    """Serve a request with the awaited hooks; `ready` gives the number of the next output."""
    try:
        data = $copied(data)
        prompt = $parse
        prompts = await plugin.pre_process_async(prompt=prompt, request_id=request_id)
        params = plugin.$asks()
        params.task = params.task or "plugin"
        names = (f"{request_id}-{number}" for number in itertools.count())
        outputs = [output_of(p, params, name) for p, name in zip(rendered(prompts), names)]
        outputs = arriving(outputs, ready)
        result = await plugin.post_process_async($outputs, request_id=request_id)
        return written($response)
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        return f"HTTP {status_of(error)}"
'''

_ALONE = '''\
async def alone(plugin: Plugin, data, request_id: str):
    """Serve one request by itself with the awaited hooks; return what the client gets."""
    ready = asyncio.Queue()
    for number in range(1000):  # in the order of the prompts, however many there are
        ready.put_nowait(number)
    return await awaited(plugin, data, request_id, ready)
'''

_SERVER = '''\
class Server:
    """One plugin, and requests that its awaited hooks serve at the same time."""

    def __init__(self) -> None:
        self.plugin, self.tasks, self.ready = $new, {}, {}

    async def arrive(self, name: str) -> None:
        """Begin with a request, up to where it waits for its outputs."""
        self.ready[name] = asyncio.Queue()
        work = awaited(self.plugin, *REQUESTS[name], self.ready[name])
        self.tasks[name] = asyncio.create_task(work)
        await asyncio.sleep(PAUSE)

    async def deliver(self, name: str, number: int | None) -> None:
        """Give a request the output of one of its prompts; None: the engine fails the prompt."""
        self.ready[name].put_nowait(number)
        await asyncio.sleep(PAUSE)

    async def leave(self, name: str) -> None:
        """Disconnect the client of a request."""
        self.tasks[name].cancel()
        await asyncio.sleep(PAUSE)

    def got(self, name: str):
        """Return what the client of a request has got by now."""
        task = self.tasks[name]
        if not task.done():
            return "nothing yet"
        return "the end of its request" if task.cancelled() else task.result()


#: Seconds that a server gets to bring everything to where it waits for the engine.
PAUSE = 0.05
'''

_APART = '''\
def apart(got, expected, place: str = "answer") -> str | None:
    """Say where two answers differ, if they do; the last digits of floats do not count."""
    pairs = []$hiding
    if isinstance(got, dict) and isinstance(expected, dict) and got.keys() == expected.keys():
        pairs = [(got[key], expected[key], f"{place}[{key!r}]") for key in expected]
    elif isinstance(got, list) and isinstance(expected, list) and len(got) == len(expected):
        pairs = [(*both, f"{place}[{i}]") for i, both in enumerate(zip(got, expected))]
    elif isinstance(got, float) and isinstance(expected, (int, float)):
        if not math.isclose(got, expected, rel_tol=1e-4, abs_tol=1e-5):
            return f"{place}: got {got}, expected {expected}"
    elif type(got) is not type(expected) or got != expected:
        return f"{place}: got {got!r:.200}, expected {expected!r:.200}"
    return next(filter(None, itertools.starmap(apart, pairs)), None)
'''

_NOTED = '''\
class Noted(PoolingRequestOutput):
    """An output that tells when its data are read."""

    def __init__(self, output: PoolingRequestOutput, read) -> None:
        self.read = lambda: None
        super().__init__(output.request_id, output.outputs, output.prompt_token_ids, 0, True)
        self.read = read

    @property
    def outputs(self) -> PoolingOutput:
        self.read()
        return self.kept

    @outputs.setter
    def outputs(self, value: PoolingOutput) -> None:
        self.kept = value
'''

#: In the order in which a program has them, each by the name that calls it.
_FUNCTIONS: Mapping[str, str] = {
    "CONFIG": _SURROUNDINGS,
    "rendered": _RENDERED,
    "output_of": _OUTPUT,
    "status_of": _STATUS,
    "written": _WRITTEN,
    "named": _NAMED,
    "begin": _BEGIN,
    "finish": _FINISH,
    "served": _SERVED,
    "given": _GIVEN,
    "arriving": _ARRIVING,
    "awaited": _AWAITED,
    "alone": _ALONE,
    "Server": _SERVER,
    "apart": _APART,
    "Noted": _NOTED,
}


def words(
    generation: str, *, offline: bool = False, hiding: bool = False, reusing: bool = False
) -> dict[str, str]:
    """Return what differs from program to program, for templates.

    Args:
        generation: that of the plugin.
        offline: whether requests are served that have no id.
        hiding: whether answers differ somewhere each time.
        reusing: whether data lie where earlier data were.

    """
    found = {
        "id": "str | None" if offline else "str",
        "named": "**named(request_id)" if offline else "request_id=request_id",
        "hiding": _HIDING if hiding else "",
        "copied": "given" if reusing else "copy.deepcopy",
    }
    if generation != REQUEST:
        return {**_DATA_WORDS, **found}
    if offline:
        found["parse"] = _PARSE_EITHER
    return {**_REQUEST_WORDS, **found}


def functions(body: str, generation: str, filling: Mapping[str, str]) -> list[str]:
    """Return the functions that a program needs.

    Args:
        body: what it does with them.
        generation: that of the plugin.
        filling: see :func:`words`.

    """
    texts = {name: Template(text).substitute(filling) for name, text in _FUNCTIONS.items()}
    needed: set[str] = set()
    waiting = [body]
    while waiting:
        text = waiting.pop()
        for name in texts.keys() - needed:
            if re.search(rf"\b{name}\b" if name == "CONFIG" else rf"\b{name}\(", text):
                needed.add(name)
                waiting.append(texts[name])
    found = [texts[name] for name in texts if name in needed]
    return [_DOCUMENTED, *found] if generation == REQUEST else found
