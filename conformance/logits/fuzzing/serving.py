# SPDX-License-Identifier: Apache-2.0
"""One request of a client: is it refused, is it served, or does it harm others?"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import attrs
from vllm.sampling_params import SamplingParams

from conformance.inputs.history import SENT, Request, Step
from conformance.logits.calls import PluginRaised, call
from conformance.logits.fuzzing import carriers
from conformance.logits.played import Kind
from conformance.watching.interruption import PluginHung, limited, place_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.inputs.history import Choice, History, Shape
    from conformance.logits.fuzzing.values import Keywords
    from conformance.logits.played import Played, Trouble
    from conformance.logits.requests import Stock
    from conformance.logits.sweeps import Strata

    #: Plays a history of a shape with what a bench has.
    Play = Callable[[Any, History, Shape], Played]

#: Seconds that the admission of a request, or a history of it, may take: usual are milliseconds.
HANGS = 10.0

#: Steps of a request that is alone, after its first.
LONG = 7

#: The history in which a request is alone, and the one that may tell where others do not.
ALONE, SPARE = 0, 3

#: Trouble that ends the engine, or that another request feels.
HARMFUL = frozenset(
    (Kind.RAISED, Kind.ALONE, Kind.NONE, Kind.SHAPE, Kind.HUNG, Kind.ROW, Kind.OPT_OUT)
)


class End(StrEnum):
    """What becomes of a request."""

    NOT_SENT = "not-sent"  #: vLLM itself refuses it before the plugin is asked, or cannot carry it
    REFUSED = "refused"  #: by the plugin; the client gets status 400
    MISREFUSED = "misrefused"  #: by the plugin; the client gets another status
    SERVED = "served"
    HARMFUL = "harmful"  #: the engine or the server ends or hangs, or another request feels it


class Stage(StrEnum):
    """Where a request did harm."""

    ADMISSION = "admission"
    ENGINE = "engine"


@attrs.frozen
class Outcome:
    """What became of one request."""

    end: End
    keywords: Keywords
    carried: bool = True  #: whether vLLM carries it to an engine of another process
    acted: bool = False  #: whether its row was changed
    stage: Stage | None = None
    kind: Kind | None = None
    error: str | None = None  #: name of the type of what was raised
    said: str = ""
    place: str | None = None  #: ``file.py:LINE`` of the plugin
    status: int | None = None  #: of the response to a request that is refused
    shape: Shape | None = None
    history: History | None = None
    played: Played | None = None

    @property
    def ways(self) -> tuple[str, ...]:
        """By which ways the request can reach an engine, the most public first."""
        return carriers.ways(self.keywords, carried=self.carried)

    @property
    def same_fault(self) -> tuple[object, ...]:
        """What the outcomes of requests that meet the same fault have in common."""
        return self.end, self.stage, self.kind, self.error


@attrs.frozen
class Serving:
    """A plugin, and how requests are served with it in the simulator."""

    bench: Stock
    config: Any  #: ``VllmConfig``
    strata: Strata
    play: Play
    path: str | None  #: the file of the plugin's class
    #: Trouble of each history, by its number, that there is also with requests that are as they
    #: should be: other rules see it.
    usual: Mapping[int, frozenset[Kind]] = attrs.field(factory=dict)
    #: Called when a request that was admitted comes to the engine.
    entering: Callable[[], None] = lambda: None

    @property
    def untold(self) -> frozenset[Kind]:
        """Trouble of which no history tells whether a request is the reason for it."""
        nowhere: frozenset[Kind] = frozenset()
        return self.usual.get(ALONE, nowhere) | self.usual.get(SPARE, nowhere)

    def admission(self, keywords: Keywords) -> Outcome | SamplingParams:
        """Return what becomes of a request that is not admitted, or what reaches the engine."""
        try:
            params = SamplingParams(**keywords)
            if not carriers.admitted_by_host(params, self.config):
                return Outcome(End.NOT_SENT, keywords)
        except Exception:  # noqa: BLE001 - refused, in whatever way
            return Outcome(End.NOT_SENT, keywords)
        arrived = carriers.carried(params)
        if refused := self._refusal(params, keywords, carried=arrived is not None):
            return refused
        return Outcome(End.NOT_SENT, keywords, carried=False) if arrived is None else arrived

    def outcome(self, keywords: Keywords, *, thorough: bool) -> Outcome:
        """Return what becomes of a request: alone, and if ``thorough`` also among others."""
        arrived = self.admission(keywords)
        if isinstance(arrived, Outcome):
            return arrived
        self.entering()
        bench = self.bench.sending(arrived, keywords)
        acted = False
        numbered = enumerate(histories(self.strata, bench))
        spare = any(number not in (ALONE, SPARE) for number in self.usual)
        for number, (shape, history) in numbered:
            if number != ALONE and (not thorough or (number == SPARE and not spare)):
                continue
            played = self.play(bench, history, shape)
            acted = acted or SENT in played.acted
            for trouble in played.troubles:
                if (kind := kind_of(trouble)) in HARMFUL - self.usual.get(number, frozenset()):
                    return Outcome(
                        End.HARMFUL,
                        keywords,
                        stage=Stage.ENGINE,
                        kind=kind,
                        error=trouble.error,
                        said=trouble.message,
                        place=trouble.place,
                        shape=shape,
                        history=_until(history, trouble.step),
                        played=played,
                    )
        return Outcome(End.SERVED, keywords, acted=acted)

    def _refusal(
        self, params: SamplingParams, keywords: Keywords, *, carried: bool
    ) -> Outcome | None:
        """Return what becomes of a request that ``validate_params`` does not let through."""
        validate = self.bench.plugin.validate_params
        try:
            with limited(HANGS):
                call("validate_params", validate, params)
        except PluginHung as hung:
            return Outcome(
                End.HARMFUL,
                keywords,
                carried=carried,
                stage=Stage.ADMISSION,
                kind=Kind.HUNG,
                said=str(hung),
                place=place_in(hung, self.path),
            )
        except PluginRaised as raised:
            error = raised.error
            # The process of the server ends, or all of its memory is asked for.
            ends = isinstance(error, SystemExit | MemoryError)
            status = None if ends else carriers.status(error)
            refused = End.REFUSED if status == carriers.BAD_REQUEST else End.MISREFUSED
            return Outcome(
                End.HARMFUL if ends else refused,
                keywords,
                carried=carried,
                stage=Stage.ADMISSION,
                kind=Kind.RAISED,
                error=type(error).__name__,
                said=str(raised),
                place=place_in(error, self.path),
                status=status,
            )
        return None


def _until(history: History, clock: int) -> History:
    """Return a history up to an engine step."""
    for number, step in enumerate(history, 1):
        clock -= step.repeat
        if clock < 0:
            return history[:number]
    return history


def kind_of(trouble: Trouble) -> Kind:
    """Return what a trouble comes to for others: an answer that ends the engine is no answer."""
    ends = trouble.kind is Kind.ANSWER and trouble.error is not None
    return Kind.RAISED if ends else trouble.kind


def refused(plugin: type[Any], keywords: Keywords) -> bool:
    """Tell whether a plugin refuses a request at admission."""
    try:
        with limited(HANGS):
            call("validate_params", plugin.validate_params, SamplingParams(**keywords))
    except PluginRaised as raised:
        return not isinstance(raised.error, SystemExit | MemoryError)
    return False


def histories(strata: Strata, bench: Stock) -> list[tuple[Shape, History]]:
    """Return histories with a request of a client, the simplest first.

    It is alone; it joins others, is preempted, moves and finishes; there are two of it,
    in chunks and in an order that changes; and, where those two tell nothing, it joins others
    and moves, and that is all.
    """
    prompt = tuple(bench.tokens[:2])
    off, on = _neighbours(bench)
    sent = Request("B", prompt, SENT)
    # Enough of the same that plugins which look for repetitions find some.
    alone = Request("A", prompt * 2, SENT)
    return [
        (strata.plain, (Step(join=(alone,)), Step(repeat=LONG))),
        (
            strata.plain,
            (
                Step(join=(Request("A", prompt, off), sent, Request("C", prompt, on))),
                Step(repeat=2),
                Step(pause=("B",)),
                Step(),
                Step(finish=("A",)),
                Step(repeat=2),
                Step(finish=("B",), join=(Request("D", prompt, off),)),
                Step(),
            ),
        ),
        (
            strata.everything,
            (
                Step(
                    join=(
                        Request("A", (*prompt, prompt[0]), SENT),
                        Request("B", prompt[:1], off),
                        Request("C", prompt, on),
                        Request("D", prompt[:1], SENT),
                    ),
                    chunk=(("A", 1),),
                ),
                Step(),
                Step(finish=("D",)),
                Step(join=(Request("E", prompt, off),)),
                Step(repeat=2),
            ),
        ),
        (
            strata.plain,
            (
                Step(join=(Request("A", prompt, off), sent, Request("C", prompt, on))),
                Step(repeat=2),
                Step(finish=("A",)),
                Step(repeat=2),
                Step(finish=("B",), join=(Request("D", prompt, off),)),
                Step(),
            ),
        ),
    ]


def _neighbours(bench: Stock) -> tuple[Choice, Choice]:
    """Return what the others are: one that does not opt in and one that does, where there are."""
    known = [choice for choice in bench.parameters if choice != SENT]
    off = [choice for choice in known if choice[0] == "off"]
    on = [choice for choice in known if choice[0] == "on"]
    return (off or on)[0], (on or off)[0]
