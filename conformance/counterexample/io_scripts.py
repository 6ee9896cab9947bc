# SPDX-License-Identifier: Apache-2.0
"""Programs of IO processors whose failures no history shows: the check itself, made small.

They stand on the host of :mod:`conformance.counterexample.io_host`.  ``DATA`` is the data of the
request that the check is about.
"""

from __future__ import annotations

from conformance.counterexample import io_crowds

_CONSTRUCTED = '''\
def described() -> dict[str, str]:
    """Return what the configuration says of the model."""
    kinds = str | int | float | bool | dict | list | None
    values = vars(CONFIG.model_config).items()
    return {name: repr(value) for name, value in values if isinstance(value, kinds)}


before = described()
for time in ("the first", "the second"):
    try:
        $new
    except Exception as error:
        traceback.print_exc()
        print(f"FAILS: making {time} instance raised {type(error).__name__}: {error}")
        print("expected: it raises nothing")
        sys.exit(1)
for name, value in described().items():
    if value != before[name]:
        print(f"FAILS: the constructor changed {name} of the configuration: got {value}")
        print(f"expected: {before[name]}, as it was")
        sys.exit(1)
print("OK: two instances were made, and the configuration is as it was")
'''

_WITH_RENDERER = """\
try:
    Plugin(CONFIG, RENDERER)
except TypeError as error:
    print(f"FAILS: making an instance raised TypeError: {error}")
    print("expected: the constructor takes the configuration and a renderer")
    sys.exit(1)
print("OK: the constructor takes a renderer")
"""

_CALLABLE = """\
hook = $new.$hook
$forms
for arguments, keywords in FORMS:
    try:
        inspect.signature(hook).bind(*arguments, **keywords)
    except TypeError as error:
        print(f"FAILS: $hook: {error}")
        print(f"expected: it takes {arguments} and {keywords}, as hosts call it")
        sys.exit(1)
print("OK: $hook can be called as hosts call it")
"""

_AWAITABLE = """\
for name in ("pre_process_async", "post_process_async"):
    if not inspect.iscoroutinefunction(getattr(Plugin, name)):
        print(f"FAILS: {name} is an ordinary function, and what it returns cannot be awaited")
        print("expected: a coroutine function, written with async def")
        sys.exit(1)
print("OK: both hooks can be awaited")
"""

_ANSWERS = """\
got = served($new, DATA, $request_id)
if isinstance(got, str) and got.startswith("HTTP "):
    print(f"FAILS: the valid request got {got}$where")
    print("expected: an answer")
    sys.exit(1)
print(f"OK: the request was answered {got!r:.200}")
"""

_REFUSES = """\
got = served($new, DATA, $request_id)
if not str(got).startswith("HTTP "):
    print(f"FAILS: the invalid request got {got!r:.200}$where")
    print("expected: it is refused")
    sys.exit(1)
print(f"OK: the request was refused with {got}")
"""

_HOSTILE = """\
got = served($new, DATA, "id-0")
if str(got).startswith("HTTP 5"):
    print(f"FAILS: the request got {got}, the server's error")
    print("expected: an answer, or HTTP 400 to 499")
    sys.exit(1)
print(f"OK: the request got {got!r:.200}")
"""

_EARLY = """\
outputs = begin($new, copy.deepcopy(DATA), "id-0")
if not isinstance(outputs, Exception):
    print(f"FAILS: the engine got {len(outputs)} prompts of an invalid request")
    print("expected: it is refused before the engine works for it")
    sys.exit(1)
print(f"OK: the request was refused: {outputs}")
"""

_PURE = """\
plugin, data = $new, copy.deepcopy(DATA)
finish(plugin, begin(plugin, data, None), None)
if what := apart(data, DATA, "data"):
    print(f"FAILS: serving the request changed its data: {what}")
    print("expected: they are as they were")
    sys.exit(1)
print("OK: the data of the request are as they were")
"""

_FORMS = '''\
def tokens(form) -> list:
    """Return the tokens of the prompts that a form of the request becomes."""
    plugin = $new
    prompts = plugin.pre_process(prompt=plugin.parse_request(form), request_id="id-0")
    return [prompt.get("prompt_token_ids") for prompt in rendered(prompts)]


expected = tokens(IOProcessorRequest(data=copy.deepcopy(DATA)))
for what, form in (("{'data': DATA}", {"data": DATA}), ("DATA", DATA)):
    try:
        got = tokens(copy.deepcopy(form))
    except Exception as error:
        got = f"{type(error).__name__}: {error}"
    if got != expected:
        print(f"FAILS: parse_request({what}): got {got!r:.200}")
        print(f"expected: prompts of the tokens {expected!r:.200}, as of IOProcessorRequest")
        sys.exit(1)
print("OK: every form of the request becomes the same prompts")
'''

_PROMPTS = """\
plugin, data = $new, copy.deepcopy(DATA)
prompt = $parse
prompts = plugin.pre_process(prompt=prompt, request_id="id-0")
try:
    rendered(prompts)
except Exception as error:
    print(f"FAILS: vLLM does not take {prompts!r:.200}: {type(error).__name__}: {error}")
    print("expected: one prompt or a list of prompts that vLLM can render")
    sys.exit(1)
print("OK: vLLM takes the prompts")
"""

_PARAMS = """\
tasks = {}
for arguments in ((), (None,), (PoolingParams(),)):
    plugin = $new
    for _ in range(2):
        try:
            got = plugin.$asks(*copy.deepcopy(arguments))
        except Exception as error:
            got = error
        task = getattr(got, "task", None) or "plugin"  # as vLLM makes it
        if not (task in POOLING_TASKS and isinstance(got, $good)):
            print(f"FAILS: $asks{arguments}: got {got!r:.200}")
            print("expected: parameters with a task that vLLM knows, or with none")
            sys.exit(1)
    tasks[str(arguments)] = task
if len(set(tasks.values())) > 1:
    print(f"FAILS: $asks: got another task for other parameters: {tasks}")
    print("expected: the same task")
    sys.exit(1)
print("OK: the parameters are returned")
"""

_KEPT = """\
ASKED = $asked
try:
    got = $new.$asks(PoolingParams(**copy.deepcopy(ASKED)))
except Exception as error:
    if status_of(error) >= 500:
        print(f"FAILS: $asks: got {type(error).__name__}: {error}")
        print(f"expected: {ASKED} is there again, or refused as the client's error")
        sys.exit(1)
    got = PoolingParams(**ASKED)
for key, value in ASKED.items():
    found = getattr(got, key, None)
    if found != value and (key in ("use_activation", "dimensions") or not found):
        print(f"FAILS: $asks: got {key}={found!r}")
        print(f"expected: {key}={value!r}, which it was given")
        sys.exit(1)
print("OK: what the caller asked for is kept")
"""

_FRESH = """\
plugin = $new
made = [each.$asks() for each in (plugin, plugin, $new)]
made += [plugin.$asks(PoolingParams()) for _ in range(2)]
if len({id(params) for params in made}) < len(made):
    print("FAILS: $asks returned the same object twice")
    print("expected: an object for each request, since hosts write to them")
    sys.exit(1)
print("OK: every request gets parameters of its own")
"""

_SAME_AWAITED = """\
got = asyncio.run(alone($new, DATA, "id-0"))
if what := apart(got, served($new, DATA, "id-0")):
    print("FAILS: the awaited hooks do not give what the others give")
    print(f"  {what}")
    sys.exit(1)
print("OK: the awaited hooks give what the others give")
"""

_PROMPTS_AWAITED = """\
plugin, data = $new, copy.deepcopy(DATA)
prompt = $parse
expected = rendered(plugin.pre_process(prompt=prompt, request_id="id-0"))
plugin, data = $new, copy.deepcopy(DATA)
prompt = $parse
got = rendered(asyncio.run(plugin.pre_process_async(prompt=prompt, request_id="id-0")))
tokens = [[prompt.get("prompt_token_ids") for prompt in prompts] for prompts in (got, expected)]
if what := apart(*tokens, "tokens"):
    print("FAILS: pre_process_async does not give the prompts of pre_process")
    print(f"  {what}")
    sys.exit(1)
print("OK: both give the same prompts")
"""

_USED = """\
plugin, read = $new, set()
outputs = begin(plugin, copy.deepcopy(DATA), "id-0")
noted = [Noted(each, functools.partial(read.add, index)) for index, each in enumerate(outputs)]
finish(plugin, noted, "id-0")
if unread := sorted(set(range(len(outputs))) - read):
    print(f"FAILS: of {len(outputs)} outputs post_process never read these: {unread}")
    print("expected: it reads all of them")
    sys.exit(1)
print(f"OK: post_process read all {len(outputs)} outputs")
"""

_LEFT = '''\
def described(outputs: list[PoolingRequestOutput]) -> list:
    """Return what outputs hold."""
    return [[o.request_id, list(o.prompt_token_ids), o.outputs.data.tolist()] for o in outputs]


plugin = $new
outputs = begin(plugin, copy.deepcopy(DATA), "id-0")
before = described(outputs)
finish(plugin, list(outputs), "id-0")
if what := apart(described(outputs), before, "outputs"):
    print(f"FAILS: post_process changed the outputs that it was given: {what}")
    print("expected: they are as they were")
    sys.exit(1)
print("OK: the outputs are as they were")
'''

_SERIALISABLE = """\
plugin = $new
result = plugin.post_process(begin(plugin, copy.deepcopy(DATA), "id-0"), request_id="id-0")
try:
    written(IOProcessorResponse(request_id="id-0", data=result))
except Exception as error:
    print(f"FAILS: what post_process gave cannot be written: {type(error).__name__}: {error}")
    print(f"expected: JSON values; got {result!r:.200}")
    sys.exit(1)
print("OK: the response can be written")
"""

_RESPONSE = """\
plugin = $new
result = plugin.post_process(begin(plugin, copy.deepcopy(DATA), "id-0"), request_id="id-0")
try:
    got = plugin.output_to_response(result)
    written(got)
except Exception as error:
    print(f"output_to_response, or writing what it gave: {type(error).__name__}: {error}")
    got = error
if not isinstance(got, IOProcessorResponse):
    print(f"FAILS: got {got!r:.200}")
    print("expected: an IOProcessorResponse that can be written as JSON")
    sys.exit(1)
print("OK: output_to_response returned an IOProcessorResponse")
"""

_STEADY = """\
first = served($new, DATA, "id-0")
for _ in range(3):
    if what := apart(served($new, DATA, "id-0"), first):
        print("FAILS: the same request, asked again, got another answer")
        print(f"  {what}")
        sys.exit(1)
print("OK: the same answer every time")
"""

_SAME_OFFLINE = """\
got = served($new, DATA, None)
if what := apart(got, served($new, DATA, "id-0")):
    print("FAILS: without a request id, as offline, the answer is another one")
    print(f"  {what}")
    sys.exit(1)
print("OK: the same answer with and without a request id")
"""

SCRIPTS = {
    **io_crowds.SCRIPTS,
    "constructed": _CONSTRUCTED,
    "with-renderer": _WITH_RENDERER,
    "callable": _CALLABLE,
    "awaitable": _AWAITABLE,
    "answers": _ANSWERS,
    "refuses": _REFUSES,
    "hostile": _HOSTILE,
    "early": _EARLY,
    "pure": _PURE,
    "forms": _FORMS,
    "prompts": _PROMPTS,
    "params": _PARAMS,
    "kept": _KEPT,
    "fresh": _FRESH,
    "same-awaited": _SAME_AWAITED,
    "prompts-awaited": _PROMPTS_AWAITED,
    "used": _USED,
    "left": _LEFT,
    "serialisable": _SERIALISABLE,
    "response": _RESPONSE,
    "steady": _STEADY,
    "same-offline": _SAME_OFFLINE,
}

#: Scripts that serve requests without an id.
OFFLINE = frozenset(("pure", "same-offline", "without-ids"))
