# SPDX-License-Identifier: Apache-2.0
"""The batches that steps are measured with: how large, how busy, and which of them in a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from conformance.settings import Budget

#: What is kept while something else is varied.
REQUESTS, VOCABULARY, SHARE = 64, 32_000, 0.5

#: Requests of the batch in which the vocabulary is varied.
FEW = 16


@attrs.frozen
class Load:
    """A batch in which every request gets a token in each step."""

    requests: int
    vocabulary: int
    share: float  #: of the requests that opt in; a batch with any share has one that does
    churning: bool = False  #: whether a request is replaced in every step

    @property
    def name(self) -> str:
        """A short name, for example ``64 requests, 32000 tokens, 50% on``."""
        plural = "s" if self.requests > 1 else ""
        text = f"{self.requests} request{plural}, {self.vocabulary} tokens, {self.share:.0%} on"
        return f"{text}, churning" if self.churning else text

    def opted_in(self, row: int) -> bool:
        """Tell whether the request in a row opts in; they are spread over the batch."""
        if self.share and row == self.requests - 1 and self.requests * self.share < 1:
            return True
        return int((row + 1) * self.share) > int(row * self.share)


_SIZES = {
    Budget.QUICK: (1, 16, 64, 256),
    Budget.STANDARD: (1, 4, 16, 64, 256, 1024),
    Budget.DEEP: (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
}
_VOCABULARIES = {
    Budget.QUICK: (32_000, 128_000),
    Budget.STANDARD: (32_000, 64_000, 128_000, 256_000),
    Budget.DEEP: (32_000, 50_000, 64_000, 100_000, 128_000, 152_000, 200_000, 256_000),
}
_SHARES = {
    Budget.QUICK: (0.0, 1.0),
    Budget.STANDARD: (0.0, 0.01, 0.5, 1.0),
    Budget.DEEP: (0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 1.0),
}

#: Requests of the batches in which the share is varied: enough that 1 % of them is some.
_SHARED = 256


def plan(budget: Budget) -> tuple[Load, ...]:
    """Return the loads of a run: each varies one thing, and none comes twice."""
    return tuple(dict.fromkeys(_plan(budget)))


def _plan(budget: Budget) -> Iterator[Load]:
    for requests in _SIZES[budget]:
        yield Load(requests, VOCABULARY, SHARE)
    for vocabulary in _VOCABULARIES[budget]:
        yield Load(FEW, vocabulary, SHARE)
    for share in _SHARES[budget]:
        yield Load(_SHARED, VOCABULARY, share)
    for share in (0.0, SHARE):
        yield Load(_SHARED, VOCABULARY, share, churning=True)


def growing(loads: Sequence[Load]) -> list[Load]:
    """Return the loads that tell how a step's cost grows with the batch and the vocabulary."""
    return [load for load in loads if load.share == SHARE and not load.churning]
