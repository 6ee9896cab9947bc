# SPDX-License-Identifier: Apache-2.0
"""Calls into a plugin: limited in time, and their errors told apart."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from typing import Any

from conformance.multimodal.processor.answers import Answer
from conformance.watching.interruption import PluginExited, in_call, limited


def runtime(module: str, package: str = "modality") -> Any:  # noqa: ANN401 - a module of the library
    """Return a module of the modality library, or of another package beside it; it needs numpy."""
    return importlib.import_module(f"reference_plugins.{package}.{module}")


def ask(what: str, function: Callable[..., Any], *arguments: object) -> Answer:
    """Call on the main thread, for a limited time.

    Raises:
        PluginExited: the plugin raised ``SystemExit``.
        PluginHung: it did not return.

    """
    with limited():
        return answered(what, function, *arguments)


def answered(what: str, function: Callable[..., Any], *arguments: object) -> Answer:
    """Call on whatever thread, with no limit.

    Raises:
        PluginExited: the plugin raised ``SystemExit``.

    """
    try:
        with in_call(what):
            return Answer(function(*arguments))
    except SystemExit as error:
        raise PluginExited(
            f"{what} raised SystemExit({error.code}), which ends the server"
        ) from None
    except Exception as error:  # noqa: BLE001 - which one it is, the rules judge
        return Answer(error=error)


def whole(value: Any) -> int | None:  # noqa: ANN401 - what the plugin returned
    """Return a whole number of any type as an integer; None for anything else, and for truths."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def refused(error: BaseException | None) -> bool:
    """Tell whether an error is the client's."""
    return isinstance(error, runtime("errors").InputError)


def missing(error: BaseException | None) -> bool:
    """Tell whether an error is the deployment's: a library is not installed."""
    return isinstance(error, (runtime("errors").MissingLibraryError, ModuleNotFoundError))
