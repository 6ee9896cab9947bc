# SPDX-License-Identifier: Apache-2.0
"""A blocking hook: no answer with personal data, or with certain words, goes out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reference_plugins.classifier_hook.hooks.patterns import PII, counted, keywords

if TYPE_CHECKING:
    from collections.abc import Collection

    from reference_plugins.classifier_hook import ScoringContext

REPLACEMENT = "This answer was withheld because it contains personal data."


class PiiBlocker:
    """Replaces answers that contain personal data.

    Args:
        words: keywords that are blocked as well, in any case.
        replacement: what goes out instead.
        allowed: what is found more than this often is blocked.
        name: unique in its engine.
        timeout_ms: of one call; a call that takes longer blocks.

    """

    blocking = True

    def __init__(
        self,
        words: Collection[str] = (),
        *,
        replacement: str = REPLACEMENT,
        allowed: int = 0,
        name: str = "pii",
        timeout_ms: int = 1000,
    ) -> None:
        self.name = name
        self.timeout_ms = timeout_ms
        self._replacement = replacement
        self._allowed = allowed
        self._patterns = dict(PII)
        if words:
            self._patterns["keyword"] = keywords(words)

    async def score(self, ctx: ScoringContext) -> dict[str, Any]:
        """Return the counts, and the decision."""
        counts = await counted(ctx.generated_text, self._patterns)
        if sum(counts.values()) <= self._allowed:
            return {"block": False, "counts": counts}
        return {"block": True, "replacement": self._replacement, "counts": counts}
