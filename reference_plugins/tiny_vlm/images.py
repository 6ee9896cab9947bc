# SPDX-License-Identifier: Apache-2.0
"""From images to patches: what transformers would call the model's processor."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from transformers import BatchFeature

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reference_plugins.tiny_vlm.configuration import TinyVlmConfig

_CHANNELS = (1, 3, 4)
_BRIGHTEST = 255.0


def grid(width: int, height: int, patch: int, most: int) -> tuple[int, int]:
    """Return the rows and columns of patches that an image becomes, at most *most* in all.

    An image that is too large is scaled down in proportion;
    of one that is very long only the long side keeps more than one patch.
    """
    scale = min(1.0, math.sqrt(most * patch * patch / (width * height)))
    rows = min(max(1, int(height * scale / patch)), most)
    columns = min(max(1, int(width * scale / patch)), most // rows)
    return rows, columns


class TinyVlmImageProcessor:
    """Cuts images into patches, each by itself: no image depends on those beside it."""

    def __init__(self, config: TinyVlmConfig) -> None:
        """Take the sizes of a configuration."""
        self.patch = config.patch_size
        self.most = config.max_patches

    def __call__(
        self,
        images: Sequence[Any],
        *,
        max_patches: int | None = None,
        return_tensors: str | None = None,
    ) -> BatchFeature:
        """Return the patches of all images, one after the other, and the grid of each.

        Args:
            images: PIL images, or arrays of bytes: height, width, colours, or colours first.
            max_patches: fewer patches for each image than the model allows.
            return_tensors: ``"pt"``, as vLLM asks for it.

        Returns:
            ``pixel_values``, float32 of shape (patches, 3 * patch * patch), between -1 and 1, and
            ``image_grids``, int64 of shape (images, 2): rows and columns.

        Raises:
            ValueError: an image has another form, or max_patches is no number from 1.

        """
        if return_tensors not in (None, "pt"):
            raise ValueError(f"return_tensors is {return_tensors!r}, and can only be 'pt'")
        # Memory is reserved for what the configuration allows: a request may ask for less.
        most = min(self.most, _number(max_patches)) if max_patches is not None else self.most
        pixels, grids = [], []
        for image in images:
            picture = _picture(image)
            width, height = picture.size
            rows, columns = grid(width, height, self.patch, most)
            pixels.append(self._patches(picture, rows, columns))
            grids.append((rows, columns))
        return BatchFeature({"pixel_values": torch.cat(pixels), "image_grids": torch.tensor(grids)})

    def _patches(self, picture: Image.Image, rows: int, columns: int) -> torch.Tensor:
        size = self.patch
        resized = picture.resize((columns * size, rows * size), Image.Resampling.BILINEAR)
        values = torch.from_numpy(np.asarray(resized, dtype=np.float32)) / _BRIGHTEST * 2 - 1
        cut = values.reshape(rows, size, columns, size, 3).permute(0, 2, 4, 1, 3)
        return cut.reshape(rows * columns, 3 * size * size)


def _number(value: object) -> int:
    # Clients send it: True is an int, and 0 would be no image at all.
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"max_patches must be a whole number from 1, not {value!r}")
    return value


def _picture(image: Any) -> Image.Image:  # noqa: ANN401 - what callers of LLM.generate pass
    if isinstance(image, Image.Image):
        return image.convert("RGB")
    array = np.asarray(image)
    # vLLM takes the last of three dimensions for the colours where it may be that.
    if array.ndim == 3 and array.shape[-1] not in _CHANNELS:  # noqa: PLR2004 - see above
        array = array.transpose(1, 2, 0)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[-1] != 3 or 0 in array.shape:  # noqa: PLR2004 - colours
        raise ValueError(
            "an image is a PIL image or an array of bytes with three colours, "
            f"not {array.dtype} of shape {array.shape}"
        )
    return Image.fromarray(np.ascontiguousarray(array))
