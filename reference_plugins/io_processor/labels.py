# SPDX-License-Identifier: Apache-2.0
"""One class for both generations of the interface: labels for the lines of a text.

vLLM 0.10 to 0.16 call ``parse_request``, ``validate_or_generate_params``, the awaited hooks and
``output_to_response``; later releases call ``parse_data``, ``merge_pooling_params`` and the plain
hooks. All the work is in methods that both have::

    POST /pooling  {"data": {"lines": ["...", "..."]}}

    {"data": [{"label": 2, "probability": 0.61}, ...]}

Its entry point in the group ``vllm.io_processor_plugins`` is :func:`register`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.plugins.io_processors.interface import IOProcessor
from vllm.pooling_params import PoolingParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm.config import VllmConfig
    from vllm.inputs import PromptType
    from vllm.outputs import PoolingRequestOutput

try:
    from vllm.entrypoints.pooling.pooling.protocol import IOProcessorResponse
except ImportError:  # up to 0.11
    from vllm.entrypoints.openai.protocol import IOProcessorResponse

MAX_LINES = 64
MAX_CHARACTERS = 1_000

Lines = list[str]
Labels = list[dict[str, Any]]


class LineLabels(IOProcessor[Lines, Labels]):
    """Says the likeliest label of every line, in the order of the lines."""

    def __init__(self, vllm_config: VllmConfig, renderer: Any = None) -> None:  # noqa: ANN401 - of a type that some releases lack
        """Take a renderer where the release has one."""
        if renderer is None:
            super().__init__(vllm_config)  # releases up to 0.16
        else:
            super().__init__(vllm_config, renderer)

    def parse_data(self, data: object) -> Lines:
        """Check what the client sent.

        Raises:
            ValueError: it is no list of lines, which becomes HTTP 400.

        """
        lines = data.get("lines") if isinstance(data, dict) else None
        if not isinstance(lines, list) or not 1 <= len(lines) <= MAX_LINES:
            raise ValueError(f"data must be an object with lines, 1 to {MAX_LINES} strings")
        for line in lines:
            if not isinstance(line, str) or not line.strip() or len(line) > MAX_CHARACTERS:
                raise ValueError(f"a line must be a string of 1 to {MAX_CHARACTERS} characters")
        return list(lines)

    def parse_request(self, request: Any) -> Lines:  # noqa: ANN401 - three forms, see below
        """Take the server's request object, offline's dictionary, or bare data."""
        if hasattr(request, "data"):
            return self.parse_data(request.data)
        if isinstance(request, dict) and "data" in request:
            return self.parse_data(request["data"])
        return self.parse_data(request)

    def merge_pooling_params(self, params: PoolingParams | None = None) -> PoolingParams:
        """Ask for a classification, with whatever else the caller set."""
        params = PoolingParams() if params is None else params
        params.task = "classify"
        return params

    def validate_or_generate_params(self, params: PoolingParams | None = None) -> PoolingParams:
        """Do the same under the method's first name."""
        return self.merge_pooling_params(params)

    def pre_process(
        self,
        prompt: Lines,
        request_id: str | None = None,
        **kwargs: Any,  # noqa: ANN401 - as the interface has it
    ) -> Sequence[PromptType]:
        """Make a prompt of every line."""
        del request_id, kwargs
        return list(prompt)

    def post_process(
        self,
        model_output: Sequence[PoolingRequestOutput],
        request_id: str | None = None,
        **kwargs: Any,  # noqa: ANN401 - as the interface has it
    ) -> Labels:
        """Return the likeliest label of every line."""
        del request_id, kwargs
        best = [output.outputs.data.float().max(dim=-1) for output in model_output]
        return [{"label": int(found.indices), "probability": float(found.values)} for found in best]

    def output_to_response(self, plugin_output: Labels) -> IOProcessorResponse[Labels]:
        """Wrap the answer for releases that do not do it themselves."""
        return IOProcessorResponse(data=plugin_output)


def register() -> str:
    """Return the name of the class, as the entry point's function must."""
    return f"{__name__}.LineLabels"
