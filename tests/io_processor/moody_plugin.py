# SPDX-License-Identifier: Apache-2.0
"""A plugin that does what a request asks for: raises here or there, or answers."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from vllm.plugins.io_processors.interface import IOProcessor
from vllm.pooling_params import PoolingParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm.outputs import PoolingRequestOutput

ERRORS = (ValueError, RuntimeError, KeyError, NotImplementedError)

#: The first token of a prompt says which of the errors is to come, or that none is.
FIRST, NONE = 10, 9


class Moody(IOProcessor[dict[str, Any], list[int]]):
    """Raises ``error`` in the hook that ``where`` names; the texts become prompts."""

    def parse_data(self, data: object) -> dict[str, Any]:
        """Take whatever it is."""
        assert isinstance(data, dict)
        sys.stderr.write(f"parse_data: {json.dumps(data)}\n")  # to the server's log
        _raise("parse_data", data)
        return data

    def merge_pooling_params(self, params: PoolingParams | None = None) -> PoolingParams:
        """Ask for embeddings."""
        params = PoolingParams() if params is None else params
        params.task = "embed"
        return params

    def pre_process(
        self,
        prompt: dict[str, Any],
        request_id: str | None = None,
        **_: object,
    ) -> list[dict[str, list[int]]]:
        """Make a prompt of every text, with one token for each of its characters."""
        del request_id
        _raise("pre_process", prompt)
        late = prompt.get("where") == "post_process"
        first = FIRST + _number(prompt["error"]) if late else NONE
        return [{"prompt_token_ids": [first, *map(ord, text)]} for text in prompt["texts"]]

    def post_process(
        self,
        model_output: Sequence[PoolingRequestOutput],
        request_id: str | None = None,
        **_: object,
    ) -> list[int]:
        """Return how long the texts are."""
        del request_id
        if (first := model_output[0].prompt_token_ids[0]) != NONE:
            raise ERRORS[first - FIRST]("post_process did not feel like it")
        return [len(output.prompt_token_ids) - 1 for output in model_output]


def _raise(where: str, data: dict[str, Any]) -> None:
    if data.get("where") == where:
        raise ERRORS[_number(data["error"])](f"{where} did not feel like it")


def _number(name: str) -> int:
    return [error.__name__ for error in ERRORS].index(name)


def register() -> str:
    """Return the name of the class."""
    return f"{__name__}.Moody"
