# SPDX-License-Identifier: Apache-2.0
"""What tests ask of the reference model; runs in a fork that has imported vLLM."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

from conformance.engine.model_classes import inspect_models_here
from conformance.engine.multimodal_engine import MultiModalEngine, Request
from conformance.multimodal.host.recording import record
from reference_plugins.tiny_vlm import checkpoint, register
from reference_plugins.tiny_vlm.configuration import TinyVlmConfig
from reference_plugins.tiny_vlm.images import TinyVlmImageProcessor

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path


def _pixels(width: int, height: int) -> Any:  # noqa: ANN401 - an array
    random = np.random.RandomState(width)
    return random.randint(0, 256, (height, width, 3)).astype(np.uint8)


def images(connection: Connection, sizes: list[tuple[int, int]], refused: list[Any]) -> None:
    """Answer with grids by size, what is said of bad images, and what is the same."""
    connection.recv()
    processor = TinyVlmImageProcessor(TinyVlmConfig())
    made = processor([Image.fromarray(_pixels(*size)) for size in sizes])
    grids = [tuple(grid) for grid in made["image_grids"].tolist()]
    assert made["pixel_values"].shape == (sum(r * c for r, c in grids), 3 * 16 * 16)
    assert made["pixel_values"].abs().max() <= 1
    told = []
    for value, options in refused:
        try:
            processor([value], **options)
        except ValueError as error:
            told.append(str(error))
    array = _pixels(48, 32)
    forms = [Image.fromarray(array), array, array.transpose(2, 0, 1), torch.from_numpy(array)]
    alone = [processor([form])["pixel_values"] for form in forms]
    together = processor(forms)["pixel_values"].split(6)
    same = all(rows.equal(alone[0]) for rows in (*alone, *together))
    fewer = processor(forms[:1], max_patches=2)["image_grids"].tolist()
    more = processor([Image.new("L", (999, 999))], max_patches=999)["image_grids"].tolist()
    connection.send((grids, told, same, fewer, more))


def written_twice(connection: Connection, folder: Path) -> None:
    """Answer with the digests of two checkpoints."""
    connection.recv()
    digests = []
    for name in ("one", "other"):
        made = checkpoint.write(folder / name)
        files = sorted(made.iterdir())
        digests.append({f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files})
    connection.send(digests)


def by_entry_point(connection: Connection, folder: Path) -> None:
    """Answer with what an engine says that learns of the model from an entry point alone."""
    connection.recv()
    inspect_models_here()
    engine = MultiModalEngine.start(checkpoint.write(folder / "model"), limits={"image": 4})
    shades = [Image.new("RGB", (40, 40), (shade, 0, 0)) for shade in (0, 90, 180)]
    asked = [Request("<image>what is it?", {"image": [shade]}) for shade in shades]
    asked.append(Request("a<image>b<image>c", {"image": shades[:2]}))
    asked.append(Request("a<image>b<image>c", {"image": shades[1::-1]}))
    asked.append(Request("no picture"))
    together = engine.run(asked)
    alone = [engine.run([request])[0] for request in asked]
    connection.send((alone, together))


def recorded(connection: Connection, folder: Path) -> None:
    """Answer with what the orders of an engine with pictures show."""
    connection.recv()
    inspect_models_here()
    register()
    sizes = ((40, 40), (128, 96), (16, 16), (160, 90), (128, 96))
    pictures = [
        Image.fromarray(np.roll(_pixels(*size), number, axis=0))
        for number, size in enumerate(sizes)
    ]
    connection.send(record(checkpoint.write(folder / "model"), "image", "<image>", pictures))
