# SPDX-License-Identifier: Apache-2.0
"""Strata: families of histories, each of which isolates one thing that the host does.

A stratum is generated once and judged by several rules.
The rule that a stratum is about fails for whatever goes wrong in it;
rules about single calls (shape, NaN, exceptions, ...) look at all strata.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import attrs

from conformance.coverage import lines
from conformance.findings import LEAST_ACTED
from conformance.inputs import edits, history
from conformance.inputs.history import History, Shape
from conformance.logits.aside import Aside
from conformance.logits.played import BESIDES, Kind, Played, Trouble
from conformance.logits.requests import MOST_LIFE, Stock
from conformance.logits.rows import RowsAlone
from conformance.logits.trails import Trail
from conformance.logits.trails import trails as trails_to
from conformance.logits.variation import MOST_OUTPUTS, Material, led, varied
from conformance.search import AT_FIRST, LED, STRATUM, TRIED, VARIED, draw
from conformance.settings import Budget

#: How many times as many examples are played, at most, where fewer than that acted.
ROUNDS = 3

#: How often the history that was kept last is varied, and not one of all; how many of those before
#: it lend it what their requests are told.
_LAST, _COMPANY = 0.5, 12

#: Steps of a drawn history in which nothing else happens, at most: a model has room for so much.
LONGEST = 12


@attrs.frozen
class Example:
    """One history and what came of it."""

    shape: Shape
    history: History
    played: Played
    owners: tuple[tuple[str, ...], ...]  #: the rules that each trouble breaks

    def rules(self) -> frozenset[str]:
        """The rules that this example breaks."""
        return frozenset(rule for rules in self.owners for rule in rules)

    def troubles(self) -> Iterable[tuple[Trouble, tuple[str, ...]]]:
        """Each trouble with the rules that it breaks."""
        return zip(self.played.troubles, self.owners, strict=True)


@attrs.frozen
class Strata:
    """The strata of a generation."""

    #: The rule that each is about.
    rule_of: Mapping[Shape, str]
    #: Rules about single calls, in whatever stratum they go wrong.
    rule_of_kind: Mapping[Kind, str]
    #: Strata that must be clean before trouble in another one says anything about its own rule.
    built_on: Mapping[Shape, tuple[Shape, ...]]
    #: How many times as many examples where the thing that it is about is rare.
    times: Mapping[Shape, float]
    plain: Shape
    everything: Shape
    opt_out: str  #: the rule about requests that did not opt in, where these just advance
    #: Plays a history and says which rules each trouble breaks.
    run: Callable[[Any, Shape, History], Example]
    rows_alone: RowsAlone
    #: Histories written by hand, for a stratum and what requests are made of.
    classics: Callable[[str, Stock], Iterable[History]]
    #: Shapes of histories that no sweep draws: checks play them.
    besides: tuple[Shape, ...] = ()
    #: Strata of what no document mentions: their trouble is of their own rule, and of no other.
    apart: frozenset[Shape] = frozenset()
    #: What a stratum is judged by where advice is broken that it is made of: that rule, and a
    #: stratum without what it is about.  No sweep draws it before that.
    without: Mapping[Shape, tuple[str, Shape]] = attrs.field(factory=dict)

    @property
    def blocking(self) -> frozenset[Kind]:
        """The kinds of trouble after which nothing else can be told about an example."""
        return frozenset(self.rule_of_kind) - {Kind.RAISED} - BESIDES

    def named(self, name: str) -> Shape:
        """Return the stratum with a name, or raise ``LookupError``."""
        others = (shape for _, shape in self.without.values())
        return {shape.name: shape for shape in (*self.rule_of, *self.besides, *others)}[name]

    def owner(self, shape: Shape) -> str:
        """Return the rule that a stratum is about."""
        swept = {without: each for each, (_, without) in self.without.items()}
        return self.rule_of[swept.get(shape, shape)]

    def broken(self, shape: Shape, kind: Kind) -> tuple[str, ...]:
        """Return the rules that trouble of a kind breaks in a stratum."""
        about = self.owner(shape)
        if shape in self.apart:
            return (about,)
        if kind in self.rule_of_kind and (kind is not Kind.RAISED or shape == self.plain):
            return (self.rule_of_kind[kind],)
        if kind is Kind.OPT_OUT and shape == self.plain:
            return (self.opt_out,)
        return (about, self.rule_of_kind[kind]) if kind is Kind.RAISED else (about,)

    def about(self, rule: str) -> Shape | None:
        """Return the stratum that a rule is about."""
        shapes = (shape for shape, about in self.rule_of.items() if about == rule)
        return next((shape for shape in shapes if shape != self.everything), None)


def sweep(
    strata: Strata, bench: Stock, shape: Shape, budget: Budget, until: str | None = None
) -> list[Example]:
    """Play the histories of a stratum; a hang ends the sweep, and so does breaking ``until``.

    More of them are played where the plugin did something in too few, and where it has lines that
    never ran.
    """
    kept: list[Example] = []
    lines.since_now()
    examples = _drawn(strata, bench, shape, budget, kept, until=until)
    more = _further(strata, bench, [shape], budget, kept, before=examples)
    return examples + [example for example in more if example.shape == shape]


def _drawn(
    strata: Strata,
    bench: Stock,
    shape: Shape,
    budget: Budget,
    kept: list[Example],
    *,
    until: str | None = None,
) -> list[Example]:
    """Play the histories of a stratum; keep those with which lines run for the first time."""
    examples: list[Example] = []

    def body(drawn: History) -> None:
        last = examples[-1] if examples else None
        if last is None or not _over(last, until):
            examples.append(_run(strata, bench, shape, drawn, kept))

    for classic in strata.classics(shape.name, bench):
        body(classic)
        if bench.words.phrases:
            body(edits.saying(classic, bench.words))
    count = count_of(strata, shape, budget)
    generate(bench, shape, count, body)
    switches = any(choice[0] == "on" for choice in bench.choices)
    for number in range(1, ROUNDS + 1):
        trouble = any(example.played.faults for example in examples)
        if not switches or trouble or acted(examples) >= LEAST_ACTED[budget]:
            break
        generate(
            bench,
            shape,
            count,
            lambda drawn: body(_outliving(bench, shape, drawn)),
            seed=bench.seed + number,
        )
    return examples


def _run(
    strata: Strata, bench: Stock, shape: Shape, drawn: History, kept: list[Example]
) -> Example:
    """Play a history, and keep it where lines, or ways, of the plugin are new with it."""
    before = lines.news()
    example = strata.run(bench, shape, drawn)
    if lines.news() > before:
        kept.append(example)
    return example


def _further(
    strata: Strata,
    bench: Stock,
    shapes: Sequence[Shape],
    budget: Budget,
    kept: list[Example],
    *,
    before: Iterable[Example],
) -> list[Example]:
    """Play further histories of some strata where there are lines that never ran.

    One fault is enough, and explains what comes after it.
    """
    examples: list[Example] = []
    if not lines.anything_left() or any(example.played.faults for example in before):
        return examples
    # The other process looks in another order.
    chance = random.Random(f"{bench.seed} {shapes[0].name}")
    trails = trails_to(strata.rows_alone, bench, TRIED.most(budget), chance)
    leading = chain.from_iterable(_led(bench, shape, trails, budget) for shape in shapes)
    for shape, drawn in chain(leading, _varied(bench, budget, kept)):
        examples.append(_run(strata, bench, shape, drawn, kept))
        if not examples[-1].played.faults:
            continue
        # Requests that just advance may show it, too: then it is no fault of what else happens.
        plain = edits.unordered(drawn, strata.plain.live)
        longer = (*plain, history.Step(repeat=bench.life + MOST_OUTPUTS))
        for _, each in ((shape, longer), *_led(bench, strata.plain, trails, budget)):
            examples.append(strata.run(bench, strata.plain, each))
            if examples[-1].played.faults:
                break
        break
    return examples


def _led(
    bench: Stock, shape: Shape, trails: Sequence[Trail], budget: Budget
) -> Iterator[tuple[Shape, History]]:
    """Yield histories of a stratum with requests that lead to lines which never ran."""
    drawn: list[History] = []
    if trails:
        generate(bench, shape, LED.most(budget), drawn.append)
    yield from ((shape, led(each, trails, chunks=shape.chunk)) for each in drawn)


def _varied(
    bench: Stock, budget: Budget, kept: Sequence[Example]
) -> Iterator[tuple[Shape, History]]:
    """Yield variations of histories that are kept, the last of them most: it went furthest."""
    chance = random.Random(bench.seed)
    left = round(VARIED.most(budget) * AT_FIRST)
    while kept and left > 0 and lines.anything_left():
        known = len(kept)
        one = kept[-1] if chance.random() < _LAST else chance.choice(kept)
        others = [example.history for example in kept[-_COMPANY:]]
        material = Material(bench.words, bench.choices, MOST_LIFE, others)
        yield one.shape, varied(one.history, material, chance)
        left = VARIED.most(budget) if len(kept) > known else left - 1


def _over(example: Example, until: str | None) -> bool:
    return hung(example) or until in example.rules()


def _outliving(bench: Stock, shape: Shape, drawn: History) -> History:
    """Return a history whose requests say what is waited for, and go on until nothing is new."""
    longer = (*drawn, history.Step(repeat=bench.life))
    if shape.chunk:
        # What is left of a prefill would be another amount after more steps.
        return longer
    if bench.words.prompts:
        longer = edits.prompted(longer, bench.words)
    return edits.saying(longer, bench.words) if bench.words.phrases else longer


def acted(examples: Iterable[Example]) -> int:
    """Return in how many examples the plugin did something."""
    return sum(bool(example.played.acted) for example in examples)


def sweep_all(
    strata: Strata, bench: Stock, budget: Budget, besides: Callable[[], Aside]
) -> tuple[dict[Shape, list[Example]], Aside]:
    """Play the histories of all strata, half of them in a forked process.

    A process stops at its first hang: strata that it did not come to are missing.

    Args:
        strata: those of the generation.
        bench: the plugin with what it is tried on.
        budget: how many histories.
        besides: what the forked process does besides.

    Returns:
        The examples of each stratum, and what ``besides`` gave: nothing where the plugin ended
        that process.

    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    # The larger strata in turn, so that both processes take about as long: the other one has more
    # to do besides.
    shapes = sorted(strata.rule_of, key=lambda shape: -strata.times.get(shape, 1))
    theirs = shapes[1:-2:2]
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            more = _sweep_some(strata, bench, theirs, budget)
            # What hung once is not waited for again.
            stuck = any(hung(example) for examples in more.values() for example in examples)
            sender.send((more, Aside() if stuck else besides()))
            status = 0
        finally:
            os._exit(status)
    sender.close()
    try:
        mine = [shape for shape in shapes if shape not in theirs]
        played = _sweep_some(strata, bench, mine, budget)
    except BaseException:
        # Whoever ends this process does not wait for the other half.
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    found = Aside()
    try:
        more, found = receiver.recv()
    except EOFError:
        # The plugin ended that process; here it will end this one, where it is noticed.
        more = _sweep_some(strata, bench, theirs, budget)
    os.waitpid(pid, 0)
    for shape, examples in more.items():
        played[shape] = [*played.get(shape, ()), *examples]
    return played, found


def _sweep_some(
    strata: Strata, bench: Stock, shapes: Sequence[Shape], budget: Budget
) -> dict[Shape, list[Example]]:
    played: dict[Shape, list[Example]] = {}
    kept: list[Example] = []
    lines.since_now()
    for shape in shapes:
        played[shape] = _drawn(strata, bench, shape, budget, kept)
        if any(hung(example) for example in played[shape]):
            return played
    every = list(chain.from_iterable(played.values()))
    for example in _further(strata, bench, shapes, budget, kept, before=every):
        played.setdefault(example.shape, []).append(example)
    return played


def count_of(strata: Strata, shape: Shape, budget: Budget) -> int:
    """Return how many histories of a stratum are drawn."""
    return STRATUM.times(strata.times.get(shape, 1)).most(budget)


def generate(
    bench: Stock,
    shape: Shape,
    count: int,
    body: Callable[[History], None],
    *,
    seed: int | None = None,
    shrinks: bool = False,
) -> None:
    """Run ``body`` on histories; the same seed gives the same ones, also where it shrinks."""
    # Where nobody is known to need outputs, it matters who joins that does.
    choices = (*bench.choices, history.SENT) if shape.entry_point else bench.choices
    drawn = history.strategy(shape, choices, bench.words, min(bench.life, LONGEST))
    draw(drawn, body, count, bench.seed if seed is None else seed, shrinks=shrinks)


def hung(example: Example) -> bool:
    """Tell whether a call did not return in an example."""
    return any(trouble.kind is Kind.HUNG for trouble in example.played.troubles)
