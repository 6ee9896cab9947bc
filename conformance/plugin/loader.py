# SPDX-License-Identifier: Apache-2.0
"""From a target to its class: this imports the plugin, and happens in worker processes only."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import attrs

from conformance.plugin import missing, registration
from conformance.plugin.files import find_source
from conformance.plugin.target import IO_PROCESSORS, Target, registers
from conformance.rules import nearest
from conformance.settings import UsageError


class LoadFailure(Exception):
    """The target exists but importing it raised; the message names the exception and its line."""


class Unavailable(LoadFailure):
    """What the target needs is not on this machine; the message also says what to do."""


def resolved(target: Target) -> Target:
    """Follow an entry point to the class, where it names a function that names the class.

    Entry points of IO processors do: vLLM calls the function and imports what it returns.

    Raises:
        UsageError: there is no such module, or no such function in it.
        LoadFailure: the function raised, or gave no dotted name.

    """
    if not target.text.startswith(f"entry-point:{IO_PROCESSORS}/") or target.qualname is None:
        return target
    found = getattr(load_module(target), target.qualname, None)
    if found is None or inspect.isclass(found):
        return target
    where = f"the entry point's function {target.module}:{target.qualname}"
    try:
        name = found()
    except Exception as error:
        raise failure(target, f"{where} raised {type(error).__name__}: {error}", error) from error
    if name is None:
        raise Unavailable(f"{where} returned None: the plugin says that it cannot be used here")
    module, dot, qualname = name.rpartition(".") if isinstance(name, str) else ("", "", "")
    if not dot or ":" in name:
        raise LoadFailure(f"{where} returned {name!r}, not a name as 'package.module.Class'")
    return attrs.evolve(target, module=module, qualname=qualname)


@contextmanager
def without_byte_code() -> Iterator[None]:
    """Leave nothing beside the modules that are imported meanwhile.

    Byte code would also outlive a change that keeps the size of the file, within the second that
    file systems tell apart.
    """
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def load_module(target: Target) -> ModuleType:
    """Import the module of a target.

    Raises:
        UsageError: there is no such module.
        LoadFailure: the module exists and raised.
        Unavailable: it did since it needs what this machine does not have.

    """
    if target.root and target.root not in sys.path:
        sys.path.insert(0, target.root)
    try:
        with without_byte_code():
            return importlib.import_module(target.module)
    except ModuleNotFoundError as error:
        if error.name and (target.module + ".").startswith(error.name + "."):
            hint = ""
            head, _, tail = target.module.rpartition(".")
            if target.qualname is None and tail[:1].isupper():
                hint = f" If {tail} is a class, write {head}:{tail}."
            raise UsageError(
                f"target {target.text!r}: there is no module {error.name!r} on sys.path."
                + (hint or nearest(error.name, _siblings(error.name), likeness=0.75))
            ) from None
        raise failure(target, _one_line(target, error), error) from error
    except (Exception, SystemExit) as error:
        raise failure(target, _one_line(target, error), error) from error


def failure(target: Target, sentence: str, error: BaseException) -> LoadFailure:
    """Return what is raised for a target that raised something itself."""
    source = find_source(target)
    if way_out := missing.way_out(error, target.module, source):
        return Unavailable(f"{sentence}: {way_out}")
    if place := missing.moved(error, source):
        sentence += f": {place}"
    # A plugin may hide what the host has not behind words of its own.
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    told = f", from {type(cause).__name__}: {cause}" if isinstance(cause, ImportError) else ""
    return LoadFailure(sentence + told)


def registrar(target: Target) -> Callable[[], object] | None:
    """Return the function of an entry point that registers what vLLM is to know, or None.

    Raises:
        UsageError: there is no such module.
        LoadFailure: the module exists and raised.

    """
    if not registers(target):
        return None
    function = getattr(load_module(target), target.qualname or "", None)
    return function if callable(function) and not inspect.isclass(function) else None


def _registered(target: Target, known_as: str) -> type:
    """Return the class that vLLM knows by a name once what registers it was called.

    Raises:
        LoadFailure: something raised, or the name is not registered.

    """
    try:
        found = registration.find(known_as, target.text)
    except Exception as error:
        raise failure(target, f"registering {known_as} raised {error!r}", error) from error
    if found is None:
        raise LoadFailure(
            f"vLLM calls nothing that registers {known_as}: where VLLM_PLUGINS is set, it names "
            "the entry points that are called"
        )
    return found


def find_registered(target: Target, module: ModuleType) -> None:
    """Look whether vLLM finds the class of a target, where the module registers one.

    Raises:
        LoadFailure: it does not.

    """
    if why := registration.lost(target, module):
        raise LoadFailure(why)


def load_class(target: Target) -> type:
    """Import the class of a target.

    Raises:
        UsageError: there is no such module, or no such class in it.
        LoadFailure: the module exists and raised, or vLLM would not find the class either.
        Unavailable: it did since it needs what this machine does not have.

    """
    module = load_module(target)
    if target.known_as is not None:
        return _registered(target, target.known_as)
    found: object = module
    for name in (target.qualname or "").split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            find_registered(target, module)
            made = [str(place.qualname) for place, _ in registration.registered(target, module)]
            classes = [*registration.classes_of(module), *made]
            raise UsageError(
                f"target {target.text!r}: {module.__name__} has no {target.qualname!r} "
                f"(it defines {', '.join(classes) or 'no class'})." + nearest(name, classes)
            ) from None
    if not inspect.isclass(found):
        what = f"is not a class but of type {type(found).__name__}"
        if registers(target):
            what = "registers neither a model with a multi-modal processor nor a parser"
        raise UsageError(
            f"target {target.text!r}: {module.__name__}:{target.qualname} {what}; "
            "name the plugin class itself."
        )
    return found


def _siblings(name: str) -> Iterator[str]:
    """Return the names of the modules that lie where a module should be."""
    package, _, _ = name.rpartition(".")
    folders = getattr(sys.modules.get(package), "__path__", ()) if package else None
    prefix = package and package + "."
    return (module.name for module in pkgutil.iter_modules(folders, prefix))


def _one_line(target: Target, error: BaseException) -> str:
    """Name the exception, and the line of the plugin's own file where it came up."""
    source = find_source(target)
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source
    ]
    if isinstance(error, SyntaxError) and error.filename:
        where = f" ({Path(error.filename).name}:{error.lineno})"
    elif frames:
        where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})"
    else:
        where = ""
    return f"importing {target.module} raised {type(error).__name__}: {error}{where}"
