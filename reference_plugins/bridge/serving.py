# SPDX-License-Identifier: Apache-2.0
"""What is served: plugins, and the model that wants their items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from reference_plugins.modality.arrays import frozen_features
from reference_plugins.modality.errors import EstimateError, InputError, PluginError
from reference_plugins.modality.registry import MultiModalRegistry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from reference_plugins.modality.arrays import Features
    from reference_plugins.modality.interface import Item, ModelConfig, MultiModalPlugin


@attrs.frozen(eq=False)
class Processed:
    """One item as the model is given it."""

    features: Features  #: arrays, by the names of the encoder's arguments
    tokens: int  #: embeddings that the encoder makes of them


@attrs.frozen(eq=False)
class Serving:
    """Plugins by modality, and the model."""

    name: str
    registry: MultiModalRegistry
    model: Any  #: an instance
    text: str  #: the architecture of the text model

    @classmethod
    def of(
        cls,
        name: str,
        plugins: Sequence[MultiModalPlugin[Any, Any]],
        model: type[Any],
        *,
        text: str,
    ) -> Serving:
        """Register plugins and a model.

        Raises:
            TypeError: the model has no dummy item.
            ValueError: the model declares a modality that no plugin serves.

        """
        if not callable(getattr(model, "get_dummy_item", None)):
            raise TypeError(
                f"{model.__name__} needs get_dummy_item(modality): vLLM reserves memory for the "
                "largest item there may be"
            )
        registry = MultiModalRegistry()
        for plugin in plugins:
            registry.register_plugin(plugin)
        registry.register_model(name, model)
        return cls(name, registry, model(), text)

    def config(self, max_model_len: int, limits: Mapping[str, int] | None = None) -> ModelConfig:
        """Return the model as it is deployed.

        Args:
            max_model_len: tokens of a prompt and its answer.
            limits: items per prompt that the deployment allows, by modality.

        """
        config = self.registry.get_model_config(self.name, max_model_len=max_model_len)
        known = {name: most for name, most in (limits or {}).items() if name in self.modalities}
        return attrs.evolve(config, limit_mm_per_prompt=known)

    @property
    def placeholder_tokens(self) -> Mapping[str, int]:
        """The token that stands for an item, by modality."""
        return self.config(1).multimodal.placeholder_tokens

    @property
    def modalities(self) -> tuple[str, ...]:
        """What the model declares."""
        config = self.registry.get_model_config(self.name, max_model_len=1)
        return config.multimodal.modalities

    def plugin(self, modality: str) -> MultiModalPlugin[Any, Any]:
        """Return the plugin of a modality that the model declares."""
        return self.registry.get_plugin(modality, self.name)

    def parse(self, modality: str, data: Sequence[Any], config: ModelConfig) -> list[Item]:
        """Return the items of one modality in a request: parsed, and within their limits.

        Raises:
            InputError: one is none, or beyond the limits of the plugin or the model.

        """
        plugin = self.plugin(modality)
        items = [
            _about(f"{modality}[{at}]", plugin.parse_input, one) for at, one in enumerate(data)
        ]
        plugin.validate(items, config.limits.get(modality, plugin.limits))
        total = sum(plugin.estimate_tokens(item, config) for item in items)
        if total > config.max_model_len:
            raise InputError(
                f"the items of {modality} would take {total} tokens, of which "
                f"{config.max_model_len} may be"
            )
        return items

    def process(self, modality: str, item: Item, config: ModelConfig) -> Processed:
        """Return what the model is given for one item.

        Raises:
            InputError: the item is broken behind its header.
            PluginError: the plugin counts no token, or more than it estimated.

        """
        plugin = self.plugin(modality)
        estimate = plugin.estimate_tokens(item, config)
        features = frozen_features(plugin.preprocess(item, config))
        tokens = plugin.count_tokens(features, config)
        if tokens < 1:
            raise PluginError(f"an item of {modality} must take a token or more (got {tokens})")
        if tokens > estimate:
            raise EstimateError(modality, 0, estimated=estimate, actual=tokens)
        return Processed(features, tokens)

    def encode(self, features: Features, tokens: int) -> npt.NDArray[Any]:
        """Return the embeddings of one item, ``[tokens, width]`` of whatever width.

        A model without an encoder gets the values of the first array, cut into as many rows.
        """
        encoder = getattr(self.model, "get_multimodal_embeddings", None)
        if encoder is not None:
            rows = encoder(**features)
            rows = np.asarray(rows.detach().cpu() if hasattr(rows, "detach") else rows)
            return rows.reshape(-1, rows.shape[-1])
        values = np.asarray(next(iter(features.values())), dtype=np.float32).reshape(-1)
        return np.pad(values, (0, -len(values) % tokens)).reshape(tokens, -1)


def _about(item: str, parse: Any, data: object) -> Item:  # noqa: ANN401 - a plugin's method
    try:
        parsed: Item = parse(data)
    except InputError as error:
        raise InputError(f"{item}: {error}") from error
    return parsed
