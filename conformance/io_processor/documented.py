# SPDX-License-Identifier: Apache-2.0
"""The base class as the document of the interface has it, and as the installed vLLM does."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vllm.plugins.io_processors.interface import IOProcessor
from vllm.pooling_params import PoolingParams

_CONSTRUCTOR = IOProcessor.__init__


def calls_parse_request() -> bool:
    """Tell whether the installed vLLM still serves plugins of the documented generation."""
    parse = getattr(IOProcessor, "parse_data", None)
    return parse is None or "parse_request" in inspect.getsource(parse)


def restore_documented_base() -> None:
    """Give vLLM's base class back, in this process, what the document says that it has.

    Releases took it away: the constructor wants a renderer since 0.17, and the parameters have
    another method's name.
    """
    if hasattr(IOProcessor, "validate_or_generate_params"):
        return

    def documented(self: object, vllm_config: object, renderer: object = None) -> None:
        _CONSTRUCTOR(self, vllm_config, renderer)

    def validate_or_generate_params(_: object, params: object = None) -> Any:  # noqa: ANN401 - vLLM's
        return params or PoolingParams()

    IOProcessor.__init__ = documented
    IOProcessor.validate_or_generate_params = validate_or_generate_params


@contextmanager
def installed_constructor() -> Iterator[None]:
    """Give the base class the constructor of the installed vLLM, for the time of the block."""
    now = IOProcessor.__init__
    IOProcessor.__init__ = _CONSTRUCTOR
    try:
        yield
    finally:
        IOProcessor.__init__ = now
