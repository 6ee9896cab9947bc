# SPDX-License-Identifier: Apache-2.0
"""Programs of classifier hooks: the checks made small.

They stand on the functions of :mod:`conformance.counterexample.hook_functions`.  ``TEXT`` is what
the model is said to have written.
"""

from __future__ import annotations

_MADE = """\
for time in ("the first", "the second"):
    try:
        new()
    except Exception as error:
        traceback.print_exc()
        print(f"FAILS: making {time} instance raised {type(error).__name__}: {error}")
        print("expected: it raises nothing, outside an event loop")
        sys.exit(1)
print("OK: two instances were made")
"""

_ATTRIBUTE = """\
try:
    value = new().$attribute
except Exception as error:
    print(f"FAILS: $attribute cannot be read: {type(error).__name__}: {error}")
    print("expected: $wanted")
    sys.exit(1)
if not ($good):
    print(f"FAILS: $attribute is {value!r}")
    print("expected: $wanted")
    sys.exit(1)
print("OK: $attribute is $wanted")
"""

_CALLABLE = """\
score = new().score
fits = inspect.iscoroutinefunction(score)
try:
    inspect.signature(score).bind(None)
except TypeError as error:
    print(f"score: {error}")
    fits = False
if not fits:
    print(f"FAILS: score is {score!r}")
    print("expected: a coroutine function of one argument, async def score(self, ctx)")
    sys.exit(1)
print("OK: score is a coroutine function of one argument")
"""

_CONSTANT = """\
NAMES = ("name", "blocking", "timeout_ms", "on_error")
hook = new()
before = {name: getattr(hook, name, None) for name in NAMES}
scored(hook, *map(context, TEXTS))
after = {name: getattr(hook, name, None) for name in NAMES}
if after != before:
    print(f"FAILS: after calls the hook says {after} of itself")
    print(f"expected: {before}, as before")
    sys.exit(1)
print("OK: the hook says the same of itself before and after calls")
"""

_JSON = '''\
def wrong(value, place: str = "scores") -> str | None:
    """Say what JSON cannot hold, or return None."""
    if isinstance(value, dict):
        keys = [key for key in value if not isinstance(key, str)]
        parts = [wrong(item, f"{place}[{key!r}]") for key, item in value.items()]
        return f"{place} has the key {keys[0]!r}" if keys else next(filter(None, parts), None)
    if isinstance(value, (list, tuple)):
        parts = [wrong(item, f"{place}[{index}]") for index, item in enumerate(value)]
        return next(filter(None, parts), None)
    if isinstance(value, float) and not math.isfinite(value):
        return f"{place} is {value}"
    plain = value is None or isinstance(value, (str, int, float, bool))
    return None if plain else f"{place} is {value!r}"


(got,) = scored(new(), context(TEXT))
what = wrong(got) if isinstance(got, dict) else f"score returned {got!r}"
if what:
    print(f"FAILS: {what:.300}")
    print("expected: a dict with str keys that holds nothing but JSON values")
    sys.exit(1)
print("OK: JSON can hold the scores")
'''

_DECIDES = """\
(got,) = scored(new(), context(TEXT))
blocks = isinstance(got, dict) and bool(got.get("block"))
if blocks is not $blocks:
    print(f"FAILS: the text got {got!r:.300}")
    print("expected: $wanted")
    sys.exit(1)
print(f"OK: the text got {got!r:.300}")
"""

_REPLACEMENT = """\
(got,) = scored(new(), context(TEXT))
text = got.get("replacement") if isinstance(got, dict) and got.get("block") else None
if text == "" or not isinstance(text, str | None):
    print(f"FAILS: the replacement is {text!r:.300}")
    print("expected: a text that is not empty, or None")
    sys.exit(1)
print(f"OK: the replacement is {text!r:.300}")
"""

_SCORES = """\
(got,) = scored(new(), context(TEXT$changes))
if isinstance(got, Exception):
    traceback.print_exception(got)
    print(f"FAILS: score raised {type(got).__name__}: {got}")
    print("expected: scores")
    sys.exit(1)
print(f"OK: the scores are {got!r:.300}")
"""

_READS = """\
fields = MappingProxyType({"tenant": "a", "tags": ("x",)})
each = context(TEXT, extra_fields=fields, request_metadata=fields)
before = copy.copy(each)
(got,) = scored(new(), each)
said = "does ?n[o']t support item|mappingproxy|'tuple' object|super"
tried = isinstance(got, dataclasses.FrozenInstanceError) or re.search(said, str(got))
if each != before or (isinstance(got, Exception) and tried):
    print(f"FAILS: score changed its context, or tried to: {got!r:.300}")
    print("expected: the context is only read")
    sys.exit(1)
print("OK: the context is as it was")
"""

_STEADY = """\
first, *others = [scored(new(), context(TEXT))[0] for _ in range(8)]
for other in others:
    if what := apart(other, first):
        print("FAILS: the same completion, scored again, got other scores")
        print(f"  {what}")
        sys.exit(1)
print("OK: the same completion gets the same scores")
"""

_HELD = """\
longest = []
for _ in range(4):
    steps = Steps(new().score(context(TEXT)))
    asyncio.run(driven(steps))
    longest.append(steps.longest[$which])
# A busy machine holds anybody up now and then: the shortest of several counts.
if min(longest) > 0.05:
    print(f"FAILS: score $what {min(longest) * 1000:.0f} ms on the event loop")
    print("expected: at most 50 ms at a time")
    sys.exit(1)
print(f"OK: score $what {min(longest) * 1000:.0f} ms on the event loop, at the most")
"""

_IN_TIME = """\
limit, seconds = new().timeout_ms / 1000, []
for _ in range(4):
    began = perf_counter()
    with suppress(asyncio.TimeoutError):
        asyncio.run(asyncio.wait_for(new().score(context(TEXT)), limit + 2))
    seconds.append(perf_counter() - began)
if min(seconds) > limit:
    print(f"FAILS: score took {min(seconds) * 1000:.0f} ms")
    print(f"expected: at most {limit * 1000:.0f} ms, which are its timeout_ms")
    sys.exit(1)
print(f"OK: score took {min(seconds) * 1000:.0f} ms of {limit * 1000:.0f}")
"""

_ENDS = '''\
async def main() -> tuple:
    """Score one text, and cancel the scoring of another."""
    hook = new()
    await hook.score(context("first"))
    return await cut(hook, context(TEXT), wait=$wait, turns=$turns)


for _ in range(4):
    seconds, what, _left = asyncio.run(main())
    if seconds is None or (what == "was cancelled" and seconds <= 0.05):
        print("OK: a call that is cancelled ends at once")
        sys.exit(0)
print(f"FAILS: a call that was cancelled {what:.200}, {seconds * 1000:.0f} ms later")
print("expected: it ends within 50 ms, with CancelledError")
sys.exit(1)
'''

_LEFT = '''\
async def main() -> list[int]:
    """Return how many tasks there are more than before, after each of several calls."""
    hook, found = new(), []
    for number in range(8):
        before = asyncio.all_tasks()
        await hook.score(context(f"{TEXT} {number}"))
        for _ in range(4):
            await asyncio.sleep(0)
        found.append(len(asyncio.all_tasks() - before))
    return found


left = asyncio.run(main())
if all(left):
    print(f"FAILS: calls left so many tasks behind: {left}")
    print("expected: none")
    sys.exit(1)
print("OK: no call leaves a task behind")
'''

_LEFT_CUT = '''\
async def main() -> tuple:
    """Score one text, and cancel the scoring of another."""
    hook = new()
    await hook.score(context("first"))
    await asyncio.sleep(0)
    return await cut(hook, context(TEXT), wait=$wait, turns=$turns)


_seconds, _what, left = asyncio.run(main())
if left:
    print(f"FAILS: a call that was cancelled left {left} task(s) behind")
    print("expected: none")
    sys.exit(1)
print("OK: a call that is cancelled leaves no task behind")
'''

_SEQUENCE = """\
texts = [text for text, *_ in CALLS]
got = scored(new(), *[context(text, name) for text, name, *_ in CALLS])
for (text, name, *_), mine in zip(CALLS, got, strict=True):
    (alone,) = scored(new(), context(text, name))
    if what := apart(mine, alone):
        print(f"FAILS: {text!r:.80}, scored after others, did not get what it gets alone")
        print(f"  {what}")
        sys.exit(1)
print("OK: every text gets what it gets alone")
"""

_AT_ONCE = """\
got = asyncio.run(together(new(), CALLS))
for (text, name, _, leaves), mine in zip(CALLS, got, strict=True):
    (alone,) = scored(new(), context(text, name))
    if not leaves and (what := apart(mine, alone)):
        print(f"FAILS: {text!r:.80}, scored beside others, did not get what it gets alone")
        print(f"  {what}")
        sys.exit(1)
print("OK: every text gets what it gets alone")
"""

_CROWD = '''\
async def main():
    """Cancel sixty-four calls, and score one more text."""
    hook = new()
    calls = [(TEXT, f"id-{n}", 0, $wait) for n in range(64)]
    crowd = asyncio.ensure_future(together(hook, calls))
    await asyncio.wait([crowd], timeout=2)
    crowd.cancel()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.5)
    try:
        return await asyncio.wait_for(hook.score(context(TEXT)), 10)
    except Exception as error:
        return error


got = asyncio.run(main())
(alone,) = scored(new(), context(TEXT))
if what := apart(got, alone):
    print("FAILS: after calls that were cancelled a text did not get what it gets alone")
    print(f"  {what}")
    sys.exit(1)
print("OK: calls that are cancelled harm no other")
'''

_OWN = '''\
async def main() -> list:
    """Return the scores of several texts, as they were and as they are later."""
    hook, found = new(), []
    for text in TEXTS:
        got = await hook.score(context(text))
        found.append((text, got, copy.deepcopy(got)))
    return found


for text, now, then in asyncio.run(main()):
    if what := apart(now, then):
        print(f"FAILS: after later calls the scores of {text!r:.80} are others")
        print(f"  {what}")
        sys.exit(1)
print("OK: later calls change nothing of what was returned")
'''

_FORGETS = '''\
async def main() -> None:
    """Score ten thousand texts, and look how much is held meanwhile."""
    hook, contexts = new(), []
    tracemalloc.start()
    for number in range(10_000):
        each = context(f"{TEXTS[number % len(TEXTS)]} {number}", f"id-{number}")
        if number < 5_000:
            contexts.append(weakref.ref(each))
        with suppress(Exception):
            await hook.score(each)
        del each
        if number % 2_000 == 1_999:
            gc.collect()
            HELD.append(tracemalloc.get_traced_memory()[0])
    ALIVE.append(sum(reference() is not None for reference in contexts))


HELD, ALIVE = [], []
asyncio.run(main())
growth = [after - before for before, after in zip(HELD, HELD[1:])]
if ALIVE[0] > 16:
    print(f"FAILS: {ALIVE[0]} contexts of calls that are long over are still held")
    print("expected: none")
    sys.exit(1)
# Of five thousand references the program itself holds 2,000 after each of the first rounds.
if min(growth[-2:]) > 2_000 * 4:
    print(f"FAILS: more memory is held after each 2,000 calls, in bytes: {HELD}")
    print("expected: as much as before")
    sys.exit(1)
print("OK: nothing is held of calls that are over")
'''

_OTHER_LOOP = """\
calls = [(text, f"id-{number}", 0, 0) for number, text in enumerate(TEXTS)]
hook = new()
asyncio.run(together(hook, calls))
got = asyncio.run(together(hook, calls))
for (text, name, *_), mine in zip(calls, got, strict=True):
    (alone,) = scored(new(), context(text, name))
    if what := apart(mine, alone):
        print(f"FAILS: on another event loop {text!r:.80} did not get what it gets alone")
        print(f"  {what}")
        sys.exit(1)
print("OK: the hook scores on another event loop as on the first")
"""

SCRIPTS = {
    "made": _MADE,
    "attribute": _ATTRIBUTE,
    "callable": _CALLABLE,
    "constant": _CONSTANT,
    "json": _JSON,
    "decides": _DECIDES,
    "replacement": _REPLACEMENT,
    "scores": _SCORES,
    "reads": _READS,
    "steady": _STEADY,
    "held": _HELD,
    "in-time": _IN_TIME,
    "ends": _ENDS,
    "left": _LEFT,
    "left-cut": _LEFT_CUT,
    "sequence": _SEQUENCE,
    "at-once": _AT_ONCE,
    "crowd": _CROWD,
    "own": _OWN,
    "forgets": _FORGETS,
    "other-loop": _OTHER_LOOP,
}
