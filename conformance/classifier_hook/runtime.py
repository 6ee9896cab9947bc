# SPDX-License-Identifier: Apache-2.0
"""The runtime that calls hooks, which no vLLM has: that of the reference plugins."""

from __future__ import annotations

import importlib
from typing import Any

from conformance.settings import UsageError


def runtime(module: str) -> Any:  # noqa: ANN401 - a module of the runtime
    """Return a module of the runtime that scores completions.

    Raises:
        UsageError: it is not installed.

    """
    try:
        return importlib.import_module(f"reference_plugins.classifier_hook.{module}")
    except ModuleNotFoundError:
        raise UsageError(
            "classifier hooks are certified with the runtime that calls them, which is not "
            "installed: pip install vllm-reference-plugins."
        ) from None
