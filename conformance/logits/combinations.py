# SPDX-License-Identifier: Apache-2.0
"""Requests that ask for the plugin and for more.

A combined request has the parameters of an ``on`` set and one to three things more.
It runs among others, which come and go, with vLLM's own sampler around the plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from string import ascii_uppercase
from typing import Any

import attrs
from hypothesis import strategies as st

from conformance.findings import Finding, failed, passed, unjudged, waiting
from conformance.inputs.edits import until
from conformance.inputs.history import Choice, History, Request, Shape, Step
from conformance.logits import reasons
from conformance.logits.calls import PluginRaised, call
from conformance.logits.cases import history_case
from conformance.logits.configuration import MAX_MODEL_LEN
from conformance.logits.extra_parameters import Combination, everything
from conformance.logits.findings import switched_on
from conformance.logits.judgement import events_of, roots
from conformance.logits.keywords import sampling_params
from conformance.logits.played import UNSAMPLED, Kind, Played, Trouble
from conformance.logits.requests import Stock
from conformance.logits.sweeps import Example
from conformance.logits.trial import Trial
from conformance.search import COMBINATIONS, draw
from conformance.settings import Budget, UsageError
from conformance.verdict import Reason
from conformance.watching.interruption import PluginHung, limited

#: Combined requests in one batch, children of ``n`` included: two others run beside them.
MOST_TOGETHER = 4

#: Steps in which a combined request gets tokens, at most.
LIFE = 6

#: Requests that run beside combined ones: two that are there before, and one that comes later.
OTHERS = ("A", "B", "J")

#: Histories whose requests ask for more.  A row without a token is advice, and what comes after
#: it may harm others all the same.
COMBINED = Shape(
    name="combined",
    title="requests ask for more than the plugin, among others",
    finish="free",
    sampled=True,
    tolerant=True,
)
TOKENLESS = attrs.evolve(COMBINED, name="tokenless", tolerant=False)
SHAPES = (COMBINED, TOKENLESS)


@attrs.frozen
class Scene:
    """Combined requests, and whether others run beside them."""

    combinations: tuple[Combination, ...]
    crowd: bool = True
    steps: int | None = None  #: where the history ends; by itself where all have left

    @property
    def said(self) -> str:
        """The requests, as messages name them."""
        return "; ".join(combination.said for combination in self.combinations)


@attrs.frozen
class Failure:
    """A scene in which something went wrong."""

    scene: Scene
    trouble: Trouble
    played: Played


@attrs.frozen
class Outcome:
    """What came of the combined requests of a plugin."""

    examples: int = 0
    acted: int = 0
    harm: Failure | None = None
    left: Failure | None = None  #: without a token
    unmeant: Failure | None = None  #: with a row that is not what the author says
    #: What must be known first: why nothing was played, or what else may have gone wrong.
    waiting: Reason | None = None

    @property
    def clean(self) -> bool:
        """Whether something was played, and nothing went wrong."""
        return bool(self.examples) and not (self.harm or self.left or self.unmeant)


@attrs.define
class Stage:
    """Where scenes of one plugin are played."""

    bench: Stock  #: of its own
    play: Callable[[Any, History, Shape], Played]
    #: Parameters that were asked for already: those of each child, or None where refused.
    _admitted: dict[str, list[dict[str, Any]] | None] = attrs.field(factory=dict)

    def children(self, combination: Combination) -> list[dict[str, Any]]:
        """Return the parameters of the requests that the engine makes of one; none if refused."""
        if combination.said not in self._admitted:
            self._admitted[combination.said] = self._admit(combination)
        return self._admitted[combination.said] or []

    def _admit(self, combination: Combination) -> list[dict[str, Any]] | None:
        keywords = combination.keywords(self.bench.parameters[combination.choice])
        try:
            params = sampling_params(keywords, "")
            with limited():
                call("validate_params", self.bench.plugin.validate_params, params)
        except (UsageError, PluginRaised, PluginHung):
            return None  # with which exception is for the rules about admission
        # As vLLM's ParentRequest: children share all but their seeds.
        count, seed = int(keywords.pop("n", 1)), keywords.get("seed")
        if seed is None or count == 1:
            return [keywords] * count
        return [{**keywords, "seed": seed + index} for index in range(count)]

    def history(self, scene: Scene) -> tuple[dict[Choice, dict[str, Any]], History]:
        """Return the parameter sets of combined requests, and what everyone does."""
        sets, steps = self._history(scene)
        return sets, steps if scene.steps is None else until(steps, scene.steps)

    def _history(self, scene: Scene) -> tuple[dict[Choice, dict[str, Any]], History]:
        bench = self.bench
        sets: dict[Choice, dict[str, Any]] = {}
        joining: list[Request] = []
        leaving: dict[int, list[str]] = {}
        # Plugins that look for repetitions find one at once.
        plain = (bench.tokens[-1], *bench.tokens[:1] * 4)
        longest = bench.words.longest
        for combination in scene.combinations:
            # Those that wait for something find it in prompts, or in outputs a little later; every
            # second request goes on as it began, for those that look for repetitions.
            number = len(joining)
            waited = bench.words.saying(number) if number % 2 else bench.tokens[:1]
            said = waited if longest else ()
            ends = bench.words.phrase(number) if number % 2 else ()
            prompt = combination.prompt or (*plain, *ends, *bench.words.prompt(number))
            for keywords in self.children(combination):
                choice: Choice = ("with", len(sets))
                name = ascii_uppercase[2 + len(sets)]
                sets[choice] = keywords
                joining.append(Request(name, prompt, choice, outputs=said))
                room = MAX_MODEL_LEN - len(prompt)
                life = min(LIFE + longest, keywords.get("max_tokens") or LIFE + longest, room)
                leaving.setdefault(life, []).append(name)
        if not scene.crowd:
            # As many steps as the one that stays for the shortest time.
            return sets, (Step(join=tuple(joining)), *(Step() for _ in range(1, min(leaving))))
        on = switched_on(bench)
        others = [choice for choice in bench.parameters if choice[0] == "off"] or on
        first, second, late = OTHERS
        steps = [
            Step(join=(Request(first, plain, others[0]), Request(second, plain, on[0]))),
            Step(join=tuple(joining)),
            Step(finish=tuple(leaving.get(1, ()))),
            Step(finish=(second, *leaving.get(2, ())), join=(Request(late, plain[:1], on[-1]),)),
            *(Step(finish=tuple(leaving.get(life, ()))) for life in range(3, 4 + longest)),
        ]
        return sets, tuple(steps)

    def run(self, scene: Scene, shape: Shape) -> Played | None:
        """Play a scene; None where nothing of it was admitted."""
        sets, history = self.history(scene)
        self.bench.combine(sets)
        return self.play(self.bench, history, shape) if sets else None

    def fails(self, scene: Scene, *, harms: bool) -> Failure | None:
        """Return how a scene goes wrong, if it does."""
        played = self.run(scene, COMBINED if harms else TOKENLESS)
        if played is None:
            return None
        wanted = [t for t in played.faults if harms or t.kind in UNSAMPLED]
        return Failure(scene, wanted[0], played) if wanted else None


def _scenes(bench: Stock, budget: Budget) -> Iterator[Scene]:
    """Yield each thing with an ``on`` set, several in a batch; at ``deep`` with each set."""
    on, table = switched_on(bench), everything(bench)
    for turn in range(len(on) if budget is Budget.DEEP else 1):
        singles = [
            Combination(on[(index + turn) % len(on)], (asked,)) for index, asked in enumerate(table)
        ]
        for start in range(0, len(singles), MOST_TOGETHER):
            yield Scene(tuple(singles[start : start + MOST_TOGETHER]))


def _drawn(bench: Stock) -> st.SearchStrategy[Scene]:
    """Draw scenes whose requests ask for two or three things."""
    on, table = switched_on(bench), everything(bench)
    combination = st.builds(
        lambda choice, asked: Combination(on[choice], tuple(table[index] for index in asked)),
        st.integers(0, len(on) - 1),
        st.lists(st.integers(0, len(table) - 1), min_size=2, max_size=3, unique=True),
    )
    return st.builds(
        lambda drawn: Scene(tuple(each for each in drawn if each.sensible)),
        st.lists(combination, min_size=2, max_size=MOST_TOGETHER),
    )


def _fitting(stage: Stage, scene: Scene) -> Scene:
    """Leave out what was refused, and requests for which there is no room."""
    kept: list[Combination] = []
    count = 0
    for combination in scene.combinations:
        children = len(stage.children(combination))
        if children and count + children <= MOST_TOGETHER + 1:
            kept.append(combination)
            count += children
    return attrs.evolve(scene, combinations=tuple(kept))


def explore(bench: Stock, play: Callable[[Any, History, Shape], Played], budget: Budget) -> Outcome:
    """Play combined requests until one harms others, or all have been played."""
    stage = Stage(bench.beside({}), play)
    examples = acted = 0
    harm: Failure | None = None
    left: Failure | None = None
    unmeant: Failure | None = None

    def body(scene: Scene) -> None:
        nonlocal examples, acted, harm, left, unmeant
        scene = _fitting(stage, scene)
        if harm is not None or not scene.combinations:
            return
        played = stage.run(scene, COMBINED)
        assert played is not None
        examples += 1
        acted += any(choice[0] == "with" for choice in played.acted)
        if played.faults:
            harm = Failure(scene, played.faults[0], played)
        combined = [t for t in played.tokenless if t.request not in OTHERS]
        if combined and left is None:
            left = Failure(scene, combined[0], played)
        unmeant = unmeant or _unmeant(scene, played)

    for scene in _scenes(bench, budget):
        body(scene)
    if harm is None:
        draw(_drawn(bench), body, COMBINATIONS.most(budget), bench.seed)
    return Outcome(examples, acted, harm, left, unmeant)


def _unmeant(scene: Scene, played: Played | None) -> Failure | None:
    """Return the first row of a scene that is not what the author says."""
    troubles = played.troubles if played is not None else ()
    found = next((each for each in troubles if each.kind in (Kind.MEANING, Kind.ORACLE)), None)
    return Failure(scene, found, played) if found is not None and played is not None else None


def _smallest(stage: Stage, failure: Failure, *, harms: bool) -> Failure:
    """Return the smallest scene in which the same still goes wrong, up to where it does."""
    best = _reduced(failure, partial(stage.fails, harms=harms))
    if best.trouble.kind is Kind.HUNG:
        return best
    # It was found in a history that goes on after rows without a token.
    best = stage.fails(best.scene, harms=harms) or best
    ended = attrs.evolve(best.scene, steps=best.trouble.step + 1)
    return stage.fails(ended, harms=harms) or best


def _reduced(failure: Failure, again: Callable[[Scene], Failure | None]) -> Failure:
    """Take away requests, what they ask for and the others, as long as it still goes wrong.

    A call that hangs is waited for once.
    """
    while failure.trouble.kind is not Kind.HUNG:
        best = next(filter(None, map(again, _smaller(failure.scene))), None)
        if best is None:
            break
        failure = best
    return failure


def _smaller(scene: Scene) -> Iterator[Scene]:
    """Yield scenes with less in them, the smallest first."""
    every = scene.combinations
    if len(every) > 1:
        for combination in every:
            yield attrs.evolve(scene, combinations=(combination,))
        for index in range(len(every)):
            yield attrs.evolve(scene, combinations=every[:index] + every[index + 1 :])
    for index, combination in enumerate(every):
        for out in range(len(combination.asked) if len(combination.asked) > 1 else 0):
            asked = combination.asked[:out] + combination.asked[out + 1 :]
            less = attrs.evolve(combination, asked=asked)
            yield attrs.evolve(scene, combinations=(*every[:index], less, *every[index + 1 :]))
    if scene.crowd:
        yield attrs.evolve(scene, crowd=False)


def explored(trial: Trial) -> Outcome:
    """Play combined requests of a trial."""
    return explore(trial.bench, trial.contract.play, trial.budget)


def _outcome(trial: Trial) -> Outcome:
    """Return what came of combined requests."""
    if not trial.parameters.on:
        return Outcome(waiting=trial.unknown_switch())
    # One of many seeds plays only what a rule asks for.
    broken = [] if trial.survey else [rule for rule in roots(trial) if _shows(trial, rule)]
    waits = reasons.waits(trial, broken) if broken else None
    if waits and reasons.blocking(trial):
        return Outcome(waiting=waits)
    found = trial.once(explored)
    # What goes wrong without anything more may be what went wrong; what goes well still does.
    return attrs.evolve(found, waiting=waits) if found.harm or found.left else found


def _shows(trial: Trial, rule: str) -> bool:
    """Tell whether a scene may break a rule: its requests just join, advance and finish."""
    shape = trial.contract.strata.about(rule)
    return shape is None or not events_of(shape)


def judge(trial: Trial, *, harmful: str, harms: bool) -> Finding:
    """Judge whatever else clients ask for: whether others get what they get without it.

    Or whether a token is left for these requests themselves.

    Args:
        trial: the plugin.
        harmful: the rule about harm.
        harms: what is asked: the one, or the other.

    """
    outcome = trial.once(_outcome)
    failure = outcome.harm if harms else outcome.left
    if outcome.waiting and (failure or outcome.harm or not outcome.examples):
        return unjudged(outcome.waiting)
    if failure is None and outcome.harm:
        return waiting(harmful, outcome.harm.trouble.message)
    if failure is None:
        return passed(outcome.examples, outcome.acted)
    stage = Stage(trial.bench.beside({}), trial.contract.play)
    if not trial.survey:
        failure = _smallest(stage, failure, harms=harms)
    return _failed(trial, outcome, stage, failure, COMBINED if harms else TOKENLESS)


def meant(trial: Trial) -> Finding:
    """Judge whether rows are what the author says whatever else their requests ask for."""
    outcome = trial.once(_outcome)
    failure = outcome.unmeant
    if failure is None or outcome.waiting:
        return passed(outcome.examples, outcome.acted)
    if failure.trouble.kind is Kind.ORACLE:
        return unjudged(failure.trouble.message, outcome.examples, outcome.acted)
    stage = Stage(trial.bench.beside({}), trial.contract.play)
    if not trial.survey:
        failure = _reduced(failure, lambda scene: _unmeant(scene, stage.run(scene, COMBINED)))
    return _failed(trial, outcome, stage, failure, COMBINED)


def _failed(
    trial: Trial, outcome: Outcome, stage: Stage, failure: Failure, shape: Shape
) -> Finding:
    """Return the failure that a scene shows."""
    sets, history = stage.history(failure.scene)
    example = Example(shape, history, failure.played, ())
    case = history_case(trial.bench.beside(sets), example, failure.trouble)
    message = f"{failure.trouble.message} ({failure.scene.said})"
    return failed(message, outcome.examples, outcome.acted, case=case)
