# SPDX-License-Identifier: Apache-2.0
"""Images: files in the usual encodings, arrays and Pillow images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from PIL import Image

from reference_plugins.modality.arrays import as_array, frozen
from reference_plugins.modality.errors import InputError, decoding
from reference_plugins.modality.fingerprints import fingerprint
from reference_plugins.modality.pixels import (
    LYING,
    ImageLimits,
    as_rgb,
    encoding_of,
    opened,
    orientation_of,
    pixels_from_array,
    upright,
)
from reference_plugins.modality.resolutions import ImageRecipe
from reference_plugins.modality.sources import MediaAccess

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from reference_plugins.modality.arrays import Features
    from reference_plugins.modality.interface import ModelConfig


@attrs.frozen
class RawImage:
    """Pixels that a client hands over as an array or a tensor."""

    values: object  #: anything with `__array__`: bytes, or floats from 0 to 1
    layout: str = attrs.field(default="HWC", validator=attrs.validators.in_(("HWC", "CHW")))


@attrs.frozen
class ImageItem:
    """One image: a file of which the header is known, or pixels."""

    encoding: str  #: such as `PNG`, or `raw`
    height: int  #: as a viewer shows it
    width: int
    orientation: int  #: EXIF's; 1 is upright
    content: bytes | npt.NDArray[np.uint8] = attrs.field(repr=False, eq=False)
    content_hash: str


@attrs.frozen
class ImagePlugin:
    """The modality `image`; models want it by an `ImageRecipe`, see `resolutions.py`."""

    access: MediaAccess = attrs.field(factory=MediaAccess)
    limits: ImageLimits = attrs.field(factory=ImageLimits)
    modality: str = attrs.field(default="image", init=False)
    part_types: tuple[str, ...] = attrs.field(default=("image_url",), init=False)

    def get_max_per_prompt(self, model_config: ModelConfig) -> int:
        """Return how many images model and deployment allow."""
        return model_config.get_max_per_prompt(self.modality)

    def parse_input(self, data: object) -> ImageItem:
        """Return an image from a file, an array or a Pillow image, of which no pixel is decoded.

        Raises:
            InputError: it cannot be had, is no image, or is beyond the limits of this plugin.

        """
        if isinstance(data, np.ndarray):
            data = RawImage(data)
        if isinstance(data, RawImage):
            return self._from_array(data)
        if isinstance(data, Image.Image):
            return self._from_pillow(data)
        return self._from_file(self.access.load(data))

    def validate(self, data: Sequence[ImageItem], limits: ImageLimits) -> None:
        """Refuse an image whose size or encoding is not allowed.

        Raises:
            InputError: the first such image, by its place.

        """
        for index, item in enumerate(data):
            try:
                limits.check_encoding(item.encoding)
                limits.check_size(item.height, item.width)
            except InputError as error:
                raise InputError(f"image[{index}]: {error}") from error

    def estimate_tokens(self, data: ImageItem, model_config: ModelConfig) -> int:
        """Return the tokens of an image from its height and width."""
        return self._recipe(model_config).estimate_tokens(data.height, data.width)

    def preprocess(self, data: ImageItem, model_config: ModelConfig) -> Features:
        """Decode an image, and return what the model's recipe makes of it.

        Raises:
            InputError: the file is broken behind its header.

        """
        return self._recipe(model_config).preprocess(self.decode(data))

    def count_tokens(self, features: Features, model_config: ModelConfig) -> int:
        """Return the tokens of what `preprocess` returned."""
        return self._recipe(model_config).count_tokens(features)

    def decode(self, item: ImageItem) -> Any:  # noqa: ANN401  # Pillow's types are Any here
        """Return an image as a Pillow image of mode RGB, upright.

        Raises:
            InputError: the file is broken behind its header.

        """
        if not isinstance(item.content, bytes):
            return Image.fromarray(item.content)
        image = opened(item.content, item.encoding, self.limits)
        with decoding(f"the {item.encoding} file"):
            image.load()
            decoded = upright(as_rgb(image), item.orientation)
        if decoded.size != (item.width, item.height):
            raise InputError(f"the {item.encoding} file changed its size while it was decoded")
        return decoded

    def _recipe(self, model_config: ModelConfig) -> ImageRecipe:
        """Return how the model wants its images."""
        # A protocol at run time: mypy takes it for an abstract class, which nobody instantiates.
        return model_config.get_recipe(self.modality, ImageRecipe)  # type: ignore[type-abstract]

    def _from_file(self, content: bytes) -> ImageItem:
        """Return an image from the content of a file."""
        encoding = encoding_of(content)
        if encoding is None:
            allowed = ", ".join(sorted(self.limits.encodings))
            raise InputError(f"the file is no image that is read here ({allowed})")
        self.limits.check_encoding(encoding)
        image = opened(content, encoding, self.limits)
        orientation = orientation_of(image)
        width, height = image.size
        if orientation >= LYING:
            width, height = height, width
        return ImageItem(
            encoding=encoding,
            height=height,
            width=width,
            orientation=orientation,
            content=content,
            content_hash=fingerprint("image file", content),
        )

    def _from_array(self, raw: RawImage) -> ImageItem:
        """Return an image from an array, which its owner may change later."""
        array = as_array(raw.values, "the array", max_values=3 * self.limits.max_pixels)
        return self._from_pixels(
            pixels_from_array(array, raw.layout, self.limits, "the array"),
            # Two arrays that round to the same bytes give the same image, and may share a hash.
        )

    def _from_pillow(self, image: Any) -> ImageItem:  # noqa: ANN401  # a Pillow image
        """Return an image from a Pillow image, whatever its mode and palette."""
        width, height = image.size
        self.limits.check_size(height, width)
        with decoding("the image"):
            pixels = np.asarray(upright(as_rgb(image), orientation_of(image)))
        return self._from_pixels(pixels)

    def _from_pixels(self, pixels: npt.NDArray[np.uint8]) -> ImageItem:
        """Return an image from its pixels, ``[height, width, 3]``."""
        content = frozen(pixels)
        return ImageItem(
            encoding="raw",
            height=content.shape[0],
            width=content.shape[1],
            orientation=1,
            content=content,
            content_hash=fingerprint("image pixels", content),
        )
