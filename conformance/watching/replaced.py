# SPDX-License-Identifier: Apache-2.0
"""Attributes of the host that hold code of another package instead of their own.

What a package does to itself, such as filling a cache or importing a part of it late, is its own
affair: an attribute counts as replaced where code took the place of code of another package.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from conformance.plugin.files import import_path


@attrs.frozen(eq=False)
class Attributes:
    """The attributes of the host at one time; they are held, so that none takes another's place."""

    modules: Mapping[str, tuple[types.ModuleType, dict[str, Any]]]
    classes: Mapping[type, dict[str, Any]]


#: The packages whose attributes are the host's, by the name of the family that may change them.
_FAMILIES = dict.fromkeys(sys.stdlib_module_names, "Python") | {
    "vllm": "vllm",
    "numpy": "numpy",
    **dict.fromkeys(("torch", "functorch", "torchgen"), "torch"),
}
#: What tests put in the place of functions is nobody's lazy loading.
_FAMILIES["unittest"] = "unittest"

#: What an attribute has to have been, and has to be, to count as replaced.
_CODE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    type,
    staticmethod,
    classmethod,
    property,
    functools.partial,
    functools.cached_property,
    type(functools.cache(len)),
    np.ufunc,
    type(np.linspace),  # most functions of NumPy
)


def attributes() -> Attributes:
    """Take down the attributes of modules and classes of vLLM, torch, numpy and Python itself."""
    modules = {}
    classes: dict[type, dict[str, Any]] = {}
    for name, module in list(sys.modules.items()):
        # Anything can be in sys.modules.
        if name.partition(".")[0] in _FAMILIES and isinstance(module, types.ModuleType):
            modules[name] = (module, dict(vars(module)))
            for value in modules[name][1].values():
                # Not isinstance, which asks objects that stand for others what they stand for.
                if issubclass(type(value), type) and value.__dict__.get("__module__") == name:
                    classes[value] = dict(vars(value))
    return Attributes(modules, classes)


def replaced(before: Attributes) -> Iterator[tuple[str, str | None]]:
    """Yield the name of each attribute that holds other code, and ``file.py:LINE`` of that."""
    for name, (module, attributes) in before.modules.items():
        if (is_ := sys.modules.get(name)) is not None and is_ is not module:
            who = _shortened(getattr(is_, "__file__", None)) or type(is_).__module__
            yield f"sys.modules[{name!r}]", who
        yield from _taken_over(name, name, vars(module), attributes)
    for cls, attributes in before.classes.items():
        owner = f"{cls.__module__}.{cls.__qualname__}"
        yield from _taken_over(cls.__module__, owner, vars(cls), attributes)


def _taken_over(
    module: str, owner: str, after: Mapping[str, Any], before: Mapping[str, Any]
) -> Iterator[tuple[str, str | None]]:
    for name, was in before.items():
        is_ = after.get(name, was)
        if is_ is was or not isinstance(was, _CODE):
            continue
        if not (isinstance(is_, _CODE) or callable(is_)):
            continue
        if _family(_home(is_)) not in (_family(module), "Python", "conformance"):
            yield f"{owner}.{name}", place_of(is_)


def _family(module: str) -> str:
    top = module.partition(".")[0]
    return _FAMILIES.get(top, top)


def _code(value: object) -> object:
    """Return the function in a descriptor, a method, a partial or a cache."""
    for _ in range(8):  # more layers than anyone has
        inner = getattr(value, "fget", None) or getattr(value, "__func__", None)
        if inner is None and isinstance(value, functools.partial | functools.cached_property):
            inner = value.func
        if inner is None and isinstance(value, type(functools.cache(len))):
            inner = value.__wrapped__
        if inner is None:
            break
        value = inner
    return value


def _home(value: object) -> str:
    """Return the module whose code a value is; a wrapper has copied the name of another one."""
    value = _code(value)
    if isinstance(value, types.FunctionType):
        return str(value.__globals__.get("__name__"))
    if not issubclass(type(value), type | types.BuiltinFunctionType):
        value = type(value)
    return str(getattr(value, "__module__", None) or "builtins")


def place_of(value: object) -> str | None:
    """Return ``file.py:LINE`` of code, or its module where that is all there is."""
    value = _code(value)
    home = _home(value)
    code = getattr(value, "__code__", None)
    if code is None:
        kind = value if isinstance(value, type) else type(value)
        codes = [getattr(_code(each), "__code__", None) for each in vars(kind).values()]
        code = min(filter(None, codes), key=lambda each: each.co_firstlineno, default=None)
    if code is None or not Path(code.co_filename).is_file():
        return home
    return f"{_shortened(code.co_filename)}:{code.co_firstlineno}"


def _shortened(file: str | None) -> str | None:
    """Return a path from the folder that the file is imported from."""
    return import_path(file) if file and Path(file).is_file() else None
