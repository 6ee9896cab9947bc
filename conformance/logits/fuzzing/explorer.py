# SPDX-License-Identifier: Apache-2.0
"""Trying what clients may send, one request after the other, until one does harm."""

from __future__ import annotations

import random
import resource
import time
from contextlib import suppress
from itertools import chain, islice, product
from typing import TYPE_CHECKING, Any

import attrs
from hypothesis.errors import Flaky, HypothesisException

from conformance.coverage import lines
from conformance.inputs.oddities import spread
from conformance.logits.calls import PluginRaised
from conformance.logits.fuzzing import carriers
from conformance.logits.fuzzing.serving import (
    HARMFUL,
    End,
    Outcome,
    Serving,
    Stage,
    histories,
    kind_of,
)
from conformance.logits.fuzzing.values import (
    Keywords,
    Position,
    at,
    edges,
    mutations,
    positions,
    replaced,
    requests,
    size,
    values,
)
from conformance.logits.keywords import converted
from conformance.logits.played import Kind
from conformance.logits.tried import UNRELATED
from conformance.logits.watching import LIKELY_FIELDS
from conformance.search import REQUESTS, TRIED, Found, draw
from conformance.settings import Budget
from conformance.watching.interruption import tell_progress
from conformance.watching.room import leave_room

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from conformance.ledger import Ledger
    from conformance.logits.fuzzing.slate import Slate
    from conformance.logits.parameters import Parameters
    from conformance.logits.roles import Roles

#: Requests at the edges, the most telling first.
AT_EDGES = {Budget.QUICK: 200, Budget.STANDARD: 600, Budget.DEEP: 3000}

#: Requests that are served among others as well, of those that a plugin serves alone.
AMONG_OTHERS = {Budget.QUICK: 20, Budget.STANDARD: 40, Budget.DEEP: 500}

#: Requests that are tried to make one that does harm smaller.
SHRINK_EXAMPLES = 300

#: Entries of a table that are tried alone.
MOST_ENTRIES = 64

#: Seconds of work after which a request is small enough.
SHRINK_SECONDS = 3.0

#: Seconds of work after which no more requests are tried with a plugin that is slow.
SECONDS = {Budget.QUICK: 10.0, Budget.STANDARD: 20.0, Budget.DEEP: 300.0}

#: Larger numbers are no easier to read than the one that was found. The least that is too much
#: for a machine takes long to find, and is another on the next machine.
LARGE = 10**6

#: Seconds of work that are spent on finding a request that does harm by HTTP, where one does that
#: only a program which calls vLLM can make.
SECONDS_BY_HTTP = 5.0

#: Requests that are worth sending to a real engine, for want of one that does harm.
NEAREST = 8

#: Requests that a new profile names as invalid.
MAX_REFUSALS = 6

#: Bytes that serving may take beside what the process has.
MEMORY = 2 << 30

#: How many of the requests that were kept last are changed.
_NEAR = 8


@attrs.frozen
class Explored:
    """What became of the requests that a client may send."""

    tried: int = 0  #: requests that vLLM hands to the plugin
    refused: int = 0  #: of them
    acted: int = 0  #: requests whose row was changed
    acting: Keywords | None = None  #: the shortest of them
    harm: Outcome | None = None  #: the smallest request found that does harm
    misrefused: Outcome | None = None  #: the smallest that is refused with another status than 400
    #: Requests that were refused or served in the most unlikely ways.
    nearest: tuple[Outcome, ...] = ()
    #: Short requests that were refused, of different kinds: a profile may name them.
    refusals: tuple[Keywords, ...] = ()
    #: Trouble that requests which work meet as well, in every history that could tell.
    usual: frozenset[Kind] = frozenset()

    def settle(self, ledger: Ledger, roles: Roles) -> None:
        """Note which rules about requests do not apply to a plugin in engines and servers."""
        if not self.tried and self.harm is None:
            ledger.beside[roles.harmless] = "the plugin reads nothing of what a client chooses"
        if not self.refused:
            ledger.beside[roles.client_error] = "it refuses no request"


@attrs.define
class Explorer:
    """Tries one request after the other."""

    serving: Serving
    parameters: Parameters
    budget: Budget
    slate: Slate
    shrink: bool = True
    outcomes: list[Outcome] = attrs.field(factory=list)
    seen: set[str] = attrs.field(factory=set)
    #: Requests that were served, with which lines of the plugin ran that never ran before.
    kept: list[Keywords] = attrs.field(factory=list)
    #: Odd values with which requests were served, by where they stand.
    served: dict[Position, list[Any]] = attrs.field(factory=dict)
    #: Histories among others that are still to be played.
    among_others: int = 0

    def run(self) -> Explored:
        """Explore, and stop at the first request that does harm, by HTTP if one does."""
        bench, parameters = self.serving.bench, self.parameters
        with suppress(PluginRaised):
            # Enough to know whether instances are to be used again.
            for _ in range(3):
                bench.new()
        # An honest constructor may need much.
        leave_room(MEMORY, resource.RLIMIT_DATA)
        self.serving = attrs.evolve(self.serving, entering=self.slate.enter)
        tell_progress(self.slate.count_up)  # torch may compile for longer than a request may take
        self.among_others = AMONG_OTHERS[self.budget]
        bases = bases_of(parameters)
        lines.anew()  # histories, which have other requests, may have reached the same lines
        self._learn_what_is_usual(bases)
        at_edges = islice(requests(bases, parameters.keys, bench.vocabulary), AT_EDGES[self.budget])
        # Plugins share `extra_args`: a client who wants another one sends its arguments alone.
        others = self._try({"extra_args": dict(UNRELATED)}, thorough=True)
        if others is not None and others.end is End.HARMFUL:
            return self._ended(others, (keywords for keywords, _ in at_edges))
        kept = AMONG_OTHERS[self.budget] // 4  # for requests that are drawn
        end = time.process_time() + SECONDS[self.budget]
        found: tuple[Outcome, Position] | None = None
        left: list[Keywords] = []  # of which admission alone is asked
        for keywords, path in at_edges:
            if time.process_time() > end:
                left.append(keywords)
                break
            public = carriers.public(keywords)
            if found is not None and not public:
                left.append(keywords)
                continue
            outcome = self._try(keywords, thorough=self.among_others > kept)
            self._note(outcome, path)
            if outcome is not None and outcome.end is End.HARMFUL:
                found = outcome, path
                if public or outcome.kind is Kind.HUNG:
                    break
                # That only programs of the owner can do harm is said where no request by HTTP does.
                end = min(end, time.process_time() + SECONDS_BY_HTTP)
        else:
            if found is None:
                return self._explored(self._draw(bases) or self._vary())
        if found is None:
            return self._explored(None)
        left += (keywords for keywords, _ in at_edges)
        return self._ended(self._smaller(*found), left)

    def _ended(self, harm: Outcome, left: Iterable[Keywords]) -> Explored:
        """Return what was found, and which of the other requests are refused."""
        if harm.kind is not Kind.HUNG:
            self._admit(left)
        return self._explored(harm)

    def _admit(self, left: Iterable[Keywords]) -> None:
        """Ask for the admission of the other requests: what is refused is worth knowing."""
        for keywords in left:
            self.slate.tell(keywords)
            found = self.serving.admission(keywords)
            if isinstance(found, Outcome):
                if found.end is End.HARMFUL:
                    return  # it hangs, or it would end the process: once is enough
                self.outcomes.append(found)

    def _learn_what_is_usual(self, bases: list[Keywords]) -> None:
        """Find out what trouble there is with requests that work: other rules are about it."""
        usual: dict[int, frozenset[Kind]] = {}
        for keywords in bases[:2] or [{}]:
            self.slate.tell(keywords)
            found = self.serving.outcome(keywords, thorough=False)
            bench = self.serving.bench
            if found.end is End.NOT_SENT or found.stage is Stage.ADMISSION:
                continue
            from vllm.sampling_params import SamplingParams

            params = SamplingParams(**keywords)
            sending = bench.sending(params, keywords)
            for number, (shape, history) in enumerate(histories(self.serving.strata, sending)):
                troubles = self.serving.play(sending, history, shape).troubles
                found_now = HARMFUL.intersection(map(kind_of, troubles))
                if found_now:
                    usual[number] = usual.get(number, frozenset()) | found_now
        self.serving = attrs.evolve(self.serving, usual=usual)

    def _try(self, keywords: Keywords, *, thorough: bool) -> Outcome | None:
        """Serve a request; None where the same one was tried before."""
        *_, said = size(keywords)
        if said in self.seen:
            return None
        self.seen.add(said)
        self.slate.tell(keywords)
        thorough = thorough and self.among_others > 0
        before = lines.news()
        outcome = self.serving.outcome(keywords, thorough=thorough)
        if lines.news() > before and outcome.end is End.SERVED:
            self.kept.append(keywords)
        if thorough and outcome.end is End.SERVED:
            self.among_others -= 1
        self.outcomes.append(outcome)
        return outcome

    def _note(self, outcome: Outcome | None, path: Position) -> None:
        """Take note of an odd value that was served."""
        if outcome is not None and outcome.end is End.SERVED:
            with suppress(LookupError):  # a request without it
                self.served.setdefault(path, []).append(at(outcome.keywords, path))

    def _draw(self, bases: list[Keywords]) -> Outcome | None:
        """Draw requests; return the smallest that does harm, if one does."""
        keys = self.parameters.keys
        bases = [base for base in bases if keys or positions(base)]
        if not bases and not keys:
            return None
        drawn = mutations(bases, keys, self.serving.bench.vocabulary)
        found: list[Outcome] = []

        def look(case: tuple[Keywords, Position]) -> None:
            outcome = self._try(case[0], thorough=True)
            if outcome is not None and outcome.end is End.HARMFUL:
                found.append(outcome)
                # A hang is waited for once.
                if outcome.kind is not Kind.HUNG:
                    raise Found

        with suppress(Found, Flaky):
            draw(drawn, look, REQUESTS.most(self.budget), self._seed(), shrinks=True)
        return min(found, key=lambda outcome: size(outcome.keywords), default=None)

    def _vary(self) -> Outcome | None:
        """Change requests that led to new lines, while others never ran; return one that harms.

        What waits for several odd values is reached one after the other: each was served alone.
        """
        chance = random.Random(self._seed())
        odd = [(path, value) for path, values in self.served.items() for value in values]
        known = 0
        while len(self.kept) > known and lines.anything_left():
            known = len(self.kept)
            changes = list(product(self.kept[-_NEAR:], odd))
            chance.shuffle(changes)
            for base, (path, value) in changes[: TRIED.most(self.budget)]:
                with suppress(TypeError, LookupError):  # what stands there is no table
                    outcome = self._try(replaced(base, path, value), thorough=True)
                    if outcome is not None and outcome.end is End.HARMFUL:
                        return self._smaller(outcome, path)
                if len(self.kept) > known:
                    break
        return None

    def _smaller(self, failing: Outcome, path: Position) -> Outcome:
        """Return the smallest request found that meets the same fault at the same position."""
        if failing.kind is Kind.HUNG or not self.shrink:
            return failing
        best = failing
        left = SHRINK_EXAMPLES
        end = time.process_time() + SHRINK_SECONDS

        def fails(value: object) -> bool:
            nonlocal best, left
            if isinstance(value, int) and abs(value) > LARGE:
                return False
            left -= 1
            if left < 0 or time.process_time() > end:
                return False
            keywords = replaced(failing.keywords, path, value)
            self.slate.tell(keywords)
            outcome = self.serving.outcome(keywords, thorough=True)
            if outcome.same_fault != failing.same_fault:
                return False
            best = min(best, outcome, key=lambda one: size(one.keywords))
            return True

        def look(value: object) -> None:
            if fails(value):
                raise Found

        with suppress(LookupError, TypeError):
            whole = at(failing.keywords, path)
            small = sorted(_small(self.serving.bench.vocabulary), key=lambda v: len(repr(v)))
            for value in chain(small, _shorter(whole)):
                if fails(value):
                    break
            with suppress(Found, HypothesisException):
                draw(values(), look, SHRINK_EXAMPLES, self._seed(), shrinks=True)
        return best

    def _seed(self) -> int:
        """Return a seed for what is drawn."""
        return random.Random(self.serving.bench.seed).getrandbits(64)

    def _by_http(self, outcome: Outcome) -> Outcome | None:
        """Return what is refused as the server's fault, as a client can send it, or None.

        What no client can send has no status; of several arguments, one alone may do.
        """
        if outcome.end is not End.MISREFUSED or carriers.public(outcome.keywords):
            return outcome if outcome.end is End.MISREFUSED else None
        for key, value in (outcome.keywords.get("extra_args") or {}).items():
            alone = {"extra_args": {key: value}}
            if carriers.public(alone):
                self.slate.tell(alone)
                found = self.serving.admission(alone)
                if isinstance(found, Outcome) and found.end is End.MISREFUSED:
                    return found
        return None

    def _explored(self, harm: Outcome | None) -> Explored:
        asked = [outcome for outcome in self.outcomes if outcome.end is not End.NOT_SENT]
        misrefused = [each for each in map(self._by_http, asked) if each is not None]
        served = [outcome for outcome in asked if outcome.end is End.SERVED]
        refused = [outcome for outcome in asked if outcome.end in (End.REFUSED, End.MISREFUSED)]
        acting = [outcome.keywords for outcome in served if outcome.acted]
        return Explored(
            tried=len(asked),
            refused=len(refused),
            acted=len(acting),
            acting=min(acting, key=size, default=None),
            harm=harm,
            misrefused=min(misrefused, key=lambda one: size(one.keywords), default=None),
            nearest=tuple(spread(served, NEAREST) + spread(refused, NEAREST)),
            refusals=_different([one for one in refused if one.end is End.REFUSED]),
            usual=self.serving.untold,
        )


def bases_of(parameters: Parameters) -> list[Keywords]:
    """Return the requests to begin with: guesses, where none is known to switch the plugin on."""
    bases = [converted(keywords) for keywords in parameters.on]
    guesses = [entry for field in parameters.fields for entry in LIKELY_FIELDS[field][:1]]
    return bases if any(bases) else guesses or bases


def _small(vocabulary: int) -> Iterator[object]:
    """Yield those values at the edges that a person reads at a glance."""
    for value in edges(vocabulary):
        if len(repr(value)) <= 20:  # noqa: PLR2004 - characters
            yield value


def _different(refused: list[Outcome]) -> tuple[Keywords, ...]:
    """Return the shortest request of each combination of types, those with few characters first."""
    found: dict[tuple[object, ...], Keywords] = {}
    for outcome in sorted(refused, key=lambda one: size(one.keywords)):
        arguments = outcome.keywords.get("extra_args")
        if set(outcome.keywords) == {"extra_args"} and isinstance(arguments, dict):
            types = tuple((key, type(value).__name__) for key, value in arguments.items())
            if carriers.REST in outcome.ways:
                found.setdefault(types, outcome.keywords)
    return tuple(islice(found.values(), MAX_REFUSALS))


def _shorter(value: object) -> Iterator[object]:
    """Yield beginnings of a list or a text, the shortest first, and single entries of a table."""
    if isinstance(value, dict):
        for entry in islice(value.items(), MOST_ENTRIES if len(value) > 1 else 0):
            yield dict([entry])
    elif isinstance(value, list | str):
        length = 1
        while length < len(value):
            yield value[:length]
            length *= 2
