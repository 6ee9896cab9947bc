# SPDX-License-Identifier: Apache-2.0
"""Image files of strangers: what their header says, and their pixels as RGB.

Nothing is decoded until the size that the header declares has been judged, and only the decoder
that the first bytes call for is ever tried: Pillow knows dozens, and some start other programs.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from PIL import Image

from reference_plugins.modality.errors import InputError, decoding
from reference_plugins.modality.estimators import aspect_ratio

if TYPE_CHECKING:
    import numpy.typing as npt

#: A progressive JPEG has about ten scans. Each goes over the whole image again,
#: so a small file with thousands of them would keep a core busy for hours.
MAX_JPEG_SCANS = 64

#: Bytes of the oldest BMP header that names a compression, and the names of runs.
BMP_INFO_HEADER = 40
RUN_LENGTH = (b"\1\0\0\0", b"\2\0\0\0")

WHITE = (255, 255, 255, 255)

#: EXIF orientations, and what makes each upright. Those from 5 on lie on their side.
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
LYING = 5
ORIENTATION = 0x0112


@attrs.frozen
class ImageLimits:
    """What one image may be, before anything of it is decoded."""

    max_pixels: int = 7680 * 4320  #: an 8K picture, which takes 133 MB as RGBA
    max_side: int = 16_384
    max_aspect_ratio: float = 200.0  #: beyond this, models refuse to resize
    encodings: frozenset[str] = frozenset({"PNG", "JPEG", "WEBP", "GIF", "BMP"})

    def check_size(self, height: int, width: int) -> None:
        """Refuse an image by its size.

        Raises:
            InputError: it has no area, too large an area, or too long a side.

        """
        ratio = aspect_ratio(height, width)
        if height * width > self.max_pixels:
            raise InputError(
                f"the image is {width} x {height} pixels, which is {height * width}, "
                f"of which {self.max_pixels} may be"
            )
        if max(height, width) > self.max_side:
            raise InputError(
                f"the image is {width} x {height} pixels; a side may have {self.max_side}"
            )
        if ratio > self.max_aspect_ratio:
            raise InputError(
                f"the image is {width} x {height} pixels; its longer side may be "
                f"{self.max_aspect_ratio:g} times the shorter"
            )

    def check_encoding(self, encoding: str) -> None:
        """Refuse an image by its encoding; raw pixels have none.

        Raises:
            InputError: the encoding is not among those allowed.

        """
        if encoding not in {"raw", *self.encodings}:
            allowed = ", ".join(sorted(self.encodings))
            raise InputError(f"{encoding} images are not read, only {allowed}")


def encoding_of(content: bytes) -> str | None:
    """Return the encoding that the first bytes of a file announce, or None."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if content.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "WEBP"
    if content.startswith(b"BM"):
        return "BMP"
    return None


def opened(content: bytes, encoding: str, limits: ImageLimits) -> Any:  # noqa: ANN401  # see below
    """Return a file as a Pillow image of which only the header has been read.

    Pillow's types are `Any` where it is not installed, as where this code is type-checked.

    Raises:
        InputError: it is broken, has no area, or is too large.

    """
    if encoding == "JPEG" and (scans := content.count(b"\xff\xda")) > MAX_JPEG_SCANS:
        raise InputError(f"the JPEG has {scans} scans, of which {MAX_JPEG_SCANS} may be")
    if encoding == "BMP" and _is_run_length(content):
        raise InputError("the BMP is compressed, which is not read")
    with decoding(f"the {encoding} file"):
        image = Image.open(io.BytesIO(content), formats=(encoding,))
        width, height = image.size
    limits.check_size(height, width)
    return image


def _is_run_length(content: bytes) -> bool:
    """Tell whether the pixels of a BMP are runs, which Pillow reads one by one, in Python."""
    header = int.from_bytes(content[14:18], "little")
    return header >= BMP_INFO_HEADER and content[30:34] in RUN_LENGTH


def orientation_of(image: Any) -> int:  # noqa: ANN401  # a Pillow image
    """Return the EXIF orientation of an opened image; 1, upright, where there is none."""
    block = image.info.get("exif")
    if not block:
        return 1
    exif = Image.Exif()
    try:
        exif.load(block)
        orientation = exif.get(ORIENTATION, 1)
    # Broken metadata beside good pixels are no reason to refuse, and parsers of EXIF raise
    # whatever the bytes lead them to.
    except Exception:  # noqa: BLE001 - see above
        return 1
    return orientation if orientation in UPRIGHT else 1


def upright(image: Any, orientation: int) -> Any:  # noqa: ANN401  # Pillow images
    """Return an image as a viewer shows it."""
    return image.transpose(UPRIGHT[orientation]) if orientation in UPRIGHT else image


def as_rgb(image: Any) -> Any:  # noqa: ANN401  # Pillow images
    """Return an image of mode RGB; what is transparent becomes white.

    Raises:
        InputError: its mode has no agreed meaning as a colour, such as floats or 32-bit integers.

    """
    if image.mode in {"I", "F"}:
        raise InputError(f"an image of mode {image.mode} has no colours")
    if image.mode.startswith("I;16"):
        # Pillow would clip here, and turn most of a 16-bit image white.
        samples = np.asarray(image).astype(np.uint16)
        return Image.fromarray((samples >> 8).astype(np.uint8)).convert("RGB")
    if image.mode[-1:] in {"A", "a"} or "transparency" in image.info:
        colours = image.convert("RGBA")
        colours = Image.alpha_composite(Image.new("RGBA", colours.size, WHITE), colours)
        return colours.convert("RGB")
    return image.convert("RGB")


def pixels_from_array(
    array: npt.NDArray[Any], layout: str, limits: ImageLimits, what: str
) -> npt.NDArray[np.uint8]:
    """Return a client's array as pixels ``[height, width, 3]``.

    Integers are bytes; floats go from 0 to 1 and become bytes, as in a file.

    Raises:
        InputError: another number of dimensions or channels, a value out of range, NaN, a size
            beyond the limits.

    """
    if array.ndim == 2:  # noqa: PLR2004  # height and width
        array = array[:, :, np.newaxis]
    elif array.ndim == 3 and layout == "CHW":  # noqa: PLR2004  # and channels
        array = array.transpose(1, 2, 0)
    if array.ndim != 3 or array.shape[2] not in {1, 3}:  # noqa: PLR2004  # grey or RGB
        raise InputError(
            f"{what} must be {layout} with 1 or 3 channels, or have two dimensions "
            f"(got shape {array.shape})"
        )
    limits.check_size(array.shape[0], array.shape[1])
    pixels = bytes_from(array, what)
    return np.broadcast_to(pixels, (*pixels.shape[:2], 3))


def bytes_from(array: npt.NDArray[Any], what: str) -> npt.NDArray[np.uint8]:
    """Return values from 0 to 255, or floats from 0 to 1, as bytes of the same shape.

    Raises:
        InputError: a value is out of range or NaN.

    """
    highest = 1 if array.dtype.kind == "f" else 255
    # Written so that NaN, which compares as neither, is refused as well.
    if not (array.min() >= 0 and array.max() <= highest):
        raise InputError(f"{what} must hold values from 0 to {highest} for dtype {array.dtype}")
    if array.dtype.kind == "f":
        array = np.rint(array * 255)
    return array.astype(np.uint8)
