# SPDX-License-Identifier: Apache-2.0
"""Arguments of the engine that a model needs, as the profile names them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from vllm.engine.arg_utils import EngineArgs

from conformance.rules import nearest
from conformance.settings import UsageError

#: The key of the profile.
KEY = "engine"

#: What the harness says itself.
_TAKEN = frozenset({"model", "limit_mm_per_prompt", "max_model_len", "dtype", "load_format"})


def arguments(section: Mapping[str, Any], origin: str | None) -> Mapping[str, Any]:
    """Return the arguments of ``vllm.EngineArgs`` that a profile names.

    Raises:
        UsageError: there are no such arguments, or the harness needs others.

    """
    named: Mapping[str, Any] = section.get(KEY, {})
    known = {field.name for field in fields(EngineArgs)}
    for name in named:
        where = f"profile {origin}: [multimodal] {KEY}.{name}"
        if name in _TAKEN:
            raise UsageError(f"{where} is for the harness to say; leave it out.")
        if name not in known:
            told = f"{where}: EngineArgs of this vLLM has no such argument."
            raise UsageError(told + nearest(name, known))
    return named


def options(named: Mapping[str, Any]) -> Iterator[str]:
    """Yield the same as options of ``vllm serve``."""
    for name, value in named.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{option}" if value else f"--no-{option}"
        elif isinstance(value, str | int | float):
            yield f"--{option}={value}"
        else:
            yield f"--{option}={json.dumps(value)}"
