# SPDX-License-Identifier: Apache-2.0
"""The library whose interface plugins are held against."""

from __future__ import annotations

import importlib
from typing import Any


def runtime(module: str, package: str = "modality") -> Any:  # noqa: ANN401 - a module of the library
    """Return a module of the modality library, or of another package beside it; it needs numpy."""
    return importlib.import_module(f"reference_plugins.{package}.{module}")
