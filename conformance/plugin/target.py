# SPDX-License-Identifier: Apache-2.0
"""``--plugin-path TARGET``: from what the user typed to the classes under test.

Parsing happens in the caller's process and touches no plugin code.
Loading imports the plugin and therefore happens in a worker process only.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import attrs

from conformance.generations import all_generations
from conformance.plugin import missing
from conformance.rules import nearest
from conformance.settings import UsageError

#: Entry-point groups through which vLLM loads plugins that have a class to certify.
IO_PROCESSORS = "vllm.io_processor_plugins"
ENTRY_POINT_GROUPS = ("vllm.logits_processors", IO_PROCESSORS)

#: What a folder with a model has, and where vLLM looks for the class that it names.
MODEL_CONFIG = "config.json"
MODEL_REGISTRY = "vllm.model_executor.models.registry"

#: The group of functions that do anything at all, such as registering a model.
GENERAL_PLUGINS = "vllm.general_plugins"

_FORMS = (
    "package.module:Class, path/to/file.py:Class, path/to/file.py, package.module, "
    "entry-point:GROUP/NAME, dist:DISTRIBUTION{} or path/to/model"
)

#: What may stand after any of the forms: only one generation of a class that serves several.
_GENERATION = re.compile(r"^(?P<form>.+)@(?P<generation>[a-z_-]+/[a-z_-]+)$")

_FILE = re.compile(r"^(?P<path>.+\.py)(?::(?P<qualname>[\w.]+))?$")
_MODULE = re.compile(r"^(?P<module>[A-Za-z_][\w.]*)(?::(?P<qualname>[\w.]+))?$")
_PREFIXED = re.compile(r"^(?P<form>entry-point|dist):(?P<rest>.+)$")
_REGISTERED = re.compile(r"^(?P<form>[a-z-]+):(?P<name>.+)$")


@attrs.frozen
class Target:
    """One importable place, parsed from a TARGET; ``qualname`` is None for a whole module."""

    text: str  #: what the user typed, or would type for exactly this place
    module: str
    qualname: str | None = None
    root: str | None = None  #: folder that must be on ``sys.path`` for ``module`` to import
    generation: str | None = None  #: the only one that is asked for


@attrs.frozen(kw_only=True)
class Plugin:
    """A class under test, as data that travels between processes."""

    target: str
    interface: str
    generation: str
    module: str
    qualname: str
    root: str | None
    path: str | None  #: source file
    digest: str | None  #: ``sha256:...`` of the source file
    version: str | None
    #: Why the class could not be loaded; such a plugin fails the loading rule of its generation.
    broken: str | None = None
    #: Whether it could not for want of something on this machine: then it fails nothing.
    unavailable: bool = False

    @property
    def fqcn(self) -> str:
        """The fully-qualified class name, in the form vLLM takes."""
        return f"{self.module}:{self.qualname}"


class LoadFailure(Exception):
    """The target exists but importing it raised; the message names the exception and its line."""


class Unavailable(LoadFailure):
    """What the target needs is not on this machine; the message also says what to do."""


def forms() -> str:
    """Return the forms that a TARGET may have, those of registered names included."""
    return _FORMS.format("".join(f", {form}:NAME" for form in _registries()))


def _registries() -> dict[str, str]:
    """Return vLLM's modules with a registry of plugins, by what stands before a name in it."""
    return dict(each.registered for each in all_generations() if each.registered is not None)


def parse(text: str, directory: Path) -> tuple[Target, ...]:
    """Parse a TARGET; one that names a distribution gives a target per entry point.

    Raises:
        UsageError: the text has no known form, or names a file, entry point or distribution
            that does not exist.

    """
    if match := _GENERATION.match(text):
        found = parse(match["form"], directory)
        return tuple(attrs.evolve(target, generation=match["generation"]) for target in found)
    if match := _PREFIXED.match(text):
        return _entry_points(text, match["form"], match["rest"])
    if (match := _REGISTERED.match(text)) and (module := _registries().get(match["form"])):
        return (Target(text, module, match["name"]),)
    if match := _FILE.match(text):
        return (_file(text, match["path"], match["qualname"], directory),)
    if (directory / text / MODEL_CONFIG).is_file():
        return (_model(text, directory / text / MODEL_CONFIG),)
    if match := _MODULE.match(text):
        return (Target(text, match["module"], match["qualname"]),)
    raise UsageError(f"--plugin-path {text!r} {_why_not(text, directory)}: give {forms()}.")


def _why_not(text: str, directory: Path) -> str:
    """Say what a text is that has no known form."""
    with suppress(OSError, ValueError):  # what no path can be
        path = directory / text
        if path.is_dir():
            files = sorted(child.name for child in path.glob("*.py") if child.name[0] != "_")
            of = f" with {', '.join(files[:3])} in it" if files else " without a Python file"
            return f"is a folder{of}, and not of a model, which has a {MODEL_CONFIG}"
        if path.is_file():
            return "is no Python file, whose name ends with .py"
    if text.endswith(":"):
        return "names no class behind the colon"
    return "has no known form"


def _file(text: str, name: str, qualname: str | None, directory: Path) -> Target:
    path = (directory / name).resolve()
    if not path.is_file():
        siblings = sorted(child.name for child in path.parent.glob("*.py"))
        where = "" if path.parent.is_dir() else f" (there is no folder {Path(name).parent})"
        raise UsageError(
            f"--plugin-path {text!r}: there is no file {name}{where}."
            + nearest(path.name, siblings)
        )
    # A file inside a package is imported by its dotted name, as vLLM would import it.
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return Target(text, ".".join(parts), qualname, str(root))


def _model(text: str, config: Path) -> Target:
    """Return the target of a model's folder: vLLM knows the class by the architecture's name."""
    try:
        architectures = json.loads(config.read_text(encoding="utf-8")).get("architectures") or []
    except (ValueError, AttributeError) as error:
        raise UsageError(
            f"--plugin-path {text!r}: {MODEL_CONFIG} is no JSON object: {error}."
        ) from None
    if not architectures:
        raise UsageError(f"--plugin-path {text!r}: {MODEL_CONFIG} names no architectures.")
    return Target(text, MODEL_REGISTRY, str(architectures[0]))


def registering(module: str) -> str:
    """Return what there is to add about entry points of a module's package that register things.

    vLLM calls them in every process: what they register has no entry point of its own.
    """
    package = module.partition(".")[0]
    entries = importlib.metadata.entry_points(group=GENERAL_PLUGINS)
    return _register(entry for entry in entries if entry.module.partition(".")[0] == package)


def _register(entries: Iterable[importlib.metadata.EntryPoint]) -> str:
    names = " and ".join(f"{GENERAL_PLUGINS}/{entry.name}" for entry in entries)
    if not names:
        return ""
    return (
        f"; its entry point {names} registers what it has: name a model's class as "
        "package.module:Class, or a parser as tool-parser:NAME."
    )


def _entry_points(text: str, form: str, rest: str) -> tuple[Target, ...]:
    if form == "entry-point":
        group, _, name = rest.partition("/")
        installed = importlib.metadata.entry_points(group=group)
        found = [entry for entry in installed if entry.name == name]
        if not found:
            known = sorted(f"{group}/{entry.name}" for entry in installed)
            raise UsageError(
                f"--plugin-path {text!r}: no installed package has that entry point"
                + (f" (the group has {', '.join(known)})." if known else " (the group is empty).")
            )
    else:
        try:
            distribution = importlib.metadata.distribution(rest)
        except importlib.metadata.PackageNotFoundError:
            names = {entry.metadata["Name"] or "" for entry in importlib.metadata.distributions()}
            raise UsageError(
                f"--plugin-path {text!r}: no distribution {rest!r} is installed."
                + nearest(rest, names)
            ) from None
        found = [entry for entry in distribution.entry_points if entry.group in ENTRY_POINT_GROUPS]
        if not found:
            raise UsageError(
                f"--plugin-path {text!r}: the distribution has no entry point in "
                + " or ".join(ENTRY_POINT_GROUPS)
                + (
                    _register(distribution.entry_points.select(group=GENERAL_PLUGINS))
                    or "; name the class as package.module:Class."
                )
            )
    return tuple(
        Target(f"entry-point:{entry.group}/{entry.name}", entry.module, entry.attr or None)
        for entry in found
    )


def resolved(target: Target) -> Target:
    """Follow an entry point to the class, where it names a function that names the class.

    Entry points of IO processors do: vLLM calls the function and imports what it returns.
    Worker processes only.

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


def load_module(target: Target) -> ModuleType:
    """Import the module of a target. Worker processes only.

    Raises:
        UsageError: there is no such module.
        LoadFailure: the module exists and raised.
        Unavailable: it did since it needs what this machine does not have.

    """
    if target.root and target.root not in sys.path:
        sys.path.insert(0, target.root)
    # Nothing is left beside the plugin.  Byte code would also outlive a change that keeps the
    # size of the file, within the second that file systems tell apart.
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return importlib.import_module(target.module)
    except ModuleNotFoundError as error:
        if error.name and (target.module + ".").startswith(error.name + "."):
            hint = ""
            head, _, tail = target.module.rpartition(".")
            if target.qualname is None and tail[:1].isupper():
                hint = f" If {tail} is a class, write {head}:{tail}."
            raise UsageError(
                f"--plugin-path {target.text!r}: there is no module {error.name!r} on sys.path."
                + (hint or nearest(error.name, _siblings(error.name), likeness=0.75))
            ) from None
        raise failure(target, _one_line(target, error), error) from error
    except (Exception, SystemExit) as error:
        raise failure(target, _one_line(target, error), error) from error
    finally:
        sys.dont_write_bytecode = before


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


def registers(target: Target) -> bool:
    """Tell whether a target is an entry point whose function registers what vLLM is to know."""
    return target.text.startswith(f"entry-point:{GENERAL_PLUGINS}/")


def registrar(target: Target) -> Callable[[], object] | None:
    """Return the function of such an entry point. Worker processes only.

    Raises:
        UsageError: there is no such module.
        LoadFailure: the module exists and raised.

    """
    if not registers(target):
        return None
    function = getattr(load_module(target), target.qualname or "", None)
    return function if callable(function) and not inspect.isclass(function) else None


def load_class(target: Target) -> type:
    """Import the class of a target. Worker processes only.

    Raises:
        UsageError: there is no such module, or no such class in it.
        LoadFailure: the module exists and raised.
        Unavailable: it did since it needs what this machine does not have.

    """
    module = load_module(target)
    found: object = module
    for name in (target.qualname or "").split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            classes = [cls.__name__ for cls in classes_of(module)]
            raise UsageError(
                f"--plugin-path {target.text!r}: {module.__name__} has no {target.qualname!r} "
                f"(it defines {', '.join(classes) or 'no class'})." + nearest(name, classes)
            ) from None
    if not inspect.isclass(found):
        what = f"is not a class but of type {type(found).__name__}"
        if registers(target):
            what = "registers neither a model with a multi-modal processor nor a parser"
        raise UsageError(
            f"--plugin-path {target.text!r}: {module.__name__}:{target.qualname} {what}; "
            "name the plugin class itself."
        )
    return found


def classes_of(module: ModuleType) -> list[type]:
    """Return the classes that a module defines itself, in the order of their definition."""
    return [
        value
        for key, value in vars(module).items()
        if inspect.isclass(value)
        and (value.__module__ + ".").startswith(module.__name__ + ".")
        and not key.startswith("_")
    ]


def version_of(target: Target) -> str | None:
    """Return the version of the distribution that a target is from, or of its package, if any."""
    if match := _PREFIXED.match(target.text):
        group, _, name = match["rest"].partition("/")
        for entry in importlib.metadata.entry_points(group=group, name=name):
            if entry.dist is not None:
                return entry.dist.version
    top = target.module.partition(".")[0]
    if target.root is None:
        for name in importlib.metadata.packages_distributions().get(top, ()):
            return importlib.metadata.version(name)
    version = getattr(sys.modules.get(top), "__version__", None)
    return version if isinstance(version, str) else None


def source_of(cls: type) -> str | None:
    """Return the file that defines a class, which is not always the one that it is named by."""
    return getattr(sys.modules.get(cls.__module__), "__file__", None)


def digest_of(path: str | None) -> str | None:
    """Return ``sha256:...`` of a source file."""
    if path is None or not Path(path).is_file():
        return None
    return "sha256:" + hashlib.sha256(Path(path).read_bytes()).hexdigest()


def import_path(path: str | None) -> str | None:
    """Return the path of a source file from the folder that it is imported from."""
    if path is None:
        return None
    root = Path(path).parent
    while (root / "__init__.py").is_file():
        root = root.parent
    return Path(path).relative_to(root).as_posix()


def find_file(module: str, roots: Iterable[str]) -> str | None:
    """Find the file of a module below folders; imports nothing, not even its package."""
    for root in roots:
        base = Path(root, *module.split("."))
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return str(path)
    return None


def find_source(target: Target) -> str | None:
    """Find the source file of a target without importing it."""
    if target.root and (path := find_file(target.module, [target.root])):
        return path
    try:
        spec = _spec(target.module)
    except Exception:  # noqa: BLE001 - finders of others raise what they want
        spec = None
    return spec.origin if spec else find_file(target.module, sys.path)


def _spec(name: str) -> ModuleSpec | None:
    """Return where a module is, without importing the packages that it is in.

    ``importlib.util.find_spec`` imports them. Where one raises, the modules that it had imported
    by then stay, and the next import of one of these succeeds.
    """
    package, _, _ = name.rpartition(".")
    if name in sys.modules or not package or package in sys.modules:
        return importlib.util.find_spec(name)
    parent = _spec(package)
    folders = parent.submodule_search_locations if parent else None
    if folders is None:
        return None
    found = (finder.find_spec(name, folders, None) for finder in sys.meta_path)
    return next((spec for spec in found if spec is not None), None)


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
