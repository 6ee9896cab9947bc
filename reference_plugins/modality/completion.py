# SPDX-License-Identifier: Apache-2.0
"""Plugins with the three methods of the article, made complete by what follows from them.

The article's interface is `parse_input`, `validate` and `get_max_per_prompt`, and its plugins
have a `preprocess`. What else the pipeline asks of a plugin has a default here:

    modality         the class's name: `PointCloudPlugin` is of `point_cloud`
    part_types       a chat part of the modality's own name
    limits           None
    content_hash     of what `parse_input` returned
    preprocess       what `parse_input` returned, as an array
    count_tokens     the rows of the first array
    estimate_tokens  the count of the item's own arrays
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from reference_plugins.modality.errors import InputError
from reference_plugins.modality.fingerprints import fingerprint

if TYPE_CHECKING:
    from reference_plugins.modality.arrays import Features
    from reference_plugins.modality.interface import ModelConfig, MultiModalPlugin

#: What the pipeline asks of a plugin besides the article's methods.
MORE = ("modality", "part_types", "limits", "preprocess", "estimate_tokens", "count_tokens")


def completed(plugin: Any) -> MultiModalPlugin[Any, Any]:  # noqa: ANN401 - with some of the members
    """Return the plugin, with defaults for members that it does not have."""
    if all(hasattr(plugin, name) for name in MORE):
        complete: MultiModalPlugin[Any, Any] = plugin
        return complete
    return Completed(plugin)


@attrs.frozen
class Parsed:
    """An item whose class knows no hash, and its hash."""

    value: Any
    content_hash: str = attrs.field(init=False)

    @content_hash.default
    def _of_the_value(self) -> str:
        return fingerprint("parsed", self.value)


@attrs.frozen(eq=False)
class Completed:
    """A plugin, and defaults for what it does not have."""

    plugin: Any

    @property
    def modality(self) -> str:
        """The name by which models declare the modality."""
        name = type(self.plugin).__name__.removesuffix("Plugin")
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        return getattr(self.plugin, "modality", snake)

    @property
    def part_types(self) -> Sequence[str]:
        """The types of chat parts that carry it."""
        return getattr(self.plugin, "part_types", (self.modality,))

    @property
    def limits(self) -> Any:  # noqa: ANN401 - a plugin's own
        """What one item may be, as `validate` takes it."""
        return getattr(self.plugin, "limits", None)

    def get_max_per_prompt(self, model_config: ModelConfig) -> int:
        """Return how many items a prompt may have: no more than the model and its deployment do."""
        own: int = self.plugin.get_max_per_prompt(model_config)
        if hasattr(self.plugin, "modality"):
            return own
        return min(own, model_config.get_max_per_prompt(self.modality))

    def parse_input(self, data: object) -> Any:  # noqa: ANN401 - an item
        """Return an item with a hash.

        Raises:
            InputError: the plugin raised ``ValueError``, by which the article's plugins refuse.

        """
        item = _refusing(self.plugin.parse_input, data)
        return item if hasattr(item, "content_hash") else Parsed(item)

    def validate(self, data: Sequence[Any], limits: Any) -> None:  # noqa: ANN401 - a plugin's own
        """Refuse items that are too large, too long, or of a kind not allowed.

        Raises:
            InputError: the plugin raised ``ValueError``.

        """
        _refusing(self.plugin.validate, [_own(item) for item in data], limits)

    def preprocess(self, data: Any, model_config: ModelConfig) -> Features:  # noqa: ANN401 - an item
        """Return an item's arrays by name."""
        value = _own(data)
        if method := getattr(self.plugin, "preprocess", None):
            value = method(value, model_config) if _takes_two(method) else method(value)
        if isinstance(value, Mapping):
            return value
        return {self.modality: np.asarray(value)}

    def count_tokens(self, features: Features, model_config: ModelConfig) -> int:
        """Return how many embeddings the encoder makes of an item's arrays."""
        if method := getattr(self.plugin, "count_tokens", None):
            count: int = method(features, model_config)
            return count
        first = next(iter(features.values()), np.empty(0))
        return int(first.shape[0]) if first.ndim else 1

    def estimate_tokens(self, data: Any, model_config: ModelConfig) -> int:  # noqa: ANN401 - an item
        """Return how many tokens an item will take."""
        if method := getattr(self.plugin, "estimate_tokens", None):
            estimate: int = method(_own(data), model_config)
            return estimate
        return self.count_tokens(self.preprocess(data, model_config), model_config)


def _refusing(method: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - a plugin's
    """Call a method that refuses with ``ValueError``."""
    try:
        return method(*arguments)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(str(error)) from error


def _own(item: Any) -> Any:  # noqa: ANN401 - an item
    """Return an item as the plugin itself parsed it."""
    return item.value if isinstance(item, Parsed) else item


def _takes_two(method: Any) -> bool:  # noqa: ANN401 - any callable
    """Tell whether a method takes a second argument by position."""
    try:
        inspect.signature(method).bind(None, None)
    except TypeError:
        return False
    return True
