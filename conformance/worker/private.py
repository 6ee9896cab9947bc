# SPDX-License-Identifier: Apache-2.0
"""What the harness keeps for itself in a process before it imports a plugin there.

A plugin may replace any function in its process, and the harness runs in the same one.
So modules of the harness get copies of the modules of the standard library that they use, which
hold what these held at first. What is replaced at any other place can be put back; what the
plugin itself and vLLM call stays as the plugin left it until then.
"""

from __future__ import annotations

import functools
import operator
import os
import signal
import sys
import traceback
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import attrs

from conformance.watching.interruption import innermost

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: What the harness and its tools call in a process that has imported a plugin.  None of these has
#: settings that are set by assigning to the module, as ``sys``, ``tempfile`` and ``warnings`` do.
_COPIED = (
    "gc",
    "importlib",
    "inspect",
    "json",
    "math",
    "multiprocessing",
    "os",
    "pickle",
    "random",
    "signal",
    "time",
    "traceback",
)

#: Packages whose modules are given copies; what a plugin does to them changes no one else.
_TOOLS = frozenset({"conformance", "hypothesis", "multiprocessing", "reference_plugins"})

#: Of which packages and modules everything is remembered, besides the standard library.
_REMEMBERED = frozenset(
    {"attr", "attrs", "hypothesis", "numpy", "psutil", "vllm", "torch", "torch.nn.functional"}
)

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGCHLD, signal.SIGUSR1)

_copies: dict[str, ModuleType] = {}
#: Modules and classes with what they held at first, by id.
_remembered: dict[int, tuple[Any, dict[str, Any]]] = {}
#: The modules that were looked at, by what they were imported as.
_looked_at: dict[str, object] = {}


def keep() -> None:
    """Give the harness its copies, and remember what is where; before a plugin is imported."""
    new = _latest()
    _looked_at.update(new)
    for imported, module in new:
        # What Python was started with has another name.
        name = getattr(getattr(module, "__spec__", None), "name", imported)
        if name.partition(".")[0] in _TOOLS:
            for key, value in list(vars(module).items()):
                if isinstance(value, ModuleType) and value.__name__ in _COPIED:
                    setattr(module, key, _copy(value))
    if (entropy := sys.modules.get("hypothesis.internal.entropy")) is not None:
        entropy.get_seeder_and_restorer()  # with the first call it takes numpy's generator
    for owner in _owners(new):
        if id(owner) not in _remembered:
            _remembered[id(owner)] = owner, dict(vars(owner))


def _latest() -> list[tuple[str, ModuleType]]:
    """Return the modules that were imported after the last one that was looked at, in order.

    To touch each of vLLM's in a process that was forked takes longer than the fork.
    """
    entries = reversed(sys.modules.items())
    return [*takewhile(lambda entry: _looked_at.get(entry[0]) is not entry[1], entries)][::-1]


def _copy(module: ModuleType) -> ModuleType:
    if module.__name__ not in _copies:
        copy = _copies[module.__name__] = ModuleType(module.__name__, module.__doc__)
        vars(copy).update(vars(module))
    return _copies[module.__name__]


def _owners(modules: Iterable[tuple[str, object]]) -> Iterator[Any]:
    """Yield the modules of which everything is remembered, and the classes that they define."""
    for name, module in modules:
        package = name.partition(".")[0]
        known = package in _REMEMBERED - {"torch"} or name in _REMEMBERED
        # What a package puts into sys.modules may be anything.
        if type(module) is ModuleType and (known or package in sys.stdlib_module_names):
            yield module
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name:
                    yield value


@attrs.frozen
class Surroundings:
    """What a process has besides functions."""

    modules: dict[str, ModuleType]
    path: list[str]
    finders: list[Any]
    recursion: int
    folder: str
    environment: dict[str, str]
    handlers: dict[signal.Signals, Any]  #: of signals
    output: int  #: another descriptor of standard error
    device: Any  #: torch's default, where it is imported

    @classmethod
    def take(cls) -> Surroundings:
        """Remember what there is now."""
        torch: Any = sys.modules.get("torch")
        return cls(
            dict(sys.modules),
            list(sys.path),
            list(sys.meta_path),
            sys.getrecursionlimit(),
            str(Path.cwd()),
            dict(os.environ),
            {number: signal.getsignal(number) for number in _SIGNALS},
            os.dup(2),
            torch.get_default_device() if torch else None,
        )

    def put_back(self, path: str | None) -> list[str]:
        """Undo what a plugin changed, and name it; ``path`` is the plugin's file.

        Functions and classes of the standard library are put back whatever stands in their
        place, unless it is another package's; those of packages where it is the plugin's own.
        """
        found = [*put_functions_back(path), *self._put_imports_back(), *self._put_process_back()]
        if found:
            _forget()
        return found

    def _put_imports_back(self) -> Iterator[str]:
        """Put back what importing needs; yield the name of each thing."""
        for name, module in self.modules.items():
            if name not in sys.modules:
                sys.modules[name] = module
                yield f"sys.modules[{name!r}]"
        if paths := [entry for entry in self.path if entry not in sys.path]:
            sys.path.extend(paths)
            yield "sys.path"
        if finders := [entry for entry in self.finders if entry not in sys.meta_path]:
            sys.meta_path.extend(finders)
            yield "sys.meta_path"

    def _put_process_back(self) -> Iterator[str]:
        """Put back the state of the process; yield the name of each thing."""
        if sys.getrecursionlimit() < self.recursion:
            sys.setrecursionlimit(self.recursion)
            yield "the recursion limit"
        if missing := {k: v for k, v in self.environment.items() if k not in os.environ}:
            os.environ.update(missing)
            yield "os.environ"
        if any(stream is None or stream.closed for stream in (sys.stdout, sys.stderr)):
            for number in (1, 2):
                os.dup2(self.output, number)
            sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
            yield "the standard outputs"
        for number, handler in self.handlers.items():
            if handler is not None and signal.getsignal(number) != handler:
                signal.signal(number, handler)
                yield f"the handler of {number.name}"
        torch: Any = sys.modules.get("torch")
        if self.device is not None and torch.get_default_device() != self.device:
            torch.set_default_device(self.device)
            yield "torch's default device"
        if str(Path.cwd()) != self.folder:
            os.chdir(self.folder)
            yield "the working folder"


def replaces(path: str | None) -> bool:
    """Tell whether a plugin, whose file is at ``path``, has replaced what others call."""
    return any(True for _ in _differences(path))


def put_functions_back(path: str | None) -> list[str]:
    """Put back the functions and classes that a plugin replaced, and name them."""
    return list(_functions_put_back(path))


def _functions_put_back(path: str | None) -> Iterator[str]:
    for what, attribute, old in list(_differences(path)):
        with suppress(AttributeError, TypeError):  # a class that cannot be changed
            if old is _GONE:
                delattr(what, attribute)
            else:
                setattr(what, attribute, old)
            yield f"{what.__name__}.{attribute}"


def _differences(path: str | None) -> Iterator[tuple[Any, str, Any]]:
    """Yield what a plugin replaced, as the owner, the name, and what was there."""
    for owner, before in _remembered.values():
        now = vars(owner)
        if len(now) == len(before) and all(map(operator.is_, now.values(), before.values())):
            continue
        module = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
        standard = module.partition(".")[0] in sys.stdlib_module_names
        for name, old in before.items():
            new = now.get(name, _GONE)
            if new is old or not (callable(old) or isinstance(old, staticmethod | classmethod)):
                continue
            file = _file(new)
            own = innermost([(file, 0)], path) is not None
            if own or (standard and "site-packages" not in Path(file).parts):
                yield owner, name, old
        if isinstance(owner, type) and len(now) > len(before):
            for name in now.keys() - before.keys():
                if innermost([(_file(now[name]), 0)], path) is not None:
                    yield owner, name, _GONE


def _forget() -> None:
    """Have vLLM forget what it keeps of calls that went wrong."""
    for owner, _ in _remembered.values():
        if owner.__name__.startswith("vllm."):
            for value in vars(owner).values():
                if isinstance(value, _CACHED):
                    value.cache_clear()


def raised_by_tools(error: BaseException) -> bool:
    """Tell whether the harness or its tools made the call that raised, and not vLLM.

    What is replaced is often called by way of other packages.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        for package in (*_TOOLS, "vllm", "transformers"):
            folder = getattr(sys.modules.get(package), "__path__", None)
            if folder and Path(frame.filename).is_relative_to(next(iter(folder))):
                return package in _TOOLS
    return True


_GONE = object()
_CACHED = type(functools.lru_cache(lambda: None))


def _file(value: object) -> str:
    """Return the file of a function or class, or an empty string."""
    value = getattr(value, "__func__", value)
    code = getattr(value, "__code__", None)
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    return str(code.co_filename if code is not None else getattr(module, "__file__", None) or "")
