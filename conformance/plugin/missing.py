# SPDX-License-Identifier: Apache-2.0
"""What a plugin needs of the machine and does not find there, told apart from its faults.

Its author has it: a package, a library, a file, an environment variable.  Nothing is shown of such
a plugin, neither good nor bad, and the person who certifies it can mend that.
"""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import linecache
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from types import FunctionType, TracebackType

from conformance.generations import all_generations

#: The host: what it does not have, the plugin must not ask for, unless that is its interface.
_HOST = "vllm"

#: Whose modules are not to blame where the host cannot be imported: they are its own or ours.
_NEVER_BROKEN = frozenset({_HOST, "conformance", "importlib", "torch", "triton"})

#: A name as environment variables have them.
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b|\b[A-Z][A-Z0-9]{3,}\b")

#: What is asked for a variable: ``os.environ``, one of its methods, or ``os.getenv``.
_ENVIRONMENT = re.compile(r"\b(environ(\.\w+)?|getenv)$")

#: What the loader of the system says of a library; it has no type of its own.
_LIBRARY = re.compile(r"^(?P<name>\S+): cannot open shared object file")

#: How much alike names are of which one may have become the other.
_LIKENESS = 0.7

#: What the environment has of a switch that is off.
_OFF = (None, False, "", "0", "false", "False", "off", "no")

#: What is installed under another name than it is imported by.
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dotenv": "python-dotenv",
    "fitz": "PyMuPDF",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}


class ModelLacks(Exception):
    """An instance needs what the model that it is tried with has not; raised from what it raised.

    The text names it: "no 'labels' in its config.json".
    """


class Unsuited(ModelLacks):
    """A constructor refuses a model, or an engine, that is not of the plugin's own choice."""


def way_out(error: BaseException, module: str, source: str | None) -> str | None:
    """Return what to do on this machine so that an error does not come, or None."""
    for cause in chain(error):
        for tell in (_variable, _library, _package, _file, _broken_host):
            if (sentence := tell(cause, module, source)) is not None:
                return sentence
    return None


def moved(error: BaseException, source: str | None) -> str | None:
    """Return where the installed host defines what a plugin asks one of its modules for.

    Only what is defined in one place is told.  None where nothing of the host was missing.
    """
    asked = [each for each in chain(error) if isinstance(each, ImportError) and _of_host(each)]
    # What was tried first, for a newer host, comes last.
    told = (_where_to(each, source) for each in reversed(asked))
    return next(filter(None, told), None)


def _where_to(asked: ImportError, source: str | None) -> str | None:
    names = _asked_for(asked, source)
    there = sys.modules.get(asked.name or "")
    names = tuple(name for name in names if not hasattr(there, name))
    host = getattr(sys.modules.get(_HOST), "__path__", ())
    if not names or not host:
        return None
    any_name = "|".join(map(re.escape, names))
    defines = re.compile(
        rf"^(?:(?:class|def|type) )?({any_name})\b(?=[(:\[]|\s*=[^=])", re.MULTILINE
    )
    places: dict[str, set[str]] = {}
    for path in Path(host[0]).rglob("*.py"):
        for name in defines.findall(path.read_text(encoding="utf-8", errors="replace")):
            parts = path.relative_to(Path(host[0]).parent).with_suffix("").parts
            places.setdefault(name, set()).add(".".join(parts).removesuffix(".__init__"))
    found: dict[str, list[str]] = {}
    for name in names:
        where = places.get(name, set())
        if len(where) == 1:
            found.setdefault(min(where), []).append(name)
    told = " and ".join(f"{', '.join(each)} in {module}" for module, each in found.items())
    return f"this vLLM has {told}" if told else _renamed(asked, names, Path(host[0]))


def _renamed(asked: ImportError, names: Iterable[str], host: Path) -> str | None:
    """Return what the host defines instead of names, in the one module that went elsewhere."""
    _, _, last = (asked.name or "").rpartition(".")
    files = list(host.rglob(f"{last}.py"))
    if len(files) != 1 or not isinstance(asked, ModuleNotFoundError):
        return None
    text = files[0].read_text(encoding="utf-8", errors="replace")
    defined = re.findall(r"^(?:class|def) (\w+)", text, re.MULTILINE)
    pairs = [(name, get_close_matches(name, defined, n=1, cutoff=_LIKENESS)) for name in names]
    told = " and ".join(f"{like[0]} for {name}" for name, like in pairs if like)
    module = ".".join(files[0].relative_to(host.parent).with_suffix("").parts)
    return f"this vLLM may have {told} in {module}" if told else None


def _of_host(error: ImportError) -> bool:
    """Tell whether an import error is about a module of the host."""
    return (error.name or "").partition(".")[0] == _HOST


def _asked_for(error: ImportError, source: str | None) -> tuple[str, ...]:
    """Return the names that a plugin's statement imports from a module that is not there."""
    for at in reversed(list(_frames(error, source))):
        try:
            tree = ast.parse(Path(at.tb_frame.f_code.co_filename).read_text(encoding="utf-8"))
        except (OSError, ValueError, SyntaxError):
            return ()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.lineno <= at.tb_lineno <= (
                node.end_lineno or 0
            ):
                return tuple(alias.name for alias in node.names if alias.name != "*")
        return ()
    return ()


def device(error: BaseException, source: str | None) -> str | None:
    """Return what a call takes that raised since it launched a kernel that nothing here runs.

    Without Triton, or a device for it, vLLM's stand-in for ``triton.jit`` leaves kernels plain
    functions, which nobody can launch; Triton itself finds no driver.
    """
    for cause in chain(error):
        last = _last(cause)
        if last is None:
            continue
        if isinstance(cause, TypeError) and "'function' object is not subscriptable" in str(cause):
            own = any(at is last for at in _frames(cause, source))
            names = last.tb_frame.f_code.co_names
            found = own and any(_is_kernel(last.tb_frame.f_globals.get(name)) for name in names)
        else:
            module = str(last.tb_frame.f_globals.get("__name__"))
            found = module.partition(".")[0] == "triton" and "active driver" in str(cause)
        if found:
            return "it launches a kernel of its own: that takes Triton and a device for it"
    return None


def _is_kernel(value: object) -> bool:
    """Tell whether a function of a plugin is meant for Triton's compiler."""
    if not isinstance(value, FunctionType):
        return False
    try:
        lines = inspect.getsource(value).splitlines()
    except (OSError, TypeError):
        return False
    head = takewhile(lambda line: not line.lstrip().startswith("def "), lines)
    return any("triton" in line for line in head)


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it was raised from, or while they were handled."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        handled = None if following.__suppress_context__ else following.__context__
        following = following.__cause__ or handled


def _variable(error: BaseException, _: str, source: str | None) -> str | None:
    """Tell a variable of the environment that is not set, and that the plugin asks for by name."""
    if isinstance(error, KeyError) and error.args and _raised_by_environment(error):
        return f"set the environment variable {error.args[0]}"
    files = {at.tb_frame.f_code.co_filename for at in _frames(error, source)}
    all_files = {*files, *([source] if source else ())}
    texts = _texts(all_files)
    words = [
        word
        for word in _VARIABLE.findall(f"{error} {_line(error, source)}")
        if word not in os.environ and word in texts
    ]
    # Other words in capitals may be values that it knows, most of all those without an underscore.
    asked = _texts(all_files, asked=True)
    named = [word for word in words if word in asked] or [word for word in words if "_" in word]
    return f"set the environment variable {named[0]}" if named else None


def names(error: BaseException, name: str) -> bool:
    """Tell whether a name stands in the source of what an error passed through."""
    files = {frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)}
    return any(name in "".join(linecache.getlines(file)) for file in files)


def unset(plugin: type) -> list[str]:
    """Return the variables that are not set, and that the module of a plugin asks for by name."""
    file = getattr(sys.modules.get(plugin.__module__), "__file__", None)
    names = _texts([file] if file else [], asked=True)
    return [name for name in names if name not in os.environ]


def _raised_by_environment(error: BaseException) -> bool:
    last = _last(error)
    return last is not None and last.tb_frame.f_locals.get("self") is os.environ


def _last(error: BaseException) -> TracebackType | None:
    """Return the innermost frame of an error."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last


def _frames(error: BaseException, source: str | None) -> Iterator[TracebackType]:
    """Yield the frames of an error that lie in the plugin's folder, the innermost last."""
    at = error.__traceback__
    while at is not None:
        if source is not None and _of_plugin(at.tb_frame.f_code.co_filename, source):
            yield at
        at = at.tb_next


def _of_plugin(file: str, source: str) -> bool:
    """Tell whether a file lies in the folder, or the package, of the plugin's file."""
    folder = Path(source).parent
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    path = Path(file)
    return path.is_relative_to(folder) and "site-packages" not in path.relative_to(folder).parts


def _line(error: BaseException, source: str | None) -> str:
    """Return the line of the plugin that raised."""
    for at in reversed(list(_frames(error, source))):
        return linecache.getline(at.tb_frame.f_code.co_filename, at.tb_lineno)
    return ""


def _texts(files: Iterable[str], *, asked: bool = False) -> dict[str, None]:
    """Return texts in files that use the environment: all, or those by which it is asked."""
    found: dict[str, None] = {}
    for file in files:
        try:
            source = Path(file).read_text(encoding="utf-8")
            nodes = list(ast.walk(ast.parse(source)))
        except (OSError, ValueError, SyntaxError):
            continue
        if asked:
            nodes = [key for node in nodes for key in _keys(node)]
        if "environ" in source or "getenv" in source:
            constants = (node.value for node in nodes if isinstance(node, ast.Constant))
            found |= dict.fromkeys(value for value in constants if isinstance(value, str))
    return found


def _keys(node: ast.AST) -> list[ast.expr]:
    """Return what the environment is asked for by an expression, if it is asked."""
    asks, keys = None, list[ast.expr]()
    if isinstance(node, ast.Call):
        asks, keys = node.func, [] if _does_without(node) else node.args[:1]
    elif isinstance(node, ast.Subscript):
        asks, keys = node.value, [node.slice]
    return keys if asks is not None and _ENVIRONMENT.search(ast.unparse(asks)) else []


def _does_without(asks: ast.Call) -> bool:
    """Tell whether a variable that is not set stands for something, and switches nothing off."""
    other = [*asks.args[1:], *(each.value for each in asks.keywords)]
    return any(not isinstance(each, ast.Constant) or each.value not in _OFF for each in other)


def broken_host(error: BaseException) -> str | None:
    """Say which module of the host cannot be imported here, since another package raises."""
    return next(filter(None, (_broken_host(cause, "", None) for cause in chain(error))), None)


def _broken_host(error: BaseException, _: str, source: str | None) -> str | None:
    """Tell the same of one error, unless the plugin itself raised it."""
    asked, package = None, _HOST
    for frame, _line in traceback.walk_tb(error.__traceback__):
        name = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_name == "<module>" and name.startswith(f"{_HOST}."):
            asked = asked or name
        if asked is not None and not name.startswith("importlib"):
            package = name.partition(".")[0]
    if asked is None or package in _NEVER_BROKEN or _raised_by_plugin(error, source):
        return None
    return (
        f"{_HOST} itself cannot be imported here (python -c 'import {asked}' shows it): install "
        f"releases of {_distribution(package)} and of what it needs that fit each other"
    )


def _library(error: BaseException, _: str, __: str | None) -> str | None:
    """Tell a library that the system's loader does not find."""
    found = _LIBRARY.match(str(error)) if isinstance(error, ImportError | OSError) else None
    return f"install what has the library {found['name']}" if found else None


def _package(error: BaseException, module: str, source: str | None) -> str | None:
    """Tell a package, or a release of one, that is not installed."""
    if not isinstance(error, ImportError):
        return None
    if error.name is None:
        return _unnamed(error, module, source)
    top = error.name.partition(".")[0]
    if top in (module.partition(".")[0], _HOST):
        return _interface(error.name)  # and otherwise its own, or what the installed host lacks
    if not isinstance(error, ModuleNotFoundError) or top in sys.modules:
        return f"install the release of {_distribution(top)} that it is for"
    if top in sys.stdlib_module_names:
        version = ".".join(map(str, sys.version_info[:2]))
        return f"use a Python that has {top} ({version} has not)"
    name = _DISTRIBUTIONS.get(top, top)
    return f"install {name}, or put the folder that has it on PYTHONPATH"


def _interface(module: str) -> str | None:
    """Tell an interface that came with a later release of the host than the installed one."""
    for generation in all_generations():
        since = generation.since
        # Its package may be missing, too.
        if since and f"{since.module}.".startswith(f"{module}."):
            return f"install vLLM {since.release} or later; before, there is no {generation.title}"
    return None


def _unnamed(error: ImportError, module: str, source: str | None) -> str | None:
    """Tell what an import error wants that names no module."""
    if "relative import" in str(error):
        stem = Path(source).stem if source else module
        return f"name it within its package, as PACKAGE.{stem}:CLASS"
    causes = [each.name for each in chain(error) if isinstance(each, ImportError) and each.name]
    if causes or not _raised_by_plugin(error, source):
        return None  # what it was raised from tells more, and comes next
    return "install what it asks for"


def _raised_by_plugin(error: BaseException, source: str | None) -> bool:
    """Tell whether a plugin itself raised an error, and not what it imports."""
    return any(at is _last(error) for at in _frames(error, source))


def refused(error: BaseException, source: str | None) -> bool:
    """Tell whether a plugin itself refuses something: by a ``raise`` that depends on it.

    One that stands in a function by itself says that there is nothing it would take.
    """
    own = [at for at in _frames(error, source) if at is _last(error)]
    if not own or isinstance(error, NotImplementedError):
        return False
    code = own[0].tb_frame.f_code
    try:
        tree = ast.parse(Path(code.co_filename).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return False
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name
    ]
    at = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    here = [node for node in at if node.lineno <= own[0].tb_lineno <= (node.end_lineno or 0)]
    return bool(here) and not any(node in function.body for function in functions for node in here)


def _distribution(top: str) -> str:
    """Name the distribution of a package with the release that is installed."""
    for name in importlib.metadata.packages_distributions().get(top, ()):
        return f"{name} (here is {importlib.metadata.version(name)})"
    return top


def _file(error: BaseException, _: str, source: str | None) -> str | None:
    """Tell a file that is not there."""
    if not isinstance(error, FileNotFoundError) or not isinstance(error.filename, str):
        return None
    if source is not None and _of_plugin(error.filename, source):
        return None  # what should have come with the plugin
    return f"have {error.filename} there"
