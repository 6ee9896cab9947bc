# SPDX-License-Identifier: Apache-2.0
"""Answers at which a parser may hang: nearly right ones, and long ones whose parts do not end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from conformance.parser.bench import Bench
from conformance.parser.messages import quoted
from conformance.watching.interruption import PluginHung

#: Seconds of processor time that a call may take: the server answers nobody meanwhile.
STALL = 5.0

#: Characters that mean something in one format or another.
PIECES = ('"', "\\", "'", "{", "}", "[", "]", ",", ": ", "\n", "<", "</")

#: A marker, or characters that are no word.
_STRUCTURE = re.compile(r"</?[^<>\s]+>|[^\w\s]+")

#: Tokens of answers whose parts do not end, in turn: a model that repeats itself is stopped by
#: max_tokens, which seldom is more. The last one is tried where a call takes so long that it could
#: stall, or grows by more than its length squared.
SIZES, SQUARE = (1_000, 4_000, 8_000), 20

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


def survives(bench: Bench, text: str) -> int:
    """Give a parser answers that are nearly this one, whole and in one delta; return how many.

    Raises:
        PluginHung: a call did not return.
        PluginExited: the plugin raised ``SystemExit``.

    """
    count = 0
    for each in nearly(text):
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
        part = text.replace(marker, "")
        if not part.strip():
            continue
        before, length = 0.0, len(bench.answer(part))
        for size in SIZES:
            answer = bench.answer(part * (size // length + 1))
            what = f"the parser, given {len(answer)} tokens of {quoted(part)} again and again,"
            took = brief(what, partial(bench.whole, answer))
            count += 1
            steep = took > max(SQUARE * before, TOO_FEW)
            if size > SIZES[0] and not steep and took * (SIZES[-1] / size) ** 2 < STALL:
                break
            before = took
    return count


def brief(what: str, function: Callable[[], Any]) -> float:
    """Call what must not take long, whatever else this machine does; return how long it took.

    Raises:
        PluginHung: it took so long that a server stalls.

    """
    began = time.thread_time()
    function()
    took = time.thread_time() - began
    if took > STALL:
        raise PluginHung(what, STALL)
    return took
