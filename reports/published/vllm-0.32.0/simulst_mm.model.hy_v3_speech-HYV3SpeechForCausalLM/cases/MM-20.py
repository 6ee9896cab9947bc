"""MM-20 Every item gets one tensor of rows.

Plugin    simulst_mm.model.hy_v3_speech:HYV3SpeechForCausalLM
Did       encoding the items raised RuntimeError: chunk produced 202 speech embeddings but the
          prompt reserves 195 placeholder tokens
Expected  embed_multimodal returns a list or tuple with a tensor of two dimensions for each item
          that was processed, or one tensor of three dimensions.
Check     Split flattened rows by the sizes of the items; do not return None, and encode whatever is
          processed: items of one patch, of one row, of an odd number of them.

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
from vllm.config import set_current_vllm_config
from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models.registry import ModelRegistry
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.processing import ProcessorInputs, TimingContext
from vllm.multimodal.utils import group_and_batch_mm_kwargs
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.worker.utils import sanity_check_mm_encoder_outputs

sys.path.insert(0, "PLUGIN")

from simulst_mm.model.hy_v3_speech import HYV3SpeechForCausalLM as Plugin


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


def random_model(config: Any) -> Any:
    """Return the model with random weights, made as vLLM's loaders do."""
    place = Path(tempfile.mkdtemp(), "rendezvous")
    draw = torch.Generator().manual_seed(1)
    device = config.device_config.device
    with (
        set_current_vllm_config(config),
        torch.device(device),
        set_default_torch_dtype(torch.float),
    ):
        init_distributed_environment(1, 0, f"file://{place}", 0, "gloo")
        ensure_model_parallel_initialized(1, 1)
        model = initialize_model(config)
        for parameter in model.parameters():
            drawn = torch.rand(parameter.shape, generator=draw, device="cpu")
            parameter.data.copy_(drawn * 0.6 - 0.3)
    return model.eval()


def encode(config: Any, model: Any, items: list[tuple[str, Any]]) -> list[Any]:
    """Return the rows of items, encoded as the model runner does."""
    order = sorted(range(len(items)), key=lambda index: items[index][0])
    groups = group_and_batch_mm_kwargs(
        [items[index] for index in order], device=config.device_config.device
    )
    rows: list[Any] = []
    with torch.inference_mode(), set_current_vllm_config(config):
        for _, count, batch in groups:
            found = model.embed_multimodal(**batch)
            sanity_check_mm_encoder_outputs(found, expected_num_items=count)
            rows += found
    return [rows[order.index(index)] for index in range(len(items))]


def parts(found: Any) -> list[tuple[str, Any, Any]]:
    """Return modality, placeholder and data of each item."""
    return [
        (name, found["mm_placeholders"][name][index], item)
        for name, items in found["mm_kwargs"].items()
        for index, item in enumerate(items)
    ]


def shown(value: Any) -> str:
    """Return a value in few words."""
    shape = getattr(value, "shape", None)
    return repr(value)[:60] if shape is None else f"{value.dtype} of shape {tuple(shape)}"


def check_rows(plugin: Any, model: str, limits: dict[str, int], prompt: Any) -> str | None:
    """Each item that is processed is encoded, into as many usable rows as it has placeholders."""
    config = opened(plugin, model, limits)
    try:
        found = parts(process(config, prompt))
    except (ValueError, TypeError) as error:
        print(f"refused: {error}")
        return None
    try:
        rows = encode(config, random_model(config), [(name, item) for name, _, item in found])
    except Exception as error:
        return f"encoding raised {type(error).__name__}: {error}\nexpected: rows of each item"
    width = config.model_config.get_inputs_embeds_size()
    for one, (name, place, _) in zip(rows, found, strict=True):
        wanted = place.get_num_embeds()
        if len(one) != wanted:
            return f"{name} has {len(one)} rows\nexpected {wanted}, as it has placeholders"
        if not one.is_floating_point() or one.shape[1] != width or not one.isfinite().all():
            return f"{name} has rows {shown(one)}\nexpected finite numbers, {width} in a row"
    return None


fault = check_rows(
    Plugin,
    model="simulst_checkpoint:write",
    limits={"audio": 4},
    prompt={
        "tokens": [500, 501, 502],
        "items": {"audio": ["31s"]},
        "options": {},
        "alone": {"audio": [68, 69, 500, 501, 502, 74]},
    },
)
print(f"FAILS: {fault}" if fault else f"OK: {check_rows.__doc__}")
sys.exit(1 if fault else 0)
