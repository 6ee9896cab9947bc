# SPDX-License-Identifier: Apache-2.0
"""Video files of strangers: what their headers say, and single frames of them.

Animated GIF and WebP are read with Pillow, everything else with PyAV, where it is installed.
Frames are decoded in order and one at a time, and dropped unless they are wanted:
a minute of video takes gigabytes once it is decoded.
"""

from __future__ import annotations

import importlib
import io
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs
from PIL import Image

from reference_plugins.modality.errors import InputError, MissingLibraryError, decoding
from reference_plugins.modality.pixels import ImageLimits, as_rgb, opened

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

#: What FFmpeg calls the containers that are read. It is told which one to use: left to find out,
#: it would also take a text file for a playlist, and open the URLs in it.
CONTAINERS = {"MP4": "mov", "MATROSKA": "matroska", "AVI": "avi"}
ANIMATIONS = frozenset({"GIF", "WEBP"})

#: Blocks of a GIF.
EXTENSION, PICTURE, TRAILER = 0x21, 0x2C, 0x3B
GRAPHIC_CONTROL = 0xF9
COLOUR_TABLE = 0x80  #: the flag that says one follows
HUNDREDTHS = 100


@attrs.frozen
class VideoLimits:
    """What one video may be, before anything of it is decoded."""

    max_frames: int = 18_000  #: ten minutes at thirty frames a second
    max_seconds: float = 600.0
    #: of all frames up to the last that is wanted: each of these has to be decoded
    max_decoded_pixels: int = 4_000_000_000
    max_raw_pixels: int = 200_000_000  #: of frames sent as arrays, which are kept as they are
    #: what one frame may be: 4K, since decoders keep a score of frames at a time
    picture: ImageLimits = attrs.field(factory=lambda: ImageLimits(max_pixels=4096 * 2304))
    encodings: frozenset[str] = ANIMATIONS | CONTAINERS.keys()

    def check(
        self, encoding: str, frames: int, height: int, width: int, seconds: float | None
    ) -> None:
        """Refuse a video by what its header says.

        Raises:
            InputError: its encoding, length, or the size of its frames is not allowed.

        """
        if encoding not in {"raw", *self.encodings}:
            allowed = ", ".join(sorted(self.encodings))
            raise InputError(f"{encoding} videos are not read, only {allowed}")
        if frames < 1:
            raise InputError("the video has no frames")
        self.picture.check_size(height, width)
        if frames > self.max_frames:
            raise InputError(f"the video has {frames} frames, of which {self.max_frames} may be")
        if seconds is not None and seconds > self.max_seconds:
            raise InputError(
                f"the video takes {seconds:.1f} seconds, of which {self.max_seconds:g} may be"
            )
        pixels = frames * height * width
        most = self.max_raw_pixels if encoding == "raw" else self.max_decoded_pixels
        if pixels > most:
            raise InputError(
                f"the video has {frames} frames of {width} x {height} pixels, together {pixels}, "
                f"of which {most} may be"
            )


@attrs.frozen
class VideoHeader:
    """What a video file says about itself; the frames are counted, not believed."""

    encoding: str
    frames: int
    height: int
    width: int
    seconds: float | None  #: None where the file does not say


def encoding_of(content: bytes) -> str | None:
    """Return the encoding that the first bytes of a file announce, or None."""
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "WEBP"
    if content.startswith(b"RIFF") and content[8:12] == b"AVI ":
        return "AVI"
    if content[4:8] == b"ftyp":
        return "MP4"
    if content.startswith(b"\x1aE\xdf\xa3"):
        return "MATROSKA"
    return None


def read_header(content: bytes, limits: VideoLimits) -> VideoHeader:
    """Return what a file says about itself, with every frame counted and none decoded.

    Raises:
        InputError: it is no video, or broken, or beyond the limits.
        MissingLibraryError: it takes a library that is not installed.

    """
    encoding = encoding_of(content)
    if encoding is None or encoding not in limits.encodings:
        allowed = ", ".join(sorted(limits.encodings))
        raise InputError(f"the file is no video that is read here ({allowed})")
    if encoding in ANIMATIONS:
        header = _animation_header(content, encoding, limits)
    else:
        header = _container_header(content, encoding, limits)
    limits.check(header.encoding, header.frames, header.height, header.width, header.seconds)
    return header


def read_frames(
    content: bytes, header: VideoHeader, wanted: Collection[int], limits: VideoLimits
) -> Iterator[Any]:
    """Yield the wanted frames of a file in order, as Pillow images of mode RGB.

    Raises:
        InputError: the file is broken, or its frames are fewer or of another size than it says.

    """
    if header.encoding in ANIMATIONS:
        frames = _animation_frames(content, header, limits)
    else:
        frames = _container_frames(content, header, limits)
    last = max(wanted)
    seen = 0
    for number, frame in enumerate(frames):
        if frame.width != header.width or frame.height != header.height:
            raise InputError(
                f"frame {number} of the {header.encoding} file is {frame.width} x {frame.height} "
                f"pixels, and its header says {header.width} x {header.height}"
            )
        if number in wanted:
            with decoding(f"frame {number} of the {header.encoding} file"):
                picture = as_rgb(frame) if isinstance(frame, Image.Image) else frame.to_image()
            yield picture
        seen += 1
        if number == last:
            return
    raise InputError(
        f"the {header.encoding} file is cut off: {seen} of {header.frames} frames are there"
    )


def _animation_header(content: bytes, encoding: str, limits: VideoLimits) -> VideoHeader:
    """Return what an animated GIF or WebP says about itself."""
    image = opened(content, encoding, limits.picture)
    if encoding == "GIF":
        try:
            frames, seconds = _gif_length(content, limits.max_frames)
        except (IndexError, struct.error) as error:
            raise InputError("the GIF file is cut off") from error
    else:
        frames, seconds = getattr(image, "n_frames", 1), None
    width, height = image.size
    return VideoHeader(encoding, frames, height, width, seconds)


def _gif_length(content: bytes, max_frames: int) -> tuple[int, float]:
    """Return the frames of a GIF and how many seconds they are shown.

    Pillow would go through all of them to answer, and a small file can have a million.
    Counting ends one beyond the limit. It would also make room for a frame beyond the canvas.
    """
    frames = hundredths = 0
    canvas = struct.unpack_from("<HH", content, 6)
    at = 13 + _colour_table(content[10])
    while frames <= max_frames and at < len(content) and content[at] != TRAILER:
        kind = content[at]
        if kind == EXTENSION:
            if content[at + 1] == GRAPHIC_CONTROL:
                hundredths += int.from_bytes(content[at + 4 : at + 6], "little")
            at += 2
        elif kind == PICTURE:
            left, top, width, height = struct.unpack_from("<HHHH", content, at + 1)
            if left + width > canvas[0] or top + height > canvas[1]:
                raise InputError(f"frame {frames} of the GIF file reaches beyond its canvas")
            frames += 1
            at += 11 + _colour_table(content[at + 9])
        else:
            raise InputError(f"the GIF file has an unknown block {kind:#04x} at byte {at}")
        while size := content[at]:
            at += size + 1
        at += 1
    return frames, hundredths / HUNDREDTHS


def _colour_table(flags: int) -> int:
    """Return how many bytes the colour table takes that these flags announce."""
    return 3 << (flags & 7) + 1 if flags & COLOUR_TABLE else 0


def _animation_frames(content: bytes, header: VideoHeader, limits: VideoLimits) -> Iterator[Any]:
    """Yield the frames of an animated GIF or WebP as Pillow images."""
    image = opened(content, header.encoding, limits.picture)
    for number in range(header.frames):
        with decoding(f"frame {number} of the {header.encoding} file"):
            image.seek(number)
            image.load()
        yield image


def _container_header(content: bytes, encoding: str, limits: VideoLimits) -> VideoHeader:
    """Return what the first video stream of a container says about itself."""
    with _opened(content, encoding, limits) as (container, stream):
        frames = 0
        with decoding(f"the {encoding} file"):
            # Packets instead of the number in the header: that one is often 0, and may be a lie.
            for packet in container.demux(stream):
                frames += bool(packet.size) and not packet.is_discard
                if frames > limits.max_frames:
                    break
        rate = stream.average_rate
        seconds = float(frames / rate) if rate else None
        return VideoHeader(encoding, frames, stream.height, stream.width, seconds)


def _container_frames(content: bytes, header: VideoHeader, limits: VideoLimits) -> Iterator[Any]:
    """Yield the frames of the first video stream of a container, as PyAV's."""
    with _opened(content, header.encoding, limits) as (container, stream):
        frames = container.decode(stream)
        while True:
            with decoding(f"the {header.encoding} file"):
                frame = next(frames, None)
            if frame is None:
                return
            yield frame


@contextmanager
def _opened(content: bytes, encoding: str, limits: VideoLimits) -> Iterator[tuple[Any, Any]]:
    """Open a container with PyAV, and blame the file for whatever goes wrong."""
    try:
        av = importlib.import_module("av")
    except ImportError as error:
        raise MissingLibraryError(
            f"{encoding} videos", "av", "animated GIF and WebP files and raw frames can be sent"
        ) from error
    # What the streams declare about themselves is not bound by what the container declares.
    options = {"max_pixels": str(limits.picture.max_pixels)}
    with decoding(f"the {encoding} file"):
        container = av.open(io.BytesIO(content), format=CONTAINERS[encoding], options=options)
    with container:
        stream = next(iter(container.streams.video), None)
        if stream is None:
            raise InputError(f"the {encoding} file has no video in it")
        if stream.codec_context is None:
            raise InputError(f"the {encoding} file is of a codec that cannot be read here")
        stream.codec_context.options = options
        yield container, stream
