# SPDX-License-Identifier: Apache-2.0
"""A plugin instance behind which every call is written down."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import attrs

from conformance.counterexample.io_engine_player import PoolerFailed
from conformance.io_processor.answers import Answer, not_finite, of_error
from conformance.io_processor.engine import OWN_TASKS, serving
from conformance.plugin.files import source_of
from conformance.watching.interruption import in_call, limited
from conformance.watching.stretches import Longest, Stretches

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
    longest: Longest  #: for how long it, and what it has the loop do, held the thread
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
    #: Whether calls are measured and noted: that takes as long as a short call, and adds up.
    noting: bool = True
    #: What parameters were returned, as text: hosts write into the objects.
    params: list[str] = attrs.field(factory=list)
    _loop_thread: int = attrs.field(factory=threading.get_ident)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - an attribute of the plugin
        found = getattr(self.plugin, name)
        if name not in METHODS:
            return found
        if not self.noting:
            return _named(name, found)
        if inspect.iscoroutinefunction(found):
            return self._coroutine(name, found)
        if name in _AWAITED:  # it may return a future
            return self._coroutine(name, _awaiting(found))
        return self._function(name, found)

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
            longest = Longest(name, _limited)
            failure: BaseException | None = None
            try:
                result = longest.run(function, *arguments, **keywords)
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
                self._note(name, longest, tuple(keywords), failure)

        return called

    def _coroutine(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        async def called(*arguments: object, **keywords: object) -> Any:  # noqa: ANN401 - the plugin's own
            longest = Longest(name, _limited)
            failure: BaseException | None = None
            try:
                return await Stretches(function(*arguments, **keywords), longest=longest)
            except BaseException as error:
                failure = error
                raise
            finally:
                self._note(name, longest, tuple(keywords), failure)

        return called

    def _note(
        self,
        name: str,
        longest: Longest,
        keywords: tuple[str, ...],
        error: BaseException | None,
    ) -> None:
        on_loop = threading.get_ident() == self._loop_thread
        self.calls.append(Call(name, serving.get(0), on_loop, longest, keywords, error))


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that hangs, or ends the process, as the plugin's and by its name."""

    def called(*arguments: object, **keywords: object) -> Any:  # noqa: ANN401 - the plugin's own
        with in_call(name):
            return function(*arguments, **keywords)

    return called


def _awaiting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function that awaits what a function returns."""

    async def awaiting(*arguments: object, **keywords: object) -> Any:  # noqa: ANN401 - the plugin's own
        return await function(*arguments, **keywords)

    return awaiting


def _limited() -> AbstractContextManager[None]:
    """Limit a call by itself; where no signal comes, whoever waits for the thread does it."""
    main = threading.current_thread() is threading.main_thread()
    return limited() if main else nullcontext()
