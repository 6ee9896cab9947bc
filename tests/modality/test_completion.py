# SPDX-License-Identifier: Apache-2.0
"""Plugins and models as the article writes them."""

# ruff: noqa: ANN401, D102 - classes as the article writes them
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reference_plugins.modality.completion import Completed, completed
from reference_plugins.modality.interface import MultiModalConfig
from reference_plugins.modality.point_clouds import PointCloudPlugin as ReferencePlugin
from reference_plugins.modality.registry import MultiModalRegistry


class DepthMapPlugin:
    """The article's three methods, and nothing else."""

    def parse_input(self, data: Any) -> Any:
        return np.asarray(data, dtype=np.float32)

    def validate(self, data: Any, _limits: Any) -> None:
        if any(item.size > 100 for item in data):
            raise ValueError("too large")

    def get_max_per_prompt(self, _model_config: Any) -> int:
        return 5


class Model:
    """Declares its modalities in a method of an instance, as the article's models do."""

    def get_multimodal_config(self) -> MultiModalConfig:
        return MultiModalConfig(modalities=["depth_map"], max_depth_map_per_prompt=2)


@pytest.fixture
def registry() -> MultiModalRegistry:
    """A registry with the plugin and the model."""
    made = MultiModalRegistry()
    made.register_plugin(DepthMapPlugin())  # type: ignore[arg-type] # the rest has defaults
    made.register_model("depth", Model)  # type: ignore[arg-type] # no class method
    return made


def test_the_registry_answers_the_question_of_the_article(registry: MultiModalRegistry) -> None:
    """`has_modality("image")?`, of any model or of one."""
    assert registry.has_modality("depth_map")
    assert registry.has_modality("depth_map", "depth")
    assert not registry.has_modality("image")


def test_the_configuration_of_the_article_is_taken() -> None:
    """Without recipes, and with placeholder tokens that no tokenizer makes."""
    config = MultiModalConfig(
        modalities=["image", "video"], max_image_per_prompt=5, max_video_per_prompt=1
    )

    assert config.max_per_prompt == {"image": 5, "video": 1}
    assert config.recipes == {"image": None, "video": None}
    assert config.placeholder_tokens == {"image": -1, "video": -2}


def test_what_is_missing_follows_from_what_is_there(registry: MultiModalRegistry) -> None:
    """The name, the hash, the arrays and the counts."""
    config = registry.get_model_config("depth", max_model_len=100)
    plugin = registry.get_plugin("depth_map", "depth")
    item = plugin.parse_input([[1, 2], [3, 4], [5, 6]])
    plugin.validate([item], plugin.limits)

    assert (plugin.modality, plugin.part_types) == ("depth_map", ("depth_map",))
    assert plugin.get_max_per_prompt(config) == 2  # the model's, where the plugin has five
    assert item.content_hash == plugin.parse_input(np.array(item.value)).content_hash
    assert item.content_hash != plugin.parse_input([[1, 2], [3, 4], [5, 7]]).content_hash
    features = plugin.preprocess(item, config)
    assert features["depth_map"].shape == (3, 2)
    assert plugin.estimate_tokens(item, config) == plugin.count_tokens(features, config) == 3
    with pytest.raises(ValueError, match="too large"):
        plugin.validate([plugin.parse_input(np.zeros((11, 10)))], plugin.limits)


def test_a_complete_plugin_stays_as_it_is() -> None:
    """Nothing is put around a plugin that has every member."""
    plugin = ReferencePlugin()

    assert completed(plugin) is plugin
    assert isinstance(completed(DepthMapPlugin()), Completed)
