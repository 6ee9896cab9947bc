# SPDX-License-Identifier: Apache-2.0
"""The library whose interface plugins are held against."""

from __future__ import annotations

import importlib
from typing import Any

from conformance.settings import UsageError


def runtime(module: str, package: str = "modality") -> Any:  # noqa: ANN401 - a module of the library
    """Return a module of the modality library, or of another package beside it.

    Raises:
        UsageError: it is not installed.

    """
    try:
        return importlib.import_module(f"reference_plugins.{package}.{module}")
    except ModuleNotFoundError:
        raise UsageError(
            "plugins of a modality are certified with the library that calls them, which is not "
            "installed: pip install vllm-reference-plugins."
        ) from None
