# SPDX-License-Identifier: Apache-2.0
"""Plays cases of more than one request, thread or turn of the event loop against an IO processor.

As in :mod:`conformance.counterexample.io_player`, a function returns what happened and what was
expected, or None where it is as the docstring says.
"""

import asyncio
import copy
import functools
import gc
import inspect
import itertools
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

from conformance.counterexample.io_host_player import (
    Host,
    Refused,
    Reusing,
    Server,
    alone,
    apart,
    begin,
    finish,
    served,
)

#: Bytes by which what is held grows where nothing is kept of requests.
NOISE = 8_000


def check_errors(host: Host, data: Any, place: int) -> str | None:
    """Where the engine fails, the request gets the engine's error."""

    async def main() -> Any:
        server = Server(host, {"A": (data, "id-0")}, copy.deepcopy)
        await server.arrive("A")
        for number in range(place):
            await server.deliver("A", number)
        await server.fail("A")
        return server.got("A")

    got = asyncio.run(main())
    if isinstance(got, Refused) and got.status >= 500:
        return None
    what = f"the engine failed output {place}, and the request got {got!r:.200}"
    return f"{what}\nexpected: the engine's error, HTTP 500"


def check_history(
    host: Host,
    requests: dict[str, tuple[Any, ...]],
    events: list[tuple[str, str]],
    hidden: Collection[str] = (),
    *,
    reusing: bool = False,
) -> str | None:
    """Every request gets what it gets alone."""
    # Requests are data, an id, and what the client sets beside data, if anything.
    plugin, outputs, got = host.new(), dict[str, Any](), dict[str, Any]()
    copied: Callable[[Any], Any] = Reusing() if reusing else copy.deepcopy
    for what, name in events:
        data, request_id, *beside = requests[name]
        if what == "arrive":
            outputs[name] = begin(host, plugin, copied(data), request_id, *beside)
        elif what == "complete":
            got[name] = finish(host, plugin, outputs[name], request_id)
        # Of one that the engine fails, or whose client disconnects, the plugin hears no more.
    return compared(got, {name: served(host, host.new(), *requests[name]) for name in got}, hidden)


def check_awaited_history(
    host: Host,
    requests: dict[str, tuple[Any, str]],
    events: list[tuple[Any, ...]],
    judged: list[str],
    hidden: Collection[str] = (),
    *,
    reusing: bool = False,
) -> str | None:
    """Every request gets what it gets alone."""

    async def main() -> dict[str, Any]:
        server = Server(host, requests, Reusing() if reusing else copy.deepcopy)
        for what, name, *number in events:
            await getattr(server, what)(name, *number)
        return {name: server.got(name) for name in judged}

    got = asyncio.run(main())
    expected = {name: asyncio.run(alone(host, host.new(), *requests[name])) for name in got}
    return compared(got, expected, hidden)


def compared(
    got: Mapping[str, Any], expected: Mapping[str, Any], hidden: Collection[str]
) -> str | None:
    """Say which request did not get what it gets alone, or return None."""
    for name, answer in got.items():
        if what := apart(answer, expected[name], hidden):
            return f"request {name} did not get what it gets alone\n  {what}"
    return None


def check_leaves(host: Host, data: Any, place: int) -> str | None:
    """A request ends when its client disconnects."""

    async def main() -> Any:
        server = Server(host, {"A": (data, "id-0")}, copy.deepcopy)
        await server.arrive("A")
        for number in range(place):
            await server.deliver("A", number)
        await server.leave("A")
        got = server.got("A")
        await server.deliver("A", place)
        return "another output" if server.ready["A"].empty() else got

    got = asyncio.run(main())
    if got == "the end of its request":
        return None
    what = f"the client of A disconnected, and its request got {got!r:.200}"
    return f"{what}\nexpected: the request ends, whatever it waits for"


def check_without_ids(
    host: Host, data: Any, other: Any, hidden: Collection[str] = (), *, failing: bool
) -> str | None:
    """Offline, the second request gets what it gets alone."""
    plugin = host.new()
    if failing:  # the engine fails the first one
        begin(host, plugin, copy.deepcopy(other), None)
    else:
        served(host, plugin, other, None)
    got = served(host, plugin, data, None)
    if what := apart(got, served(host, host.new(), data, None), hidden):
        return f"offline, the second request did not get what it gets alone\n  {what}"
    return None


def check_other_thread(host: Host, data: Any, hidden: Collection[str] = ()) -> str | None:
    """The answer is the same, whatever thread post_process runs on."""
    plugin = host.new()
    outputs = begin(host, plugin, copy.deepcopy(data))
    with ThreadPoolExecutor(1) as another_thread:
        got = another_thread.submit(finish, host, plugin, outputs).result()
    if what := apart(got, served(host, host.new(), data), hidden):
        said = "post_process on another thread than pre_process gives another answer"
        return f"{said}\n  {what}"
    return None


class Paused:
    """Follows the plugin line by line, and begins another thread at one of the lines."""

    def __init__(self, plugin: Any, line: int, other: threading.Thread) -> None:
        self.file, self.count, self.line, self.other = inspect.getfile(plugin), 0, line, other

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        """Follow a call, as sys.settrace has it."""
        if frame.f_code.co_filename != self.file:
            return None
        if event == "line":
            if self.count == self.line:
                self.other.start()
                self.other.join(0.2)  # it may have to wait for this thread
            self.count += 1
        return self


def check_two_threads(
    host: Host, data: Any, other: Any, hidden: Collection[str] = ()
) -> str | None:
    """Two requests on two threads each get what they get alone."""

    def together(line: int) -> dict[str, Any]:
        """Serve a request while post_process of another one stands still at a line."""
        plugin, got = host.new(), dict[str, Any]()

        def serve() -> None:
            got["id-1"] = served(host, plugin, other, "id-1")

        outputs = begin(host, plugin, copy.deepcopy(data))
        paused = Paused(host.plugin, line, threading.Thread(target=serve))
        sys.settrace(paused)
        got["id-0"] = finish(host, plugin, outputs)
        sys.settrace(None)
        if paused.count <= line:
            return {}  # there are fewer lines
        paused.other.join()
        return got

    expected = {
        "id-0": served(host, host.new(), data),
        "id-1": served(host, host.new(), other, "id-1"),
    }
    for line in itertools.count():
        got = together(line)
        if not got:
            return None
        for name, answer in got.items():
            if what := apart(answer, expected[name], hidden):
                said = f"two requests on two threads, {name} did not get what it gets alone"
                return f"{said}\n  {what}"
    return None


def check_held(host: Host, data: Any, what: str, limit: float, *, awaited: bool) -> str | None:
    """The event loop is not held for long."""

    async def serve(plugin: Any) -> None:
        """Serve the request as vLLM does."""
        if awaited:
            await alone(host, plugin, data)
            return
        outputs = begin(host, plugin, copy.deepcopy(data))
        await asyncio.to_thread(finish, host, plugin, outputs)

    async def measured() -> dict[str, float]:
        """Return for how many seconds the event loop was held at a time."""
        longest = {"waited": 0.0, "worked": 0.0}
        task = asyncio.create_task(serve(host.new()))
        while not task.done():
            wall, cpu = perf_counter(), thread_time()
            await asyncio.sleep(0)
            wall, cpu = perf_counter() - wall, thread_time() - cpu
            longest["waited"] = max(longest["waited"], wall - cpu)
            longest["worked"] = max(longest["worked"], cpu)
        return longest

    # A busy machine holds anybody up now and then, and a fault every time.
    held = min(asyncio.run(measured())[what] for _ in range(4))
    if held <= limit:
        return None
    said = f"the plugin {what} {held * 1000:.0f} ms on the event loop"
    return f"{said}\nexpected: at most {limit} s, since no other request is served meanwhile"


def rounds(
    host: Host, data: list[Any], changed: list[Any], *, answered: bool, alike: bool = False
) -> Callable[[int], Any]:
    """Return what serves the request with a number, and returns one of its outputs.

    ``changed`` is the place of a text in the data that is another one for each request; ``alike``
    requests have all one id.
    """
    plugin = host.new()
    outputs: list[Any] = [begin(host, host.new(), copy.deepcopy(each), "id") for each in data]

    def go_through(number: int) -> Any:
        given, request_id = copy.deepcopy(data[number % len(data)]), f"id-{0 if alike else number}"
        if changed:
            *above, last = changed
            inner = functools.reduce(lambda value, key: value[key], above, given)
            inner[last] += f" {number}"
        if changed and answered:
            mine = begin(host, plugin, given, request_id)
            plugin.post_process(mine, request_id=request_id)
            return None
        plugin.pre_process(prompt=host.parsed(plugin, given), request_id=request_id)
        getattr(plugin, host.asks)()
        mine = [copy.copy(output) for output in outputs[number % len(data)]]
        if answered:
            plugin.post_process(mine, request_id=request_id)
        return mine[0]

    return go_through


def check_growth(
    host: Host,
    data: list[Any],
    changed: list[Any] | None = None,
    *,
    answered: bool = False,
    alike: bool = False,
) -> str | None:
    """No more memory is held when requests have come and gone."""
    go_through = rounds(host, data, changed or [], answered=answered, alike=alike)
    held: list[int] = []
    each = 200 if changed and answered else 2000  # prompts of their own take longer
    tracemalloc.start()
    for index in range(5):
        for number in range(index * each, (index + 1) * each):
            go_through(number)
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])
    growth = [after - before for before, after in itertools.pairwise(held)]
    if min(growth[-3:]) > 0 and sum(growth[-3:]) > NOISE:
        what = f"more memory is held after each {each} requests: got {held} bytes"
        return f"{what}\nexpected: as much as before"
    return None


def check_room(host: Host, data: list[Any], count: int) -> str | None:
    """A request is taken after so many that were only begun."""
    go_through = rounds(host, data, [], answered=False)
    for number in range(count):
        go_through(number)
    try:
        go_through(count)
    except Exception as error:
        what = f"after {count} requests that were only begun, the next one raised {error!r}"
        return f"{what}\nexpected: it is taken"
    return None


def check_files(
    host: Host, data: list[Any], *, answered: bool = False, alike: bool = False
) -> str | None:
    """No file is left open when requests have come and gone."""
    go_through = rounds(host, data, [], answered=answered, alike=alike)
    folder = Path("/proc/self/fd")
    before = len(list(folder.iterdir()))
    for number in range(100):
        go_through(number)
    gc.collect()
    left = len(list(folder.iterdir())) - before
    if left > 16:
        return f"{left} more files are open after 100 requests\nexpected: as many as before"
    return None


def check_alive(host: Host, data: list[Any]) -> str | None:
    """No outputs are held when requests have been answered."""
    go_through = rounds(host, data, [], answered=True)
    kept = [weakref.ref(go_through(number)) for number in range(2000)]
    gc.collect()
    alive = sum(output() is not None for output in kept)
    if alive > 16:
        what = f"the outputs of {alive} requests, all answered, are still held"
        return f"{what}\nexpected: none is"
    return None
