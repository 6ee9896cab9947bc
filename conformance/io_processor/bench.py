# SPDX-License-Identifier: Apache-2.0
"""A plugin with what it is tried on, and requests that are alone."""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import attrs
from vllm.pooling_params import PoolingParams

from conformance.counterexample.io_engine_player import own_pooler, settings_of
from conformance.io_processor import DATA
from conformance.io_processor.answers import Answer, Kind
from conformance.io_processor.host import (
    Beside,
    Documented,
    DocumentedOffline,
    Offline,
    Online,
    Surroundings,
    surroundings,
)
from conformance.io_processor.own_options import lacking
from conformance.io_processor.rehearsal import installed_hosts
from conformance.io_processor.stock import Stock
from conformance.io_processor.traffic import Asked, Do, History, Move, Played, play
from conformance.io_processor.watched import Watched
from conformance.plugin.files import source_of
from conformance.plugin.missing import ModelLacks, Unsuited, refused, way_out
from conformance.watching.comparison import Place, reordered, unsteady
from conformance.watching.interruption import CONSTRUCTOR_LIMIT, in_call, limited
from conformance.watching.raised import said
from conformance.worker.limits import explained, out_of_memory

#: A request that is alone, and waits for nothing but its outputs.
ALONE = History((Asked(0, "id-0"),), (Move(Do.ARRIVE, 0),))

#: How often the same request is served to find what differs from one time to the next.
TIMES = 3

#: How often, where it becomes many prompts: only then may a plugin have threads of its own at work,
#: of which now one and now another is ready first.
AGAIN = 10

#: Seconds after which that is given up.
LONGEST = 1.0

#: Seconds between two changes of threads, for whatever depends on when they are to come to light.
SWITCH = 1e-6


class ConstructorRaised(Exception):
    """Making an instance raised."""


@attrs.define(eq=False)
class Bench:
    """One class, the hosts that serve it, and the data it is served."""

    cls: type[Any]
    generation: str
    around: Surroundings
    online: Online  #: as the installed vLLM serves it, where it does
    offline: Offline
    waiting: Documented  #: with the hooks that are awaited
    seed: int
    stock: Stock = attrs.field(init=False)
    hidden: frozenset[Place] = frozenset()  #: what differs from one time to the next anyway
    _alone: dict[tuple[Asked, bool], Answer] = attrs.field(factory=dict)
    _unsteady: frozenset[Place] | None = None
    #: Whether some answer has the same values each time, in another order.
    reordered: bool = False
    _was_made: bool = False  #: an instance, once
    #: The configuration before there was an instance.
    configured: dict[str, str] = attrs.field(init=False)

    @configured.default
    def _as_it_is(self) -> dict[str, str]:
        return settings_of(self.around.config)

    @classmethod
    def open(cls, plugin: type[Any], generation: str, model: str, seed: int) -> Bench:
        """Prepare hosts for a class.

        Raises:
            HostMisfit: the installed vLLM serves plugins in a way that is not known here.

        """
        around = surroundings(model)
        waiting = Documented(generation, around)
        if generation == DATA:
            online, offline = installed_hosts(around)
            return cls(plugin, generation, around, online, offline, waiting, seed)
        offline = DocumentedOffline(waiting)
        return cls(plugin, generation, around, waiting, offline, waiting, seed)

    def make(self) -> Watched:
        """Make an instance as the host of its generation does.

        Raises:
            ConstructorRaised: it raised.
            PluginHung: it did not return.

        """
        try:
            with limited(CONSTRUCTOR_LIMIT), in_call("__init__"):
                try:
                    made = Watched(self._made(self.around), told=self._told)
                except Exception as error:
                    if (own := self._wants(error)) is not None:
                        raise own from error
                    raise
                self._was_made = True
                return made
        except Exception as error:
            raised = error.__cause__ if isinstance(error, ModelLacks) else error
            assert raised is not None
            why = explained(raised) if out_of_memory(raised) else said(raised, self.path)
            raise ConstructorRaised(why) from error

    def _wants(self, error: Exception) -> ModelLacks | None:
        """Return what a constructor wants of its own model, if it raised for the harness's."""
        if self.around.own is None:
            return None
        if isinstance(error, AttributeError | KeyError):
            return lacking(self._made, self.around, error)
        # What it took once, it does not refuse for what it is.
        machine = way_out(error, self.cls.__module__, self.path)
        if self._was_made or machine is not None or not refused(error, self.path):
            return None
        return Unsuited("what it does not take")

    def _made(self, around: Surroundings) -> Any:  # noqa: ANN401 - the plugin's class
        with_renderer = (around.config, around.renderer)
        return self.cls(*(with_renderer if self.generation == DATA else with_renderer[:1]))

    @property
    def valid(self) -> Sequence[Any]:
        """The data of requests that are answered; none before anybody has looked for them."""
        return self.stock.valid if hasattr(self, "stock") else ()

    @property
    def asked(self) -> str:
        """The method that gives the parameters of a request."""
        data = self.generation == DATA
        return "merge_pooling_params" if data else "validate_or_generate_params"

    @cached_property
    def task_to_name(self) -> str | None:
        """The task that callers must name offline, where the plugin sets it online alone."""
        with suppress(Exception), limited():  # another rule is about that
            online, offline = (
                getattr(getattr(self.make(), self.asked)(*given), "task", None)
                for given in ((), (PoolingParams(),))
            )
            if offline is None and online != "plugin":  # which vLLM makes of None
                return online
        return None

    @property
    def _told(self) -> bool:
        return own_pooler(self.model) is not None

    @property
    def model(self) -> str:
        """The folder of the model."""
        return str(self.around.config.model_config.model)

    @property
    def path(self) -> str | None:
        """The file of the class, if it has one."""
        return source_of(self.cls)

    def play(self, history: History, *, awaited: bool = False) -> Played:
        """Play a history with a fresh instance."""
        online = self.waiting if awaited else self.online
        data = [
            (self.stock.valid if asked.valid else self.stock.invalid)[asked.data]
            for asked in history.asked
        ]
        return play(online, self.make(), self.around, history, data)

    def alone(self, data: int, request_id: str = "id-0", *, awaited: bool = False) -> Answer:
        """Return what a valid request gets from a fresh instance that serves nothing else."""
        return self.by_itself(Asked(data, request_id), awaited=awaited)

    def by_itself(self, asked: Asked, *, awaited: bool = False) -> Answer:
        """Return what a request gets from a fresh instance that serves nothing else."""
        key = (asked, awaited)
        if key not in self._alone:
            history = attrs.evolve(ALONE, asked=(asked,))
            self._alone[key] = self.play(history, awaited=awaited).answers[0]
        return self._alone[key]

    def try_online(self, data: object, *, awaited: bool = False, beside: Beside = ()) -> Played:
        """Serve one request with any data from a fresh instance."""
        online = self.waiting if awaited else self.online
        history = attrs.evolve(ALONE, asked=(Asked(0, "id-0", beside=beside),))
        return play(online, self.make(), self.around, history, [data])

    def answer_to(self, data: object) -> Answer:
        """Return what one request with any data gets from a fresh instance."""
        return self.try_online(data).answers[0]

    def try_offline(self, data: object) -> Answer:
        """Serve one request offline, from a fresh instance."""
        return self.ask_offline(self.make(), data)

    def ask_offline(self, plugin: Watched, data: object, *, failing: bool = False) -> Answer:
        """Serve one request offline."""
        task = self.task_to_name
        try:
            with limited():
                return Answer(
                    Kind.ANSWERED,
                    self.offline.serve(plugin, copy.deepcopy(data), failing=failing, task=task),
                )
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an answer like any other
            return plugin.answer(error)

    def unsteady(self) -> frozenset[Place]:
        """Return the places of answers that differ from one time to the next."""
        if self._unsteady is None:
            few = range(min(len(self.stock.valid), TIMES))
            many = [index for index in self.stock.several()[-TIMES:] if index not in few]
            found: frozenset[Place] = frozenset()
            for index in (*few, *many):
                answers = [
                    self.alone(index),
                    *self._again(index, AGAIN if index in many else TIMES),
                ]
                if all(answer.kind is Kind.ANSWERED for answer in answers):
                    data = [answer.data for answer in answers]
                    found |= (differs := unsteady(data))
                    self.reordered |= bool(differs) and reordered(data)
            self._unsteady = found
        return self._unsteady

    def _again(self, index: int, times: int) -> list[Answer]:
        """Return the answers to a request that is alone, asked so many times if there is time."""
        history = attrs.evolve(ALONE, asked=(Asked(index, "id-0"),))
        answers = self._repeated(history, times - 1)
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH)
        try:
            return answers + self._repeated(history, times - 1)
        finally:
            sys.setswitchinterval(before)

    def _repeated(self, history: History, times: int) -> list[Answer]:
        """Return the answers to the request of a history each time that it is played."""
        end = time.monotonic() + LONGEST
        answers: list[Answer] = []
        for number in range(times):
            if number >= TIMES - 1 and time.monotonic() > end:
                break
            answers.append(self.play(history).answers[0])
        return answers

    def named(self) -> frozenset[Place]:
        """Return the places of answers that differ with the id of their request."""
        found: frozenset[Place] = frozenset()
        for index in range(self.stock.given):
            answers = [self.alone(index, name) for name in ("id-0", "id-1")]
            if all(answer.kind is Kind.ANSWERED for answer in answers):
                found |= unsteady(answer.data for answer in answers)
        return found
