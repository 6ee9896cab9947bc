# SPDX-License-Identifier: Apache-2.0
"""Strata: families of histories, each of which isolates one thing that the host does.

A stratum is generated once and judged by several rules.
The rule that a stratum is about fails for whatever goes wrong in it;
rules about single calls (shape, NaN, exceptions, ...) look at all strata.
"""

from __future__ import annotations

import multiprocessing
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
import hypothesis
import torch
from hypothesis import HealthCheck, Phase
from vllm.v1.sample.logits_processor import BatchUpdate

from conformance import history
from conformance.history import History, Shape
from conformance.logits_batch.bench import limited
from conformance.logits_batch.classics import classics
from conformance.logits_batch.parameters import rows_alone
from conformance.logits_batch.play import play
from conformance.logits_batch.played import Kind, Played
from conformance.settings import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conformance.history import Choice
    from conformance.logits_batch.bench import Bench
    from conformance.logits_batch.findings import Finding
    from conformance.logits_batch.played import Trouble

PLAIN = Shape(name="plain", title="requests join and advance")
REPLACED = Shape(
    name="replaced", title="requests finish and others take over their rows", finish="replaced"
)
ONE_WAY = Shape(
    name="one-way", title="requests finish and the last rows move down", finish="alone", first=4
)
SWAP = Shape(
    name="swap",
    title="chunked prefills are sorted behind decodes",
    chunk=True,
    reorder=True,
    first=4,
    prompt=4,
)
CHURN = Shape(
    name="churn", title="one request stays, others come and go", finish="stack", stays=True
)
RESUME = Shape(
    name="resume", title="requests are preempted and resumed", pause=True, join_later=False, first=2
)
ASYNC = Shape(
    name="async", title="requests join and advance, scheduled asynchronously", asynchronous=True
)
CHUNK = Shape(name="chunk", title="prompts are computed in chunks", chunk=True, prompt=6)
SKIPPED = Shape(
    name="skipped",
    title="steps without apply: nothing is scheduled, or every request is greedy",
    finish="free",
    idle=True,
    greedy=True,
    steps=9,
    live=4,
)
REMOVED = Shape(name="removed", title="the latest requests finish", finish="stack")
ORDER = Shape(
    name="order",
    title="joins, moves and swaps in the same step",
    finish="free",
    chunk=True,
    reorder=True,
    first=5,
    live=7,
    shortest=3,
    prompt=6,
)
EVERYTHING = Shape(
    name="everything",
    title="everything at once",
    finish="free",
    idle=True,
    pause=True,
    chunk=True,
    reorder=True,
    asynchronous=True,
    first=4,
    prompt=5,
)

#: The rule that each stratum is about.
RULE_OF_SHAPE = {
    PLAIN: "LB-03",
    REPLACED: "LB-06",
    ONE_WAY: "LB-07",
    SWAP: "LB-08",
    CHURN: "LB-09",
    RESUME: "LB-11",
    ASYNC: "LB-17",
    CHUNK: "LB-18",
    REMOVED: "LB-19",
    ORDER: "LB-20",
    SKIPPED: "LB-26",
    EVERYTHING: "LB-03",
}
SHAPES = {shape.name: shape for shape in RULE_OF_SHAPE}

#: Strata that must be clean before trouble in another one says anything about its own rule.
#: The churning stratum depends on none: what is wrong with ``update_state(None)`` shows anywhere.
#: The mixed one depends on the plain one only; what else it hints at is said in its message.
BUILT_ON = {
    REPLACED: (PLAIN,),
    REMOVED: (PLAIN,),
    CHUNK: (PLAIN,),
    ASYNC: (PLAIN,),
    ONE_WAY: (PLAIN, REMOVED),
    SWAP: (PLAIN, CHUNK),
    RESUME: (PLAIN, REPLACED, REMOVED, ONE_WAY),
    ORDER: (PLAIN, REPLACED, REMOVED, ONE_WAY, CHUNK, SWAP),
    SKIPPED: (PLAIN, REPLACED, REMOVED, ONE_WAY),
}

#: Rules about single calls, in whatever stratum they go wrong.
RULE_OF_KIND = {
    Kind.SHAPE: "LB-14",
    Kind.NAN: "LB-22",
    Kind.NO_TOKEN: "LB-22",
    Kind.MUTATED: "LB-21",
    Kind.HUNG: "LB-24",
    Kind.NONE: "LB-09",
    Kind.CONSTRUCTOR: "LB-02",
    Kind.CLAIM: "LB-13",
    Kind.ALONE: "LB-16",
    Kind.RAISED: "LB-16",
}

_ROWS = (Kind.ROW, Kind.OPT_OUT)

#: Examples in each stratum, and how many times as many where the thing it is about is rare:
#: chains of moves, swaps of rows of different kinds, and what steps without ``apply`` leave.
EXAMPLES = {Budget.QUICK: 12, Budget.STANDARD: 24, Budget.DEEP: 120}

TIMES = {ORDER: 3, SWAP: 2, SKIPPED: 2}

#: Histories played to make one that fails smaller. Not a time, which would give another
#: counterexample on a busier machine.
SHRINK_EXAMPLES = {Budget.QUICK: 200, Budget.STANDARD: 500, Budget.DEEP: 3000}


@attrs.frozen
class Example:
    """One history and what came of it."""

    shape: Shape
    history: History
    played: Played

    about_none: bool = False  #: the plugin treats None unlike an update without a change

    def rules(self) -> frozenset[str]:
        """The rules that this example breaks."""
        return frozenset(
            rule for trouble in self.played.troubles for rule in self.broken_by(trouble)
        )

    def broken_by(self, trouble: Trouble) -> tuple[str, ...]:
        """The rules that one trouble of this example breaks."""
        if trouble.kind in _ROWS and self.shape in (PLAIN, CHURN):
            if self.about_none:
                return ("LB-09",)
            # Neighbours that come and go are what the plain stratum is about, too.
            return broken(PLAIN, trouble.kind)
        if trouble.kind is Kind.RAISED and self.shape == CHURN:
            return (RULE_OF_KIND[trouble.kind],)
        return broken(self.shape, trouble.kind)


def run(bench: Bench, shape: Shape, drawn: History) -> Example:
    """Play one history, and where rows differ find out whether None is what makes them."""
    played = play(bench, drawn, shape)
    choices = {request.name: request.choice for step in drawn for request in step.join}
    about_none = any(
        trouble.kind in _ROWS
        and trouble.request is not None
        and _minds_none(bench, choices[trouble.request])
        for trouble in played.troubles
    )
    return Example(shape, drawn, played, about_none)


def _minds_none(bench: Bench, choice: Choice) -> bool:
    """Tell whether a request alone gets other rows when None is replaced by an empty update.

    No engine sends empty updates.  This decides only which rule a difference that was found in
    a real history belongs to.
    """
    with limited():
        rows = [
            [after for _, after in rows_alone(bench, choice, 8, quiet=quiet)]
            for quiet in (None, None, BatchUpdate(1, [], [], []))
        ]
    again, other = (
        all(torch.equal(row, first) for row, first in zip(run, rows[0], strict=True))
        for run in rows[1:]
    )
    return again and not other


def broken(shape: Shape, kind: Kind) -> tuple[str, ...]:
    """Return the rules that trouble of a kind breaks in a stratum."""
    about = RULE_OF_SHAPE[shape]
    if kind in RULE_OF_KIND and (kind is not Kind.RAISED or shape == PLAIN):
        return (RULE_OF_KIND[kind],)
    if kind is Kind.OPT_OUT and shape == PLAIN:
        return ("LB-04",)
    if kind is Kind.RAISED:
        return (about, RULE_OF_KIND[kind])
    return (about,)


def sweep(bench: Bench, shape: Shape, budget: Budget, until: str | None = None) -> list[Example]:
    """Play the histories of a stratum; a hang ends the sweep, and so does breaking ``until``."""
    examples: list[Example] = []

    def body(drawn: History) -> None:
        last = examples[-1] if examples else None
        if last is None or not (_hung(last) or until in last.rules()):
            examples.append(run(bench, shape, drawn))

    for classic in classics(shape.name, bench.choices, bench.tokens):
        body(classic)
    _generate(bench, shape, budget, (Phase.generate,), body)
    return examples


def sweep_all(
    bench: Bench, budget: Budget, besides: Callable[[], Finding | None]
) -> tuple[dict[Shape, list[Example]], Finding | None]:
    """Play the histories of all strata, half of them in a forked process.

    A process stops at its first hang: strata that it did not come to are missing.

    Args:
        bench: the plugin with what it is tried on.
        budget: how many histories.
        besides: what the forked process does besides.

    Returns:
        The examples of each stratum, and what ``besides`` gave; None where the plugin ended
        that process.

    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    # The larger strata in turn, so that both processes take about as long.
    shapes = sorted(RULE_OF_SHAPE, key=lambda shape: -TIMES.get(shape, 1))
    theirs = shapes[1:-1:2]
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            sender.send((_sweep_some(bench, theirs, budget), besides()))
            status = 0
        finally:
            os._exit(status)
    sender.close()
    played = _sweep_some(bench, [shape for shape in shapes if shape not in theirs], budget)
    found = None
    try:
        more, found = receiver.recv()
    except EOFError:
        # The plugin ended that process; here it will end this one, where it is noticed.
        more = _sweep_some(bench, theirs, budget)
    os.waitpid(pid, 0)
    return played | more, found


def _sweep_some(
    bench: Bench, shapes: Sequence[Shape], budget: Budget
) -> dict[Shape, list[Example]]:
    played: dict[Shape, list[Example]] = {}
    for shape in shapes:
        played[shape] = sweep(bench, shape, budget)
        if any(_hung(example) for example in played[shape]):
            break
    return played


def minimise(bench: Bench, rule: str, failing: Example, budget: Budget) -> Example:
    """Return the smallest example found that breaks the rule in the same stratum."""
    if _hung(failing):
        return failing
    best = failing
    left = SHRINK_EXAMPLES[budget]

    def body(drawn: History) -> None:
        nonlocal best, left
        left -= 1
        if left < 0:
            return
        example = run(bench, failing.shape, drawn)
        if rule in example.rules():
            if history.size(drawn) < history.size(best.history):
                best = example
            raise _Broken

    # Running out of examples in the middle of shrinking looks flaky to Hypothesis; what it
    # found so far has been played here and stands.
    with suppress(_Broken, hypothesis.errors.HypothesisException):
        _generate(bench, failing.shape, budget, (Phase.generate, Phase.shrink), body)
    return best


class _Broken(Exception):
    """The example breaks the rule."""


def _generate(
    bench: Bench,
    shape: Shape,
    budget: Budget,
    phases: tuple[Phase, ...],
    body: Callable[[History], None],
) -> None:
    """Run ``body`` on histories; the same seed gives the same ones, whatever the phases."""

    @hypothesis.seed(bench.seed)
    @hypothesis.settings(
        max_examples=EXAMPLES[budget] * TIMES.get(shape, 1),
        database=None,
        phases=phases,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(history.strategy(shape, bench.choices, bench.tokens))
    def generated(drawn: History) -> None:
        body(drawn)

    generated()


def _hung(example: Example) -> bool:
    return any(trouble.kind is Kind.HUNG for trouble in example.played.troubles)
