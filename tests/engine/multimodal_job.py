# SPDX-License-Identifier: Apache-2.0
"""What tests ask of the tiny multi-modal models; runs in a fork that has imported vLLM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from conformance.engine.model_classes import inspect_models_here
from conformance.engine.multimodal_engine import MultiModalEngine, Request
from conformance.engine.multimodal_models import MODELS

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

RATE = 16_000


def image(width: int, height: int, draw: int = 0) -> Image.Image:
    """Draw a picture."""
    random = np.random.RandomState(draw)
    return Image.fromarray(random.randint(0, 256, (height, width, 3)).astype(np.uint8))


def video(width: int, height: int, frames: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Draw a film."""
    random = np.random.RandomState(frames)
    return random.randint(0, 256, (frames, height, width, 3)).astype(np.uint8)


def sound(samples: int, draw: int = 0) -> tuple[np.ndarray[Any, np.dtype[np.float32]], int]:
    """Make noise."""
    random = np.random.RandomState(draw)
    return (random.standard_normal(samples) * 0.1).astype(np.float32), RATE


_MAKERS: dict[str, Any] = {"image": image, "video": video, "audio": sound}


def generate(
    connection: Connection, model: str, requests: list[list[tuple[str, tuple[int, ...]]]]
) -> None:
    """Answer with what an engine makes of requests, alone and then all at once.

    Each request is a list of items, and each item a modality and the arguments of its maker.
    """
    connection.recv()
    inspect_models_here()
    tiny = MODELS[model]
    engine = MultiModalEngine.start(
        tiny.folder(), limits=dict.fromkeys(tiny.modalities, 3), max_model_len=1024
    )
    asked = [_request(tiny, items) for items in requests]
    alone = [engine.run([request])[0] for request in asked]
    together = engine.run(asked)
    first = requests[0][0]
    try:
        engine.run([_request(tiny, [first] * 4)])
        refusal = "none"
    except Exception as error:  # noqa: BLE001 - what it is depends on the release
        refusal = str(error)
    after = engine.run(asked[:1])[0]
    rows = {name: tuple(tensor.shape) for name, tensor in engine.encoded}
    connection.send((alone, together, refusal, after, rows))


def _request(tiny: Any, items: list[tuple[str, tuple[int, ...]]]) -> Request:  # noqa: ANN401
    data: dict[str, list[Any]] = {}
    text = "here:"
    for modality, arguments in items:
        data.setdefault(modality, []).append(_MAKERS[modality](*arguments))
        text += f" {tiny.placeholders[modality].text} and"
    return Request(text, data)
