# SPDX-License-Identifier: Apache-2.0
"""Items that the profiles of these plugins name: ones that are to be taken, and to be refused."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    import numpy.typing as npt

_RATE = 16_000
_ORIENTATION = 0x0112  #: EXIF's tag


def mirrored_on_its_side() -> bytes:
    """Return a JPEG of the first orientation of those in which width and height change places."""
    exif = Image.Exif()
    exif[_ORIENTATION] = 5
    file = io.BytesIO()
    Image.linear_gradient("L").resize((60, 30)).convert("RGB").save(file, "JPEG", exif=exif)
    return file.getvalue()


def one_sample() -> bytes:
    """Return a recording of a single sample."""
    return _wav(b"\x10\x20", 2)


def from_a_pipe() -> bytes:
    """Return a recording whose header was written when nobody knew how long it would be."""
    return _wav(b"\x10\x20" * 4_000, 0xFFFF_FFFF)


def _wav(samples: bytes, size: int) -> bytes:
    form = struct.pack("<HHIIHH", 1, 1, _RATE, 2 * _RATE, 2, 16)
    body = b"WAVE" + b"fmt " + struct.pack("<I", len(form)) + form
    body += b"data" + struct.pack("<I", size) + samples
    return b"RIFF" + struct.pack("<I", min(0xFFFF_FFFF, size + 36)) + body


def at_a_fraction() -> tuple[npt.NDArray[np.float32], float]:
    """Return a waveform whose rate is no whole number."""
    return np.linspace(-0.5, 0.5, 4_000, dtype=np.float32), 8_000.5


def cloud_as_text() -> bytes:
    """Return a cloud whose points are written as text."""
    points = "".join(f"{x} {x / 2} {1 - x}\n" for x in range(20))
    head = "ply\nformat ascii 1.0\nelement vertex 20\n"
    return (
        f"{head}property float x\nproperty float y\nproperty float z\nend_header\n{points}".encode()
    )


def frames_without_colours() -> npt.NDArray[np.uint8]:
    """Return frames of which each is a number for each pixel."""
    return np.full((4, 24, 32), 7, dtype=np.uint8)
