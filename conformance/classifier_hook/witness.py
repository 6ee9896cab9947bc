# SPDX-License-Identifier: Apache-2.0
"""A hook that tells what hooks were told: it is registered beside the one that is tried.

From what it says a context is made again, and a fresh instance must score that context alike.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any

NAME = "vllm-conformance-witness"

_LOGPROBS = ("logprobs", "prompt_logprobs")
_MAPPINGS = ("extra_fields", "request_metadata")
_TOKENS = ("prompt_token_ids", "output_token_ids")
_PLAIN = (
    "request_id",
    "prompt",
    "generated_text",
    "finish_reason",
    "index",
    "stop_reason",
    "cumulative_logprob",
)


class Witness:
    """Answers with the context."""

    name = NAME
    blocking = False
    timeout_ms = 60_000

    async def score(self, ctx: object) -> dict[str, Any]:
        """Return the context as JSON values."""
        return written(ctx)


def written(context: object) -> dict[str, Any]:
    """Return a context as JSON values."""
    told = {name: getattr(context, name) for name in _PLAIN}
    told |= {name: list(getattr(context, name)) for name in _TOKENS}
    told |= {name: _plain(getattr(context, name)) for name in _MAPPINGS}
    for name in _LOGPROBS:
        positions = getattr(context, name)
        told[name] = positions and [
            position
            and {str(token): [_number(one[0]), one[1], one[2]] for token, one in position.items()}
            for position in positions
        ]
    told["cumulative_logprob"] = _number(told["cumulative_logprob"])
    return told


def read(told: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a ScoringContext
    """Return the context that was written down."""
    contract = importlib.import_module("reference_plugins.classifier_hook.contract")
    fields: dict[str, Any] = {name: told[name] for name in _PLAIN}
    fields |= {name: list(told[name]) for name in _TOKENS}
    fields |= {name: contract.plain(told[name]) for name in _MAPPINGS}
    for name in _LOGPROBS:
        positions = told[name]
        fields[name] = None if positions is None else list(map(_position, positions))
    cumulative = fields["cumulative_logprob"]
    fields["cumulative_logprob"] = None if cumulative is None else float(cumulative)
    return contract.ScoringContext(**fields)


def _position(entries: Mapping[str, Any] | None) -> Any:  # noqa: ANN401 - by token, or None
    contract = importlib.import_module("reference_plugins.classifier_hook.contract")
    if entries is None:
        return None
    return {
        int(token): contract.TokenLogprob(float(one[0]), one[1], one[2])
        for token, one in entries.items()
    }


def _number(value: float | None) -> float | str | None:
    """Return a number as JSON takes it: a token that cannot come has minus infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
