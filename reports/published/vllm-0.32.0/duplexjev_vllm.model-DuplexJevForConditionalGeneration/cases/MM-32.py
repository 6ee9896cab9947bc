"""MM-32 The data of an item do not depend on the others.

Plugin    duplexjev_vllm.model:DuplexJevForConditionalGeneration
Did       audio_features of item A is of shape (1, 16, 144) here and of shape (1, 16, 64) alone
Expected  What is handed to the model for an item is the same among others as alone.
Check     Cut off padding in _postprocess_hf_mm_data, or pad to a fixed size.

Needs vLLM, torch and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import numpy as np
import torch
from PIL import Image
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.models.registry import ModelRegistry
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.processing import ProcessorInputs, TimingContext

sys.path.insert(0, "PLUGIN")

from duplexjev_vllm.model import DuplexJevForConditionalGeneration as Plugin


Form = Callable[[Any], Any]


#: Samples of a sound in a second, where it does not say how many.
RATE = 16_000


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


#: Rows may differ by this share of the largest number in them, by the order of adding up.
RELATIVE = 1e-3


def opened(plugin: Any, model: str, limits: dict[str, int]) -> Any:
    """Return vLLM's configuration for the class, on a checkpoint that a function writes."""
    folder = Path(model)
    if not folder.is_dir():
        folder = Path(tempfile.mkdtemp())
        resolve_name(model)(folder)
    document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for name in document.get("architectures") or [plugin.__name__]:
        ModelRegistry.register_model(name, plugin)
    counts: Any = limits
    return EngineArgs(
        model=str(folder), enforce_eager=True, dtype="float32", limit_mm_per_prompt=counts
    ).create_engine_config()


def process(config: Any, prompt: dict[str, Any], processor: Any = None) -> Any:
    """Process a prompt as the renderer does, with a new processor if none is given."""
    processor = processor or MULTIMODAL_REGISTRY.create_processor(config.model_config)
    data = {name: [made(name, text) for text in texts] for name, texts in prompt["items"].items()}
    inputs = ProcessorInputs(
        list(prompt["tokens"]),
        processor.info.parse_mm_data(data),
        hf_processor_mm_kwargs=dict(prompt["options"]),
    )
    found = processor.apply(inputs, TimingContext(enabled=False))
    found = found["encoder_prompt"] if found["type"] == "enc_dec" else found
    for name, ranges in found["mm_placeholders"].items():
        for text, one in zip(prompt["items"].get(name, ()), ranges, strict=False):
            print(f"{name} {text}: {one.get_num_embeds()} placeholders from {one.offset} on")
    return found


def parts(found: Any) -> list[tuple[str, Any, Any]]:
    """Return modality, placeholder and data of each item."""
    return [
        (name, found["mm_placeholders"][name][index], item)
        for name, items in found["mm_kwargs"].items()
        for index, item in enumerate(items)
    ]


def same(one: Any, other: Any) -> bool:
    """Tell whether two tensors are the same but for the order of adding up."""
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return bool(one == other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    scale = max(float(one.float().abs().max()), 1e-6) if one.numel() else 1.0
    return bool(torch.allclose(one.float(), other.float(), rtol=0.0, atol=RELATIVE * scale))


def told_apart(one: Any, other: Any) -> str | None:
    """Say in which of its data an item is another one."""
    left, right = one.get_data(), other.get_data()
    for key in {**left, **right}:
        if key not in left or key not in right or not same(left[key], right[key]):
            return f"{key} is {shown(left.get(key))} instead of {shown(right.get(key))}"
    return None


def shown(value: Any) -> str:
    """Return a value in few words."""
    shape = getattr(value, "shape", None)
    return repr(value)[:60] if shape is None else f"{value.dtype} of shape {tuple(shape)}"


def each(prompt: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a prompt for each item, with it alone."""
    return [
        {**prompt, "items": {name: [text]}, "tokens": prompt["alone"][name]}
        for name, texts in prompt["items"].items()
        for text in texts
    ]


def check_alone(plugin: Any, model: str, limits: dict[str, int], prompt: Any) -> str | None:
    """Each item has among others the placeholders and data that it has alone."""
    config = opened(plugin, model, limits)
    together = parts(process(config, prompt))
    for (name, place, item), single in zip(together, each(prompt), strict=True):
        ((_, wanted, by_itself),) = parts(process(config, single))
        if place.get_num_embeds() != wanted.get_num_embeds():
            return (
                f"{name} has {place.get_num_embeds()} placeholders among others\n"
                f"expected {wanted.get_num_embeds()}, as alone"
            )
        if why := told_apart(item, by_itself):
            return f"among others {why}\nexpected the same data as alone"
    return None


fault = check_alone(
    Plugin,
    model="duplexjev_checkpoint:write",
    limits={"audio": 4},
    prompt={
        "tokens": [500, 500],
        "items": {"audio": ["0.5s", "1.3s"]},
        "options": {},
        "alone": {"audio": [68, 69, 500, 74]},
    },
)
print(f"FAILS: {fault}" if fault else f"OK: {check_alone.__doc__}")
sys.exit(1 if fault else 0)
