# SPDX-License-Identifier: Apache-2.0
"""Answers at which a parser may hang: nearly right ones, and long ones whose parts do not end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, product
from typing import Any

from conformance.parser.bench import HANGS, Bench
from conformance.parser.messages import quoted
from conformance.watching.clocks import beyond, shortest
from conformance.watching.interruption import PluginHung

#: Seconds of processor time that a call may take on an ordinary machine: a server answers no
#: request meanwhile.
STALL = 5.0

#: Characters that mean something in one format or another.
PIECES = ('"', "\\", "'", "{", "}", "[", "]", ",", ": ", "\n", "<", "</")

#: A marker, or characters that are no word.
_STRUCTURE = re.compile(r"</?[^<>\s]+>|[^\w\s]+")

#: Tokens of answers whose parts do not end, in turn, the second for those within an answer: a model
#: that repeats itself is stopped by max_tokens, which seldom is more. The last one is tried where a
#: call takes so long that it could stall, or grows by so much more than its length squared.
SIZES, INNER_SIZES, SQUARE = (1_000, 4_000, 8_000), (400, 1_200, 8_000), 1.25

#: Markers of a part of an answer that is repeated within it, and how many such parts are tried.
MARKERS, INNER = 4, 40

#: White space that tokenizers have a token of, as models say it until max_tokens stops them; how
#: many tokens of it, in turn, and before how many markers, of those that come first.
BLANKS, BLANK_SIZES, BEFORE = ("\n\n\n\n", "    "), (1_000, 4_000, 32_000), 5

#: By how much more than its length the time for it may grow to be taken for as much.
LINEAR = 2.0

#: Escapes, and how many of one are in a string: who tries both readings of each never ends.
ESCAPES, MANY = ("\\n", '\\"', "\\\\"), 40

#: Seconds of processor time that are too few to tell how a call's time grows.
TOO_FEW = 0.01


def nearly(text: str) -> Iterator[str]:
    """Yield answers with one character more or fewer, wherever something else begins."""
    places = [0, *(place for found in _STRUCTURE.finditer(text) for place in found.span())]
    for place in dict.fromkeys(places):
        for piece in PIECES:
            yield text[:place] + piece + text[place:]
    for place, character in enumerate(text):
        if not character.isalnum() and not character.isspace():
            yield text[:place] + text[place + 1 :]


def escaped(text: str, part: str) -> Iterator[str]:
    """Yield answers with many escapes in a string, which end behind it, or go on with a mistake.

    An expression in which an escape can be read in two ways tries all of them there.
    """
    begins, _, rest = text.partition(part)
    places = dict.fromkeys(place for found in _STRUCTURE.finditer(rest) for place in found.span())
    for escape in ESCAPES:
        begun = f"{begins}{part}{escape * MANY}"
        for place in (0, *islice(places, MARKERS * 2)):
            yield f"{begun}{rest[:place]}"
            yield f"{begun}{rest[:place]}~{rest[place:]}"


def survives(bench: Bench, texts: Iterable[str]) -> int:
    """Give a parser answers, whole and in one delta; return how many.

    Raises:
        PluginHung: a call did not return.
        PluginExited: the plugin raised ``SystemExit``.

    """
    count = 0
    for each in texts:
        answer = bench.answer(each)
        bench.whole(answer)
        bench.stream(answer, ())
        count += 2
    return count


def survives_endless(bench: Bench, text: str) -> int:
    """Give a parser long answers of parts of which each lacks the same; return how many.

    Raises:
        PluginHung: a call took so long that a server stalls.
        PluginExited: the plugin raised ``SystemExit``.

    """
    count = 0
    for marker in dict.fromkeys(_STRUCTURE.findall(text)):
        count += _repeated(bench, "", text.replace(marker, ""), "", SIZES)
    for begins, part, ends in islice(inner(text), INNER):
        count += _repeated(bench, begins, part, ends, INNER_SIZES)
    return count + _blank(bench.knowing(*BLANKS), text)


def _blank(bench: Bench, text: str) -> int:
    """Give a parser white space within an answer, which ends there or goes on; return how often.

    It goes on as it was, or with a marker that begins twice, at which a pattern fails.
    """
    places = [found.start() for found in islice(_STRUCTURE.finditer(text), BEFORE)]
    count = 0
    for place, part in product((*places, len(text)), BLANKS):
        begins, ends = text[:place], text[place:]
        for rest in dict.fromkeys((ends, ends[:1] + ends, "")):
            tried, limited = _between(bench, begins, part, rest)
            count += tried
            if limited:
                return count
    return count


def _between(bench: Bench, begins: str, part: str, ends: str) -> tuple[int, bool]:
    """Give a parser a run of white space within an answer, longer and longer.

    It is as long as answers come where a shorter one does not show that this takes no time.

    Returns:
        how many answers those were, and whether a limit of the parser's own ends what takes long,
        as in vLLM's pythonic.

    """
    before = f" and before {quoted(ends)}" if ends else ""
    last, shorter = 0.0, 1
    for count, size in enumerate(BLANK_SIZES, 1):
        answer = bench.answer(begins + part * size + ends)
        blank = f"{len(answer)} tokens of {quoted(part)} again and again"
        told = f"the parser, given {blank} behind {quoted(begins)}{before},"
        took = brief(told, partial(bench.whole, answer))  # no delta is as long as that
        if STALL / 10 < took < 2 * last:
            return count, True
        # What grows with the length, and no faster, makes a parser slow and is no stall.
        if (
            0 < took < LINEAR * last * size / shorter
            or took * (BLANK_SIZES[-1] / size) ** 2 < STALL
        ):
            return count, False
        last, shorter = took, size
    return len(BLANK_SIZES), False


def _repeated(bench: Bench, begins: str, part: str, ends: str, sizes: Sequence[int]) -> int:
    """Give a parser a part again and again, so many tokens of it in turn; return how many."""
    if not part.strip():
        return 0
    within = f" between {quoted(begins)} and {quoted(ends)}" if begins else ""
    length = len(bench.answer(part))
    before: tuple[int, float] | None = None  # a size, and what it took
    for count, size in enumerate(sizes, 1):
        answer = bench.answer(begins + part * (size // length + 1) + ends)
        again = f"{quoted(part)} again and again{within}"
        took = brief(
            f"the parser, given {len(answer)} tokens of {again},", partial(bench.whole, answer)
        )
        if before is not None:
            usual = SQUARE * (size / before[0]) ** 2 * before[1]
            if took <= max(usual, TOO_FEW) and took * (sizes[-1] / size) ** 2 < STALL:
                return count
        before = size, took
    return len(sizes)


def inner(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield what an answer begins with, a part of it that lacks a marker, and what it ends with.

    What lacks its end comes first: an expression for a part looks for it behind all the others.
    """
    spans = [found.span() for found in _STRUCTURE.finditer(text)][1:-1]
    seen = set()
    for count in range(MARKERS, 1, -1):
        for first in range(len(spans) - count + 1):
            chosen = spans[first : first + count]
            begin, end = chosen[0][0], chosen[-1][1]
            for start, stop in reversed(chosen):
                found = text[:begin], text[begin:start] + text[stop:end], text[end:]
                if found not in seen:
                    seen.add(found)
                    yield found


def brief(what: str, function: Callable[[], Any]) -> float:
    """Call what must not take long, whatever else this machine does; return how long it took.

    What takes long is called once more, without watching its lines.

    Raises:
        PluginHung: it took so long that a server stalls.

    """

    def measure() -> float:
        began = time.thread_time()
        function()
        return time.thread_time() - began

    try:
        took = shortest(measure, STALL, 2)
    except PluginHung:
        raise PluginHung(what, HANGS) from None  # what repeats says more than a long answer
    if beyond(took, STALL):
        raise PluginHung(what, STALL)
    return took
