# SPDX-License-Identifier: Apache-2.0
"""Time that passes at once, for a plugin: what its own modules read of clocks is put forward."""

import datetime as dt
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Self

#: What is read of ``time``: each clock in seconds, and in nanoseconds.
CLOCKS = ("time", "monotonic", "perf_counter")


class Clock:
    """How much later it is for a plugin than for everybody else."""

    def __init__(self) -> None:
        self.ahead = 0  # seconds

    def forward(self, seconds: int) -> None:
        """Have so much time pass."""
        self.ahead += seconds

    def reading(self, name: str, unit: int) -> Any:
        """Return what is called instead of a clock of ``time``, which counts such units."""
        read = getattr(time, name)
        return lambda: read() + self.ahead * unit

    def replacements(self) -> dict[int, Any]:
        """Return what stands for a clock, or for a module with clocks, by the identity of that."""
        clock = self

        class Datetime(dt.datetime):
            @classmethod
            def now(cls, tz: dt.tzinfo | None = None) -> Self:
                return super().now(tz) + dt.timedelta(seconds=clock.ahead)

        units = dict.fromkeys(CLOCKS, 1) | {f"{name}_ns": 10**9 for name in CLOCKS}
        clocks = {name: self.reading(name, unit) for name, unit in units.items()}
        return {id(getattr(time, name)): read for name, read in clocks.items()} | {
            id(dt.datetime): Datetime,
            # The modules that plugins import: the harness has copies for itself.
            id(sys.modules["time"]): module_with(time, clocks),
            id(sys.modules["datetime"]): module_with(dt, {"datetime": Datetime}),
        }


@contextmanager
def clock_of(plugin: Any) -> Iterator[Clock]:
    """Have the modules of a plugin read a clock that can be put forward, for a while.

    What they import in functions is the real one; default arguments of functions are not.
    """
    clock = Clock()
    instead, changed = clock.replacements(), list[tuple[Any, str, Any]]()
    try:
        for module in own_modules(plugin):
            for name, value in list(vars(module).items()):
                if id(value) in instead:
                    changed.append((module, name, value))
                    setattr(module, name, instead[id(value)])
                for function in functions_of(value):
                    defaults = function.__defaults__ or ()
                    if any(id(each) in instead for each in defaults):
                        changed.append((function, "__defaults__", defaults))
                        function.__defaults__ = tuple(
                            instead.get(id(each), each) for each in defaults
                        )
        yield clock
    finally:
        for of, name, value in changed:
            setattr(of, name, value)


def own_modules(plugin: Any) -> list[ModuleType]:
    """Return the modules that lie in the plugin's package, or beside its file."""
    package, _, _ = plugin.__module__.partition(".")
    file = getattr(sys.modules[plugin.__module__], "__file__", None)
    found = []
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        beside = file and path and Path(path).parent == Path(file).parent
        if name.partition(".")[0] == package or beside:
            found.append(module)
    return found


def module_with(module: ModuleType, names: Mapping[str, Any]) -> ModuleType:
    """Return a module that has some names of its own, and all others of another one."""
    found = ModuleType(module.__name__)
    vars(found).update(vars(module), **names)
    return found


def functions_of(value: Any) -> list[FunctionType]:
    """Return a function, or those of a class and of its bases."""
    found = [value]
    if isinstance(value, type):
        found += [each for cls in value.__mro__ for each in vars(cls).values()]
    return [each for each in found if isinstance(each, FunctionType)]
