# SPDX-License-Identifier: Apache-2.0
"""Histories written by hand, in which most faults show; the smallest come first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations, permutations

import attrs

from conformance.io_processor.traffic import Asked, Do, History, Move, Shape

#: Data of which every two meet, and data that are refused.
MOST_VALID, MOST_INVALID = 3, 8

#: What a client may set beside data: vLLM writes both into the prompts that the plugin gave it.
BESIDE = (("cache_salt", "of-another"), ("truncate_prompt_tokens", 1))

_LONG = "0123456789abcdef" * 4

#: Ids that a plugin may take for one: alike but for the end, the beginning, the case, or a number
#: like those that vLLM gives the prompts of a request.
IDS: tuple[tuple[str, str], ...] = (
    (f"{_LONG}-0", f"{_LONG}-1"),
    (f"0-{_LONG}", f"1-{_LONG}"),
    ("Id", "iD"),
    ("id", "id-0"),
    ("id-0", "id-0-0"),
    ('a b/c?d="e"', 'a b/c?d="f"'),
    ("7", "8"),
)

_A, _B = (Move(Do.ARRIVE, request) for request in range(2))


def classics(
    shape: Shape, valid: Sequence[int], invalid: int, twins: Iterable[tuple[int, int]] = ()
) -> Iterator[History]:
    """Yield histories of a shape.

    Args:
        shape: what they are about.
        valid: the data that requests carry, by their place in the stock.
        invalid: how many data there are that are refused.
        twins: pairs of the data that differ in little.

    """
    if shape.single:
        for one in valid[:MOST_VALID]:
            alone = (Asked(one, "id-0"),)
            yield History(alone, (_A, Move(Do.DELIVER, 0, 1)))
            yield History(alone, (_A, Move(Do.DELIVER, 0, -1, rest=True)))
        return
    ids = ("same", "same") if shape.same_ids else ("id-0", "id-1")
    few = list(combinations(valid[:MOST_VALID], 2))
    near = [] if shape.trouble else list(twins)
    for number, moves in enumerate(_moves(shape)):
        # What data show that differ in little, they show in any order of events.
        meeting = few if number else [*few, *near]
        for pair in chain.from_iterable(permutations(each) for each in meeting):
            asked = tuple(Asked(data, name) for data, name in zip(pair, ids, strict=True))
            yield History(asked, moves)
    if shape.overlapping and not (shape.same_ids or shape.trouble) and len(valid) > 1:
        for names in IDS:
            yield History(tuple(map(Asked, valid[:2], names)), (_A, _B))
    yield from () if shape.overlapping else _beside(valid)
    if shape.invalid:
        for data in valid[:2]:
            for bad in range(min(invalid, MOST_INVALID)):
                good, refused = Asked(data, "id-0"), Asked(bad, "id-1", valid=False)
                yield History((good, refused), (_B, _A))
                yield History((good, refused), (_A, _B))


def _beside(valid: Sequence[int]) -> Iterator[History]:
    """Yield a request whose client sets more than data, and then the same without that."""
    for data in valid[:MOST_VALID]:
        asked = (Asked(data, "id-0", beside=BESIDE), Asked(data, "id-1"))
        yield History(asked, (_A, Move(Do.DELIVER, 0, rest=True), _B))


def _moves(shape: Shape) -> Iterator[tuple[Move, ...]]:
    """Yield what happens to two requests; what still waits then is delivered in order."""
    deliver = [Move(Do.DELIVER, request) for request in range(2)]
    rest = [attrs.evolve(each, rest=True) for each in deliver]
    if shape.trouble:
        for trouble in (Move(Do.FAIL, 0), Move(Do.LEAVE, 0)):
            yield (_A, trouble, _B)
            yield (_A, _B, trouble)
            yield (_A, deliver[0], trouble, _B)
            yield (_A, _B, deliver[0], trouble)
    elif shape.overlapping:
        yield (_A, _B)
        yield (attrs.evolve(_A, hurried=True), _B)
        yield (_A, _B, attrs.evolve(rest[0], hurried=True), rest[1])
        if shape.same_ids:
            yield (_A, rest[0], _B)
        yield (_A, _B, rest[1])
        yield (_A, _B, *deliver)
    else:
        yield (_A, rest[0], _B)
