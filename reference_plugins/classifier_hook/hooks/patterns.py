# SPDX-License-Identifier: Apache-2.0
"""What the regular expressions find, without holding the event loop.

A search in a long text is work without an await, in which no other request goes on, and a thread
is no way out: Python searches with its lock held.
So a text is searched in pieces, with a pause behind each.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

#: Characters that are searched at once: less than a millisecond.
PIECE = 16_384

#: Characters that a match may go beyond the piece that it starts in; no pattern matches more.
LONGEST = 320

#: Personal data.  Each pattern has an end to its repetitions, so that no text takes long.
PII: Mapping[str, re.Pattern[str]] = {
    "email": re.compile(
        r"(?<![\w.+-])[\w.+-]{1,64}@[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){0,2}\.[a-z]{2,24}(?!\w)",
        re.IGNORECASE,
    ),
    "card": re.compile(r"(?<![\d-])(?:\d[ -]?){12,18}\d(?![\d-])"),
    "ssn": re.compile(r"(?<![\d-])\d{3}-\d{2}-\d{4}(?![\d-])"),
    "phone": re.compile(r"(?<![\w+])\+\d{1,3}(?:[ .-]?\(?\d{2,4}\)?){2,4}(?!\d)"),
}


def keywords(words: Collection[str]) -> re.Pattern[str]:
    """Return a pattern of whole words, in any case.

    Raises:
        ValueError: there is no word, or one that is empty or longer than a match may be.

    """
    if not words or any(not word or len(word) > LONGEST for word in words):
        raise ValueError(f"keywords are texts of 1 to {LONGEST} characters (got {words!r})")
    # The longest first: an alternative that matches ends the search for a longer one.
    alternatives = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(rf"(?<!\w)(?:{alternatives})(?!\w)", re.IGNORECASE)


async def counted(text: str, patterns: Mapping[str, re.Pattern[str]]) -> dict[str, int]:
    """Return how often each pattern occurs in *text*, for those that do."""
    found: dict[str, int] = {}
    #: where the search of each pattern goes on, since a match may end in the next piece
    starts = dict.fromkeys(patterns, 0)
    for end in range(PIECE, len(text) + PIECE, PIECE):
        for name, pattern in patterns.items():
            for match in pattern.finditer(text, starts[name], min(end + LONGEST, len(text))):
                if match.start() >= end:
                    break
                starts[name] = match.end()
                if name != "card" or _luhn(match.group()):
                    found[name] = found.get(name, 0) + 1
            starts[name] = max(starts[name], end)
        if end < len(text):
            await asyncio.sleep(0)
    return found


def _luhn(number: str) -> bool:
    """Return whether the check digit of a card number is right."""
    total = 0
    for place, digit in enumerate(int(one) for one in reversed(number) if one.isdigit()):
        doubled = digit * 2 if place % 2 else digit
        total += doubled - 9 if doubled > 9 else doubled  # noqa: PLR2004 - the digits' sum
    return total % 10 == 0
