# SPDX-License-Identifier: Apache-2.0
"""What is left of requests that are over.

Two ways to look: nobody but the check itself may still hold what a finished request handed over;
and all that can be reached from the plugin must not grow without end.
"""

from __future__ import annotations

import gc
import io
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Container, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

import attrs
import torch

from conformance.watching.clocks import busy_threads, undelayed
from conformance.watching.descriptors import open_here

#: What a request hands over to the plugin.
Given = tuple[Any, ...]

#: In each of the last intervals it must have grown by this much to be said to grow: a cache fills
#: up some time, and a list that gets one small number for each request takes eight bytes for it.
LAST = 3
BYTES_PER_REQUEST = 4

#: A plugin that holds not a byte more after so many requests than after a few does not grow: it
#: gets no more of them, but at `deep`.
FLAT = 2_000

#: After so many requests a plugin that has grown with each of them will not stop: caches that have
#: an end are full by then.
STRAIGHT = 5_000

#: Seconds of work, and of waiting, in which a plugin that grows may come to that number.
LONGEST = 60.0

#: Seconds after which threads that work on are no longer waited for, and of one look at them; one
#: that worked, or could have, for less than such a part of it has nothing to do.
CATCH_UP = 3.0
_LOOK = 0.01
_NOTHING = 0.2

#: A constant larger than this is not walked through again and again.
MOST_OBJECTS = 200_000

#: Packages of which a plugin's class may be, and whose other modules are not the plugin's; folders
#: of which the other files are not.
_LIBRARIES = frozenset(("conformance", "torch", "transformers", "vllm", *sys.stdlib_module_names))
_SHARED = ("site-packages", "dist-packages")


@attrs.define
class Spent:
    """What this process has spent on requests: on a busy machine it is no more than on an idle one.

    Waiting is that for something else than a processor, such as a service.
    """

    _worked: float = attrs.field(factory=time.process_time)
    _since: float = attrs.field(factory=undelayed)

    def beyond(self, worked: float, waited: float) -> bool:
        """Tell whether it has worked, or waited, for more than so many seconds."""
        work = time.process_time() - self._worked
        return work > worked or undelayed() - self._since - work > waited


def kept(given: list[Given], names: tuple[str, ...], most: int) -> str | None:
    """Say of how many finished requests something is held by anybody but the list.

    Args:
        given: what each request handed over.
        names: how messages name each of these.
        most: of how many requests something may still be held.

    """
    gc.collect()
    # Measured here: what torch.compile hooks into calls, for one, holds each argument once more.
    alone = _references(_CONTROL[0])
    for index, what in enumerate(names):
        held = sum(_references(entry[index]) > alone for entry in given)
        if held > most:
            return f"the {what} of {held} of them, all finished, are still held somewhere"
    return None


def open_files() -> int:
    """Return how many files, sockets and pipes the process has; a server may have few thousands."""
    return len(open_here())


def names_of_files() -> Counter[str]:
    """Return what the process has open: the paths of files, else what they are, such as a pipe."""
    parts = ((name, *name.partition(":")) for name in open_here().values())
    return Counter(f"a {kind}" if rest.startswith("[") else name for name, kind, _, rest in parts)


def more_files(left: int, before: Counter[str]) -> str:
    """Say that more files are open than before, and name the most frequent of them."""
    ((name, _),) = (names_of_files() - before).most_common(1) or [("one without a name", 0)]
    return f"{left} more files are open, such as {name}"


def threads() -> int:
    """Return how many threads the process has, with those of libraries."""
    folder = Path("/proc/self/task")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def flat(sizes: list[int]) -> bool:
    """Tell whether a plugin never held more than when it was measured first."""
    return max(sizes) <= sizes[0]


def growing(sizes: list[int], requests: int, what: str = "request") -> str | None:
    """Say by how much the plugin grew in the slowest of the last times."""
    least = min(after - before for before, after in pairwise(sizes[-LAST - 1 :])) / requests
    if least < BYTES_PER_REQUEST:
        return None
    return (
        f"the plugin holds {sizes[-1]} bytes with no {what} in it, and it grows by {least:.0f} "
        f"bytes with every {what}"
    )


def _references(value: object) -> int:
    return sys.getrefcount(value)


#: Holds a value that nothing else refers to.
_CONTROL: tuple[list[int]] = ([],)


def size_of(plugin: object, without: Container[int] = ()) -> int:
    """Return how many bytes can be reached from a plugin, once its threads have nothing to do.

    See :func:`reached`.
    """
    _catch_up()
    return sum(map(_size, reached(plugin, without)))


def _size(value: Any) -> int:  # noqa: ANN401 - anything
    if isinstance(value, torch.Tensor):
        return _bytes(value)
    if isinstance(value, io.StringIO) and not value.closed:  # its own size is that of an empty one
        return sys.getsizeof(value) + len(value.getvalue())
    return sys.getsizeof(value)


def _bytes(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.untyped_storage().nbytes())
    except NotImplementedError:  # a sparse one has none of its own
        parts = _PARTS.get(tensor.layout, ())
        return sum(_bytes(getattr(tensor, part)()) for part in parts)


_BY_ROW = ("crow_indices", "col_indices", "values")
_BY_COLUMN = ("ccol_indices", "row_indices", "values")

#: What tensors that have no storage are made of, by layout.
_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: _BY_ROW,
    torch.sparse_bsr: _BY_ROW,
    torch.sparse_csc: _BY_COLUMN,
    torch.sparse_bsc: _BY_COLUMN,
}


def _catch_up() -> None:
    """Wait until other threads have done what they were given.

    What waits for them is reached from a plugin, and gone when they have come to it.
    """
    if threading.active_count() == 1:
        return
    end = time.monotonic() + CATCH_UP
    while time.monotonic() < end:
        before = busy_threads()
        time.sleep(_LOOK)
        if busy_threads() - before < _LOOK * _NOTHING:
            return


def reached(plugin: object, without: Container[int] = ()) -> Iterator[Any]:
    """Yield everything that can be reached from a plugin.

    Its attributes, its classes and the globals of the modules that define them are followed, and
    those of its package, with the other classes of these; other modules, the engine configuration
    and other people's classes and functions are not.

    Args:
        plugin: where to begin.
        without: the ids of what is left out, with all that is reached by it alone.

    """
    # The plugin's own comes first: its module may lead to more than can be followed.
    return _reached([*_roots(plugin)][::-1], without)


def name_of(plugin: object, wanted: object) -> str | None:
    """Return the name of the attribute or global in which something is that a plugin holds."""
    named = [(f"self.{name}", value) for name, value in getattr(plugin, "__dict__", {}).items()]
    for cls in _own_classes(plugin):
        named += [(f"{cls.__name__}.{name}", value) for name, value in vars(cls).items()]
    for module in modules_of(plugin):
        named += vars(module).items()
    for inside in (False, True):
        for name, value in named:
            if value is wanted:
                return name
            if inside and any(each is wanted for each in _reached([value])):
                return f"in {name}"
    return None


def _reached(stack: list[Any], without: Container[int] = ()) -> Iterator[Any]:
    seen: set[int] = set()
    while stack and len(seen) < MOST_OBJECTS:
        value = stack.pop()
        if id(value) in seen or id(value) in without or isinstance(value, ModuleType | type):
            continue
        seen.add(id(value))
        yield value
        if isinstance(value, torch.Tensor):
            continue
        if isinstance(value, FunctionType):
            stack += [value.__closure__, value.__defaults__, value.__kwdefaults__]
        elif isinstance(value, MethodType | partial) or not _foreign(value):
            stack += gc.get_referents(value)
            if isinstance(value, dict):
                stack += value  # keys that are strings are no referents to the collector


def _roots(plugin: object) -> Iterator[object]:
    yield plugin
    classes = _own_classes(plugin)
    for module in modules_of(plugin):
        known = dict(vars(module))
        yield known
        for value in (*classes, *known.values()):
            if isinstance(value, type) and value.__module__ == module.__name__:
                yield dict(vars(value))


def modules_of(plugin: object) -> list[ModuleType]:
    """Return the modules of a plugin's classes, and all others of its package or its folder."""
    found = {cls.__module__: sys.modules[cls.__module__] for cls in _own_classes(plugin)}
    name = type(plugin).__module__
    package = name.partition(".")[0]
    if package not in _LIBRARIES and (folder := _folder(found.get(name))):
        alone = os.path.basename(folder) in _SHARED  # noqa: PTH119 - paths of thousands of modules
        for other, module in list(sys.modules.items()):
            own = other.partition(".")[0]
            if own == package or (
                not alone and own not in _LIBRARIES and _folder(module) == folder
            ):
                found.setdefault(other, module)
    return list(found.values())


def _folder(module: ModuleType | None) -> str | None:
    file = getattr(module, "__file__", None)
    return os.path.dirname(file) if isinstance(file, str) else None  # noqa: PTH120 - as above


def _own_classes(plugin: object) -> list[type]:
    """Return the class of a plugin, and those that it is made of, without vLLM's."""
    classes = type(plugin).__mro__
    return [cls for cls in classes if cls is not object and not cls.__module__.startswith("vllm.")]


def _foreign(value: object) -> bool:
    """Tell whether a value is the engine's: its configuration knows a whole engine."""
    return type(value).__module__.startswith(("vllm.config", "transformers."))
