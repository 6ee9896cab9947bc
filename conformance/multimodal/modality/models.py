# SPDX-License-Identifier: Apache-2.0
"""Models that want a modality, each with an encoder that says how many rows there really are.

They are classes as the interface has them: ``get_multimodal_config`` declares a recipe, and
``get_multimodal_embeddings`` takes the arrays of one item. The usual ones want small items of the
library's recipes; a profile may name another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from conformance.multimodal.modality.calls import runtime

Rows = npt.NDArray[Any]

#: The token that stands for an item, and items of a prompt.
PLACEHOLDER, MOST = 9_000, 8

#: Patches of 14 by 14, merged two by two; a tile has so many tokens.
PATCH, MERGE, TILE_TOKENS = 14, 2, 16


@attrs.frozen(eq=False)
class Model:
    """A model, as far as a modality is concerned."""

    name: str
    declare: Callable[[], Any]  #: returns what ``get_multimodal_config`` returns
    encode: Callable[[Mapping[str, Any]], Rows] | None  #: from the arrays of an item to its rows

    @property
    def get_multimodal_config(self) -> Callable[[], Any]:
        """What the registry asks a model class for."""
        return self.declare


def declaring(
    modality: str,
    recipe: object,
    *,
    most: int = MOST,
) -> Callable[[], Any]:
    """Return a function that declares one modality with a recipe."""
    return lambda: runtime("interface").MultiModalConfig(
        [modality],
        recipes={modality: recipe},
        placeholder_tokens={modality: PLACEHOLDER},
        **{f"max_{modality}_per_prompt": most},
    )


def usual(modality: str) -> tuple[Model, ...]:
    """Return the models that a known modality is tried with."""
    made = {"image": _pictures, "audio": _sounds, "video": _films, "point_cloud": _clouds}
    return tuple(
        Model(name, declaring(modality, recipe), encode)
        for name, recipe, encode in (made[modality]() if modality in made else ())
    )


def of_recipe(modality: str, recipe: object) -> Model:
    """Return a model with a recipe that nobody knows, and therefore without an encoder."""
    return Model(type(recipe).__name__, declaring(modality, recipe), None)


def of_class(cls: Any) -> Model:  # noqa: ANN401 - a model class of a profile
    """Return the model that a profile names."""
    instance = cache(cls)

    def declare() -> Any:  # noqa: ANN401 - a configuration
        try:
            return cls.get_multimodal_config()
        except TypeError:  # the document has it as a method of instances
            return instance().get_multimodal_config()

    def encode(features: Mapping[str, Any]) -> Rows:
        rows = as_array(instance().get_multimodal_embeddings(**features))
        return rows.reshape(-1, rows.shape[-1])

    has_encoder = hasattr(cls, "get_multimodal_embeddings")
    return Model(cls.__name__, declare, encode if has_encoder else None)


def as_array(value: Any) -> Rows:  # noqa: ANN401 - an array or a tensor
    """Return an array, or a tensor of whatever device and dtype, as an array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
    return np.asarray(value)


_Choice = tuple[str, Any, "Callable[[Mapping[str, Any]], Rows]"]


def _pictures() -> list[_Choice]:
    recipes = runtime("resolutions")
    tiled = recipes.TiledResolution(tile=56, max_tiles=4, tokens_per_tile=TILE_TOKENS)
    return [
        ("fixed", recipes.FixedResolution(side=56), _fixed_rows),
        ("dynamic", recipes.DynamicResolution(max_pixels=28 * 28 * 64), _dynamic_rows),
        ("tiled", tiled, _tile_rows),
    ]


def _patches(pixels: Rows, size: int) -> Rows:
    """Return the mean of every patch of ``[..., 3, height, width]``, as ``[patches, 3]``."""
    *_, height, width = pixels.shape
    cut = pixels.reshape(-1, 3, height // size, size, width // size, size)
    return np.asarray(cut.mean(axis=(3, 5)).transpose(0, 2, 3, 1).reshape(-1, 3))


def _fixed_rows(features: Mapping[str, Any]) -> Rows:
    return _patches(as_array(features["pixel_values"]), PATCH)


def _dynamic_rows(features: Mapping[str, Any]) -> Rows:
    return _patches(as_array(features["pixel_values"]), PATCH * MERGE)


def _tile_rows(features: Mapping[str, Any]) -> Rows:
    tiles = as_array(features["pixel_values"])
    return _patches(tiles, tiles.shape[-1] // int(TILE_TOKENS**0.5))


def _sounds() -> list[_Choice]:
    recipe = runtime("spectrograms").LogMel(mels=16)

    def rows(features: Mapping[str, Any]) -> Rows:
        frames = as_array(features["input_features"])
        padded = np.pad(frames, ((0, 0), (0, -frames.shape[1] % recipe.frames_per_token)))
        merged = padded.reshape(len(frames), -1, recipe.frames_per_token)
        return np.asarray(merged.mean(axis=2).T)

    return [("log-mel", recipe, rows)]


def _films() -> list[_Choice]:
    video, recipes = runtime("video"), runtime("resolutions")
    frames = recipes.DynamicResolution(max_pixels=56 * 56)

    def paired(features: Mapping[str, Any]) -> Rows:
        pixels = as_array(features["video_pixel_values"])
        if len(pixels) % MERGE:
            pixels = np.concatenate([pixels, pixels[-1:]])
        pairs = pixels.reshape(-1, MERGE, *pixels.shape[1:]).mean(axis=1)
        return _patches(pairs, PATCH * MERGE)

    def single(features: Mapping[str, Any]) -> Rows:
        return _patches(as_array(features["video_pixel_values"]), PATCH)

    return [
        ("pairs of frames", video.SampledFrames(4, frames, merge=MERGE), paired),
        ("frames", video.SampledFrames(3, recipes.FixedResolution(side=56)), single),
    ]


def _clouds() -> list[_Choice]:
    recipe = runtime("point_clouds").PointGroups(max_points=256, points_per_token=32)

    def rows(features: Mapping[str, Any]) -> Rows:
        points = as_array(features["points"])
        size = recipe.points_per_token
        starts = range(0, len(points), size)
        return np.stack([points[at : at + size].mean(axis=0) for at in starts])

    return [("groups", recipe, rows)]
