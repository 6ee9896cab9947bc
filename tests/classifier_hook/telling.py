# SPDX-License-Identifier: Apache-2.0
"""A hook for servers of tests: its scores are what it was told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reference_plugins.classifier_hook import ScoringContext


class Telling:
    """Says what is in its contexts."""

    name = "telling"
    blocking = False
    timeout_ms = 1000

    async def score(self, ctx: ScoringContext) -> dict[str, Any]:
        """Return what tests look at."""
        return {
            "prompt": ctx.prompt,
            "text": ctx.generated_text,
            "extra": dict(ctx.extra_fields),
            "metadata": sorted(ctx.request_metadata),
            "tokens": len(ctx.output_token_ids),
            "logprobs": None if ctx.logprobs is None else len(ctx.logprobs),
        }
