# SPDX-License-Identifier: Apache-2.0
"""What every model can take, declared by the models and asked before anything costs."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Protocol

from reference_plugins.modality.completion import completed
from reference_plugins.modality.errors import InputError
from reference_plugins.modality.interface import ModelConfig, MultiModalConfig, MultiModalPlugin

if TYPE_CHECKING:
    from collections.abc import Mapping


class MultiModalModel(Protocol):
    """The part of a model class that the registry asks."""

    @classmethod
    def get_multimodal_config(cls) -> MultiModalConfig:
        """Declare modalities, limits, recipes and placeholder tokens."""


def _declared(model: type[MultiModalModel]) -> MultiModalConfig:
    """Return what a model class declares; the article's models do so in a method of an instance."""
    if inspect.isfunction(inspect.getattr_static(model, "get_multimodal_config", None)):
        return model.__new__(model).get_multimodal_config()
    return model.get_multimodal_config()


class MultiModalRegistry:
    """Plugins by modality, and models by name.

    A modality is registered once and serves every model that declares it:

        registry = MultiModalRegistry()
        registry.register_plugin(ImagePlugin())
        registry.register_model("llava-1.5", Llava)
        registry.has_modality("image", "llava-1.5")
    """

    def __init__(self) -> None:
        self._plugins: dict[str, MultiModalPlugin[Any, Any]] = {}
        self._part_types: dict[str, str] = {}
        self._models: dict[str, MultiModalConfig] = {}

    def register_plugin(self, plugin: MultiModalPlugin[Any, Any]) -> None:
        """Add a modality.

        Raises:
            ValueError: another plugin has this modality, or reads one of these chat parts.

        """
        plugin = completed(plugin)
        if plugin.modality in self._plugins:
            raise ValueError(f"modality {plugin.modality!r} has a plugin already")
        for part_type in plugin.part_types:
            if part_type in self._part_types:
                owner = self._part_types[part_type]
                raise ValueError(f"chat parts of type {part_type!r} are read by {owner!r} already")
        self._plugins[plugin.modality] = plugin
        self._part_types |= dict.fromkeys(plugin.part_types, plugin.modality)

    def register_model(self, name: str, model: type[MultiModalModel]) -> None:
        """Ask a model class what it can take, and keep the answer.

        Raises:
            ValueError: the name is taken, or a declared modality has no plugin.

        """
        if name in self._models:
            raise ValueError(f"model {name!r} is registered already")
        config = _declared(model)
        if missing := [name for name in config.modalities if name not in self._plugins]:
            raise ValueError(
                f"model {name!r} declares {', '.join(missing)}, which no plugin serves: "
                f"register the plugin first"
            )
        self._models[name] = config

    def has_modality(self, modality: str, model: str | None = None) -> bool:
        """Tell whether a model, or any, takes a modality; asked before any other work is done."""
        models = self._models.values() if model is None else [self._models[model]]
        return any(modality in config.modalities for config in models)

    def get_plugin(self, modality: str, model: str) -> MultiModalPlugin[Any, Any]:
        """Return the plugin of a modality that a model takes.

        Raises:
            InputError: the model does not take it.

        """
        if not self.has_modality(modality, model):
            taken = ", ".join(self._models[model].modalities) or "text only"
            raise InputError(f"model {model!r} does not support {modality}; it supports {taken}")
        return self._plugins[modality]

    def get_modality(self, part_type: str) -> str | None:
        """Return the modality that chat parts of a type carry, or None where no plugin has it."""
        return self._part_types.get(part_type)

    def get_model_config(
        self,
        name: str,
        *,
        max_model_len: int,
        limit_mm_per_prompt: Mapping[str, int] | None = None,
        limits: Mapping[str, object] | None = None,
    ) -> ModelConfig:
        """Return a registered model as it is deployed.

        Raises:
            KeyError: no such model is registered.
            ValueError: a limit is about a modality that the model does not take.

        """
        config = self._models[name]
        for given in (limit_mm_per_prompt or {}), (limits or {}):
            if strange := [modality for modality in given if modality not in config.modalities]:
                raise ValueError(f"model {name!r} takes no {', '.join(strange)} to be limited")
        return ModelConfig(
            name=name,
            multimodal=config,
            max_model_len=max_model_len,
            limit_mm_per_prompt=limit_mm_per_prompt or {},
            limits=limits or {},
        )
