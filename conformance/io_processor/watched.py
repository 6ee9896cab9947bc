# SPDX-License-Identifier: Apache-2.0
"""A plugin instance behind which every call is written down."""

from __future__ import annotations

import inspect
import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import attrs

from conformance.interruption import in_call, limited
from conformance.io_processor.engine import serving

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

#: What hosts call.
METHODS = (
    "parse_request",
    "parse_data",
    "validate_or_generate_params",
    "merge_pooling_params",
    "pre_process",
    "pre_process_async",
    "post_process",
    "post_process_async",
    "output_to_response",
)


@attrs.frozen
class Call:
    """One call into the plugin."""

    name: str
    request: int  #: its place in the history
    on_loop: bool  #: whether it was made on the thread of the event loop
    wall: float  #: seconds; of a coroutine, of its longest stretch without giving way
    cpu: float  #: seconds of this thread's processor time in the same stretch
    arguments: tuple[str, ...]  #: names of those given by keyword
    error: BaseException | None = None


@attrs.define
class Watched:
    """Stands for a plugin instance towards a host, and notes every call."""

    plugin: Any
    calls: list[Call] = attrs.field(factory=list)
    _loop_thread: int = attrs.field(factory=threading.get_ident)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - an attribute of the plugin
        found = getattr(self.plugin, name)
        if name not in METHODS:
            return found
        if inspect.iscoroutinefunction(found):
            return self._coroutine(name, found)
        return self._function(name, found)

    def raised(self, error: BaseException) -> str:
        """Return the call that raised an exception, or an empty string."""
        return next((call.name for call in self.calls if call.error is error), "")

    def _function(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401 - the plugin's own
            before, cpu = time.perf_counter(), time.thread_time()
            failure: BaseException | None = None
            try:
                with _limited(), in_call(name):
                    return function(*arguments, **keywords)
            except BaseException as error:
                failure = error
                raise
            finally:
                wall, spent = time.perf_counter() - before, time.thread_time() - cpu
                self._note(name, wall, spent, tuple(keywords), failure)

        return called

    def _coroutine(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        async def called(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401 - the plugin's own
            stretches = _Stretches(name, function(*arguments, **keywords))
            failure: BaseException | None = None
            try:
                return await stretches
            except BaseException as error:
                failure = error
                raise
            finally:
                self._note(name, *stretches.longest, tuple(keywords), failure)

        return called

    def _note(
        self,
        name: str,
        wall: float,
        cpu: float,
        keywords: tuple[str, ...],
        error: BaseException | None,
    ) -> None:
        on_loop = threading.get_ident() == self._loop_thread
        self.calls.append(Call(name, serving.get(0), on_loop, wall, cpu, keywords, error))


def _limited() -> AbstractContextManager[None]:
    """Limit a call by itself; where no signal comes, whoever waits for the thread does it."""
    main = threading.current_thread() is threading.main_thread()
    return limited() if main else nullcontext()


@attrs.define
class _Stretches:
    """Drives a coroutine and times each stretch in which it holds the event loop."""

    name: str
    coroutine: Any
    longest: tuple[float, float] = (0.0, 0.0)

    def __await__(self) -> Any:  # noqa: ANN401 - whatever the coroutine waits for
        value, error = None, None
        iterator = self.coroutine.__await__()
        while True:
            before, cpu = time.perf_counter(), time.thread_time()
            try:
                with _limited(), in_call(self.name):
                    waits_for = iterator.send(value) if error is None else iterator.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                stretch = (time.perf_counter() - before, time.thread_time() - cpu)
                self.longest = max(self.longest, stretch)
            value, error = None, None
            try:
                value = yield waits_for
            except BaseException as caught:  # noqa: BLE001 - handed on to the coroutine
                error = caught
