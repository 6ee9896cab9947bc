# SPDX-License-Identifier: Apache-2.0
"""What the reference hooks find in texts, and that no text takes them long."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from reference_plugins.classifier_hook.contract import ScoringContext
from reference_plugins.classifier_hook.dispatch import Dispatcher
from reference_plugins.classifier_hook.events import CallEnded, Event
from reference_plugins.classifier_hook.hooks.annotator import PatternAnnotator
from reference_plugins.classifier_hook.hooks.blocker import REPLACEMENT, PiiBlocker
from reference_plugins.classifier_hook.hooks.patterns import LONGEST, PIECE, PII, counted, keywords
from reference_plugins.classifier_hook.registry import Registry


def count(text: str, *words: str) -> dict[str, int]:
    """Return what is found in a text."""
    patterns = {**PII, **({"keyword": keywords(words)} if words else {})}
    return asyncio.run(counted(text, patterns))


def context(text: str) -> ScoringContext:
    """Return the context of a text."""
    return ScoringContext(
        request_id="r",
        prompt="",
        generated_text=text,
        finish_reason="stop",
        prompt_token_ids=[],
        output_token_ids=[],
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("Nothing to see in 2024, nor in 1,000,000 other years.", {}),
        ("ann@example.com, BOB.O-NEIL+x@Mail.Example.CO.UK", {"email": 2}),
        ("ann@example is no address, nor is @home.com", {}),
        ("card 4111 1111 1111 1111.", {"card": 1}),
        ("card 4111-1111-1111-1112: one digit is wrong", {}),
        ("123-45-6789 and 1123-45-67890", {"ssn": 1}),
        ("call +1 (555) 123-4567 or +49 30 901820", {"phone": 2}),
    ],
)
def test_personal_data_is_found(text: str, found: dict[str, int]) -> None:
    """And what only looks like it is not."""
    assert count(text) == found


def test_keywords_are_whole_words_in_any_case() -> None:
    """The longer of two that start alike is found as itself."""
    assert count("Ban bans BAN-ana bandit", "ban", "ban-ana") == {"keyword": 2}


@pytest.mark.parametrize("words", [[], [""], ["x" * (LONGEST + 1)]])
def test_keywords_that_cannot_be_searched_for_are_refused(words: list[str]) -> None:
    """None, an empty one, one that is too long."""
    with pytest.raises(ValueError, match="keywords are texts"):
        keywords(words)


def test_a_text_in_pieces_is_searched_like_a_whole_one() -> None:
    """Wherever the pieces meet, each match is found once."""
    address, card = "ann@example.com", "4111 1111 1111 1111"
    for shift in range(25):
        filler = "x " * ((PIECE - shift) // 2)
        text = f"{filler}{address} {card} {filler}{card} {address} {filler}"

        assert count(text) == {"email": 2, "card": 2}

    # What is left of a match behind the end of a piece is no match of its own.
    assert count("x" * (PIECE - 6) + " very bad", "very bad", "bad") == {"keyword": 1}


@pytest.mark.parametrize(
    "text",
    [
        "a" * 300_000,
        "a@" * 150_000,
        "a." * 150_000,
        "1 " * 150_000,
        "1" * 300_000,
        "+1 " * 100_000,
        "".join(random.Random(0).choices("ab1 .@-+()", k=300_000)),
    ],
    ids=lambda text: text[:6],
)
def test_no_text_holds_the_event_loop(text: str) -> None:
    """Between two pauses there are a few milliseconds of work at the most."""
    events: list[Event] = []

    async def main() -> None:
        # Of this process alone: a machine that is busy with others takes longer for a step.
        dispatcher = Dispatcher([events.append], clock=time.process_time)
        entries = Registry([PatternAnnotator(["ban"], timeout_ms=60_000)]).entries
        await dispatcher.start(entries, context(text)).verdict()

    asyncio.run(main())
    (event,) = events
    assert isinstance(event, CallEnded)
    assert event.outcome == "ok"
    assert event.longest_step < 0.05


def test_the_annotator_counts_and_quotes_nothing() -> None:
    """Scores go to logs and responses."""
    hook = PatternAnnotator(["secret"])
    scores = asyncio.run(hook.score(context("secret: ann@example.com")))

    assert scores == {"found": 2, "counts": {"email": 1, "keyword": 1}}


def test_the_blocker_blocks_what_it_finds() -> None:
    """And nothing else."""
    hook = PiiBlocker()

    assert asyncio.run(hook.score(context("ann@example.com"))) == {
        "block": True,
        "replacement": REPLACEMENT,
        "counts": {"email": 1},
    }
    assert asyncio.run(hook.score(context("Ann"))) == {"block": False, "counts": {}}
