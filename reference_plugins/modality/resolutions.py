# SPDX-License-Identifier: Apache-2.0
"""What models make of an image: one size for all, its own size, or tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import attrs
import numpy as np
from PIL import Image

from reference_plugins.modality.arrays import bytes_to_unit, frozen_features
from reference_plugins.modality.estimators import (
    dynamic_size,
    dynamic_tokens,
    fixed_tokens,
    tile_grid,
    tiled_tokens,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from reference_plugins.modality.arrays import Features

Channels = tuple[float, float, float]
CLIP_MEAN: Channels = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD: Channels = (0.26862954, 0.26130258, 0.27577711)
IMAGENET_MEAN: Channels = (0.485, 0.456, 0.406)
IMAGENET_STD: Channels = (0.229, 0.224, 0.225)


@runtime_checkable
class ImageRecipe(Protocol):
    """How a model wants its images; a frozen attrs class, since it is part of every hash."""

    def estimate_tokens(self, height: int, width: int) -> int:
        """Return the tokens of an image of this size."""

    def preprocess(self, image: Any) -> Features:  # noqa: ANN401  # a Pillow image
        """Return the arrays of an RGB image."""

    def count_tokens(self, features: Features) -> int:
        """Return the tokens of these arrays."""


def normalized(
    image: Any,  # noqa: ANN401  # a Pillow image
    mean: Channels,
    std: Channels,
) -> npt.NDArray[np.float32]:
    """Return an RGB image as ``[3, height, width]``, less the mean and over the deviation."""
    unit = bytes_to_unit(np.asarray(image, dtype=np.uint8))
    values = (unit - np.array(mean, dtype=np.float32)) / np.array(std, dtype=np.float32)
    return np.ascontiguousarray(values.transpose(2, 0, 1))


@attrs.frozen
class FixedResolution:
    """Every image becomes a square of one size, as in LLaVA-1.5: always 576 tokens."""

    side: int = 336
    patch: int = 14
    mean: Channels = CLIP_MEAN
    std: Channels = CLIP_STD

    def estimate_tokens(self, height: int, width: int) -> int:
        """Return the tokens of any image."""
        return fixed_tokens(self.side, self.patch)

    def preprocess(self, image: Any) -> Features:  # noqa: ANN401  # a Pillow image
        """Return `pixel_values`, float32 ``[3, side, side]``."""
        square = image.resize((self.side, self.side), Image.Resampling.BICUBIC)
        return frozen_features({"pixel_values": normalized(square, self.mean, self.std)})

    def count_tokens(self, features: Features) -> int:
        """Return the tokens of `pixel_values`."""
        height, width = features["pixel_values"].shape[-2:]
        return int(height // self.patch) * int(width // self.patch)


@attrs.frozen
class DynamicResolution:
    """An image keeps its size, in multiples of merged patches, as in Qwen2-VL."""

    patch: int = 14
    merge: int = 2  #: patches along a side that become one token
    min_pixels: int = 56 * 56
    max_pixels: int = 28 * 28 * 1280
    mean: Channels = CLIP_MEAN
    std: Channels = CLIP_STD

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width to which an image is resized."""
        return dynamic_size(
            height,
            width,
            factor=self.patch * self.merge,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
        )

    def estimate_tokens(self, height: int, width: int) -> int:
        """Return the tokens of an image of this size."""
        return dynamic_tokens(*self.size(height, width), patch=self.patch, merge=self.merge)

    def preprocess(self, image: Any) -> Features:  # noqa: ANN401  # a Pillow image
        """Return `pixel_values`, float32 ``[3, H, W]``, and `image_grid_thw`, int64 ``[3]``.

        The grid counts frames, and patches down and across; of an image there is one frame.
        """
        width, height = image.size
        rows, columns = self.size(height, width)
        resized = image.resize((columns, rows), Image.Resampling.BICUBIC)
        grid = np.array([1, rows // self.patch, columns // self.patch], dtype=np.int64)
        return frozen_features(
            {
                "pixel_values": normalized(resized, self.mean, self.std),
                "image_grid_thw": grid,
            }
        )

    def count_tokens(self, features: Features) -> int:
        """Return the tokens of the grid."""
        return int(features["image_grid_thw"].prod()) // self.merge**2


@attrs.frozen
class TiledResolution:
    """An image is cut into tiles of one size, and seen once more as a whole, as in InternVL2."""

    tile: int = 448
    max_tiles: int = 12  #: the thumbnail not counted
    tokens_per_tile: int = 256
    thumbnail: bool = True  #: where there is more than one tile
    mean: Channels = IMAGENET_MEAN
    std: Channels = IMAGENET_STD

    def estimate_tokens(self, height: int, width: int) -> int:
        """Return the tokens of an image of this size."""
        rows, columns = self._grid(height, width)
        tiles = rows * columns + self._has_thumbnail(rows * columns)
        return tiled_tokens(tiles, per_tile=self.tokens_per_tile)

    def preprocess(self, image: Any) -> Features:  # noqa: ANN401  # a Pillow image
        """Return `pixel_values`, float32 ``[tiles, 3, tile, tile]``, row by row, thumbnail last."""
        width, height = image.size
        rows, columns = self._grid(height, width)
        size = (columns * self.tile, rows * self.tile)
        whole = normalized(image.resize(size, Image.Resampling.BICUBIC), self.mean, self.std)
        tiles = whole.reshape(3, rows, self.tile, columns, self.tile)
        stacked = tiles.transpose(1, 3, 0, 2, 4).reshape(-1, 3, self.tile, self.tile)
        if self._has_thumbnail(rows * columns):
            small = image.resize((self.tile, self.tile), Image.Resampling.BICUBIC)
            stacked = np.concatenate([stacked, normalized(small, self.mean, self.std)[np.newaxis]])
        return frozen_features({"pixel_values": stacked})

    def count_tokens(self, features: Features) -> int:
        """Return the tokens of the tiles."""
        return tiled_tokens(len(features["pixel_values"]), per_tile=self.tokens_per_tile)

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """Return the rows and columns of tiles."""
        return tile_grid(height, width, tile=self.tile, max_tiles=self.max_tiles)

    def _has_thumbnail(self, tiles: int) -> bool:
        """Tell whether the whole image is added to so many tiles."""
        return self.thumbnail and tiles > 1
