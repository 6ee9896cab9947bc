# SPDX-License-Identifier: Apache-2.0
"""What came of a call of the plugin: a value, or what was raised."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import attrs
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.exceptions import VLLMClientError

from conformance.plugin.missing import way_out
from conformance.watching.raised import said

#: What vLLM answers with HTTP 400; up to 0.22 all of them were ``ValueError``.
_REFUSALS = (ValueError, VLLMClientError)

#: What vLLM asks for in words alone where items are rows of embeddings, and how a profile has it.
_FLAG = "--enable-mm-embeds"
ALLOW = (
    "vLLM takes rows of embeddings only where an argument of the engine allows it: set "
    "[multimodal] engine = { enable_mm_embeds = true }"
)


class CannotBuild(Exception):
    """vLLM cannot make a processor, or a model, of the class."""


@attrs.frozen(eq=False)
class Answer:
    """What came of a call: a value, or what was raised."""

    value: Any = None
    error: Exception | None = None

    @property
    def good(self) -> bool:
        """Tell whether nothing was raised."""
        return self.error is None

    @property
    def refused(self) -> bool:
        """Tell whether the plugin or vLLM refused it on purpose."""
        return isinstance(self.error, _REFUSALS)

    @property
    def lacks(self) -> bool:
        """Tell whether a package is missing, such as one that resamples sounds: nobody's fault."""
        return isinstance(self.error, ImportError)

    @property
    def forbidden(self) -> bool:
        """Tell whether vLLM refuses rows of embeddings since the engine is not to take any."""
        return isinstance(self.error, ValueError) and _FLAG in str(self.error)

    @property
    def of_client(self) -> bool:
        """Tell whether vLLM answers the client with an error of its own, not of the server."""
        if self.error is None:
            return False
        found = create_error_response(self.error).error
        return int(found.code) < HTTPStatus.INTERNAL_SERVER_ERROR

    def wants(self, module: str = "") -> str | None:
        """Return what to install where what was raised wants a package that is not here."""
        return way_out(self.error, module, None) if isinstance(self.error, ImportError) else None

    def describe(self) -> str:
        """Say what was raised, and what to install if that helps."""
        assert self.error is not None
        way = self.wants()
        return f"raised {said(self.error)}" + (f": {way}" if way else "")


def answer(call: Callable[[], Any]) -> Answer:
    """Call and return what came of it."""
    try:
        return Answer(call())
    except Exception as error:  # noqa: BLE001 - an answer like any other
        return Answer(error=error)
