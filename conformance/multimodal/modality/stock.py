# SPDX-License-Identifier: Apache-2.0
"""Samples of the modalities that the harness knows, and what differs from them by a hair."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import attrs
import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from PIL import Image

from conformance.multimodal.modality import media

#: The largest side, and the most samples, frames and points, of what is drawn.
SIDE, SAMPLES, FRAMES, POINTS = 240, 24_000, 24, 600

KNOWN = ("image", "video", "audio", "point_cloud")

#: What is no file, as a profile's ``forms`` name it: arrays, and pictures of Pillow.
ARRAY, PICTURE = "array", "picture"


@attrs.frozen(eq=False)
class Sample:
    """One thing that a client may send."""

    name: str
    make: Callable[[], Any]
    encoding: str = ""  #: of a file, whose content ``make`` returns; empty for anything else
    mime: str = ""
    plain: bool = False  #: whether a plugin that reads the encoding has to take it
    promised: bool = False  #: whether the profile says that it is valid
    same_as: str = ""  #: the name of the file that holds the same, for arrays
    form: str = ""  #: of what is no file, as a profile's ``forms`` name it

    def data(self, form: str = "bytes") -> Any:  # noqa: ANN401 - what clients send
        """Return it new, a file in one of the forms of :data:`media.FORMS`."""
        made = self.make()
        if self.encoding and isinstance(made, bytes):
            return media.FORMS[form](made, self.mime)
        return made

    def __str__(self) -> str:
        return self.name


def usual(modality: str) -> tuple[Sample, ...]:
    """Return samples of a modality that no plugin of it should find strange."""
    make = {"image": _images, "audio": _sounds, "video": _films, "point_cloud": _clouds}
    return make[modality]() if modality in make else ()


def file(
    modality: str,
    name: str,
    encoding: str,
    make: Callable[[], bytes],
    *,
    plain: bool = False,
) -> Sample:
    """Return a sample that is a file, whose content is made once."""
    return Sample(name, cache(make), encoding, media.MIME[modality], plain=plain)


def given(name: str, value: object, same_as: str = "", form: str = ARRAY) -> Sample:
    """Return a sample that is handed over as it is, a copy each time."""
    return Sample(name, partial(copy.deepcopy, value), same_as=same_as, form=form)


def _images() -> tuple[Sample, ...]:
    sizes = (
        ("PNG", 40, 60),
        ("PNG", 150, 30),
        ("JPEG", 90, 120),
        ("PNG", 61, 33),
        ("WEBP", 56, 56),
    )
    files = [
        file(
            "image",
            f"{encoding} of {width} x {height}",
            encoding,
            partial(media.picture, height, width, encoding, seed),
            plain=True,
        )
        for seed, (encoding, height, width) in enumerate((*sizes, ("BMP", 20, 50), ("GIF", 28, 28)))
    ]
    modes = [
        file("image", f"PNG of mode {mode}", "PNG", partial(_in_mode, mode))
        for mode in ("L", "RGBA", "P")
    ]
    same = media.pixels(40, 60, 0)
    return (
        *files,
        *modes,
        file("image", "PNG of one colour", "PNG", _black),
        file("image", "JPEG on its side", "JPEG", partial(media.turned, 6)),
        file("image", "GIF of 3 frames, 32 x 24", "GIF", _moving),
        given("pixels [40, 60, 3]", same, same_as="PNG of 60 x 40"),
        given("pixels [150, 30, 3]", media.pixels(150, 30, 1), same_as="PNG of 30 x 150"),
        given("the same pixels, colours first in memory", _permuted(same), "PNG of 60 x 40"),
        given("picture of Pillow, 60 x 40", Image.fromarray(same), "PNG of 60 x 40", PICTURE),
        given("picture of Pillow, 500 x 300", Image.new("RGB", (500, 300), "red"), "", PICTURE),
    )


def _permuted(array: Any) -> Any:  # noqa: ANN401 - arrays
    """Return the same array, with its last dimension first in memory, as from a tensor of torch."""
    return np.moveaxis(np.moveaxis(array, -1, 0).copy(), 0, -1)


def _in_mode(mode: str) -> bytes:
    return media.encoded(Image.fromarray(media.pixels(32, 48, 7)).convert(mode), "PNG")


def _moving() -> bytes:
    """Return an animation of which the first frame takes more than half."""
    first, rest = Image.fromarray(media.pixels(24, 32, 5)), Image.new("RGB", (32, 24), "blue")
    others = [rest, rest.point(lambda value: 255 - value)]
    return media.encoded(first, "GIF", save_all=True, append_images=others, duration=100)


def _black() -> bytes:
    return media.encoded(Image.new("RGB", (30, 30)), "PNG")


def _sounds() -> tuple[Sample, ...]:
    lengths = ((4_000, media.RATE), (9_001, media.RATE), (1_600, 8_000), (24_000, media.RATE))
    tones = [media.tone(count, seed) for seed, (count, _) in enumerate(lengths)]
    files = [
        file(
            "audio",
            f"WAV of {count} samples at {rate} Hz",
            "WAV",
            partial(media.wav, waveform, rate),
            plain=True,
        )
        for waveform, (count, rate) in zip(tones, lengths, strict=True)
    ]
    raw = [
        given(
            f"waveform [{count}] at {rate} Hz",
            (media.floats(waveform), rate),
            same_as=f"WAV of {count} samples at {rate} Hz",
        )
        for waveform, (count, rate) in zip(tones[:3], lengths, strict=False)
    ]
    silence = file("audio", "WAV of silence", "WAV", partial(media.wav, np.zeros(2_000, np.int16)))
    return (*files, silence, *raw)


def _films() -> tuple[Sample, ...]:
    kinds = (("GIF", 5, 24, 32), ("GIF", 12, 40, 24), ("WEBP", 3, 30, 40), ("GIF", 9, 24, 32))
    files = [
        file(
            "video",
            f"{encoding} of {count} frames, {width} x {height}",
            encoding,
            partial(media.film, count, height, width, encoding, seed),
            plain=True,
        )
        for seed, (encoding, count, height, width) in enumerate(kinds)
    ]
    return (
        *files,
        given("frames [4, 24, 32, 3]", media.frames(4, seed=1)),
        given("frames [10, 40, 28, 3]", media.frames(10, 40, 28, seed=2)),
    )


def _clouds() -> tuple[Sample, ...]:
    counts = (40, 333, 64)
    clouds = [media.points(count, seed) for seed, count in enumerate(counts)]
    files = [
        file("point_cloud", f"PLY of {count} points", "PLY", partial(media.ply, cloud), plain=True)
        for cloud, count in zip(clouds, counts, strict=True)
    ]
    return (
        *files,
        file(
            "point_cloud",
            "PLY of 20 points as text",
            "PLY",
            partial(media.ply, media.points(20, 5), text=True),
        ),
        given("points [40, 3]", clouds[0], same_as="PLY of 40 points"),
        given("points [7, 3]", media.points(7, 9)),
    )


def drawn(modality: str, encodings: Sequence[str]) -> SearchStrategy[Sample] | None:
    """Return samples of any size, files in some encodings or arrays; None where none are known."""
    seeds = st.integers(0, 99)
    if modality != "image" and not encodings:
        return _arrays(modality)
    if modality == "image":
        sides = st.integers(1, SIDE)
        return st.builds(_image, st.sampled_from([*encodings, ""]), sides, sides, seeds)
    if modality == "audio":
        rates = st.sampled_from([8_000, media.RATE, 22_050, 44_100])
        return st.builds(_sound, st.integers(1, SAMPLES), rates, seeds)
    if modality == "video":
        sides = st.integers(8, SIDE // 4)
        return st.builds(_video, st.integers(1, FRAMES), sides, sides, seeds)
    if modality == "point_cloud":
        return st.builds(_cloud, st.integers(1, POINTS), st.booleans(), seeds)
    return None


def _arrays(modality: str) -> SearchStrategy[Sample] | None:
    """Return arrays of any size, for plugins that take no file."""
    seeds = st.integers(0, 99)
    if modality == "audio":
        waveforms = st.integers(1, SAMPLES).map(lambda count: media.floats(media.tone(count)))
        return waveforms.map(
            lambda waveform: given(f"waveform [{len(waveform)}]", (waveform, media.RATE))
        )
    if modality == "video":
        films = st.builds(media.frames, st.integers(1, FRAMES), seed=seeds)
        return films.map(lambda film: given(f"frames {[*film.shape]}", film))
    if modality == "point_cloud":
        clouds = st.builds(media.points, st.integers(1, POINTS), seeds)
        return clouds.map(lambda cloud: given(f"points {[*cloud.shape]}", cloud))
    return None


def _image(encoding: str, height: int, width: int, seed: int) -> Sample:
    if not encoding:
        return Sample(f"pixels [{height}, {width}, 3]", partial(media.pixels, height, width, seed))
    name = f"{encoding} of {width} x {height}"
    return file("image", name, encoding, partial(media.picture, height, width, encoding, seed))


def _sound(samples: int, rate: int, seed: int) -> Sample:
    name = f"WAV of {samples} samples at {rate} Hz"
    return file("audio", name, "WAV", lambda: media.wav(media.tone(samples, seed), rate))


def _video(count: int, height: int, width: int, seed: int) -> Sample:
    name = f"GIF of {count} frames, {width} x {height}"
    return file("video", name, "GIF", partial(media.film, count, height, width, "GIF", seed))


def _cloud(count: int, text: bool, seed: int) -> Sample:  # noqa: FBT001 - drawn
    name = f"PLY of {count} points" + " as text" * text
    return file("point_cloud", name, "PLY", lambda: media.ply(media.points(count, seed), text=text))


def changed(array: object, *place: int) -> Any:  # noqa: ANN401 - arrays
    """Return a copy of an array with one value changed."""
    copied = np.array(array)
    copied[place] = 255 - copied[place] if copied.dtype == np.uint8 else copied[place] / 2 + 0.1
    return copied


def kin(modality: str) -> tuple[Sample, ...]:
    """Return samples that differ in as little as can be, so that a hash may miss it."""
    if modality == "image":
        image = media.pixels(30, 60, 3)
        last = changed(image, 29, 59, 2)
        return (
            given("pixels [30, 60, 3]", image),
            given("the same bytes as pixels [60, 30, 3]", image.reshape(60, 30, 3)),
            given("the same pixels, one of them changed", last),
            given("the same pixels, upside down", image[::-1].copy()),
            given("the same pixels, red for blue", image[:, :, ::-1].copy()),
            file("image", "PNG of these pixels", "PNG", lambda: _png(image)),
            file("image", "PNG with one pixel changed", "PNG", lambda: _png(last)),
            file("image", "PNG with a palette", "PNG", partial(media.palette, 255)),
            file("image", "PNG with another palette", "PNG", partial(media.palette, 90)),
            file("image", "PNG with alpha", "PNG", partial(_alpha, image, 255)),
            file("image", "PNG with another alpha", "PNG", partial(_alpha, image, 60)),
            file("image", "JPEG, upright", "JPEG", partial(media.turned, 1)),
            file("image", "JPEG, turned by its EXIF", "JPEG", partial(media.turned, 6)),
        )
    if modality == "audio":
        sound = media.tone(3_000, 3)
        other = changed(media.floats(sound), 2_999)
        return (
            given("waveform [3000] at 16000 Hz", (media.floats(sound), 16_000)),
            given("the same waveform at 8000 Hz", (media.floats(sound), 8_000)),
            given("the same waveform, its last sample changed", (other, 16_000)),
            given("the same waveform backwards", (media.floats(sound)[::-1].copy(), 16_000)),
            file("audio", "WAV at 16000 Hz", "WAV", lambda: media.wav(sound, 16_000)),
            file("audio", "the same WAV at 8000 Hz", "WAV", lambda: media.wav(sound, 8_000)),
        )
    if modality == "video":
        film = media.frames(4, 24, 32, 3)
        return (
            given("frames [4, 24, 32, 3]", film),
            given("the same frames backwards", film[::-1].copy()),
            given("the same bytes as frames [4, 32, 24, 3]", film.reshape(4, 32, 24, 3)),
            given("the same frames, the last one changed", changed(film, 3, 23, 31, 2)),
            given("the same frames without the last", film[:3].copy()),
            file("video", "GIF of 4 frames", "GIF", partial(media.film, 4, seed=3)),
            file("video", "GIF of 4 other frames", "GIF", partial(media.film, 4, seed=4)),
        )
    if modality == "point_cloud":
        cloud = media.points(30, 3)
        return (
            given("points [30, 3]", cloud),
            given("the same points, one of them changed", changed(cloud, 29, 2)),
            given("the same points without the last", cloud[:29].copy()),
            given("the same points, axes exchanged", cloud[:, ::-1].copy()),
            file("point_cloud", "PLY of 30 points", "PLY", partial(media.ply, cloud)),
        )
    return ()


def _png(values: object) -> bytes:
    return media.encoded(Image.fromarray(values), "PNG")


def _alpha(values: Any, opacity: int) -> bytes:  # noqa: ANN401 - pixels
    picture = Image.fromarray(values)
    picture.putalpha(opacity)
    return media.encoded(picture, "PNG")
