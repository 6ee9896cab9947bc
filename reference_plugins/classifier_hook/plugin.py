# SPDX-License-Identifier: Apache-2.0
"""The ``vllm.general_plugins`` entry point: gives engines their hooks, where there are any.

vLLM loads general plugins in every process: engine cores, workers, and the one that inspects a
model's class.  Only front ends have an ``AsyncLLM`` or an ``LLMEngine``; elsewhere nothing is
imported, and what is left behind is one entry in ``sys.meta_path``.
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

    from reference_plugins.classifier_hook.contract import ExternalClassifierHook

#: Where vLLM defines its engines, by module.
MODULES = {"vllm.v1.engine.async_llm": "AsyncLLM", "vllm.v1.engine.llm_engine": "LLMEngine"}


def install() -> None:
    """Give engines the hooks, those that are not imported yet when they are; may be called again.

    Raises:
        MountRefused: hooks are configured, and this vLLM or its settings leave no place for them.
        ConfigurationRefused: what the operator wrote cannot be followed.

    """
    from reference_plugins.classifier_hook.configuration import configured

    expected = bool(configured().factories)
    if expected:
        _check_front_end()
    waiting = set()
    for name, engine in MODULES.items():
        module = sys.modules.get(name)
        if module is not None and hasattr(module, engine):
            _mount(module)
        else:
            waiting.add(name)
    if waiting and not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher(waiting))


def add_default_hook(factory: Callable[[], ExternalClassifierHook]) -> None:
    """Let every engine that this process makes from now on have the hook that *factory* returns.

    To be called by a ``vllm.general_plugins`` entry point, which vLLM may call more than once:
    a factory that was added before is not added again.
    """
    from reference_plugins.classifier_hook.configuration import added

    if factory not in added:
        added.append(factory)
    install()


def _check_front_end() -> None:
    from reference_plugins.classifier_hook.mount import MountRefused

    if os.environ.get("VLLM_USE_RUST_FRONTEND", "0") not in ("", "0"):
        raise MountRefused(
            "classifier hooks are configured, but VLLM_USE_RUST_FRONTEND is set: that front end "
            "has no AsyncLLM, and answers would go out unscored"
        )


def _mount(module: ModuleType) -> None:
    from reference_plugins.classifier_hook.mount import mount

    mount(getattr(module, MODULES[module.__name__]))


class _Watcher(importlib.abc.MetaPathFinder):
    """Waits for the import of modules, and goes away with the last."""

    def __init__(self, waiting: set[str]) -> None:
        self._waiting = waiting

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._waiting:
            return None
        self._waiting.discard(name)
        sys.meta_path.remove(self)  # or it would find itself
        spec = importlib.util.find_spec(name)
        if self._waiting:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            _mount_after(spec.loader)
        return spec


def _mount_after(loader: Any) -> None:  # noqa: ANN401 - loaders have no common class
    execute: Callable[[ModuleType], None] = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        _mount(module)

    loader.exec_module = exec_module
