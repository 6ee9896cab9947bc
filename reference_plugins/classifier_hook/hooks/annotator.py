# SPDX-License-Identifier: Apache-2.0
"""An annotation hook: which keywords and personal data are in an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reference_plugins.classifier_hook.hooks.patterns import PII, counted, keywords

if TYPE_CHECKING:
    from collections.abc import Collection

    from reference_plugins.classifier_hook import ScoringContext


class PatternAnnotator:
    """Counts personal data and keywords, and changes no answer.

    Its scores are ``{"found": 3, "counts": {"email": 2, "keyword": 1}}``; what was found is not
    in them, since scores go to logs and responses.

    Args:
        words: the keywords, in any case; none are searched for by default.
        name: unique in its engine.
        timeout_ms: of one call.

    """

    blocking = False

    def __init__(
        self,
        words: Collection[str] = (),
        *,
        name: str = "patterns",
        timeout_ms: int = 500,
    ) -> None:
        self.name = name
        self.timeout_ms = timeout_ms
        self._patterns = dict(PII)
        if words:
            self._patterns["keyword"] = keywords(words)

    async def score(self, ctx: ScoringContext) -> dict[str, Any]:
        """Return the counts for the generated text."""
        counts = await counted(ctx.generated_text, self._patterns)
        return {"found": sum(counts.values()), "counts": counts}
