# SPDX-License-Identifier: Apache-2.0
"""Plugins with ``parse_request``: the documented generation, vLLM 0.10 to 0.28."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.plugins.io_processors.interface import IOProcessor
from vllm.pooling_params import PoolingParams

from conformance.io_processor.suites import shared
from conformance.rules import Evidence

if TYPE_CHECKING:
    from collections.abc import Mapping

BASE = shared.BASE

meant = shared.meant


def recognises(cls: type) -> bool:
    """Tell whether a class is a plugin of this generation."""
    return shared.is_plugin(cls) and shared.defines(cls, "parse_request")


def open_trial(evidence: Evidence, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
    """Open the trial of a plugin on one kind of evidence."""
    if evidence is Evidence.SIMULATOR:  # engines and servers have what their release has
        restore_documented_base()
    return shared.open_trial(shared.REQUEST, evidence, *arguments, **keywords)


def replay(cls: type, counterexample: Mapping[str, Any], *, model: str) -> tuple[list[str], str]:
    """Play a counterexample again."""
    restore_documented_base()
    return shared.replay(shared.REQUEST, cls, counterexample, model=model)


def restore_documented_base() -> None:
    """Give vLLM's base class back, in this process, what the document says that it has.

    Releases took it away: the constructor wants a renderer since 0.17, and the parameters have
    another method's name.
    """
    if hasattr(IOProcessor, "validate_or_generate_params"):
        return
    constructor = IOProcessor.__init__

    def documented(self: Any, vllm_config: Any, renderer: Any = None) -> None:  # noqa: ANN401
        constructor(self, vllm_config, renderer)

    def validate_or_generate_params(_: Any, params: Any = None) -> Any:  # noqa: ANN401 - vLLM's
        return params or PoolingParams()

    IOProcessor.__init__ = documented
    IOProcessor.validate_or_generate_params = validate_or_generate_params
