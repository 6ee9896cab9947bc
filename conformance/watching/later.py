# SPDX-License-Identifier: Apache-2.0
"""Clocks that run ahead, to see what a plugin forgets after a time, and when it does.

Nobody can wait an hour for what is held that long.  The plugin, and the libraries that it uses,
read a clock that is moved forward; the harness and the standard library read the one that there is,
or all their timeouts would be over.
"""

from __future__ import annotations

import datetime as dt
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import attrs

from conformance.watching.leaks import reached

#: The clocks, and how many of their units are a second.
_CLOCKS = {
    name + unit: per_second
    for name in ("time", "monotonic", "perf_counter")
    for unit, per_second in (("", 1), ("_ns", 1_000_000_000))
}

#: Packages that are given the clock as it is.
_PUNCTUAL = frozenset(("conformance", *sys.stdlib_module_names))


@attrs.define
class Ahead:
    """A clock that is so many seconds ahead."""

    seconds: int = 0
    asked: bool = False  #: whether anybody has read it who is shown another time


@contextmanager
def ahead(plugin: object) -> Iterator[Ahead]:
    """Have a plugin read a clock that can be moved forward, as long as the block lasts.

    Beside the functions of ``time`` these are their copies in modules and in what can be reached
    from the plugin, and ``datetime.datetime``.  What sleeps, or waits for a timer, is not woken.
    """
    clock = Ahead()
    others: dict[int, Any] = {
        id(real): _moved(real, per_second, clock)
        for name, per_second in _CLOCKS.items()
        for real in (getattr(time, name),)
    }
    others[id(dt.datetime)] = _dates(clock)
    changed: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for names in _names(plugin):
            for name, value in list(names.items()):
                if id(value) in others:
                    changed.append((names, name, value))
                    names[name] = others[id(value)]
        yield clock
    finally:
        for names, name, value in changed:
            names[name] = value


def _names(plugin: object) -> Iterator[dict[str, Any]]:
    """Yield what may hold a clock: modules, and the attributes of what the plugin consists of."""
    for name, module in list(sys.modules.items()):
        if name in ("time", "datetime") or name.partition(".")[0] not in _PUNCTUAL:
            names = getattr(module, "__dict__", None)
            if type(names) is dict:
                yield names
    for value in list(reached(plugin)):
        names = getattr(value, "__dict__", None)
        if type(names) is dict:
            yield names


def _moved(real: Callable[[], float], per_second: int, clock: Ahead) -> Callable[[], float]:
    """Return a clock that tells most callers a later time."""

    def moved() -> float:
        caller = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001 - there is no other way
        if caller.partition(".")[0] in _PUNCTUAL:
            return real()
        clock.asked = True
        return real() + clock.seconds * per_second

    return moved


def _dates(clock: Ahead) -> type:
    """Return ``datetime.datetime`` as it is read from a clock; what it makes are ordinary ones."""
    real = dt.datetime

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, real)

        def __call__(cls, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401 - as datetime has it
            return real(*arguments, **keywords)

        def __getattr__(cls, name: str) -> Any:  # noqa: ANN401 - any attribute of datetime
            return getattr(real, name)

    class Dates(metaclass=Meta):
        __name__: ClassVar[str] = "datetime"

        @staticmethod
        def now(tz: dt.tzinfo | None = None) -> dt.datetime:
            clock.asked = True
            return real.now(tz) + dt.timedelta(seconds=clock.seconds)

        @staticmethod
        def today() -> dt.datetime:
            return Dates.now()

        @staticmethod
        def utcnow() -> dt.datetime:
            return Dates.now(dt.UTC).replace(tzinfo=None)

    return Dates
