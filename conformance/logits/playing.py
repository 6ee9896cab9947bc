# SPDX-License-Identifier: Apache-2.0
"""The state of playing a history, and how its rows are judged, whichever runner plays it.

Beside the plugin stands one twin for every request: a fresh instance that serves it alone,
uninterrupted, from its first token on.  What a request gets among others must be what its twin
gives.
"""

from __future__ import annotations

import abc
import math
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

import attrs
import torch
from vllm.sampling_params import SamplingParams

from conformance.inputs.history import SENT, Choice, History, Request, Shape, Step
from conformance.inputs.words import following
from conformance.logits.calls import PluginMisshapen, PluginRaised, note, watchers
from conformance.logits.configuration import MAX_MODEL_LEN
from conformance.logits.extra_parameters import put_behind_grammars
from conformance.logits.played import Kind, Line, Played, Trouble
from conformance.logits.requests import Stock
from conformance.logits.rows import differing, same
from conformance.watching.interruption import PluginHung, place_in

#: References to parameters that only a playing has: its own, and the argument of the question.
_OWN_REFERENCES = 2


@attrs.define
class Endings:
    """What is known of the requests of a history while it is played."""

    #: Outputs that a live request gets at the most, and the tokens with which it ends.
    last: dict[str, tuple[int, frozenset[int]]] = attrs.field(factory=dict)
    over: set[str] = attrs.field(factory=set)

    def follow(self, name: str, most: int, stops: Iterable[int] = ()) -> None:
        """Take note of a request that joins, with what ends it (vLLM's ``check_stop``)."""
        self.last[name] = most, frozenset(stops)

    def ended(self, name: str, outputs: Sequence[int]) -> bool:
        """Tell whether a request that joined has got its last output."""
        most, stops = self.last[name]
        return len(outputs) >= most or (bool(outputs) and outputs[-1] in stops)

    def step(self, step: Step, outputs: Mapping[str, Sequence[int]], *, free: bool) -> Step | None:
        """Return the step in which requests that have got their last output finish.

        Args:
            step: what the history says.
            outputs: of every request.
            free: whether the history's shape lets any request finish in any step.

        Returns:
            None where it does not, and the history ends before that step.

        """
        for name in step.finish:
            self.last.pop(name, None)
        ending = [name for name in self.last if self.ended(name, outputs.get(name, ()))]
        if ending and not free:
            return None
        for name in ending:
            del self.last[name]
        finish = tuple(name for name in step.finish if name not in self.over)
        self.over.update(ending)
        if not self.over:
            return step
        return attrs.evolve(self._without(step), finish=(*finish, *ending))

    def _without(self, step: Step) -> Step:
        """Return the step without what it says of requests that are over."""
        over = self.over
        return attrs.evolve(
            step,
            pause=tuple(name for name in step.pause if name not in over),
            chunk=tuple((name, count) for name, count in step.chunk if name not in over),
            rest=tuple(name for name in step.rest if name not in over),
            draft=tuple((name, count) for name, count in step.draft if name not in over),
            lost=tuple(name for name in step.lost if name not in over),
        )


#: What is wrong with a row, and the sentence for it.
Wrong = tuple[Kind, str]


class _Host(Protocol):
    @property
    def outputs(self) -> Mapping[str, Sequence[int]]:
        """Return the outputs of each request."""


class _Twin(Protocol):
    params: SamplingParams
    outputs: list[int]


BenchT = TypeVar("BenchT", bound=Stock)
HostT = TypeVar("HostT", bound=_Host)
SeenT = TypeVar("SeenT")
TwinT = TypeVar("TwinT", bound=_Twin)


@attrs.define
class Playing(abc.ABC, Generic[BenchT, HostT, SeenT, TwinT]):
    """The state of one playing; a generation says how its runner and its twins are asked."""

    #: What becomes of a row with +inf in the sampler that comes next.
    infinite: ClassVar[str]
    #: Whether a plugin has to leave a token also where others have masked some before it.
    masked: ClassVar[bool]

    bench: BenchT
    host: HostT
    plugin: SeenT  #: stands before the plugin in the batch
    shape: Shape
    twins: dict[str, TwinT] = attrs.field(factory=dict)
    requests: dict[str, Request] = attrs.field(factory=dict)
    gone: list[Request] = attrs.field(factory=list)  #: finished, of those in :attr:`params`
    #: Whether requests get parameters of others that are gone, as :meth:`_freed` says.
    reuses: bool = True
    params: dict[str, SamplingParams] = attrs.field(factory=dict)
    served: list[Request] = attrs.field(factory=list)  #: those that are over, too
    troubles: list[Trouble] = attrs.field(factory=list)
    tokenless: list[Trouble] = attrs.field(factory=list)
    #: The first row that is not what the author says; it ends no history.
    unmeant: list[Trouble] = attrs.field(factory=list)
    acted: set[Choice] = attrs.field(factory=set)
    lines: list[Line] = attrs.field(factory=list)
    endings: Endings = attrs.field(factory=Endings)
    clock: int = 0
    #: How many tokens of which rows come masked in this step, though no request asks for it.
    masks: dict[int, int] = attrs.field(factory=dict)
    #: Whether the history ends here: the harness left a request without a token.
    over: bool = False

    @abc.abstractmethod
    def alone(self, name: str, before: torch.Tensor) -> torch.Tensor:
        """Return the row that a request gets from its twin."""

    @abc.abstractmethod
    def failed_alone(self, error: PluginRaised | PluginMisshapen, name: str, row: int) -> Trouble:
        """Return what went wrong where a twin's call did."""

    @abc.abstractmethod
    def states(self, twin: TwinT) -> object:
        """Return what observers know a twin by."""

    def asked(self, name: str) -> bool:  # noqa: ARG002 - generations look at the request
        """Tell whether the plugin acts for a request even where its row stays as it is."""
        return False

    def denied(self, name: str) -> Wrong | None:  # noqa: ARG002 - generations look at the request
        """Say why the row of a request must not change, although its parameters switch it on."""
        return None

    def beside(
        self,
        name: str,  # noqa: ARG002 - generations look at the request
        before: torch.Tensor,  # noqa: ARG002 - and at the row
        after: torch.Tensor,
        expected: torch.Tensor,
    ) -> tuple[Wrong | None, torch.Tensor]:
        """Compare a row with that of its twin; return what is wrong, and what it should be."""
        if same(after, expected):
            return None, expected
        return (Kind.ROW, "the row is not the one that the request gets alone"), expected

    def trouble(self, kind: Kind, message: str, name: str | None = None) -> None:
        """Take note of what went wrong in this step."""
        self.troubles.append(Trouble(kind, self.clock, message, name))

    def raised(self, error: Exception) -> str:
        """Say what was raised, and which row the plugin left no token before, if it did."""
        none = [each for each in self.tokenless if each.kind is Kind.NO_TOKEN]
        if not none:
            return str(error)
        last = none[-1]
        return f"{error}, after it left no token to request {last.request} in step {last.step}"

    def steps(self, history: History, advance: Callable[[Step], None]) -> None:
        """Go through the steps of a history until something goes wrong; note a plugin that hangs.

        What else the plugin did wrong is seen where the history ends before its last step.
        """
        try:
            for step in self._repeated(history):
                self.masks = {}
                advance(step)
                if self.troubles:
                    self._tell_masks()
                if self.troubles or self.over:
                    return
                self.clock += 1
        except PluginHung as error:
            place = place_in(error, self.bench.path)
            self.troubles.append(
                Trouble(Kind.HUNG, self.clock, str(error), call=error.call, place=place)
            )

    def _tell_masks(self) -> None:
        """Say in the line of this step which rows came masked: no parameters show it."""
        if not self.masks or len(self.lines) <= self.clock:
            return
        told = [f"row {row} comes with {count} tokens masked" for row, count in self.masks.items()]
        line = self.lines[-1]
        events = ", ".join(filter(None, [line.events, *told]))
        self.lines[-1] = attrs.evolve(line, events=events, quiet=False)

    def _repeated(self, history: History) -> Iterator[Step]:
        """Yield each step as often as it is repeated, as long as requests still get outputs."""
        for step in history:
            for repetition in range(step.repeat):
                each = step if not repetition else attrs.evolve(step, finish=(), join=())
                free = self.shape.finish == "free"
                played = self.endings.step(each, self.host.outputs, free=free)
                if played is None:
                    return
                yield played

    def join(self, request: Request) -> SamplingParams:
        """Take note of a request that joins, and return its parameters."""
        self.requests[request.name] = request
        params: SamplingParams = self.bench.params(
            request.choice, greedy=request.greedy, reused=self._freed()
        )
        self.params[request.name] = params
        # An engine ends a request that fills its context, whatever else is said.
        most = self.bench.served(MAX_MODEL_LEN, request.choice, prompt=request.prompt)
        # The first is None where the end of a sequence is ignored.
        stops = {params.eos_token_id, *(params.stop_token_ids or ())} - {None}
        self.endings.follow(request.name, most, stops)
        self.served.append(request)
        return params

    def leave(self, name: str) -> None:
        """Take note of a request that finishes."""
        self.gone.append(self.requests.pop(name))

    def _freed(self) -> SamplingParams | None:
        """Return the parameters of a request that is gone, if only this playing still has them.

        CPython makes new objects where others have just been freed.  Whoever knows a request by
        ``id(sampling_params)`` then takes it for another; this is the same without the luck.
        Parameters that were written to are kept, for :meth:`finish`.
        """
        for index, request in enumerate(self.gone if self.reuses else ()):
            name = request.name
            others = sys.getrefcount(self.params[name]) - _OWN_REFERENCES - watchers()
            if others > 0 or weakref.getweakrefcount(self.params[name]):
                continue
            if self.bench.unchanged(self.params[name], request.choice, greedy=request.greedy):
                del self.gone[index]
                return self.params.pop(name)
        return None

    def logits(self, names: Sequence[str], index: Sequence[int]) -> torch.Tensor:
        """Return these rows of what the model gives, behind the grammars of their requests."""
        self.masks = self.bench.masking.counts(index)
        logits: torch.Tensor = self.bench.table[index]
        if self.shape.sampled:
            asked = [self.bench.parameters[self.requests[name].choice] for name in names]
            put_behind_grammars(logits, asked)
        return logits

    def judge_row(self, row: int, name: str, before: torch.Tensor, after: torch.Tensor) -> None:
        """Judge the row of one request against itself and against its twin."""
        choice = self.requests[name].choice
        changed = not torch.equal(before, after)
        if choice[0] != "off" and (changed or self.asked(name)):
            self.acted.add(choice)
        if choice == SENT:
            return  # what a client asked for is its own business
        tokenless = self._tokenless(name, before, after) if changed else None
        if tokenless and (self.shape if choice[0] == "with" else self.bench).tolerant:
            differs = differing(after, before)
            kind, message = tokenless
            self.tokenless.append(Trouble(kind, self.clock, message, name, row, differs))
            tokenless = None
        expected = before
        wrong: Wrong | None
        if changed and choice[0] == "off":
            wrong = Kind.OPT_OUT, "the row of a request that did not opt in was changed"
        elif changed and (denied := self.denied(name)):
            wrong = denied
        elif tokenless:
            wrong = tokenless
        else:
            try:
                expected = self.alone(name, before)
            except (PluginRaised, PluginMisshapen) as error:
                self.troubles.append(self.failed_alone(error, name, row))
                return
            wrong, expected = self.beside(name, before, after, expected)
            if wrong is None:
                self._hold_to_meaning(row, name, before, after)
        if wrong:
            differs = differing(after, expected)
            self.troubles.append(Trouble(wrong[0], self.clock, wrong[1], name, row, differs))

    def _tokenless(self, name: str, before: torch.Tensor, after: torch.Tensor) -> Wrong | None:
        """Say what keeps a changed row from being sampled from, if anything does."""
        if math.isfinite(after.amax()):  # neither NaN, which this hands on, nor +inf, nor all -inf
            return None
        some, combined = torch.isfinite(before).any(), self.requests[name].choice[0] == "with"
        if torch.isnan(after).any() and (some or not combined):
            return Kind.NAN, "the row holds NaN"
        if self.params[name].temperature != 0 and torch.isposinf(after).any():
            return Kind.INFINITE, f"the row holds +inf, {self.infinite}"
        left = some if combined or self.masked else torch.isfinite(before).all()
        if left and torch.isneginf(after).all():
            return Kind.NO_TOKEN, "every token of the row is -inf: none can be sampled"
        return None

    def _hold_to_meaning(
        self, row: int, name: str, before: torch.Tensor, after: torch.Tensor
    ) -> None:
        """Hold a row that a request gets alone, too, to what the author says of it."""
        meaning = self.bench.meaning
        if meaning is None or self.unmeant or self.shape.entry_point:
            return
        twin, request = self.twins[name], self.requests[name]
        if trouble := meaning.trouble(twin.params, request, twin.outputs, before, after):
            self.unmeant.append(attrs.evolve(trouble, step=self.clock, row=row))
            note("unmeant", self.states(twin))

    def next_token(
        self, name: str, row: Sequence[float], likeliest: int, draft: int | None = None
    ) -> int:
        """Choose the token a request gets: one that the processed row allows, as sampling would.

        Args:
            name: the request.
            row: logits of the tokens of :attr:`bench`'s words, in their order.
            likeliest: what greedy sampling takes.
            draft: a guess, which is taken where the row allows it.

        """
        if self.params[name].temperature == 0:
            return likeliest
        request, count = self.requests[name], len(self.host.outputs[name])
        every = zip(self.bench.words.every, row, strict=True)
        allowed = [token for token, logit in every if logit > -math.inf]
        if draft is not None and draft in allowed:
            return draft
        token = following(request.outputs, request.prompt, count, allowed)
        return likeliest if token is None else token

    def finish(self, retire: Callable[[], None]) -> Played:
        """Look at what a history without a fault has left, and return the outcome.

        Who writes to parameters changes no other request, so they are looked at when all is done.
        ``retire`` takes the instances back.
        """
        if not self.troubles:
            for request in self.served:
                params = self.params.get(request.name)
                if params is not None and not self.bench.unchanged(
                    params, request.choice, greedy=request.greedy
                ):
                    said = "the plugin wrote to its SamplingParams"
                    self.trouble(Kind.PARAMETERS, said, request.name)
        if not self.troubles:
            retire()
        if not self.outcome().faults:
            self.troubles += self.unmeant
        return self.outcome()

    def outcome(self) -> Played:
        """Return what has come of the history so far."""
        return Played(
            tuple(self.troubles), frozenset(self.acted), tuple(self.lines), tuple(self.tokenless)
        )
