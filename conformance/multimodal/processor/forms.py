# SPDX-License-Identifier: Apache-2.0
"""The forms in which clients hand over the same picture, sound or film.

What ``LLM.generate`` takes, vLLM's own parser brings into one form: pictures of Pillow are turned
as EXIF says and become RGB, sounds are resampled.  Arrays pass as they are, and so does what a
server has loaded itself: a chat's picture is RGB unless ``--media-io-kwargs`` keeps its mode.
So an item in another form is handed over as a client does it, and what a processor meets is
vLLM's affair.  Programs of counterexamples have what they need of this module.
"""

import io
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from PIL import Image

Form = Callable[[Any], Any]

#: Samples of a sound in a second, where it does not say how many.
RATE = 16_000

#: Seconds of a sound that are made at most.
LONGEST = 1200

#: Pixels of a picture that is made at most.
LARGEST = 32_000_000

#: EXIF's tag of the orientation, and the value that says: turn it by a quarter.
_ORIENTATION = 0x0112
_QUARTER = 6

#: Formats of files that hold what PNG does not.
_FILES = {"CMYK": "TIFF"}


def _mode(name: str) -> Form:
    """Return what makes a picture of another mode, with some of it transparent where it can be."""

    def convert(picture: Image.Image) -> Image.Image:
        if name == "I;16":
            return Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
        if name in ("LA", "RGBA"):
            whole = picture.convert(name)
            whole.putalpha(picture.convert("L"))
            return whole
        return picture.convert(name)

    return convert


def _loaded(name: str | None) -> Form:
    """Return what has vLLM load the file of a picture, in RGB or with its own mode."""

    def load(picture: Image.Image) -> Any:
        from vllm.multimodal.media.image import ImageMediaIO

        stream = io.BytesIO()
        saved = picture if name is None else _mode(name)(picture)
        saved.save(stream, _FILES.get(saved.mode, "PNG"))
        return ImageMediaIO("RGB" if name is None else None).load_bytes(stream.getvalue())

    return load


def _turned(picture: Image.Image) -> Image.Image:
    picture.getexif()[_ORIENTATION] = _QUARTER
    return picture


def _noted(picture: Image.Image) -> Image.Image:
    picture.info["comment"] = "by a camera"
    return picture


def _strided(values: np.ndarray) -> np.ndarray:
    """Return the same numbers, every second one of a memory that has others between them."""
    return np.repeat(values, 2, axis=0)[::2]


def _array(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture).copy()


def _sound(change: Form) -> Form:
    """Return what changes the samples of a sound and leaves its rate."""
    return lambda sound: (change(sound[0]), sound[1])


def _told(**changed: Callable[[Any], Any]) -> Form:
    """Return what changes what is said of a film, and leaves its frames."""

    def change(film: Any) -> Any:
        if not isinstance(film, tuple):
            return film
        frames, about = film
        return frames, {**about, **{key: how(about[key]) for key, how in changed.items()}}

    return change


def _frames(change: Form) -> Form:
    """Return what changes the frames of a film, and leaves what is said of them."""
    return lambda film: (change(film[0]), film[1]) if isinstance(film, tuple) else change(film)


#: By modality, forms of its items: what a description has behind a colon.
FORMS: Mapping[str, Mapping[str, Form]] = {
    "image": {
        **{name: _mode(name) for name in ("L", "LA", "RGBA", "P", "CMYK", "I;16", "1")},
        **{f"kept-{name}": _loaded(name) for name in ("L", "LA", "RGBA", "P", "CMYK", "I;16")},
        "loaded": _loaded(None),
        "turned": _turned,
        "by-hand": lambda picture: picture.transpose(Image.Transpose.ROTATE_270),
        "noted": _noted,
        "array": _array,
        "channels-first": lambda picture: _array(picture).transpose(2, 0, 1).copy(),
        "tensor": lambda picture: torch.from_numpy(_array(picture)),
        "array-RGBA": lambda picture: _array(_mode("RGBA")(picture)),
        "array-float": lambda picture: _array(picture).astype(np.float32) / 255,
        "strided": lambda picture: _strided(_array(picture)),
        "permuted": lambda picture: _array(picture).transpose(2, 0, 1).copy().transpose(1, 2, 0),
    },
    "audio": {
        "bare": lambda sound: sound[0],
        "stereo": _sound(lambda samples: np.stack([samples, samples[::-1] * 0.5])),
        "clipped": _sound(lambda samples: np.clip(samples * 4, -1, 1)),
        "double": _sound(lambda samples: samples.astype(np.float64)),
        "strided": _sound(_strided),
        "tensor": lambda sound: torch.from_numpy(sound[0]),
    },
    "video": {
        "pictures": _frames(lambda frames: [Image.fromarray(frame) for frame in frames]),
        "list": _frames(list),
        "tensor": _frames(torch.from_numpy),
        "longer": _told(duration=lambda seconds: seconds * 2),
        "later": _told(frames_indices=lambda places: [3 * place + 1 for place in places]),
    },
}

#: The item whose forms are tried, by modality.
_OF: Mapping[str, str] = {"image": "61x33#5", "audio": "0.1s#1", "video": "28x28x2@2#1"}

#: What else is varied alone.
_ALONE: Mapping[str, tuple[str, ...]] = {
    "audio": ("0.1s@8000#1", "0.1s@48000#1", "0.05s@192000#1", "0.1s@44100#1:stereo"),
    "video": ("28x28x2@2#1", "28x28x2@5#1"),
}

#: Items of one prompt that differ in every attribute.  A mode that a server keeps is not one:
#: with its cache vLLM parses what is missing a second time, and makes it RGB after all.
MIXED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "image": (
        ("120x90#1:array", "28x112#2:channels-first", "84x28#3:RGBA", "61x33#4:turned"),
        ("61x33#4:tensor", "120x90#1:LA", "84x28#3", "28x112#2:loaded"),
    ),
    "audio": (
        ("0.1s@48000#1:stereo", "0.31s#2*0.01", "0.05s@8000#3:clipped"),
        ("0.31s#2:tensor", "0.1s#1:stereo", "0.05s#3*4:double"),
    ),
    "video": (
        ("28x28x2@2#1", "56x28x4@5#2:later", "28x56x6@1#3:longer"),
        ("56x28x4#2:tensor", "28x28x2#1:list", "28x56x6#3:pictures"),
    ),
}


def described(modality: str) -> tuple[str, ...]:
    """Return the descriptions of one item in all its forms."""
    base = _OF.get(modality)
    named = tuple(f"{base}:{name}" for name in FORMS.get(modality, ()))
    return (*((base,) if base else ()), *named, *_ALONE.get(modality, ()))


def in_form(modality: str, name: str) -> str | None:
    """Return the description of an item in a form, or None where the modality has no such form."""
    return f"{_OF[modality]}:{name}" if name in FORMS.get(modality, ()) else None


def _pattern(modality: str) -> str:
    """Return what matches the form of a description, as a regular expression."""
    names = "|".join(sorted(map(re.escape, FORMS[modality]), key=len, reverse=True))
    return rf"(:(?P<form>{names}))?"


_DRAW = r"(#(?P<draw>\d+))?"
_IMAGE = re.compile(rf"(?P<width>\d+)x(?P<height>\d+){_DRAW}{_pattern('image')}")
_VIDEO = re.compile(
    r"(?P<width>\d+)x(?P<height>\d+)x(?P<frames>\d+)"
    rf"(@(?P<rate>\d+))?{_DRAW}{_pattern('video')}"
)
_AUDIO = re.compile(
    rf"(?P<seconds>\d+(\.\d+)?)s(@(?P<rate>\d+))?{_DRAW}"
    rf"(\*(?P<loud>\d+(\.\d+)?))?{_pattern('audio')}"
)
#: By modality, what describes an item.
TEXTS = {"image": _IMAGE, "video": _VIDEO, "audio": _AUDIO}


def made(modality: str, text: str) -> Any:
    """Return the data of an item that a description stands for, new each time."""
    found = TEXTS[modality].fullmatch(text)
    assert found is not None
    data = _drawn(modality, found)
    form = found["form"]
    return FORMS[modality][form](data) if form else data


def grown(modality: str, text: str, times: float) -> str | None:
    """Return the description of a sound, or a picture, that is so many times as long or large.

    None for others, and where it would take long to make.
    """
    known = TEXTS[modality] if modality in ("audio", "image") else None
    if (found := known.fullmatch(text) if known else None) is None:
        return None
    if modality == "audio":
        seconds = math.ceil(float(found["seconds"]) * times)
        return f"{seconds}s" if seconds <= LONGEST else None
    width, height = (math.ceil(int(found[side]) * times**0.5) for side in ("width", "height"))
    return f"{width}x{height}" if width * height <= LARGEST else None


def redrawn(modality: str, text: str) -> str:
    """Return the description of what has the same size and form, and other contents."""
    found = TEXTS[modality].fullmatch(text)
    assert found is not None
    size = max(found.end(name) for name in found.groupdict() if name not in ("form", "loud"))
    size += modality == "audio" and not (found["rate"] or found["draw"])  # the letter of seconds
    drawn = found.start("draw") - 1 if found["draw"] else size
    return f"{text[:drawn]}#{int(found['draw'] or 0) + 50}{text[size:]}"


def plain(modality: str, text: str) -> bool:
    """Tell whether a description stands for an item in the form that most clients give it."""
    found = TEXTS[modality].fullmatch(text) if modality in TEXTS else None
    return found is None or not (found["form"] or (modality == "video" and found["rate"]))


def _drawn(modality: str, found: re.Match[str]) -> Any:
    draw = np.random.RandomState(int(found["draw"] or 0))
    if modality == "audio":
        rate = int(found["rate"] or RATE)
        seconds = float(found["seconds"])
        count = max(1, round(seconds * rate)) if seconds else 0
        loud = float(found["loud"] or 1)
        return (draw.uniform(-1.0, 1.0, count) * loud).astype(np.float32), rate
    size = int(found["height"]), int(found["width"]), 3
    if modality == "image":
        if 0 in size:
            return Image.new("RGB", size[1::-1])
        return Image.fromarray(draw.randint(0, 256, size, dtype=np.uint8))
    count = int(found["frames"])
    frames = draw.randint(0, 256, (count, *size), dtype=np.uint8)
    return (frames, _about(count, int(found["rate"]))) if found["rate"] else frames


def _about(count: int, rate: int) -> dict[str, Any]:
    """Return what vLLM's loaders say of a film of which they kept all frames."""
    return {
        "total_num_frames": count,
        "fps": float(rate),
        "duration": count / rate,
        "video_backend": "opencv",
        "frames_indices": list(range(count)),
        "do_sample_frames": False,
    }
