# SPDX-License-Identifier: Apache-2.0
"""Hooks on ``LLMEngine``, which is driven step by step and awaits nothing.

A step that ends completions returns when the hooks have decided about all of them, at once.
They run on an event loop of the engine's own, in a thread: the caller's may be at work, and hooks
may keep clients that belong to a loop.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import threading
import weakref
from typing import TYPE_CHECKING, Any

from reference_plugins.classifier_hook.host import within_search
from reference_plugins.classifier_hook.stream import verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from vllm.outputs import CompletionOutput, RequestOutput

    from reference_plugins.classifier_hook.contract import Verdict
    from reference_plugins.classifier_hook.host import HookHost
    from reference_plugins.classifier_hook.stream import Request

    Finished = list[tuple[Request, RequestOutput, list[CompletionOutput]]]

_SEARCH = "vllm.entrypoints.generate.beam_search.offline"
_MARK = "_classifier_hooks"
_ADDED = ("self", "request_id", "prompt", "params")


def steps(kind: type) -> bool:
    """Tell whether engines of a class are driven step by step."""
    return hasattr(kind, "step") and hasattr(kind, "abort_request")


def missing(kind: type) -> list[str]:
    """Return what the runtime needs of such an engine and does not find, in words."""
    given = tuple(inspect.signature(getattr(kind, "add_request", steps)).parameters)
    wanted = ", ".join(_ADDED[1:])
    return (
        []
        if given[: len(_ADDED)] == _ADDED
        else [f"{kind.__name__}.add_request does not start with {wanted}"]
    )


def attach(engine: Any, host: HookHost) -> dict[str, Callable[..., Any]]:  # noqa: ANN401 - LLMEngine
    """Return what stands before the functions of one engine, by their names."""
    kind = type(engine)
    add_request, step, abort_request = kind.add_request, kind.step, kind.abort_request
    signature = inspect.signature(add_request)
    # An engine ends when its last reference goes: these must not hold one.
    reference = weakref.ref(engine)
    loop = _Loop()
    weakref.finalize(engine, loop.stop)
    serving = _Serving(loop)

    @functools.wraps(add_request)
    def hooked_add_request(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as LLMEngine has it
        given = signature.bind(reference(), *args, **kwargs).arguments
        prompt = given["prompt"]
        # An EngineCoreRequest brings an id and parameters of its own, and those count.
        params = getattr(prompt, "params", None) or given["params"]
        name = getattr(prompt, "request_id", given["request_id"])
        internal = add_request(reference(), *args, **kwargs)
        if hasattr(params, "output_kind") and (request := host.request(params, given)):
            serving.begin(name, internal, request)
        return internal

    @functools.wraps(step)
    def hooked_step() -> list[Any]:
        return serving.released(step(reference()))

    @functools.wraps(abort_request)
    def hooked_abort_request(request_ids: list[str], *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as LLMEngine has it
        serving.forget(request_ids)
        abort_request(reference(), request_ids, *args, **kwargs)

    _mount_search()
    return {
        "add_request": hooked_add_request,
        "step": hooked_step,
        "abort_request": hooked_abort_request,
    }


class _Serving:
    """The requests that an engine works on; two of the same id are the caller's to tell apart."""

    def __init__(self, loop: _Loop) -> None:
        self._loop = loop
        self._requests: dict[str, tuple[str, Request]] = {}
        #: outputs that are kept back, by the request's id and the completion's index
        self._held: dict[tuple[str, int], list[RequestOutput]] = {}

    def begin(self, name: str, internal: str, request: Request) -> None:
        self._requests[name] = (internal, request)

    def forget(self, ids: Iterable[str]) -> None:
        """Forget requests, by their own ids or those that vLLM gave them."""
        gone = set(ids)
        for name, (internal, _) in tuple(self._requests.items()):
            if gone & {name, internal}:
                self._end(name)

    def _end(self, name: str) -> None:
        del self._requests[name]
        for key in [key for key in self._held if key[0] == name]:
            del self._held[key]

    def released(self, outputs: Sequence[Any]) -> list[Any]:
        """Return what goes out for the outputs of one step."""
        finished: Finished = []
        for output in outputs:
            if output.request_id in self._requests:
                request = self._requests[output.request_id][1]
                if found := request.transcript.read(output):
                    finished.append((request, output, found))
        said = iter(self._loop.run(_decided(finished)) if finished else ())
        ended = {id(output) for _, output, _ in finished}
        out: list[Any] = []
        for output in outputs:
            if output.request_id not in self._requests:
                out.append(output)
                continue
            request = self._requests[output.request_id][1]
            # A step ends all completions of an output, or none.
            keys = [(output.request_id, one.index) for one in output.outputs]
            if id(output) in ended:
                held = [kept for key in keys for kept in self._held.pop(key, ())]
                out += request.released(output, output.outputs, next(said), held)
            elif request.hold:
                self._held.setdefault(keys[0], []).append(output)
            else:
                out.append(output)
            if output.finished:
                self._end(output.request_id)
        return out


async def _decided(finished: Finished) -> list[list[Verdict | None]]:
    return await asyncio.gather(*(verdicts(*one) for one in finished))


class _Loop:
    """An event loop in a thread, which begins when there is something to do."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - what it returns
        """Wait for a coroutine; it is cancelled if the caller is interrupted."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            name = "classifier hooks of an engine"
            threading.Thread(target=_forever, args=[self._loop], name=name, daemon=True).start()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)


def _forever(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _mount_search() -> None:
    """Leave the steps of ``LLM.beam_search`` unscored, each of which is a request of one token."""
    try:
        module = importlib.import_module(_SEARCH)
    except ImportError:
        return
    for kind in vars(module).values():
        search = vars(kind).get("beam_search") if isinstance(kind, type) else None
        if search is not None and not hasattr(search, _MARK):
            kind.beam_search = _unscored(search)


def _unscored(search: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(search)
    def searching(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as vLLM has it
        token = within_search.set(True)
        try:
            return search(*args, **kwargs)
        finally:
            within_search.reset(token)

    setattr(searching, _MARK, True)  # so that it is wrapped once
    return searching
