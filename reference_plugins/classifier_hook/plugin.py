# SPDX-License-Identifier: Apache-2.0
"""The ``vllm.general_plugins`` entry point: gives ``AsyncLLM`` its hooks, where there is one.

vLLM loads general plugins in every process: engine cores, workers, and the one that inspects a
model's class.  Only front ends have an ``AsyncLLM``; elsewhere nothing is imported, and what is
left behind is one entry in ``sys.meta_path``.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

#: Where vLLM defines ``AsyncLLM``.
MODULE = "vllm.v1.engine.async_llm"


def install() -> None:
    """Give ``AsyncLLM`` the hooks, now if it is imported, else when it is; may be called again.

    Raises:
        MountRefused: hooks are configured, and this vLLM or its settings leave no place for them.
        ConfigurationRefused: what the operator wrote cannot be followed.

    """
    from reference_plugins.classifier_hook.configuration import configured

    expected = bool(configured().factories)
    if expected:
        _check_front_end()
    module = sys.modules.get(MODULE)
    if module is not None and hasattr(module, "AsyncLLM"):
        _mount(module)
    elif not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())


def _check_front_end() -> None:
    from reference_plugins.classifier_hook.mount import MountRefused

    if os.environ.get("VLLM_USE_RUST_FRONTEND", "0") not in ("", "0"):
        raise MountRefused(
            "classifier hooks are configured, but VLLM_USE_RUST_FRONTEND is set: that front end "
            "has no AsyncLLM, and answers would go out unscored"
        )


def _mount(module: ModuleType) -> None:
    from reference_plugins.classifier_hook.mount import mount

    mount(module.AsyncLLM)


class _Watcher(importlib.abc.MetaPathFinder):
    """Waits for the import of one module, and goes away with it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            _mount_after(spec.loader)
        return spec


def _mount_after(loader: Any) -> None:  # noqa: ANN401 - loaders have no common class
    execute: Callable[[ModuleType], None] = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        _mount(module)

    loader.exec_module = exec_module
