# SPDX-License-Identifier: Apache-2.0
"""Two scorers: how many letters of a text are capitals, in the second one not for every text."""


class Capitals:
    """The share of capital letters."""

    def score_text(self, text: str) -> float:
        """Return a number from 0 to 1."""
        return sum(letter.isupper() for letter in text) / max(1, len(text))


class CapitalsPerWord:
    """Fails TS-02: a word may have more than one capital letter."""

    def score_text(self, text: str) -> float:
        """Return the number of capital letters by words."""
        return sum(letter.isupper() for letter in text) / max(1, len(text.split()))
