# SPDX-License-Identifier: Apache-2.0
"""``--plugin-path TARGET``: from what the user typed to the places that it names.

This happens in the caller's process and touches no plugin code.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import attrs

from conformance.generations import all_generations
from conformance.interface import Registry
from conformance.rules import nearest
from conformance.settings import UsageError

#: The group of both interfaces of logits processors.
LOGITS_PROCESSORS = "vllm.logits_processors"

#: Its entry points name functions that return the name of a class.
IO_PROCESSORS = "vllm.io_processor_plugins"

#: Entry-point groups through which vLLM loads plugins that have a class to certify.
ENTRY_POINT_GROUPS = (LOGITS_PROCESSORS, IO_PROCESSORS)

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
    #: What vLLM knows the class by that a registering function makes, where no import reaches it:
    #: an architecture, or the name of a parser behind the form of its registry, and a colon.
    known_as: str | None = None


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
    known_as: str | None = None  #: as a target has it

    @property
    def fqcn(self) -> str:
        """The fully-qualified class name, in the form vLLM takes."""
        return f"{self.module}:{self.qualname}"


def forms() -> str:
    """Return the forms that a TARGET may have, those of registered names included."""
    return _FORMS.format("".join(f", {form}:NAME" for form in registries()))


def registries() -> dict[str, Registry]:
    """Return vLLM's registries of plugins, by what stands before a name in each."""
    found = (each.registry for each in all_generations())
    return {each.form: each for each in found if each is not None}


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
    if (match := _REGISTERED.match(text)) and (registry := registries().get(match["form"])):
        return (Target(text, registry.module, match["name"]),)
    if match := _FILE.match(text):
        return (_file(text, match["path"], match["qualname"], directory),)
    if (directory / text / MODEL_CONFIG).is_file():
        return (_model(text, directory / text / MODEL_CONFIG),)
    if match := _MODULE.match(text):
        return (Target(text, match["module"], match["qualname"]),)
    raise UsageError(f"target {text!r} {_why_not(text, directory)}: give {forms()}.")


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
            f"target {text!r}: there is no file {name}{where}." + nearest(path.name, siblings)
        )
    if "." in path.stem:
        raise UsageError(
            f"target {text!r}: no module can have the name {path.stem!r}, which has a dot "
            f"in it: certify a copy, named {path.stem.replace('.', '_')}.py."
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
        raise UsageError(f"target {text!r}: {MODEL_CONFIG} is no JSON object: {error}.") from None
    if not architectures:
        raise UsageError(f"target {text!r}: {MODEL_CONFIG} names no architectures.")
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
                f"target {text!r}: no installed package has that entry point"
                + (f" (the group has {', '.join(known)})." if known else " (the group is empty).")
            )
    else:
        try:
            distribution = importlib.metadata.distribution(rest)
        except importlib.metadata.PackageNotFoundError:
            names = {entry.metadata["Name"] or "" for entry in importlib.metadata.distributions()}
            raise UsageError(
                f"target {text!r}: no distribution {rest!r} is installed." + nearest(rest, names)
            ) from None
        found = [entry for entry in distribution.entry_points if entry.group in ENTRY_POINT_GROUPS]
        if not found:
            raise UsageError(
                f"target {text!r}: the distribution has no entry point in "
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


def registers(target: Target) -> bool:
    """Tell whether a target is an entry point whose function registers what vLLM is to know."""
    return bool(registering_entry(target.text))


def registering_entry(text: str) -> str:
    """Return the name of the entry point of general plugins that a target is, or nothing."""
    form = match["form"] if (match := _GENERATION.match(text)) else text
    prefix = f"entry-point:{GENERAL_PLUGINS}/"
    return form.removeprefix(prefix) if form.startswith(prefix) else ""


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
