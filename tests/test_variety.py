# SPDX-License-Identifier: Apache-2.0
"""What the strategies of histories produce has the variety that it is meant to have."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import hypothesis
import pytest

from conformance.inputs.history import Choice, History, Request, Shape, strategy
from conformance.inputs.words import Words, following

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

CHOICES: tuple[Choice, ...] = (("on", 0), ("on", 1), ("off", 0))
PLAIN = Words((67, 5, 7, 11, 13), rare=(499, 3))
PHRASE = (90, 91, 92)
WAITING = Words((67, 5, 7, 11, 13), rare=(499, 3), phrases=(PHRASE,))

#: Histories that are drawn, and tokens that each request is followed for.
DRAWN, FOLLOWED = 300, 12

REPLACED = Shape(name="replaced", title="", finish="replaced")
EVERYTHING = Shape(name="everything", title="", finish="free", pause=True, chunk=True, first=4)


def _drawn(strategy: SearchStrategy[History]) -> list[History]:
    found: list[History] = []

    @hypothesis.seed(88)
    @hypothesis.settings(
        max_examples=DRAWN,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def draw(history: History) -> None:
        found.append(history)

    draw()
    return found


def _requests(words: Words) -> list[Request]:
    histories = _drawn(strategy(EVERYTHING, CHOICES, words))
    return [request for history in histories for step in history for request in step.join]


def _tokens(request: Request, words: Words) -> tuple[int, ...]:
    """Return the tokens of a request whose rows allow all."""
    every = list(words.every)
    tokens = (following(request.outputs, request.prompt, n, every) for n in range(FOLLOWED))
    return tuple(token for token in tokens if token is not None)


def _period(tokens: tuple[int, ...]) -> int:
    """Return after how many tokens they begin again; all of them where they do not."""
    periods = (n for n in range(1, len(tokens) // 2 + 1) if tokens[n:] == tokens[:-n])
    return next(periods, len(tokens))


def _has(tokens: tuple[int, ...], phrase: tuple[int, ...]) -> bool:
    return any(tokens[n : n + len(phrase)] == phrase for n in range(len(tokens)))


@pytest.mark.parametrize(
    ("share", "holds"),
    [
        (0.05, lambda tokens: _period(tokens) == 1),
        (0.05, lambda tokens: _period(tokens) == 2),
        (0.05, lambda tokens: _period(tokens) in (3, 4, 5)),
        (0.3, lambda tokens: _period(tokens) == FOLLOWED),
        (0.1, lambda tokens: not {499, 3}.isdisjoint(tokens)),
        (0.3, lambda tokens: len(set(tokens)) >= 4),
        (0.3, lambda tokens: len(set(pairwise(tokens))) < len(tokens) - 1),
    ],
    ids=["one token", "two in turn", "n-grams", "no rule", "rare", "many", "pairs come again"],
)
def test_outputs_vary(share: float, holds: Callable[[tuple[int, ...]], bool]) -> None:
    """Requests repeat, alternate, come in n-grams and follow no rule, each often enough."""
    outputs = [_tokens(request, PLAIN) for request in _requests(PLAIN)]

    assert sum(map(holds, outputs)) >= share * len(outputs)


def test_no_token_is_missing() -> None:
    """Prompts begin, and outputs go on, with every token; every number of choices comes up."""
    requests = _requests(PLAIN)
    begun = Counter(request.prompt[0] for request in requests)
    gotten = Counter(token for request in requests for token in _tokens(request, PLAIN))

    assert set(begun) == set(PLAIN.tokens)
    assert set(gotten) == set(PLAIN.every)
    assert set(CHOICES) == {request.choice for request in requests}


def test_what_a_plugin_waits_for_comes() -> None:
    """A phrase is whole in many outputs and prompts, and begun without an end in some."""
    requests = _requests(WAITING)
    outputs = [_tokens(request, WAITING) for request in requests]
    begun = [any(a == PHRASE[-2] and b != PHRASE[-1] for a, b in pairwise(o)) for o in outputs]

    assert sum(_has(tokens, PHRASE) for tokens in outputs) >= 0.2 * len(outputs)
    assert sum(_has(request.prompt, PHRASE) for request in requests) >= 0.2 * len(requests)
    assert sum(begun) >= 0.05 * len(outputs)
    assert sum(_period(tokens) == 1 for tokens in outputs) >= 0.03 * len(outputs)


def test_lifetimes_vary_against_each_other() -> None:
    """Who takes over a row or a slot stays for longer than its last occupant, and for less."""
    longer = shorter = 0
    for history in _drawn(strategy(REPLACED, CHOICES, PLAIN)):
        lives: Counter[str] = Counter()
        live: list[str] = []
        taken: list[tuple[str, str]] = []
        for step in history:
            new = [request.name for request in step.join]
            taken += zip(step.finish, new, strict=False)
            live = [name for name in live if name not in step.finish] + new
            lives.update(live * step.repeat)
        longer += any(lives[new] > lives[old] for old, new in taken)
        shorter += any(lives[new] < lives[old] for old, new in taken)

    assert longer >= 0.25 * DRAWN
    assert shorter >= 0.25 * DRAWN


@pytest.mark.parametrize("prompt", [(5, 7), (67,), (7, 11, 13)])
@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_outputs_of_histories_by_hand_vary(prompt: tuple[int, ...], count: int) -> None:
    """Where a history says nothing of outputs they are no constant, whatever a row allows."""
    allowed = list(range(10, 10 + count))
    tokens = tuple(following((), prompt, n, allowed) or 0 for n in range(40))

    assert set(tokens) == set(allowed)
    assert _period(tokens) == len(tokens)


def test_nothing_is_gotten_that_is_not_allowed() -> None:
    """A token that the row does not allow is replaced; where none is allowed there is none."""
    assert following((5, 7), (5,), 1, [5, 7]) == 7
    assert following((5, 7), (5,), 1, [5, 11]) in (5, 11)
    assert following((5, 7), (5,), 1, []) is None
