# SPDX-License-Identifier: Apache-2.0
"""What a hook blocks, in other completions: behind more and more other text, and as a later one.

A classifier takes so many tokens, so a hook may cut a completion into pieces and score each.  What
stands where one ends and the next begins is in neither: it is let through there, and blocked at
every other place, again and again in the same distance.  Models of other kinds are not so regular:
one that is diluted by what stands before blocks up to some place, and nothing behind it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import attrs

from conformance.classifier_hook.bench import Bench, plain
from conformance.watching.comparison import shortened

#: What stands before, and how many of those at most: two pieces of 2,000 characters.
FILLER, MOST = "a ", 2_100

#: Every so many of them are tried first: pieces are hardly ever of a length that is a multiple, so
#: that even a narrow gap is met after a few pieces.
STRIDE = 5

#: Texts that are tried, calls of one hook, and seconds for each text.
TEXTS, ROW, SECONDS = 2, 10, 3.0


@attrs.frozen
class Seam:
    """Where a text is let through."""

    text: str  #: with what stands before it
    first: int  #: characters before it
    second: int

    def __str__(self) -> str:
        return (
            f"is let through behind {self.first} characters, and again behind {self.second}, and "
            f"blocked behind any other number: it stands where one piece ends of about "
            f"{self.second - self.first} characters, and the next begins"
        )


def lost(bench: Bench) -> tuple[str, Seam] | None:
    """Return a blocked text that pieces lose, and where."""
    for text in bench.blocked[:TEXTS]:
        if all(_blocked(bench, text, STRIDE)):
            continue  # as most hooks do
        gaps = _gaps(list(_blocked(bench, text)), len(text))
        if gaps is not None:
            first, second = (gap * len(FILLER) for gap in gaps)
            return text, Seam(FILLER * gaps[0] + text, first, second)
    return None


def later(bench: Bench) -> tuple[str, Mapping[str, int]] | None:
    """Return a text that is blocked in the first completion of a request, and not in others."""
    changes = {"index": 3}
    return next(((text, changes) for text in bench.blocked if _passes(bench, text, changes)), None)


def doubts(bench: Bench) -> str | None:
    """Say what texts that are blocked do not show, or None."""
    found = []
    # Not a failure: JSON that does not close is wrong only where the model has ended it.
    cut = {"finish_reason": "length"}
    text = next((each for each in bench.blocked if _passes(bench, each, cut)), None)
    if text is not None:
        found.append(
            f"{shortened(text)} is let through where its finish_reason is 'length': is that meant? "
            "A client gets it with max_tokens"
        )
    if not any(_passes(bench, each.partition(" ")[2], {}) for each in bench.blocked):
        found.append(
            "no blocked text begins with what is blocked: a search that starts too late would pass"
        )
    return "; ".join(found) or None


def _passes(bench: Bench, text: str, changes: Mapping[str, Any]) -> bool:
    """Tell whether a text is let through in a context in which something is other than usual."""
    call = bench.call(text, **changes)
    value = plain(call.value) if call.good else None
    return isinstance(value, dict) and not value.get("block")


def _blocked(bench: Bench, text: str, step: int = 1) -> Iterator[bool]:
    """Yield whether a text is blocked behind none, one, two, ... steps of what stands before it."""
    until = time.monotonic() + SECONDS
    counts = range(0, MOST, step)
    for start in range(0, len(counts), ROW):
        texts = [FILLER * count + text for count in counts[start : start + ROW]]
        for call in bench.row(bench.make(), texts):
            value = plain(call.value) if call.good else None
            if not isinstance(value, dict):
                return
            yield bool(value.get("block"))
        if time.monotonic() > until:
            return


def _gaps(blocked: list[bool], length: int) -> tuple[int, int] | None:
    """Return the last places of the first two gaps, where all are as regular as pieces are."""
    starts = [place for place, (was, now) in enumerate(pairwise(blocked)) if was and not now]
    ends = [place for place, (was, now) in enumerate(pairwise(blocked)) if now and not was]
    # The last one may go on beyond what was tried.
    gaps = list(zip(starts, ends, strict=False))
    if not blocked or not blocked[0] or len(gaps) < 2:  # noqa: PLR2004 - one is no distance
        return None
    widest = length // len(FILLER) + 1
    widths = [end - start for start, end in gaps]
    if max(widths) > widest or max(widths) - min(widths) > 1:
        return None
    first, second = gaps[0][1], gaps[1][1]
    period = second - first
    # What is looked for may begin anywhere in the text.
    begins = 0 <= period - first - 1 <= widest
    ends_so_far = enumerate(end for _, end in gaps)
    regular = all(abs(end - first - period * number) <= number for number, end in ends_so_far)
    whole = len(gaps) >= (len(blocked) - first) // period
    return (first, second) if begins and regular and whole else None
