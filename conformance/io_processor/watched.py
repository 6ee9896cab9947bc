# SPDX-License-Identifier: Apache-2.0
"""A plugin instance behind which every call is written down."""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import attrs

from conformance.counterexample.io_engine_player import PoolerFailed
from conformance.io_processor.answers import Answer, not_finite, of_error
from conformance.io_processor.engine import OWN_TASKS, serving
from conformance.plugin.files import source_of
from conformance.watching.interruption import in_call, limited

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

#: Those that say which outputs they want, and those that are given them, or what was made of them.
_PARAMS = frozenset(("validate_or_generate_params", "merge_pooling_params"))
_AWAITED = frozenset(("pre_process_async", "post_process_async"))
AFTER_OUTPUTS = ("post_process", "post_process_async", "output_to_response")


@attrs.frozen
class Call:
    """One call into the plugin."""

    name: str
    request: int  #: its place in the history
    on_loop: bool  #: whether it was made on the thread of the event loop
    #: Seconds in which it kept its thread waiting; of a coroutine, while it did not give way.
    waited: float
    worked: float  #: seconds of processor time, counted in the same way
    arguments: tuple[str, ...]  #: names of those given by keyword
    error: BaseException | None = None


@attrs.define
class Watched:
    """Stands for a plugin instance towards a host, and notes every call."""

    plugin: Any
    calls: list[Call] = attrs.field(factory=list)
    #: Whether the plugin asks for outputs that have to be made up.
    guessing: bool = False
    #: Whether the author says what the model's own pooler returns.
    told: bool = False
    #: How many prompts it was asked for offline, where their numbers are the names of outputs.
    prompts: int = 0
    #: What parameters were returned, as text: hosts write into the objects.
    params: list[str] = attrs.field(factory=list)
    _loop_thread: int = attrs.field(factory=threading.get_ident)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - an attribute of the plugin
        found = getattr(self.plugin, name)
        if name not in METHODS:
            return found
        if inspect.iscoroutinefunction(found):
            return self._coroutine(name, found)
        if name in _AWAITED:  # it may return a future
            return self._coroutine(name, _awaiting(found))
        return self._function(name, found)

    def forget(self) -> None:
        """Drop the record of calls: it is not what the plugin keeps."""
        self.calls.clear()
        self.params.clear()

    def raised(self, error: BaseException) -> str:
        """Return the call that raised an exception, or an empty string."""
        return next((call.name for call in self.calls if call.error is error), "")

    def answer(self, error: BaseException) -> Answer:
        """Return the answer that an exception becomes, which the plugin or the host raised."""
        call = self.raised(error)
        guessed = self.guessing and (call in AFTER_OUTPUTS or (not call and not_finite(error)))
        guessed = guessed or isinstance(error, PoolerFailed)
        return of_error(error, call, guessed=guessed, path=source_of(type(self.plugin)))

    def _function(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: object, **keywords: object) -> Any:  # noqa: ANN401 - the plugin's own
            begin = _Moment.now()
            failure: BaseException | None = None
            try:
                with _limited(), in_call(name):
                    result = function(*arguments, **keywords)
            except BaseException as error:
                failure = error
                raise
            else:
                if name in _PARAMS:
                    self.params.append(repr(result))
                    # Hosts make None the task "plugin".
                    task = getattr(result, "task", "")
                    own = task is None or task in OWN_TASKS
                    self.guessing = self.guessing or (own and not self.told)
                return result
            finally:
                self._note(name, begin.since(), tuple(keywords), failure)

        return called

    def _coroutine(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        async def called(*arguments: object, **keywords: object) -> Any:  # noqa: ANN401 - the plugin's own
            stretches = _Stretches(name, function(*arguments, **keywords))
            failure: BaseException | None = None
            try:
                return await stretches
            except BaseException as error:
                failure = error
                raise
            finally:
                self._note(name, stretches.longest, tuple(keywords), failure)

        return called

    def _note(
        self,
        name: str,
        spent: tuple[float, float],
        keywords: tuple[str, ...],
        error: BaseException | None,
    ) -> None:
        on_loop = threading.get_ident() == self._loop_thread
        self.calls.append(Call(name, serving.get(0), on_loop, *spent, keywords, error))


def _awaiting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function that awaits what a function returns."""

    async def awaiting(*arguments: object, **keywords: object) -> Any:  # noqa: ANN401 - the plugin's own
        return await function(*arguments, **keywords)

    return awaiting


@attrs.frozen
class _Moment:
    """What the clocks of this thread say."""

    wall: float
    cpu: float
    queued: float

    @classmethod
    def now(cls) -> _Moment:
        return cls(time.perf_counter(), time.thread_time(), _queued())

    def since(self) -> tuple[float, float]:
        """Return the seconds since then in which the thread waited, and in which it worked."""
        now = _Moment.now()
        worked = now.cpu - self.cpu
        return max(0.0, now.wall - self.wall - worked - (now.queued - self.queued)), worked


_schedule = threading.local()


def _queued() -> float:
    """Return the seconds in which this thread could have worked while the processor did not.

    On a busy machine that is no fault of the plugin. Only Linux says it; elsewhere it is 0.
    """
    if getattr(_schedule, "process", None) != os.getpid():  # a fork has threads of its own
        _schedule.process = os.getpid()
        try:
            _schedule.file = Path("/proc/thread-self/schedstat").open("rb", buffering=0)  # noqa: SIM115 - as long as its thread
        except OSError:
            _schedule.file = None
    if _schedule.file is None:
        return 0.0
    said = os.pread(_schedule.file.fileno(), 100, 0).split()
    return int(said[1]) / 1e9 if len(said) > 1 else 0.0


def _limited() -> AbstractContextManager[None]:
    """Limit a call by itself; where no signal comes, whoever waits for the thread does it."""
    main = threading.current_thread() is threading.main_thread()
    return limited() if main else nullcontext()


@attrs.define
class _Stretches:
    """Drives a coroutine and times each stretch in which it holds the event loop."""

    name: str
    coroutine: Any
    longest: tuple[float, float] = (0.0, 0.0)  #: seconds of waiting, and of work

    def __await__(self) -> Any:  # noqa: ANN401 - whatever the coroutine waits for
        value, error = None, None
        iterator = self.coroutine.__await__()
        while True:
            begin = _Moment.now()
            try:
                with _limited(), in_call(self.name):
                    waits_for = iterator.send(value) if error is None else iterator.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                waited, worked = begin.since()
                self.longest = max(self.longest[0], waited), max(self.longest[1], worked)
            value, error = None, None
            try:
                value = yield waits_for
            except BaseException as caught:  # noqa: BLE001 - handed on to the coroutine
                error = caught
