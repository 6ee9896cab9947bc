# SPDX-License-Identifier: Apache-2.0
"""Profiles: how to switch a plugin on and off.

A profile is a TOML file, a table in the plugin's ``pyproject.toml``, or a Python object
with the same fields, whose values may be Hypothesis strategies.  Where it is for several classes,
``[classes.NAME.SECTION]`` takes the place of ``[SECTION]`` for one of them.
"""

from __future__ import annotations

import ast
import importlib
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from conformance.generations import sections
from conformance.plugin import expectation
from conformance.plugin.target import Plugin
from conformance.rules import nearest
from conformance.settings import Settings, UsageError

#: How messages name the types of values.
_KINDS: Mapping[type, str] = {list: "a list", dict: "a table", str: "a string"}

TABLE = "vllm-conformance"

#: Keys that name folders, or files.
_PATHS = ("model", "tokenizer", "chat_template")

#: The table of the sections that are for single classes.
CLASSES = "classes"


@attrs.frozen
class Profile:
    """What is known about switching one plugin on and off."""

    origin: str  #: file or object it was read from
    sections: Mapping[str, Mapping[str, Any]]
    folder: Path = Path()  #: that its relative paths start from

    @property
    def environment(self) -> dict[str, str]:
        """The variables that are set before the plugin is imported."""
        own = self.sections.get(CLASSES, {})
        sections = [table for name, table in self.sections.items() if name != CLASSES]
        sections += [table for of_class in own.values() for table in of_class.values()]
        tables = (section.get("environment", {}) for section in sections)
        return {name: str(value) for table in tables for name, value in table.items()}

    @property
    def interfaces(self) -> frozenset[str]:
        """The interfaces that it has sections for."""
        own = self.sections.get(CLASSES, {})
        return frozenset((*self.sections, *(name for each in own.values() for name in each)))

    def section(self, name: str) -> Mapping[str, Any]:
        """Return one section, empty when the profile does not have it.

        A ``model``, ``tokenizer`` or ``chat_template`` beside the profile is found there; a model
        in the current folder comes first.
        """
        section = self.sections.get(name, {})
        paths = {key: section[key] for key in _PATHS if isinstance(section.get(key), str)}
        found = {
            key: self._beside(path)
            for key, path in paths.items()
            if key != "model" or not Path(path).is_dir()
        }
        return {**section, **{key: str(path) for key, path in found.items() if path.exists()}}

    def _beside(self, path: str) -> Path:
        return (self.folder / path).resolve()

    def of_class(self, qualname: str) -> Profile:
        """Return the profile of one class: its own sections instead of those for all."""
        own = self.sections.get(CLASSES, {}).get(qualname, {})
        shared = {name: table for name, table in self.sections.items() if name != CLASSES}
        return Profile(self.origin, {**shared, **own}, self.folder)


def load(spec: str, directory: Path) -> Profile:
    """Load ``--plugin-profile``: a TOML file, or ``module:object``.

    Raises:
        UsageError: there is no such file or object, or it is not a profile.

    """
    path = (directory / spec).resolve()
    if path.is_file():
        return _from_file(path, table=path.name == "pyproject.toml")
    module, colon, name = spec.partition(":")
    if colon and not spec.endswith(".toml"):
        return _from_object(spec, module, name, directory)
    if path.is_dir():
        raise UsageError(f"--plugin-profile {spec!r} is a folder: name a TOML file in it.")
    siblings = [child.name for child in path.parent.glob("*.toml")] if path.parent.is_dir() else []
    raise UsageError(
        f"--plugin-profile {spec!r}: there is no such file, "
        f"and it is no module:object either." + nearest(path.name, siblings)
    )


def choose(spec: str | None, directory: Path, source: str | None) -> Profile | None:
    """Return the profile that a run names, or else the one that belongs to a plugin's source file.

    Raises:
        UsageError: there is no such file or object, or it is not a profile.

    """
    return find(source) if spec is None else load(spec, directory)


def of_plugin(plugin: Plugin, settings: Settings) -> Profile | None:
    """Return the profile that a run names, or the one beside the plugin, for its class."""
    found = choose(settings.profile, settings.directory, plugin.path)
    return found.of_class(plugin.qualname) if found else None


def section_of(plugin: Plugin, settings: Settings) -> Mapping[str, Any]:
    """Return the section of a plugin's profile about its interface; empty without a profile."""
    profile = of_plugin(plugin, settings)
    return profile.section(plugin.interface) if profile else {}


def find(source: str | None) -> Profile | None:
    """Find the profile that belongs to a plugin's source file.

    ``NAME.conformance.toml`` beside the file comes first,
    then ``[tool.vllm-conformance]`` of the nearest ``pyproject.toml`` above it.

    Raises:
        UsageError: one was found and is not a profile.

    """
    if source is None:
        return None
    path = Path(source)
    beside = path.with_name(f"{path.stem}.conformance.toml")
    if beside.is_file():
        found = _from_file(beside, table=False)
        _check_classes(found, path)
        return found
    for folder in path.parents:
        pyproject = folder / "pyproject.toml"
        if pyproject.is_file():
            # A foreign pyproject.toml that does not parse is not ours to complain about.
            try:
                tool = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("tool", {})
            except (tomllib.TOMLDecodeError, UnicodeDecodeError):
                return None
            return _from_file(pyproject, table=True) if TABLE in tool else None
    return None


def _check_classes(profile: Profile, source: Path) -> None:
    """Refuse sections for a class that the plugin's own file does not know."""
    try:
        tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    # Also names that are imported, or made by a call.
    known = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    known |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    known |= {node.asname or node.name for node in ast.walk(tree) if isinstance(node, ast.alias)}
    for name in profile.section(CLASSES):
        if not set(name.split(".")) <= known:
            raise UsageError(
                f"profile {profile.origin}: [{CLASSES}.{name}] is for a class that {source.name} "
                "does not have." + nearest(name, known)
            )


def _from_file(path: Path, *, table: bool) -> Profile:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"profile {path.name} is not valid TOML: {error}.") from None
    except OSError as error:
        raise UsageError(f"profile {path} cannot be read: {error.strerror}.") from None
    if table:
        document = document.get("tool", {}).get(TABLE, {})
    return Profile(path.name, check(path.name, document), path.parent)


def _from_object(spec: str, module: str, name: str, directory: Path) -> Profile:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    try:
        value = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--plugin-profile {spec!r}: there is no module {error.name!r} on sys.path."
        ) from None
    except AttributeError:
        raise UsageError(
            f"--plugin-profile {spec!r}: {module} has no {name!r}."
            + nearest(name, vars(sys.modules[module]))
        ) from None
    if not isinstance(value, dict):
        fields = {key for keys in sections().values() for key in keys}
        value = {key: getattr(value, key) for key in fields if hasattr(value, key)}
    if not set(value) & {*sections(), CLASSES} and value:
        # The fields alone are enough: they say which interface they are of.
        value = {
            section: value for section, keys in sections().items() if set(value) <= set(keys)
        } or value
    return Profile(spec, check(spec, value), directory)


def check(origin: str, document: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Check the shape of a profile and return its sections.

    Raises:
        UsageError: a section or key is unknown, or a value has the wrong type.

    """
    if not hasattr(document, "items"):
        raise UsageError(f"profile {origin} must be a table, not {document!r}.")
    for section, table in document.items():
        if section not in {*sections(), CLASSES}:
            raise UsageError(
                f"profile {origin} has an unknown section [{section}]; "
                f"it may have {', '.join(f'[{name}]' for name in sections())}."
                + nearest(section, {*sections(), CLASSES})
            )
        if not hasattr(table, "items"):
            raise UsageError(f"profile {origin}: {section} must be a table, not {table!r}.")
        if section != CLASSES:
            _check_section(origin, section, table)
            continue
        for name, of_class in table.items():
            check(f"{origin} [{CLASSES}.{name}]", of_class)
    return document


def _check_section(origin: str, section: str, table: Mapping[str, Any]) -> None:
    keys = sections()[section]
    for key, value in table.items():
        if key not in keys:
            raise UsageError(
                f"profile {origin}: [{section}] has no key {key!r}; "
                f"it takes {', '.join(keys)}." + nearest(key, keys)
            )
        named = key in expectation.KEYS and callable(value)
        if not (isinstance(value, keys[key].type) or named or _is_strategy(value)):
            wanted = _KINDS[keys[key].type]
            raise UsageError(
                f"profile {origin}: [{section}] {key} must be {wanted}, not {value!r}."
            )


def _is_strategy(value: object) -> bool:
    from hypothesis.strategies import SearchStrategy

    return isinstance(value, SearchStrategy)
