# SPDX-License-Identifier: Apache-2.0
"""Runs in workers: what a parser costs of the next token, behind answers of several lengths.

It takes turns with a parser that does nothing, which gets the same deltas of the same answer: what
vLLM itself does for each token grows with the answer as well, and is no plugin's doing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs
from vllm.entrypoints.generate.base.protocol import DeltaMessage
from vllm.reasoning.identity_reasoning_parser import IdentityReasoningParser
from vllm.tool_parsers import ToolParser

from conformance.benchmark.figures import PER_TOKEN, TURNS, Overhead, Round, compare
from conformance.benchmark.in_turns import Measuring
from conformance.checking import Undecided
from conformance.parser.bench import Bench, NotMade
from conformance.parser.checks import trial
from conformance.parser.cost import STEPS, growing, near_end, within
from conformance.parser.roles import TOOL
from conformance.parser.wanted import Wanted
from conformance.plugin.profile import of_plugin
from conformance.plugin.target import Plugin
from conformance.settings import Budget, Settings, UsageError
from conformance.worker.jobs import class_of

#: About so many tokens are in front of those that are timed.
LENGTHS = {
    Budget.QUICK: (64, 1_024),
    Budget.STANDARD: (64, 512, 4_096),
    Budget.DEEP: (64, 256, 1_024, 4_096, 16_384),
}


class Idle(ToolParser):
    """A tool parser that does nothing."""

    def extract_tool_calls_streaming(
        self,
        _previous_text: str,
        _current_text: str,
        delta_text: str,
        *_: object,
    ) -> DeltaMessage:
        """Return a delta as content."""
        return DeltaMessage(content=delta_text)


@attrs.frozen
class Tokens:
    """The tokens behind a long part of an answer."""

    part: str
    length: int

    @property
    def name(self) -> str:
        """What progress says."""
        return f"{self.length} of {self.part}"


@contextmanager
def opened(plugin: Plugin, settings: Settings) -> Iterator[Measuring[Tokens]]:
    """Open a plugin, and return all its loads with what measures one.

    Raises:
        UsageError: the profile is wrong, or nothing is known of the parser's format.

    """
    profile = of_plugin(plugin, settings)
    wanted = Wanted(
        plugin.generation.removeprefix("parser/"),
        profile.section(plugin.interface) if profile else {},
        profile.origin if profile else None,
        settings.budget,
        settings.seed,
        plugin.root or str(settings.directory),
    )
    judged = trial(class_of(plugin), wanted)
    try:
        parts = dict(growing(judged))
        bench = judged.made()
    except (Undecided, NotMade) as error:
        raise UsageError(str(error)) from None
    loads = [Tokens(part, length) for part in parts for length in LENGTHS[settings.budget]]

    def measured(load: Tokens) -> list[Overhead]:
        return _measured(bench, load, parts[load.part], settings)

    yield loads, measured


def _measured(
    bench: Bench, load: Tokens, text: Callable[[int], str], settings: Settings
) -> list[Overhead]:
    some = load.length
    times = max(1, some * some // len(within(load.part, bench.answer(text(some)))))
    idle = Idle if bench.role == TOOL else IdentityReasoningParser
    answer = within(load.part, bench.answer(text(times)))
    plain, mine = (
        partial(_round, each, answer)
        for each in (attrs.evolve(bench, cls=idle, parser=None), bench)
    )
    plain(), mine()  # the first of each fills caches
    turns = [(plain(), mine(), plain()) for _ in range(TURNS[settings.budget])]
    where = f"behind {load.part}"
    return compare(where, load.length, turns, figures=(PER_TOKEN,), seed=settings.seed)


def _round(bench: Bench, answer: Any) -> Round:  # noqa: ANN401 - its tokens
    """Give a parser an answer, and time each of some tokens at the end of its long part."""
    streaming = near_end(bench, answer)
    taken = []
    for _ in range(STEPS):
        began = time.thread_time()
        streaming.step()
        taken.append(time.thread_time() - began)
    return Round(0, 1, statistics.median(taken))
