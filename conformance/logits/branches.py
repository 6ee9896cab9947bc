# SPDX-License-Identifier: Apache-2.0
"""Tokens at which a plugin goes another way: every one is said to it, and its lines are watched.

Some tokens are nowhere to be found: a plugin knows them by heart, computes them each time, or looks
for those beyond a number. Where one comes, lines run that never ran, or a row is changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from types import CodeType, FunctionType

import torch

from conformance.coverage import lines
from conformance.logits.calls import PluginMisshapen, PluginRaised
from conformance.watching.interruption import PluginHung

#: Gives outputs to a request that is alone, and yields its rows before and after.
Rows = Callable[[Sequence[int]], Iterator[tuple[torch.Tensor, torch.Tensor]]]

#: Outputs of one request: as many as it may have, and no more than there are rows.
OUTPUTS = 60

#: Tokens that are said: all that a small vocabulary has.
MOST_SAID = 1_024

#: Tokens that are kept; the first lines that run by chance are among them.
MOST_KEPT = 4


def constants(plugin: type, path: str | None) -> Iterator[int | frozenset[int]]:
    """Yield the whole numbers, and the sets of them, in the code of a plugin.

    Args:
        plugin: the class.
        path: its file: only functions of this file are the plugin's own.

    """
    module = vars(sys.modules[plugin.__module__])
    classes = dict.fromkeys((*plugin.__mro__, *(c for c in module.values() if isinstance(c, type))))
    named = chain(module.values(), *(vars(each).values() for each in classes))
    # Methods of classes, properties, and what a decorator keeps.
    unwrapped = (getattr(each, "__func__", getattr(each, "fget", each)) for each in named)
    functions = (getattr(each, "__wrapped__", each) for each in unwrapped)
    codes = dict.fromkeys(each.__code__ for each in functions if isinstance(each, FunctionType))
    yield from chain.from_iterable(_of_code(each) for each in codes if each.co_filename == path)


def _of_code(code: CodeType) -> Iterator[int | frozenset[int]]:
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _of_code(value)
        elif isinstance(value, frozenset) and all(type(each) is int for each in value):
            yield value
        elif isinstance(value, tuple):
            yield from (each for each in value if type(each) is int)
        elif type(value) is int:
            yield value


def told(rows: Rows, script: Sequence[int], tokens: Iterable[int], path: str) -> tuple[int, ...]:
    """Return the tokens behind which lines of a plugin ran that never ran, or a row was changed.

    A call that does not return ends it.

    Args:
        rows: serves a request alone with such outputs, and has a row more than there are outputs.
        script: outputs whose lines are known.
        tokens: what is said, the likeliest first.
        path: the file of the plugin.

    """
    kept: dict[int, None] = {}
    said = iter(islice(tokens, MOST_SAID))
    with suppress(PluginHung), lines.collected(path) as ran:
        known = tuple(_run(rows, script, ran))
        while len(kept) < MOST_KEPT and (outputs := tuple(islice(said, OUTPUTS))):
            kept |= dict.fromkeys(token for token in _run(rows, outputs, ran) if token not in known)
    return tuple(islice(kept, MOST_KEPT))


def _run(rows: Rows, outputs: Sequence[int], ran: set[int]) -> Iterator[int]:
    """Yield the outputs behind each of which a line was new, a row was changed, or it raised."""
    known = len(ran)
    changed = False
    served = rows(outputs)
    for newest in (None, *outputs):
        try:
            before, after = next(served, (None, None))
            new = not changed and before is not None and not torch.equal(before, after)
        except (PluginRaised, PluginMisshapen):
            new = True
        changed |= new
        if newest is not None and (new or len(ran) > known):
            yield newest
        known = len(ran)
