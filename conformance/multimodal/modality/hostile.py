# SPDX-License-Identifier: Apache-2.0
"""What clients send by mistake or to harm: nonsense, files cut off, NaN, bombs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from conformance.inputs import oddities, places
from conformance.multimodal.modality import media
from conformance.multimodal.modality.stock import KNOWN, Sample
from conformance.watching.comparison import shortened


class _Stranger:
    """An object that no API receives."""


def _whole(content: bytes, name: str, encoding: str, modality: str) -> Sample:
    return Sample(name, lambda: content, encoding, media.MIME.get(modality, "text/plain"))


#: Nothing that any modality could be: no file, no array.
_NO_FILES: tuple[tuple[str, Any], ...] = (
    ("None", None),
    ("7", 7),
    ("True", True),
    ("{}", {}),
    ("[]", []),
    ("a mapping with a number as its URL", {"url": 7}),
    ("a mapping with broken base64", {"data": "!!!"}),
    ("a data URL without a comma", "data:image/png;base64"),
    ("a data URL with broken base64", "data:image/png;base64,!!!"),
    ("no bytes at all", b""),
    ("one byte", b"\x89"),
    ("a web page", b"<html>not found</html>" * 20),
    ("a program", b"\x7fELF" + bytes(200)),
)


def nonsense(modality: str) -> tuple[Sample, ...]:
    """Return what no plugin of a modality can take for an item."""
    if modality not in KNOWN:
        # What an unknown modality is made of nobody knows, but not of this.
        return (Sample("an object of no known class", _Stranger),)
    common = [
        Sample(name, partial(_copy, value), "?" if isinstance(value, bytes) else "", "text/plain")
        for name, value in _NO_FILES
    ]
    others = [
        _whole(content, name, encoding, other)
        for name, encoding, other, content in (
            ("a picture", "PNG", "image", media.picture(9, 9)),
            ("a recording", "WAV", "audio", media.wav(media.tone(900))),
        )
        # A picture may count as a film of one frame.
        if other != modality and (other, modality) != ("image", "video")
    ]
    return (
        *common,
        Sample("an object of no known class", _Stranger),
        *others,
        *_misshapen(modality),
    )


def _copy(value: object) -> object:
    return type(value)(value) if isinstance(value, dict | list) else value


def _misshapen(modality: str) -> tuple[Sample, ...]:
    """Return arrays, and files, that hold nothing."""
    made: dict[str, tuple[tuple[str, Any], ...]] = {
        "image": (
            ("pixels [0, 10, 3]", np.zeros((0, 10, 3), np.uint8)),
            ("pixels [10, 0, 3]", np.zeros((10, 0, 3), np.uint8)),
            ("an array of words", np.array([["a", "b"], ["c", "d"]])),
            ("an array [2, 2, 2, 2, 2]", np.zeros((2, 2, 2, 2, 2), np.uint8)),
        ),
        "audio": (
            ("a waveform [0]", (np.zeros(0, np.float32), media.RATE)),
            ("a waveform at 0 Hz", (np.zeros(100, np.float32), 0)),
            ("a waveform at -8000 Hz", (np.zeros(100, np.float32), -8000)),
            ("a waveform [2, 2, 2]", (np.zeros((2, 2, 2), np.float32), media.RATE)),
        ),
        "video": (
            ("frames [0, 24, 32, 3]", np.zeros((0, 24, 32, 3), np.uint8)),
            ("frames [4, 0, 32, 3]", np.zeros((4, 0, 32, 3), np.uint8)),
            ("an array [3]", np.zeros(3, np.uint8)),
        ),
        "point_cloud": (
            ("points [0, 3]", np.zeros((0, 3), np.float32)),
            ("points [3]", np.zeros(3, np.float32)),
            ("points [4, 2]", np.zeros((4, 2), np.float32)),
        ),
    }
    files: dict[str, tuple[tuple[str, str, bytes], ...]] = {
        "image": (
            ("a PNG of no height", "PNG", media.png_declaring(0, 100)),
            ("a PNG of no width", "PNG", media.png_declaring(100, 0)),
            ("a PNG that is only a header", "PNG", media.picture(9, 9)[:33]),
        ),
        "audio": (("a WAV without samples", "WAV", media.wav(media.tone(0))),),
        "video": (("a GIF without frames", "GIF", media.gif_of_many_frames(0)),),
        "point_cloud": (
            ("a PLY of no points", "PLY", media.ply(media.points(0))),
            ("a PLY of less than no points", "PLY", media.ply(media.points(5), declared=-1)),
            ("a PLY that is only a header", "PLY", media.ply(media.points(5))[:40]),
        ),
    }
    return (
        *(
            Sample(name, value.copy if hasattr(value, "copy") else partial(tuple, value))
            for name, value in made[modality]
        ),
        *(_whole(content, name, encoding, modality) for name, encoding, content in files[modality]),
    )


def changed_in_one_place(samples: Sequence[Sample]) -> Iterator[Sample]:
    """Yield the first item that is lists or objects, with something else in each place of it."""
    for sample in samples:
        data = None if sample.encoding else sample.make()
        if not isinstance(data, list | dict) or not _as_json(data):
            continue
        for place, value in places.places(data):
            where = "".join(f"[{part!r}]" for part in place)
            for other in oddities.instead_of(value):
                if other is not oddities.DEEP_LIST and other is not oddities.DEEP_OBJECT:
                    name = f"{sample} with {shortened(other)} at data{where}"
                    yield Sample(name, partial(places.changed, data, place, other))
        return


def _as_json(data: object) -> bool:
    """Tell whether data are what JSON has, and so are what a client can write."""
    try:
        json.dumps(data)
    except (TypeError, ValueError):
        return False
    return True


def cut(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Return the files among samples without their second half."""
    found = []
    for sample in samples:
        content = sample.make() if sample.encoding else None
        if isinstance(content, bytes):
            half = content[: len(content) // 2]
            found.append(
                Sample(f"{sample}, cut in half", partial(bytes, half), sample.encoding, sample.mime)
            )
    return tuple(found)


def infinite(modality: str) -> tuple[Sample, ...]:
    """Return items with NaN and infinities in them."""
    tone = media.floats(media.tone(2_000))
    nan, large = tone.copy(), tone.copy()
    nan[1_000], large[1_000] = np.nan, np.inf
    cloud = media.points(20)
    cloud[3, 1] = np.nan
    image = media.pixels(20, 20).astype(np.float32) / 255
    image[3, 4, 1] = np.nan
    return {
        "image": (Sample("pixels with a NaN", image.copy),),
        "audio": (
            Sample("a waveform with a NaN", lambda: (nan.copy(), media.RATE)),
            Sample("a waveform with an infinity", lambda: (large.copy(), media.RATE)),
            _whole(media.wav_of_floats(nan), "a WAV with a NaN", "WAV", "audio"),
        ),
        "video": (Sample("frames with a NaN", lambda: np.stack([image, image])),),
        "point_cloud": (
            Sample("points with a NaN", cloud.copy),
            _whole(media.ply(cloud), "a PLY with a NaN", "PLY", "point_cloud"),
        ),
    }.get(modality, ())


def bombs(modality: str) -> tuple[Sample, ...]:
    """Return what is small to send and large to make: by its content or its header."""
    if modality == "image":
        return (
            Sample(
                "a PNG of 30000 x 30000, of which nothing is there",
                partial(media.png_declaring, 30_000, 30_000),
                "PNG",
                "image/png",
            ),
            Sample(
                "a PNG of 16000 x 14000 black pixels",
                partial(media.black, 14_000, 16_000),
                "PNG",
                "image/png",
            ),
            _whole(media.picture(1, 65_000), "a PNG of 65000 x 1", "PNG", "image"),
            _whole(media.picture(65_000, 1), "a PNG of 1 x 65000", "PNG", "image"),
            _whole(_dots(0.03), "a PNG of 9 x 9 at 0.03 dots per inch", "PNG", "image"),
        )
    if modality == "audio":
        return (
            Sample(
                "a WAV of 800 million samples, of which hardly any are there",
                partial(media.wav_declaring, 800_000_000),
                "WAV",
                "audio/wav",
            ),
            _whole(media.wav(media.tone(900), 1), "a WAV at 1 Hz", "WAV", "audio"),
            Sample("a waveform at 2147483647 Hz", partial(_fast, 2**31 - 1)),
        )
    if modality == "video":
        return (
            Sample(
                "a GIF of 600000 frames",
                partial(media.gif_of_many_frames, 600_000),
                "GIF",
                "image/gif",
            ),
            Sample(
                "a GIF of 65535 x 65535",
                partial(media.gif_declaring, 65_535, 65_535),
                "GIF",
                "image/gif",
            ),
        )
    if modality == "point_cloud":
        return (
            Sample(
                "a PLY of a quadrillion points",
                lambda: media.ply(media.points(5), declared=10**15),
                "PLY",
                media.MIME[modality],
            ),
            Sample(
                "a PLY of 90 million points, of which five are there",
                lambda: media.ply(media.points(5), declared=90_000_000),
                "PLY",
                media.MIME[modality],
            ),
            Sample("points a kilometre apart", _apart),
            _whole(media.ply(_apart()), "a PLY of points a kilometre apart", "PLY", modality),
        )
    return ()


def _dots(dots: float) -> bytes:
    from PIL import Image

    return media.encoded(Image.fromarray(media.pixels(9, 9)), "PNG", dpi=(dots, dots))


def _fast(rate: int) -> tuple[Any, int]:
    return media.floats(media.tone(900)), rate


def _apart() -> Any:  # noqa: ANN401 - an array
    return media.points(3) * np.float32(1_000)


def bulky(modality: str) -> tuple[Sample, ...]:
    """Return files that are small, allowed almost everywhere, and take 36 MB and more decoded."""
    if modality == "image":
        return (Sample("a PNG of 4000 x 3000", partial(_broad, 3_000, 4_000), "PNG", "image/png"),)
    if modality == "video":
        return (
            Sample(
                "a GIF of 60 frames, 700 x 500",
                partial(media.film, 60, 500, 700),
                "GIF",
                "image/gif",
            ),
        )
    return ()


def _broad(height: int, width: int) -> bytes:
    from PIL import Image

    return media.encoded(Image.new("RGB", (width, height), (90, 20, 10)), "PNG", compress_level=1)


def mutated(files: Sequence[Sample]) -> SearchStrategy[Sample]:
    """Return files with some bytes changed, taken away or added, and bytes of no kind."""

    def made(sample: Sample, edits: list[tuple[int, int, bytes]]) -> Sample:
        content = bytearray(sample.make())
        for at, length, new in edits:
            start = at % (len(content) + 1)
            content[start : start + length] = new
        return Sample(
            f"{sample}, damaged", partial(bytes, bytes(content)), sample.encoding, sample.mime
        )

    edits = st.lists(
        st.tuples(st.integers(0, 400), st.sampled_from([0, 1, 4, 40]), st.binary(max_size=8)),
        min_size=1,
        max_size=3,
    )
    noise = st.builds(
        lambda content: Sample(
            f"{len(content)} bytes of noise", partial(bytes, content), "?", "text/plain"
        ),
        st.binary(max_size=64),
    )
    if not files:
        return noise
    return st.builds(made, st.sampled_from(list(files)), edits) | noise
