# SPDX-License-Identifier: Apache-2.0
"""What models declare, and how it is asked."""

from __future__ import annotations

import attrs
import pytest

from modality.deployments import EverythingModel, LlavaModel, registry
from reference_plugins.modality import (
    FixedResolution,
    ImagePlugin,
    InputError,
    LogMel,
    MultiModalConfig,
    MultiModalRegistry,
)


def declare(**changes: object) -> MultiModalConfig:
    """Return what a model of images declares, with changes."""
    declaration: dict[str, object] = {
        "modalities": ["image"],
        "recipes": {"image": FixedResolution()},
        "placeholder_tokens": {"image": 5},
    }
    return MultiModalConfig(**(declaration | changes))  # type: ignore[arg-type]  # some are wrong


def test_a_model_declares_what_it_takes() -> None:
    """The registry answers from the declaration of the model that is asked about."""
    known = registry()

    assert known.has_modality("image", "llava")
    assert not known.has_modality("audio", "llava")
    assert known.has_modality("audio", "everything")
    assert not known.has_modality("smell", "everything")


def test_a_modality_that_a_model_does_not_take_is_the_clients_error() -> None:
    """The sentence names the model, the modality and what the model takes instead."""
    with pytest.raises(InputError, match=r"'llava' does not support audio; it supports image$"):
        registry().get_plugin("audio", "llava")


def test_limits_are_declared_by_modality() -> None:
    """A modality with no limit of its own takes one item."""
    config = EverythingModel.get_multimodal_config()

    assert config.max_per_prompt == {"image": 2, "video": 2, "audio": 2, "point_cloud": 1}


@pytest.mark.parametrize(("deployed", "most"), [({}, 2), ({"image": 1}, 1), ({"image": 9}, 2)])
def test_a_deployment_can_only_lower_a_limit(deployed: dict[str, int], most: int) -> None:
    """Of model and deployment, the one that allows less decides."""
    config = registry().get_model_config("llava", max_model_len=100, limit_mm_per_prompt=deployed)

    assert ImagePlugin().get_max_per_prompt(config) == most


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"recipes": {"video": 1}}, "a recipe is declared for video, but the modalities are image"),
        ({"max_video_per_prompt": 1}, "maximum per prompt is declared for video, but the modal"),
        ({"max_image_per_prompt": -1}, "max_image_per_prompt must be 0 or more .got -1."),
        (
            {
                "modalities": ["image", "audio"],
                "recipes": {"image": FixedResolution(), "audio": LogMel()},
                "placeholder_tokens": {"image": 5, "audio": 5},
            },
            "two modalities share a placeholder token",
        ),
    ],
)
def test_a_declaration_is_whole(changes: dict[str, object], sentence: str) -> None:
    """What is missing or contradicts itself is said when the model declares it."""
    with pytest.raises(ValueError, match=sentence):
        declare(**changes)


def test_a_misspelt_keyword_is_no_limit() -> None:
    """A keyword of another form is refused as Python refuses it."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_images'"):
        declare(max_images=3)


def test_a_declaration_cannot_be_changed() -> None:
    """Neither its fields nor the mappings in them."""
    config = declare()

    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        config.modalities = ()  # type: ignore[misc]  # that is the point
    with pytest.raises(TypeError):
        config.recipes["image"] = None  # type: ignore[index]  # that is the point


def test_nothing_is_registered_twice() -> None:
    """A second plugin or model of a name would silently take the place of the first."""
    known = registry()

    with pytest.raises(ValueError, match="modality 'image' has a plugin already"):
        known.register_plugin(ImagePlugin())
    with pytest.raises(ValueError, match="model 'llava' is registered already"):
        known.register_model("llava", LlavaModel)


def test_chat_parts_have_one_reader() -> None:
    """Two modalities that read parts of one type would depend on the order of registration."""

    @attrs.frozen
    class Thermal(ImagePlugin):
        modality: str = attrs.field(default="thermal", init=False)

    with pytest.raises(ValueError, match="'image_url' are read by 'image' already"):
        registry().register_plugin(Thermal())


def test_a_model_needs_plugins_for_what_it_declares() -> None:
    """The gap shows when the model is registered, and not with the first request."""
    known = MultiModalRegistry()

    with pytest.raises(ValueError, match="'llava' declares image, which no plugin serves"):
        known.register_model("llava", LlavaModel)


def test_limits_of_modalities_that_a_model_does_not_take_are_a_mistake() -> None:
    """A deployment that limits the videos of LLaVA means another model."""
    with pytest.raises(ValueError, match="takes no video to be limited"):
        registry().get_model_config("llava", max_model_len=9, limit_mm_per_prompt={"video": 1})
