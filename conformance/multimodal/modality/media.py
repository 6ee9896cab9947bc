# SPDX-License-Identifier: Apache-2.0
"""Files and arrays of the modalities that the harness knows, made on the spot."""

from __future__ import annotations

import base64
import io
import struct
import wave
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

RATE = 16_000

MIME: Mapping[str, str] = {
    "image": "image/png",
    "audio": "audio/wav",
    "video": "image/gif",
    "point_cloud": "application/octet-stream",
}


def base64_of(content: bytes) -> str:
    """Return a file as a text in base64."""
    return base64.b64encode(content).decode()


def data_url(content: bytes, mime: str) -> str:
    """Return a file as a data URL."""
    return f"data:{mime};base64,{base64_of(content)}"


#: How the content of a file can be handed over, the usual ones first.
FORMS: Mapping[str, Callable[[bytes, str], Any]] = {
    "bytes": lambda content, _: content,
    "data URL": data_url,
    "mapping with a data URL": lambda content, mime: {"url": data_url(content, mime)},
    "mapping with base64": lambda content, _: {"data": base64_of(content)},
    "bytearray": lambda content, _: bytearray(content),
    "memoryview": lambda content, _: memoryview(content),
    "base64": lambda content, _: base64_of(content),
}


def pixels(height: int, width: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Return random pixels ``[height, width, 3]``."""
    # Nothing that is made from this is secret.
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def encoded(picture: Any, encoding: str, **options: Any) -> bytes:  # noqa: ANN401 - Pillow's
    """Return a Pillow image as a file."""
    buffer = io.BytesIO()
    picture.save(buffer, encoding, **options)
    return buffer.getvalue()


def picture(height: int, width: int, encoding: str = "PNG", seed: int = 0) -> bytes:
    """Return an image file of random pixels."""
    options = {"lossless": True} if encoding == "WEBP" else {}
    return encoded(Image.fromarray(pixels(height, width, seed)), encoding, **options)


def palette(colour: int, height: int = 24, width: int = 24) -> bytes:
    """Return a PNG of four colours in its palette, one of which can be chosen."""
    image = Image.new("P", (width, height))
    image.putdata([index % 4 for index in range(height * width)])
    image.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, colour])
    return encoded(image, "PNG")


def turned(orientation: int, height: int = 30, width: int = 60) -> bytes:
    """Return a JPEG with an EXIF orientation; its pixels are always the same."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(Image.fromarray(pixels(height, width)), "JPEG", exif=exif.tobytes())


def film(
    frames: int, height: int = 24, width: int = 32, encoding: str = "GIF", seed: int = 0
) -> bytes:
    """Return an animation; each frame is of one grey, so that any encoding keeps it."""
    greys = np.random.default_rng(seed).permutation(256)[np.arange(frames) % 256]
    pictures = [Image.new("RGB", (width, height), (int(grey),) * 3) for grey in greys]
    options: dict[str, Any] = {"lossless": True} if encoding == "WEBP" else {}
    return encoded(
        pictures[0], encoding, save_all=True, append_images=pictures[1:], duration=100, **options
    )


def frames(count: int, height: int = 24, width: int = 32, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Return random frames ``[count, height, width, 3]``."""
    return np.stack([pixels(height, width, seed * 1000 + number) for number in range(count)])


def tone(samples: int, seed: int = 0) -> npt.NDArray[np.int16]:
    """Return a tone with some noise ``[samples]``, as 16-bit integers."""
    draw = np.random.default_rng(seed)
    waves = 0.4 * np.sin(2 * np.pi * (200 + 40 * seed) * np.arange(samples) / RATE)
    noisy = waves + draw.uniform(-0.1, 0.1, samples)
    return np.rint(noisy * 32_767).astype(np.int16)


def floats(waveform: npt.NDArray[np.int16]) -> npt.NDArray[np.float32]:
    """Return 16-bit integers as floats from -1 to 1."""
    return waveform.astype(np.float32) / np.float32(2**15)


def wav(waveform: npt.NDArray[Any], rate: int = RATE) -> bytes:
    """Return a WAV file of numbers ``[samples]`` as 16-bit integers."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(waveform.astype("<i2").tobytes())
    return buffer.getvalue()


def wav_of_floats(waveform: npt.NDArray[Any]) -> bytes:
    """Return a WAV file of 32-bit floats ``[samples]``, which may be none that are finite."""
    samples = waveform.astype("<f4").tobytes()
    form = struct.pack("<HHIIHH", 3, 1, RATE, RATE * 4, 4, 32)
    body = b"WAVE" + _chunk(b"fmt ", form) + _chunk(b"data", samples)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def wav_declaring(samples: int, rate: int = RATE) -> bytes:
    """Return a WAV whose header declares a length, of which hardly anything is there."""
    form = struct.pack("<HHIIHH", 1, 1, rate, rate * 2, 2, 16)
    body = b"WAVE" + _chunk(b"fmt ", form) + b"data" + struct.pack("<I", samples * 2) + bytes(64)
    return b"RIFF" + struct.pack("<I", samples * 2 + 36) + body


def _chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content


def points(count: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """Return random points ``[count, 3]``."""
    return np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32)


def ply(cloud: npt.NDArray[Any], *, text: bool = False, declared: int | None = None) -> bytes:
    """Return a PLY file of points ``[points, 3]``, whose header may declare another number."""
    kind = "ascii" if text else "binary_little_endian"
    header = (
        f"ply\nformat {kind} 1.0\nelement vertex {len(cloud) if declared is None else declared}\n"
        "property float x\nproperty float y\nproperty float z\nend_header\n"
    ).encode()
    if text:
        return header + "".join(f"{x!r} {y!r} {z!r}\n" for x, y, z in cloud.tolist()).encode()
    return header + np.asarray(cloud, dtype="<f4").tobytes()


def png_declaring(height: int, width: int) -> bytes:
    """Return a grey PNG whose header declares a size, and which has no pixels."""
    return _png(height, width, zlib.compress(b"", 1))


def black(height: int, width: int) -> bytes:
    """Return a grey PNG of black pixels, small as a file however large it is."""
    squeeze = zlib.compressobj(1)
    row = bytes(width + 1)
    rows = b"".join(squeeze.compress(row) for _ in range(height)) + squeeze.flush()
    return _png(height, width, rows)


def _png(height: int, width: int, compressed: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _png_chunk(b"IHDR", header)
        + _png_chunk(b"IDAT", compressed)
        + _png_chunk(b"IEND", b"")
    )


def _png_chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)


def gif_of_many_frames(count: int) -> bytes:
    """Return a GIF of very many frames, each a few bytes long."""
    head = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    return head + frame * count + b";"


def gif_declaring(height: int, width: int) -> bytes:
    """Return a GIF whose header declares a canvas; its frames are tiny."""
    small = film(2, 8, 8)
    return small[:6] + struct.pack("<HH", width, height) + small[10:]
