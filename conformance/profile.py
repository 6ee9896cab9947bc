# SPDX-License-Identifier: Apache-2.0
"""Profiles: how to switch a plugin on and off.

A profile is a TOML file, a table in the plugin's ``pyproject.toml``, or a Python object
with the same fields, whose values may be Hypothesis strategies.
"""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from conformance.rules import nearest
from conformance.settings import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The sections a profile may have, by interface, and their keys with the type of each.
SECTIONS: Mapping[str, Mapping[str, type]] = {
    "logits-processor": {"on": list, "off": list, "invalid": list},
    "io-processor": {"valid": list, "invalid": list, "model": str},
    "classifier-hook": {"allowed": list, "blocked": list},
    "multimodal": {
        "model": str,
        "items": dict,
        "options": list,
        "valid": list,
        "invalid": list,
    },
}

#: How messages name the types of values.
_KINDS: Mapping[type, str] = {list: "a list", dict: "a table", str: "a string"}

TABLE = "vllm-conformance"


@attrs.frozen
class Profile:
    """What is known about switching one plugin on and off."""

    origin: str  #: file or object it was read from
    sections: Mapping[str, Mapping[str, Any]]

    def section(self, name: str) -> Mapping[str, Any]:
        """Return one section, empty when the profile does not have it."""
        return self.sections.get(name, {})


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
    siblings = [child.name for child in path.parent.glob("*.toml")] if path.parent.is_dir() else []
    raise UsageError(
        f"--plugin-profile {spec!r}: there is no such file, "
        f"and it is no module:object either." + nearest(path.name, siblings)
    )


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
        return _from_file(beside, table=False)
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


def _from_file(path: Path, *, table: bool) -> Profile:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"profile {path.name} is not valid TOML: {error}.") from None
    if table:
        document = document.get("tool", {}).get(TABLE, {})
    return Profile(path.name, check(path.name, document))


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
        fields = {key for keys in SECTIONS.values() for key in keys}
        value = {key: getattr(value, key) for key in fields if hasattr(value, key)}
    if not set(value) & set(SECTIONS) and value:
        # The fields alone are enough: they say which interface they are of.
        value = {
            section: value for section, keys in SECTIONS.items() if set(value) <= set(keys)
        } or value
    return Profile(spec, check(spec, value))


def check(origin: str, document: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Check the shape of a profile and return its sections.

    Raises:
        UsageError: a section or key is unknown, or a value has the wrong type.

    """
    for section, table in document.items():
        if section not in SECTIONS:
            raise UsageError(
                f"profile {origin} has an unknown section [{section}]; "
                f"it may have {', '.join(f'[{name}]' for name in SECTIONS)}."
                + nearest(section, SECTIONS)
            )
        keys = SECTIONS[section]
        if not hasattr(table, "items"):
            raise UsageError(f"profile {origin}: {section} must be a table, not {table!r}.")
        for key, value in table.items():
            if key not in keys:
                raise UsageError(
                    f"profile {origin}: [{section}] has no key {key!r}; "
                    f"it takes {', '.join(keys)}." + nearest(key, keys)
                )
            if not isinstance(value, keys[key]) and not _is_strategy(value):
                wanted = _KINDS[keys[key]]
                raise UsageError(
                    f"profile {origin}: [{section}] {key} must be {wanted}, not {value!r}."
                )
    return document


def _is_strategy(value: object) -> bool:
    from hypothesis.strategies import SearchStrategy

    return isinstance(value, SearchStrategy)
