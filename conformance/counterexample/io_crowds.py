# SPDX-License-Identifier: Apache-2.0
"""Programs of IO processors about more than one request, thread or turn of the event loop.

As in :mod:`conformance.counterexample.io_scripts`, ``DATA`` is what the request carries; ``OTHER``
is another request's.
"""

from __future__ import annotations

_ERRORS = '''\
REQUESTS = {"A": (DATA, "id-0")}


async def main() -> str:
    """Let the engine fail one prompt of a request; return what its client gets."""
    server = Server()
    await server.arrive("A")
    for number in range($place):
        await server.deliver("A", number)
    await server.deliver("A", None)
    return server.got("A")


got = asyncio.run(main())
if not str(got).startswith("HTTP 5"):
    print(f"FAILS: the engine failed output $place, and the request got {got!r:.200}")
    print("expected: the engine's error, HTTP 500")
    sys.exit(1)
print(f"OK: the engine failed, and the request got {got}")
'''

_WITHOUT_IDS = """\
plugin = $new
$first
got = served(plugin, DATA, None)
if what := apart(got, served($new, DATA, None)):
    print("FAILS: offline, the second request did not get what it gets alone")
    print(f"  {what}")
    sys.exit(1)
print("OK: the second request got what it gets alone")
"""

_OTHER_THREAD = """\
plugin = $new
outputs = begin(plugin, copy.deepcopy(DATA), "id-0")
with ThreadPoolExecutor(1) as another_thread:
    got = another_thread.submit(finish, plugin, outputs, "id-0").result()
if what := apart(got, served($new, DATA, "id-0")):
    print("FAILS: post_process on another thread than pre_process gives another answer")
    print(f"  {what}")
    sys.exit(1)
print("OK: the same answer, whatever thread post_process runs on")
"""

_TWO_THREADS = '''\
class Paused:
    """Follows the plugin line by line, and begins another thread at one of the lines."""

    def __init__(self, line: int, other: threading.Thread) -> None:
        self.count, self.line, self.other = 0, line, other

    def __call__(self, frame, event: str, _):
        if frame.f_code.co_filename != inspect.getfile(Plugin):
            return None
        if event == "line":
            if self.count == self.line:
                self.other.start()
                self.other.join(0.2)  # it may have to wait for this thread
            self.count += 1
        return self


def together(line: int) -> dict:
    """Serve a request while post_process of another one stands still at a line."""
    plugin, got = $new, {}
    outputs = begin(plugin, copy.deepcopy(DATA), "id-0")
    serve = lambda: got.update({"id-1": served(plugin, OTHER, "id-1")})
    paused = Paused(line, threading.Thread(target=serve))
    sys.settrace(paused)
    got["id-0"] = finish(plugin, outputs, "id-0")
    sys.settrace(None)
    if paused.count <= line:
        return {}  # there are fewer lines
    paused.other.join()
    return got


alone = {
    "id-0": served($new, DATA, "id-0"),
    "id-1": served($new, OTHER, "id-1"),
}
line = 0
while got := together(line):
    for name in got:
        if what := apart(got[name], alone[name]):
            print(f"FAILS: two requests on two threads, {name} did not get what it gets alone")
            print(f"  {what}")
            sys.exit(1)
    line += 1
print(f"OK: one thread stood still at {line} lines, and nothing came of it")
'''

_HELD = '''\
async def serve(plugin: Plugin) -> None:
    """Serve the request as vLLM does."""
    $serve


async def measured() -> tuple[float, float]:
    """Return for how many seconds the event loop was held at a time: waiting, and working."""
    longest = [0.0, 0.0]
    task = asyncio.create_task(serve($new))
    while not task.done():
        wall, cpu = perf_counter(), thread_time()
        await asyncio.sleep(0)
        wall, cpu = perf_counter() - wall, thread_time() - cpu
        longest = [max(longest[0], wall - cpu), max(longest[1], cpu)]
    return longest


# A busy machine holds anybody up now and then, and a fault every time.
held = min(asyncio.run(measured())[$which] for _ in range(4))
if held > $limit:
    print(f"FAILS: the plugin $what {held * 1000:.0f} ms on the event loop")
    print("expected: at most $limit s, since no other request is served meanwhile")
    sys.exit(1)
print(f"OK: the plugin $what {held * 1000:.0f} ms on the event loop")
'''

_ROUNDS = '''\
ROUND = 2000


def go_through(plugin: Plugin, number: int) -> PoolingRequestOutput:
    """Serve one request$how; return one of its outputs."""
    data, request_id = copy.deepcopy(DATA[number % len(DATA)]), f"id-{number}"$changing
    prompt = $parse
    plugin.pre_process(prompt=prompt, request_id=request_id)
    plugin.$asks()
    outputs = [copy.copy(output) for output in OUTPUTS[number % len(DATA)]]$finish
    return outputs[0]


plugin = $new
OUTPUTS = [begin($new, copy.deepcopy(data), "id") for data in DATA]
'''

_GROWTH = (
    _ROUNDS
    + """\
held = []
tracemalloc.start()
for index in range(5):
    for number in range(index * ROUND, (index + 1) * ROUND):
        go_through(plugin, number)
    gc.collect()
    held.append(tracemalloc.get_traced_memory()[0])
growth = [after - before for before, after in itertools.pairwise(held)]
if min(growth[-3:]) > 0 and sum(growth[-3:]) > 4 * ROUND:
    print(f"FAILS: more memory is held after each {ROUND} requests: got {held} bytes")
    print("expected: as much as before")
    sys.exit(1)
print("OK: no more memory is held when requests have come and gone")
"""
)

_ALIVE = (
    _ROUNDS
    + """\
kept = [weakref.ref(go_through(plugin, number)) for number in range(ROUND)]
gc.collect()
alive = sum(output() is not None for output in kept)
if alive > 16:
    print(f"FAILS: the outputs of {alive} requests, all answered, are still held")
    print("expected: none is")
    sys.exit(1)
print("OK: no outputs are held when requests have been answered")
"""
)

SCRIPTS = {
    "errors": _ERRORS,
    "without-ids": _WITHOUT_IDS,
    "other-thread": _OTHER_THREAD,
    "two-threads": _TWO_THREADS,
    "held": _HELD,
    "growth": _GROWTH,
    "alive": _ALIVE,
}
