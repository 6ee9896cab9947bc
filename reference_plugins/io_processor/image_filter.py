# SPDX-License-Identifier: Apache-2.0
"""Takes an image and answers with one, tile by tile.

Each tile of eight by eight grey values becomes one prompt of token ids; the model gives a vector
for every token, and their means become the grey values of the answer::

    POST /pooling  {"data": {"image": "<PNG, base64>"}}

    {"data": {"image": "<PNG, base64>"}}

Its entry point in the group ``vllm.io_processor_plugins`` is :func:`register`.
"""

from __future__ import annotations

import base64
import binascii
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from vllm.plugins.io_processors.interface import IOProcessor
from vllm.pooling_params import PoolingParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from vllm.config import VllmConfig
    from vllm.inputs import PromptType
    from vllm.outputs import PoolingRequestOutput
    from vllm.renderers import BaseRenderer

TILE = 8
MAX_SIDE = 256  #: pixels; also what a token can say
MAX_BYTES = 1 << 20

#: The first tokens of a vocabulary have meanings of their own.
FIRST_TOKEN = 3

#: Every prompt begins with the width and the height of the image.
HEADER = 2
PROMPT = HEADER + TILE * TILE

Grey = np.ndarray[tuple[int, int], np.dtype[np.uint8]]


class ImageFilter(IOProcessor["Grey", dict[str, str]]):
    """Sends the tiles of an image through the model and puts an image together again."""

    def __init__(self, vllm_config: VllmConfig, renderer: BaseRenderer) -> None:
        """Check that the model has a token for every grey value."""
        super().__init__(vllm_config, renderer)
        vocabulary = vllm_config.model_config.get_vocab_size()
        if vocabulary < FIRST_TOKEN + MAX_SIDE:
            raise ValueError(f"a vocabulary of {vocabulary} has no token for every grey value")

    def parse_data(self, data: object) -> Grey:
        """Decode the image.

        Raises:
            ValueError: it is none, or too large, which becomes HTTP 400.

        """
        encoded = data.get("image") if isinstance(data, dict) else None
        if not isinstance(encoded, str) or len(encoded) > MAX_BYTES:
            raise ValueError(
                "data must be an object with an image, a PNG in base64 of at most 1 MB"
            )
        try:
            image = Image.open(
                io.BytesIO(base64.b64decode(encoded, validate=True)), formats=["PNG"]
            )
        except (binascii.Error, UnidentifiedImageError, OSError, SyntaxError) as error:
            raise ValueError("image is no PNG in base64") from error
        # The header says how large it is: nothing has been decompressed yet.
        if max(image.size) > MAX_SIDE or min(image.size) < 1:
            raise ValueError(f"image is {image.size}, at most {MAX_SIDE} pixels a side are taken")
        try:
            return np.asarray(image.convert("L"))
        except (OSError, SyntaxError, ValueError) as error:
            raise ValueError("image is cut off or broken") from error

    def merge_pooling_params(self, params: PoolingParams | None = None) -> PoolingParams:
        """Ask for a vector for every token, with whatever else the caller set."""
        params = PoolingParams() if params is None else params
        params.task = "token_embed"
        return params

    def pre_process(
        self,
        prompt: Grey,
        request_id: str | None = None,
        **kwargs: Any,  # noqa: ANN401 - as the interface has it
    ) -> Sequence[PromptType]:
        """Cut the image into tiles, row by row; what is over the edge is black."""
        del request_id, kwargs
        height, width = prompt.shape
        padded = np.pad(prompt, ((0, -height % TILE), (0, -width % TILE)))
        header = [FIRST_TOKEN + width - 1, FIRST_TOKEN + height - 1]
        return [
            {
                "prompt_token_ids": header
                + (padded[y : y + TILE, x : x + TILE].ravel().astype(int) + FIRST_TOKEN).tolist()
            }
            for y in range(0, height, TILE)
            for x in range(0, width, TILE)
        ]

    def post_process(
        self,
        model_output: Sequence[PoolingRequestOutput],
        request_id: str | None = None,
        **kwargs: Any,  # noqa: ANN401 - as the interface has it
    ) -> dict[str, str]:
        """Put the tiles together.

        The size of the image comes back in the prompts, where ``pre_process`` put it.

        Raises:
            ValueError: the client asked for prompts of another length, which becomes HTTP 400.

        """
        del request_id, kwargs
        if any(len(output.prompt_token_ids) != PROMPT for output in model_output):
            raise ValueError("an image can be neither truncated nor padded")
        width, height = (
            token - FIRST_TOKEN + 1 for token in model_output[0].prompt_token_ids[:HEADER]
        )
        tiles = [_grey(output.outputs.data) for output in model_output]
        columns = -(-width // TILE)
        rows = [np.hstack(tiles[i : i + columns]) for i in range(0, len(tiles), columns)]
        file = io.BytesIO()
        Image.fromarray(np.vstack(rows)[:height, :width], "L").save(file, "PNG")
        return {"image": base64.b64encode(file.getvalue()).decode()}


def _grey(vectors: torch.Tensor) -> NDArray[np.uint8]:
    """Return the grey values of a tile, ``[TILE, TILE]``, for its vectors, ``[tokens, size]``."""
    means = torch.tanh(vectors[HEADER:].float().sum(dim=-1))
    grey = ((means + 1) * 127.5).round().to(torch.uint8).reshape(TILE, TILE)
    return np.asarray(grey.cpu(), dtype=np.uint8)


def register() -> str:
    """Return the name of the class, as the entry point's function must."""
    return f"{__name__}.ImageFilter"
