# SPDX-License-Identifier: Apache-2.0
"""Plays the failure of a check against a logits processor of either generation.

``requests`` are keyword arguments of ``SamplingParams``.  A function returns what happened and what
was expected, or None where it is as the docstring says.
"""

import copy
import gc
import inspect
import itertools
import os
import subprocess
import sys
import tempfile
import traceback
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from vllm import SamplingParams

from conformance.counterexample.clock_player import Clock, clock_of
from conformance.counterexample.logits_host_player import Logits
from conformance.counterexample.process_player import changed_by
from conformance.counterexample.work_player import Memory, executed

#: The context of a model in which requests get long.
CONTEXT = 40_960

#: How many more rows the embeddings of a model have than its tokenizer has tokens.
WIDER = 64

#: How many requests come and go before each measurement.
ROUND = 2000


class Host:
    """Makes a plugin, and serves requests: their prompt, how parameters are made, what is said."""

    def __init__(
        self,
        plugin: Any,
        rows: Logits,
        prompt: list[int],
        make: Callable[..., SamplingParams] = SamplingParams,
        first: Sequence[int] = (),
    ) -> None:
        self.plugin, self.rows, self.prompt, self.make = plugin, rows, prompt, make
        self.first = first

    def params(self, keywords: Mapping[str, Any]) -> SamplingParams:
        """Return the parameters of a new request."""
        return self.make(**copy.deepcopy(dict(keywords)))

    def said(self, step: int) -> int:
        """Return the token that a request gets in a step."""
        if step < len(self.first):
            return self.first[step]
        return self.rows.tokens[(step - len(self.first)) % len(self.rows.tokens)]

    def alone(
        self, keywords: Mapping[str, Any], steps: int, masked: list[int] | None = None
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Serve one request by itself; return its logits before and after each step."""
        raise NotImplementedError

    def long(
        self, params: SamplingParams, prompt: list[int], outputs: list[int], steps: int
    ) -> None:
        """Serve one request of a model with a long context."""
        raise NotImplementedError

    def started(
        self, requests: list[Any], count: int, vocabulary: int, history: int = 0
    ) -> Callable[[], None]:
        """Return the calls of a step with so many requests, after three others."""
        raise NotImplementedError

    def rounds(self, request: Callable[[int], Any]) -> Callable[..., None]:
        """Return what takes a round of requests through an instance, with apply or without.

        ``request`` returns the keywords of the request with a number.
        No two requests have the same prompt: it is made of the number of each.
        """
        raise NotImplementedError

    def device(self, requests: list[Any], steps: int) -> Iterator[torch.Tensor]:
        """Serve requests together on a GPU; yield what apply returns."""
        raise NotImplementedError

    def wide(self, keywords: Mapping[str, Any], steps: int) -> None:
        """Serve one request of a model with a larger vocabulary than its tokenizer's.

        Its prompt begins with the last token of the model, and its outputs have it in the end.
        """
        raise NotImplementedError

    def later(self, requests: list[Any], clock: Clock, pauses: list[int]) -> None:
        """Serve requests together, twice by one instance, with pauses.

        So many seconds pass before each step, and between the requests.
        """
        raise NotImplementedError

    def taken(self, row: torch.Tensor, step: int) -> int:
        """Return the token that a request gets in a step, of those that its row allows."""
        token = self.said(step)
        return token if row[token] > -torch.inf else int(row.argmax())

    def served(self, requests: list[Any], steps: int) -> dict[str, torch.Tensor]:
        """Return the rows that each request gets alone, by step."""
        return {
            f"step {step} of {keywords}": after
            for keywords in requests
            for step, (_, after) in enumerate(self.alone(keywords, steps))
        }

    def outputs(self, count: int, history: int) -> list[list[int]]:
        """Return so many outputs for each of so many requests."""
        return [[self.said(row + place) for place in range(history)] for row in range(count)]


def other(value: Any, number: int) -> Any:
    """Return another value of the same kind, for each number another one."""
    if isinstance(value, float):
        return value * (1 - number / 2**24)
    return f"{value}{number}" if isinstance(value, str) else value + number


def varied(keywords: Mapping[str, Any], places: list[list[Any]], number: int) -> dict[str, Any]:
    """Return keywords with another value wherever there is one at some of these places."""
    found = copy.deepcopy(dict(keywords))
    for *outer, last in places:
        inner: Any = found
        with suppress(LookupError, TypeError):
            for step in outer:
                inner = inner[step]
            inner[last] = other(inner[last], number)
    return found


def different(
    got: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], where: str
) -> str | None:
    """Say which row is another one, or return None."""
    for name, row in expected.items():
        close = torch.isclose(got[name], row, rtol=1e-4, atol=1e-4, equal_nan=True)
        wrong = (~close).nonzero().flatten().tolist()
        if wrong:
            lines = [f"{where} gives another row in {name}"]
            mine = got[name]
            lines += [f"  token {t}: got {mine[t]:.6g}, expected {row[t]:.6g}" for t in wrong[:8]]
            return "\n".join([*lines, f"  ({len(wrong)} of {len(row)} tokens differ)"])
    return None


def check_long(host: Host, request: Mapping[str, Any], lengths: list[int]) -> str | None:
    """A request with so many tokens in its prompt, so many outputs, and so many more, is served."""
    params, (prompt, outputs, steps) = host.params(request), lengths
    if "max_tokens" not in request:
        params.max_tokens = CONTEXT - prompt  # as vLLM's front end has it
    begun = [*map(host.said, range(prompt - len(host.prompt))), *host.prompt]
    try:
        host.long(params, begun, [host.said(step) for step in range(outputs)], steps)
    except Exception as error:
        traceback.print_exc()
        what = f"a request of {prompt + outputs + steps} tokens: {type(error).__name__}: {error}"
        return f"{what}\nexpected: it is served, since max_model_len is {CONTEXT}"
    return None


def check_wide(host: Host, request: Mapping[str, Any], steps: int) -> str | None:
    """A request of a model with a larger vocabulary than its tokenizer's is served."""
    try:
        host.wide(request, steps)
    except Exception as error:
        traceback.print_exc()
        size = host.rows.vocabulary
        what = f"{type(error).__name__}: {error}"
        told = f"with a vocabulary of {size + WIDER}, of which the tokenizer has {size}"
        return f"{told}: {what}\nexpected: rows of {size + WIDER} logits"
    return None


def check_later(host: Host, requests: list[Any], pauses: list[int]) -> str | None:
    """Requests are served where time passes between two calls."""
    try:
        with clock_of(host.plugin) as clock:
            host.later(requests, clock, pauses)
    except Exception as error:
        traceback.print_exc()
        steps, between = pauses
        what = f"{type(error).__name__}: {error}"
        told = f"with {steps} s before each step, and {between} s between requests"
        return f"{told}: {what}\nexpected: no call raises"
    return None


def served_apart(host: Host, requests: list[Any], steps: int) -> dict[str, torch.Tensor]:
    """Return the rows that each request gets alone in a process of their own."""
    path = Path(tempfile.mkdtemp(), "rows.pt")
    pid = os.fork()
    if pid == 0:
        try:
            torch.save(host.served(requests, steps), path)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    rows: dict[str, torch.Tensor] = torch.load(path)
    return rows


def check_admission(host: Host, requests: list[Any], invalid: list[Any]) -> str | None:
    """It needs no instance to validate parameters, and nothing depends on that."""
    plugin = host.plugin

    def answers() -> list[str]:
        """Return what validate_params says to each request."""
        found = []
        for keywords in [*requests, *invalid]:
            try:
                plugin.validate_params(SamplingParams(**copy.deepcopy(keywords)))
                found.append(f"{keywords} is accepted")
            except Exception as error:
                found.append(f"{keywords} is refused ({type(error).__name__}: {error})")
        return found

    kind = inspect.getattr_static(plugin, "validate_params")
    if not isinstance(kind, classmethod | staticmethod):
        expected = "a class method; vLLM calls it on the class, where there are no instances"
        return f"validate_params is an ordinary method\nexpected: {expected}"

    # The engine has a process of its own, in which nobody calls validate_params.
    elsewhere = served_apart(host, requests, 6)

    # The front end's process: no instance has been made in it.
    for keywords in requests:
        got, wanted = (SamplingParams(**copy.deepcopy(keywords)) for _ in range(2))
        with suppress(Exception):
            plugin.validate_params(got)
        if got != wanted:
            what = f"validate_params wrote to the parameters of a request: {got}"
            return f"{what}\nexpected: {wanted}"

    before = answers()
    here = host.served(requests, 6)
    for early, late in zip(before, answers(), strict=True):
        if early != late:
            what = f"where no instance has been made, {early}"
            return f"{what}\nexpected: as in a process with instances, {late}"
    return different(elsewhere, here, "a process in which validate_params was not called")


def check_ranks(host: Host, requests: list[Any]) -> str | None:
    """Two ranks compute the same rows."""
    if len(sys.argv) > 1:
        # One rank: what differs from process to process, differs.
        torch.manual_seed(int(os.environ["RANK"]))
        torch.save(host.served(requests, 6), sys.argv[1])
        sys.exit(0)
    folder = tempfile.mkdtemp()
    paths = [Path(folder, f"rank{rank}.pt") for rank in range(2)]
    ranks = []
    for rank, path in enumerate(paths):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONHASHSEED": str(rank + 1)}
        arguments = [sys.executable, __file__, str(path)]
        ranks.append(subprocess.Popen(arguments, env={**os.environ, **own}))
    statuses = [rank.wait() for rank in ranks]
    if any(statuses):
        sys.exit("a rank has failed")
    first, second = (torch.load(path) for path in paths)
    return different(second, first, "the second of two ranks")


def check_past(host: Host, requests: list[Any]) -> str | None:
    """A request gets the rows that it gets where nothing was served before it."""
    *earlier, last = requests
    expected = served_apart(host, [last], 4)
    host.served(earlier, 4)
    got = host.served([last], 4)
    return different(got, expected, f"a process that has served {earlier}")


def check_growth(host: Host, requests: list[Any], places: list[Any] | None = None) -> str | None:
    """No more memory is held, and no file or thread, when requests have come and gone."""

    def request(number: int) -> Any:
        """Return a request; at these places each has another value."""
        return varied(requests[number % len(requests)], places or [], number)

    opened = {"files are open": Path("/proc/self/fd"), "threads run": Path("/proc/self/task")}
    tracemalloc.start()
    # Where every request is greedy, an engine does not call apply of some plugins.
    for applies in (True, False):
        go_through, numbers, held = host.rounds(request), itertools.count(), list[int]()
        before = {of: len(list(folder.iterdir())) for of, folder in opened.items()}
        with torch.inference_mode():
            for _ in range(5):
                go_through(numbers, applies=applies)
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
                for of, folder in opened.items():
                    if (left := len(list(folder.iterdir())) - before[of]) >= ROUND // 8:
                        what = f"{left} more {of} after {ROUND} requests"
                        return f"{what}\nexpected: as before, once the requests have finished"
        growth = [after - before for before, after in itertools.pairwise(held)]
        if min(growth[-3:]) > 0 and sum(growth[-3:]) > 4 * ROUND:
            what = f"more memory is held after each {ROUND} requests, in bytes: {held}"
            return f"{what}\nexpected: as much as before, once the requests have finished"
    return None


def instructions(host: Host, requests: list[Any], count: int, vocabulary: int) -> int:
    """Return how many instructions of Python a step executes in which nobody comes or goes."""
    with torch.inference_mode():
        again = host.started(requests, count, vocabulary)
        return executed(again)


def check_idle_cost(host: Host) -> str | None:
    """A large idle batch costs what a small one does."""
    few, many = (instructions(host, [{}], count, host.rows.vocabulary) for count in (8, 128))
    if many > 1.5 * few + 100:
        what = f"{many} instructions with 128 requests that do not opt in, {few} with 8"
        return f"{what}\nexpected: about as many"
    return None


def check_cost(host: Host, requests: list[Any]) -> str | None:
    """A step grows with its batch, and not with the vocabulary."""
    size = host.rows.vocabulary
    first, second, third = (instructions(host, requests, n, size) for n in (16, 64, 256))
    if third - second > 8 * max(second - first, second / 10, 100):
        what = f"{first} instructions with 16 requests, {second} with 64, {third} with 256"
        return f"{what}\nexpected: from 64 to 256 about four times as many more as from 16 to 64"
    usual, large = (instructions(host, requests, 8, each) for each in (size, 4 * size))
    if large > 1.5 * usual + 100:
        what = f"{usual} instructions, {large} with a vocabulary four times as large"
        return f"{what}\nexpected: about as many"
    return None


def check_memory(host: Host, requests: list[Any]) -> str | None:
    """A step holds at most 16 times the memory of its logits."""
    size = 4 * 32 * host.rows.vocabulary  # of float32 logits
    with torch.inference_mode():
        again = host.started(requests, 32, host.rows.vocabulary, history=40)
        with Memory() as memory:
            again()
    if memory.peak > 16 * size:
        what = f"a step holds {memory.peak} bytes, {memory.peak / size:.0f} times its logits"
        return f"{what}\nexpected: at most 16 times"
    return None


def check_device(host: Host, requests: list[Any], steps: int) -> str | None:
    """Requests are served on a GPU."""
    if not torch.cuda.is_available():
        print("run this program on a machine with a GPU: a CPU does not show it")
        sys.exit(2)
    try:
        for group in (*([keywords] for keywords in requests), requests[:8]):
            for result in host.device(group, steps):
                if result.device != torch.device("cuda:0"):
                    what = f"on a GPU: apply returned logits on {result.device}"
                    return f"{what}\nexpected: logits on the device that they came from"
    except Exception as error:
        traceback.print_exc()
        what = f"on a GPU: {type(error).__name__}: {error}"
        return f"{what}\nexpected: what is used together with the logits is on their device"
    return None


def check_leaves(host: Host, request: Any, steps: int, names: list[str]) -> str | None:
    """Serving leaves to others what all requests share."""

    async def serve(_: object) -> None:
        host.alone(request, steps)

    return changed_by(lambda: None, serve, names)
