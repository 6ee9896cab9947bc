# SPDX-License-Identifier: Apache-2.0
"""Embeds documents that are longer than the model's context.

A document is cut into windows of tokens, each window is embedded by itself, and the embeddings
are pooled by the lengths of their windows::

    POST /pooling  {"data": {"text": "...", "window": 128}}

    {"data": {"embedding": [...], "windows": [{"tokens": 128, "similarity": 0.93}, ...]}}

Its entry point in the group ``vllm.io_processor_plugins`` is :func:`register`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from vllm.plugins.io_processors.interface import IOProcessor
from vllm.pooling_params import PoolingParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm.config import VllmConfig
    from vllm.inputs import PromptType
    from vllm.outputs import PoolingRequestOutput
    from vllm.renderers import BaseRenderer

#: The event loop waits for parsing and cutting, so neither may take long.
MAX_CHARACTERS = 100_000
MAX_WINDOWS = 64
MIN_WINDOW = 4


@dataclass(frozen=True)
class Document:
    """A request that has been checked."""

    text: str
    window: int  #: tokens


class LongDocumentEmbedding(IOProcessor[Document, dict[str, Any]]):
    """Embeds a document window by window."""

    def __init__(self, vllm_config: VllmConfig, renderer: BaseRenderer) -> None:
        """Remember how long a window may be."""
        super().__init__(vllm_config, renderer)
        self._tokenizer = renderer.get_tokenizer()
        # One more than a window is the token that the model ends its input with.
        self._longest = vllm_config.model_config.max_model_len - 1

    def parse_data(self, data: object) -> Document:
        """Check what the client sent.

        Raises:
            ValueError: it is no document, which becomes HTTP 400.

        """
        fields = data if isinstance(data, dict) else {}
        text, window = fields.get("text"), fields.get("window", min(128, self._longest))
        if not isinstance(text, str) or not text.strip():
            raise ValueError("data must be an object with a text that is not blank")
        if len(text) > MAX_CHARACTERS:
            raise ValueError(f"text has {len(text)} characters, at most {MAX_CHARACTERS} are taken")
        # bool is a subclass of int
        whole = isinstance(window, int) and not isinstance(window, bool)
        if not whole or not MIN_WINDOW <= window <= self._longest:
            raise ValueError(f"window must be a number of tokens, {MIN_WINDOW} to {self._longest}")
        return Document(text, window)

    def merge_pooling_params(self, params: PoolingParams | None = None) -> PoolingParams:
        """Ask for embeddings, with whatever else the caller set."""
        # A new object for every request: vLLM writes into it.
        params = PoolingParams() if params is None else params
        params.task = "embed"
        return params

    def pre_process(
        self,
        prompt: Document,
        request_id: str | None = None,
        **kwargs: Any,  # noqa: ANN401 - as the interface has it
    ) -> Sequence[PromptType]:
        """Cut the document into windows.

        Raises:
            ValueError: there are too many, which becomes HTTP 400.

        """
        del request_id, kwargs
        tokens = self._tokenizer.encode(prompt.text)
        windows = [tokens[i : i + prompt.window] for i in range(0, len(tokens), prompt.window)]
        if len(windows) > MAX_WINDOWS:
            raise ValueError(
                f"text becomes {len(windows)} windows, at most {MAX_WINDOWS} are taken: "
                "make the window larger"
            )
        return [{"prompt_token_ids": window} for window in windows]

    def post_process(
        self,
        model_output: Sequence[PoolingRequestOutput],
        request_id: str | None = None,
        **kwargs: Any,  # noqa: ANN401 - as the interface has it
    ) -> dict[str, Any]:
        """Pool the windows, which are in the order of the document.

        All that is needed is in the outputs: nothing is kept from ``pre_process``, because nobody
        tells a plugin that a request failed, and two requests may have the same id.
        """
        del request_id, kwargs
        lengths = [len(output.prompt_token_ids) for output in model_output]
        vectors = torch.stack([output.outputs.data.float() for output in model_output])
        weights = torch.tensor(lengths, dtype=torch.float32) / sum(lengths)
        embedding = torch.nn.functional.normalize(weights @ vectors, dim=0)
        similarities = torch.nn.functional.cosine_similarity(vectors, embedding[None], dim=1)
        return {
            "embedding": embedding.tolist(),
            "windows": [
                {"tokens": length, "similarity": similarity}
                for length, similarity in zip(lengths, similarities.tolist(), strict=True)
            ],
        }


def register() -> str:
    """Return the name of the class, as the entry point's function must."""
    return f"{__name__}.LongDocumentEmbedding"
