# SPDX-License-Identifier: Apache-2.0
"""What clients send by mistake or to harm: nonsense, files cut off, NaN, bombs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from itertools import islice
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from PIL import Image

from conformance.inputs import oddities, places
from conformance.multimodal.modality import media
from conformance.multimodal.modality.stock import KNOWN, Sample, file, given
from conformance.watching.comparison import shortened

_Make = Callable[[Any], Any]


class _Stranger:
    """An object that no API receives."""


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
        Sample(
            name, partial(deepcopy, value), "?" if isinstance(value, bytes) else "", "text/plain"
        )
        for name, value in _NO_FILES
    ]
    others = [
        file(other, name, encoding, make)
        for name, encoding, other, make in (
            ("a picture", "PNG", "image", partial(media.picture, 9, 9)),
            ("a recording", "WAV", "audio", partial(media.wav, media.tone(900))),
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


def _misshapen(modality: str) -> tuple[Sample, ...]:
    """Return arrays, and files, that hold nothing."""
    still, cloud = np.zeros(100, np.float32), media.points(5)
    made = {
        "image": (
            given("pixels [0, 10, 3]", np.zeros((0, 10, 3), np.uint8)),
            given("pixels [10, 0, 3]", np.zeros((10, 0, 3), np.uint8)),
            given("an array of words", np.array([["a", "b"], ["c", "d"]])),
            given("an array [2, 2, 2, 2, 2]", np.zeros((2, 2, 2, 2, 2), np.uint8)),
            file("image", "a PNG of no height", "PNG", partial(media.png_declaring, 0, 100)),
            file("image", "a PNG of no width", "PNG", partial(media.png_declaring, 100, 0)),
            file("image", "a PNG that is only a header", "PNG", lambda: media.picture(9, 9)[:33]),
        ),
        "audio": (
            given("a waveform [0]", (np.zeros(0, np.float32), media.RATE)),
            given("a waveform at 0 Hz", (still, 0)),
            given("a waveform at -8000 Hz", (still, -8000)),
            given("a waveform [2, 2, 2]", (np.zeros((2, 2, 2), np.float32), media.RATE)),
            file("audio", "a WAV without samples", "WAV", partial(media.wav, media.tone(0))),
        ),
        "video": (
            given("frames [0, 24, 32, 3]", np.zeros((0, 24, 32, 3), np.uint8)),
            given("frames [4, 0, 32, 3]", np.zeros((4, 0, 32, 3), np.uint8)),
            given("an array [3]", np.zeros(3, np.uint8)),
            file("video", "a GIF without frames", "GIF", partial(media.gif_of_many_frames, 0)),
        ),
        "point_cloud": (
            given("points [0, 3]", np.zeros((0, 3), np.float32)),
            given("points [3]", np.zeros(3, np.float32)),
            given("points [4, 2]", np.zeros((4, 2), np.float32)),
            _ply("a PLY of no points", media.points(0)),
            _ply("a PLY of less than no points", cloud, declared=-1),
            file(
                "point_cloud", "a PLY that is only a header", "PLY", lambda: media.ply(cloud)[:40]
            ),
        ),
    }
    return made[modality]


def _ply(name: str, points: npt.NDArray[Any], declared: int | None = None) -> Sample:
    return file("point_cloud", name, "PLY", partial(media.ply, points, declared=declared))


def changed_in_one_place(samples: Sequence[Sample]) -> Iterator[Sample]:
    """Yield the first item that is lists or objects, with something else in each place of it."""
    for sample in samples:
        data = None if sample.encoding else sample.make()
        if not isinstance(data, list | dict) or not _as_json(data):
            continue
        for place, value in places.places(data):
            where = places.subscripts(place)
            for other in oddities.instead_of(value):
                if other is not oddities.DEEP_LIST and other is not oddities.DEEP_OBJECT:
                    name = f"{sample} with {shortened(other)} at data{where}"
                    yield Sample(name, partial(places.changed, data, place, other))
        return


#: What opens and never closes, so often that a reader that calls itself comes to its end.
_DEEP = (("[", 2_000), ("[", 100_000), ('{"a":', 2_000), ('{"a":', 20_000))

#: Texts of the items that others are made of, places of an item in which one is looked for, and
#: characters of a long one, over which nothing that is linear takes long.
TEXTS, PLACES, LONG = 4, 12, 16_000


def deep(samples: Sequence[Sample]) -> Iterator[Sample]:
    """Yield items that hold texts, or bytes, with brackets instead that open and never close."""
    for sample, make, where, text in _texts(samples):
        for opening, count in _DEEP:
            name = f"{sample} with {count:,} times {opening!r} at data{where}"
            yield _with(sample, name, make, text, opening * count)


def runs(samples: Sequence[Sample]) -> Iterator[Sample]:
    """Yield items that hold texts with such instead over which patterns backtrack."""
    for number, (sample, make, where, text) in enumerate(_texts(samples)):
        plain = text.decode(errors="replace") if isinstance(text, bytes) else text
        if "\ufffd" in plain:
            continue  # bytes of another kind
        for other in dict.fromkeys((*_repeated(plain), *oddities.runs(plain))):
            name = f"{sample} with {shortened(other, 60)} at data{where}"
            yield _with(sample, name, make, text, other)
        for form in oddities.texts(plain) if not number else ():
            name = f"{sample} with {LONG:,} characters {form.name} at data{where}"
            yield _with(sample, name, make, text, form.make(LONG))


def _repeated(text: str) -> Iterator[str]:
    """Yield the beginnings of a text with their last letter over and over, and a wrong end."""
    for letter in dict.fromkeys(text[: oddities.RUN]):
        for end in ("!", "\x00"):
            yield text[: text.index(letter)] + letter * oddities.RUN + end


def _texts(samples: Sequence[Sample]) -> Iterator[tuple[Sample, _Make, str, str | bytes]]:
    """Yield items that hold texts: what makes one with another text, the place, and the text."""
    found = (
        (sample, partial(places.changed, data, place), places.subscripts(place), value)
        for sample in samples
        for data in [sample.make()]
        for place, value in islice(places.places(data), PLACES)
        if isinstance(value, str | bytes)
    )
    return islice(found, TEXTS)


def _with(sample: Sample, name: str, make: _Make, text: str | bytes, other: str) -> Sample:
    value = other.encode(errors="replace") if isinstance(text, bytes) else other
    return attrs.evolve(sample, name=name, make=partial(make, value))


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
            given("a waveform with a NaN", (nan, media.RATE)),
            given("a waveform with an infinity", (large, media.RATE)),
            file("audio", "a WAV with a NaN", "WAV", partial(media.wav_of_floats, nan)),
        ),
        "video": (Sample("frames with a NaN", lambda: np.stack([image, image])),),
        "point_cloud": (
            Sample("points with a NaN", cloud.copy),
            _ply("a PLY with a NaN", cloud),
        ),
    }.get(modality, ())


def bombs(modality: str) -> tuple[Sample, ...]:
    """Return what is small to send and large to make: by its content or its header."""
    few, apart = media.points(5), media.points(3) * np.float32(1_000)
    tone = media.tone(900)
    made = {
        "image": (
            file(
                "image",
                "a PNG of 30000 x 30000, of which nothing is there",
                "PNG",
                partial(media.png_declaring, 30_000, 30_000),
            ),
            file(
                "image",
                "a PNG of 16000 x 14000 black pixels",
                "PNG",
                partial(media.black, 14_000, 16_000),
            ),
            file("image", "a PNG of 65000 x 1", "PNG", partial(media.picture, 1, 65_000)),
            file("image", "a PNG of 1 x 65000", "PNG", partial(media.picture, 65_000, 1)),
            file("image", "a PNG of 9 x 9 at 0.03 dots per inch", "PNG", _large_on_paper),
        ),
        "audio": (
            file(
                "audio",
                "a WAV of 800 million samples, of which hardly any are there",
                "WAV",
                partial(media.wav_declaring, 800_000_000),
            ),
            file("audio", "a WAV at 1 Hz", "WAV", partial(media.wav, tone, 1)),
            given("a waveform at 2147483647 Hz", (media.floats(tone), 2**31 - 1)),
        ),
        "video": (
            file(
                "video",
                "a GIF of 600000 frames",
                "GIF",
                partial(media.gif_of_many_frames, 600_000),
            ),
            file(
                "video",
                "a GIF of 65535 x 65535",
                "GIF",
                partial(media.gif_declaring, 65_535, 65_535),
            ),
        ),
        "point_cloud": (
            _ply("a PLY of a quadrillion points", few, declared=10**15),
            _ply("a PLY of 90 million points, of which five are there", few, declared=90_000_000),
            given("points a kilometre apart", apart),
            _ply("a PLY of points a kilometre apart", apart),
        ),
    }
    return made.get(modality, ())


def _large_on_paper() -> bytes:
    picture = Image.fromarray(media.pixels(9, 9))
    return media.encoded(picture, "PNG", dpi=(0.03, 0.03))


def bulky(modality: str) -> tuple[Sample, ...]:
    """Return files that are small, allowed almost everywhere, and take 36 MB and more decoded."""
    if modality == "image":
        return (file(modality, "a PNG of 4000 x 3000", "PNG", _broad),)
    if modality == "video":
        film = partial(media.film, 60, 500, 700)
        return (file(modality, "a GIF of 60 frames, 700 x 500", "GIF", film),)
    return ()


def _broad() -> bytes:
    return media.encoded(Image.new("RGB", (4_000, 3_000), (90, 20, 10)), "PNG", compress_level=1)


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
