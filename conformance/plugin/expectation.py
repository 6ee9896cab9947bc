# SPDX-License-Identifier: Apache-2.0
"""What the author says a plugin means: functions that a profile names.

``expected = "module:function"`` beside a profile's other keys, or ``serialise``.  Each family says
what the function takes and what it returns; here it is found and imported.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from conformance.rules import nearest
from conformance.settings import UsageError

#: The keys of a profile's sections that name a function.
KEY, SERIALISE = "expected", "serialise"
KEYS = (KEY, SERIALISE)

#: What a function without a module of its own has in its qualified name.
_INNER = "<"


class OracleFailed(Exception):
    """The author's function raised, or gave what it must not: nothing follows for the plugin."""


@attrs.frozen
class Expected:
    """Where the function of a profile is."""

    module: str
    qualname: str
    folder: str  #: of the profile: modules beside it are found
    origin: str  #: the profile, for messages
    key: str = KEY

    def __str__(self) -> str:
        """Return it as the profile has it."""
        return f"{self.module}:{self.qualname}"

    def load(self) -> Callable[..., Any]:
        """Import the function, or the class.

        Raises:
            UsageError: there is none, or importing its module fails.

        """
        return _load(self)


def located(section: Mapping[str, Any], folder: Path, origin: str) -> Mapping[str, Any]:
    """Return a section in which each of :data:`KEYS` that is there is an :class:`Expected`.

    Raises:
        UsageError: one is no ``module:function``.

    """
    found = {key: _located(section[key], folder, origin, key) for key in KEYS if key in section}
    return {**section, **found} if found else section


def _located(said: Any, folder: Path, origin: str, key: str) -> Expected:  # noqa: ANN401 - as written
    if callable(said):
        said = f"{said.__module__}:{said.__qualname__}"
    module, colon, qualname = said.partition(":")
    if not (module and colon and qualname) or _INNER in qualname or module.endswith(".py"):
        raise UsageError(
            f"profile {origin}: {key} = {said!r} names no function that can be imported; "
            'write "module:function", with the module beside the profile or on the Python path.'
        )
    return Expected(module, qualname, str(folder.resolve()), origin, key)


def plain(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section as a profile has it, in words."""
    return {
        key: str(value) if isinstance(value, Expected) else value for key, value in section.items()
    }


@cache
def _load(expected: Expected) -> Callable[..., Any]:
    if expected.folder not in sys.path:
        sys.path.insert(0, expected.folder)
    where = f"profile {expected.origin}: {expected.key} = {str(expected)!r}"
    try:
        value: Any = importlib.import_module(expected.module)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{where}: there is no module {error.name!r} beside the profile or on the Python path."
        ) from None
    except Exception as error:  # noqa: BLE001 - whatever the author's module raises
        raise UsageError(
            f"{where}: importing {expected.module} raised {type(error).__name__}: {error}."
        ) from None
    for part in expected.qualname.split("."):
        if not hasattr(value, part):
            raise UsageError(f"{where}: there is no {part!r} in it." + nearest(part, vars(value)))
        value = getattr(value, part)
    if not callable(value):
        raise UsageError(f"{where} is not callable (got {type(value).__name__}).")
    found: Callable[..., Any] = value
    return found
