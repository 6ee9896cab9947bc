# SPDX-License-Identifier: Apache-2.0
"""The runtime that calls hooks, which no vLLM has: that of the reference plugins."""

from __future__ import annotations

import importlib
from typing import Any


def runtime(module: str) -> Any:  # noqa: ANN401 - a module of the runtime
    """Return a module of the runtime that scores completions; it imports vLLM."""
    return importlib.import_module(f"reference_plugins.classifier_hook.{module}")
