# SPDX-License-Identifier: Apache-2.0
"""What the requests of histories are made of: token ids, and the orders in which they come.

Few different tokens, so that what a plugin has seen comes again within a few steps; now and then a
rare one; and whole what it waits for, which chance would not put together.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache, cached_property
from itertools import product

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

#: Different tokens in the outputs of one request, but for rare ones and phrases.
DIFFERENT = 5

#: How the outputs of a request go on, by the number of each token, the simplest first; numbers
#: from :data:`DIFFERENT` on are of rare tokens. They repeat one token, alternate, come in n-grams,
#: and follow no rule.
_PATTERNS: tuple[tuple[int, ...], ...] = (
    *((number,) for number in range(DIFFERENT)),
    *((first, second) for first, second in product(range(3), repeat=2) if first != second),
    *((0, 0, 1), (0, 1, 1), (0, 1, 2), (0, 1, 0, 2), (0, 1, 2, 0, 3), (0, 1, 2, 3), (5, 0, 0)),
    *(tuple(random.Random(seed).choices(range(DIFFERENT + 1), k=16)) for seed in range(22)),
)

#: How often a phrase is drawn for every time that it is not.
_PHRASES = 1.0

#: The order of tokens where a history says nothing about it.
_UNSAID = tuple(random.Random(7).choices(range(1 << 16), k=257))


@attrs.frozen
class Words:
    """Token ids that prompts and outputs are made of."""

    tokens: tuple[int, ...]
    rare: tuple[int, ...] = ()
    phrases: tuple[tuple[int, ...], ...] = ()  #: what is waited for in this order
    prompts: tuple[tuple[int, ...], ...] = ()  #: whole ones

    @cached_property
    def every(self) -> tuple[int, ...]:
        """Every token id, once."""
        phrases = (token for phrase in self.phrases for token in phrase)
        return tuple(dict.fromkeys((*self.tokens, *self.rare, *phrases)))

    @property
    def script(self) -> tuple[int, ...]:
        """Outputs in which everything occurs that is waited for, and then tokens come again.

        Each phrase is followed by another one, and by other tokens: a plugin may act between what
        begins with the one and ends with the other.
        """
        return tuple(token for part in self._parts for token in part)

    @property
    def _parts(self) -> tuple[tuple[int, ...], ...]:
        """The script, in what has to be said in one piece."""
        apart = ((*phrase, *self.tokens[:2]) for phrase in self.phrases)
        return (*self.phrases, *apart, self.tokens, self.tokens)

    def pieces(self, room: int) -> list[tuple[int, ...]]:
        """Return the script in pieces of so many tokens at most, for requests that hold no more.

        It is cut between what has to be said in one piece, unless that is longer by itself.
        """
        pieces: list[tuple[int, ...]] = [()]
        for part in self._parts:
            if len(pieces[-1]) + len(part) > room and pieces[-1]:
                pieces.append(())
            pieces[-1] += part[:room]
        return pieces

    @property
    def longest(self) -> int:
        """How many tokens it takes to say the longest of the phrases; 0 where there are none."""
        return max(map(len, self.phrases), default=0)

    def phrase(self, number: int) -> tuple[int, ...]:
        """Return one of the phrases, in turn; nothing where there are none."""
        return self.phrases[number % len(self.phrases)] if self.phrases else ()

    def prompt(self, number: int) -> tuple[int, ...]:
        """Return one of the whole prompts, in turn; empty if there are none."""
        return self.prompts[number % len(self.prompts)] if self.prompts else ()

    def saying(self, number: int) -> tuple[int, ...]:
        """Return tokens that begin with one of the phrases, in turn, if there are any."""
        return (*self.phrase(number), *self.tokens)

    def said(self, step: int) -> int:
        """Return the output of a step where no history says it: a phrase, then tokens in turn."""
        phrase = self.phrase(0)
        later = step - len(phrase)
        return phrase[step] if later < 0 else self.tokens[later % len(self.tokens)]

    @property
    def repeating(self) -> Iterator[tuple[int, ...]]:
        """The orders in which outputs repeat themselves, the simplest first."""
        return (self.outputs(number, 0) for number in range(len(_PATTERNS)))

    def outputs(self, number: int, start: int) -> tuple[int, ...]:
        """Return the outputs of a number, with the tokens from ``start`` on."""
        if number < len(_PATTERNS):
            return tuple(self._token(each, start) for each in _PATTERNS[number])
        phrase = self.phrases[(number - len(_PATTERNS)) // 3 % len(self.phrases)]
        around = [self._token(each, start) for each in range(3)]
        match number % 3:
            case 0:
                return (*phrase, *around)
            case 1:
                return (around[0], *phrase, *around[1:], *around)
            case _:
                # It comes close, and then it does come.
                return (*phrase[:-1], *around[:1], *phrase, *around[1:])

    def _token(self, number: int, start: int) -> int:
        if number >= DIFFERENT and self.rare:
            return self.rare[(start + number) % len(self.rare)]
        return self.tokens[(start + number) % len(self.tokens)]


@cache
def upto(most: int) -> SearchStrategy[int]:
    """Return what draws a number from 0 to another: made once, and not for each draw."""
    return st.integers(0, most)


def draw_tokens(
    draw: DrawFn, words: Words, shortest: int, longest: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw a prompt of some length, longer by a phrase at times, and how the outputs go on."""
    lengths = longest - shortest + 1
    # One draw for both, since draws are what takes the time.
    start, length = divmod(draw(upto(len(words.tokens) * lengths - 1)), lengths)
    length += shortest
    prompt = tuple(words.tokens[(start + each) % len(words.tokens)] for each in range(length))
    longer = (*(prompt + phrase for phrase in words.phrases), *words.prompts)
    if longer and (number := draw(upto(3 * len(longer) - 1))) >= 2 * len(longer):
        prompt = longer[number % len(longer)]
    most = len(_PATTERNS) + (round(_PHRASES * len(_PATTERNS)) if words.phrases else 0)
    return prompt, words.outputs(draw(upto(most - 1)), start)


def following(
    wanted: tuple[int, ...], prompt: tuple[int, ...], count: int, allowed: list[int]
) -> int | None:
    """Return the token that a request gets after ``count`` others.

    Args:
        wanted: how its outputs go on, from the start again at their end; none where nobody says.
        prompt: its prompt, which makes up for that.
        count: its outputs so far.
        allowed: those tokens of a history that its row allows.

    Returns:
        The wanted token, or another one that is allowed; None where none is.

    """
    if wanted and (token := wanted[count % len(wanted)]) in allowed:
        return token
    if not allowed:
        return None
    return allowed[_UNSAID[(sum(prompt) + count) % len(_UNSAID)] % len(allowed)]
