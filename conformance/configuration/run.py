# SPDX-License-Identifier: Apache-2.0
"""One plugin through chosen configurations: a job for each engine, and a row for each verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import attrs

from conformance.configuration import rules
from conformance.configuration.asked import IDLE, NOBODY, TESTED, Answers, Ask, Workload
from conformance.configuration.judgement import Controls, Row, judge, unequal
from conformance.configuration.record import Record
from conformance.configuration.table import LOGITS, PLAIN, TABLE, Configuration, chosen, named
from conformance.generations import named as generation_named
from conformance.plugin.target import Plugin
from conformance.settings import Settings, UsageError
from conformance.verdict import Verdict
from conformance.worker import Job, JobDied, JobHung

#: Seconds in which an engine on a tiny model starts and answers a workload; beyond, it hangs.
LIMIT = 240.0

#: The same of a server, whose processes may each import vLLM.
SERVER_LIMIT = 420.0

_REQUESTS = "conformance.configuration.requests:run"
_ENGINE = "conformance.configuration.engine:serve"
_SERVER = "conformance.configuration.served:serve"
_SOAK = "conformance.configuration.soak:run"


class Fork(Protocol):
    """Forks a job of the process that has imported vLLM."""

    def __call__(
        self, what: str, arguments: dict[str, Any], log: Path, *, simulates: bool = False
    ) -> Job:
        """Start ``module:function`` with these arguments; what it writes goes to the log.

        With ``simulates`` vLLM takes no device but the CPU there.
        """


@attrs.define(eq=False)
class Configured:
    """One plugin in engines of many configurations, each of which is started once at most."""

    plugin: Plugin
    settings: Settings
    fork: Fork
    folder: Path  #: where logs go
    model: str  #: folder of the tiny model
    notify: Callable[[str], None]  #: is told what is waited for
    _workload: Workload | str | None = attrs.field(init=False, default=None)
    _answers: dict[tuple[str, str], Answers] = attrs.field(init=False, factory=dict)

    def row(self, name: str) -> Row:
        """Judge the plugin under one configuration.

        Raises:
            UsageError: the profile of the plugin is wrong.

        """
        configuration = named(name)
        if self.plugin.generation not in LOGITS:
            self.notify(f"{self.plugin.target}: {name}, a server with the plugin")
            return rules.judged(
                self.plugin,
                self.settings,
                configuration,
                fork=self.fork,
                folder=self.folder,
                model=self.model,
            )
        workload = self._asked()
        if isinstance(workload, str):
            return _unjudged(configuration, workload)
        without = self._ask(PLAIN.name, NOBODY)
        if without.problem:
            why = f"the plain engine fails without the plugin: {without.problem}"
            return _unjudged(configuration, why)
        return judge(
            configuration,
            workload,
            (self._ask(PLAIN.name, TESTED), without),
            self._ask(name, TESTED),
            Controls(bare=partial(self._ask, name, NOBODY), idle=partial(self._ask, name, IDLE)),
        )

    def soaked(self, seconds: float, clients: int, loaded: str = TESTED) -> Record | str:
        """Ask a server for so many seconds; return the record, or why there is none.

        ``loaded`` names what the server is started with.

        Raises:
            UsageError: the profile of the plugin is wrong.

        """
        workload = self._asked()
        if isinstance(workload, str):
            return workload
        plain = self._ask(PLAIN.name, loaded), self._ask(PLAIN.name, NOBODY)
        for answers in plain:
            if answers.problem:
                return f"the plain engine fails: {answers.problem}"
        self.notify(f"{clients} clients for {seconds:.0f} s, a server with {loaded}")
        more = {
            "workload": workload,
            "plain": plain,
            "seconds": seconds,
            "clients": clients,
            "loaded": loaded,
        }
        job = self.fork(_SOAK, self._arguments() | more, self.folder / "soak.log")
        try:
            record: Record = job.ask(str(self.folder), limit=seconds + SERVER_LIMIT)
        except (JobDied, JobHung) as error:
            return f"the soak: {error}"
        finally:
            job.close()
        return record

    def _asked(self) -> Workload | str:
        """Return the workload, or why there is none; the plugin is asked once."""
        if self._workload is None:
            self._workload = self._found_out()
        return self._workload

    def _found_out(self) -> Workload | str:
        log = self.folder / "configuration-requests.log"
        job = self.fork(_REQUESTS, self._arguments(), log, simulates=True)
        try:
            answer = job.ask("requests", limit=LIMIT)
        except (JobDied, JobHung) as error:
            return f"finding out what switches the plugin on: {error}"
        finally:
            job.close()
        if isinstance(answer, UsageError):
            raise answer
        assert isinstance(answer, Workload)
        return answer

    def _ask(self, name: str, loaded: str) -> Answers:
        """Return what an engine answers."""
        if (name, loaded) not in self._answers:
            self.notify(f"{self.plugin.target}: {name}, an engine with {loaded}")
            more = {"configuration": named(name), "workload": self._workload, "loaded": loaded}
            log = self.folder / f"configuration-{name}.log"
            self._answers[name, loaded] = _ask(self.fork, self._arguments() | more, log)
        return self._answers[name, loaded]

    def _arguments(self) -> dict[str, Any]:
        return {"plugin": self.plugin, "settings": self.settings, "model": self.model}


def absences(
    generation: str, settings: Settings, *, fork: Callable[..., Job], folder: Path, model: str
) -> Iterator[tuple[str, str | None]]:
    """Return of each configuration why it shows nothing here of a generation; None where it does.

    Engines without a plugin are started and asked; nobody guesses.
    ``fork`` is a :class:`Fork` that gets the plugin first.
    """
    workload = Workload(asks=tuple(_probes()))
    interface = generation_named(generation).interface
    nobody = Plugin(
        target=generation,
        interface=interface,
        generation=generation,
        module="",
        qualname="",
        root=None,
        path=None,
        digest=None,
        version=None,
    )
    arguments = {"plugin": nobody, "settings": settings, "model": model, "workload": workload}

    def ask(configuration: Configuration, loaded: str) -> Answers:
        more = {"configuration": configuration, "loaded": loaded}
        log = folder / f"{configuration.name}.log"
        return _ask(partial(fork, nobody), arguments | more, log)

    plain = ask(PLAIN, NOBODY)
    for each in chosen([each.name for each in TABLE], generation):
        bare = plain if each is PLAIN else ask(each, NOBODY)
        reason = unequal(each, workload, plain, bare)
        if reason is None:
            idle = ask(each, IDLE)
            reason = idle.problem and f"vLLM refuses every plugin of this kind: {idle.problem}"
        yield each.name, reason


def _probes() -> Iterator[Ask]:
    late = (4, 5)
    for number in range(6):
        prompt = tuple(3 + (number * 7 + place * 5) % 400 for place in range(5 + 7 * number))
        chance = {"temperature": 0.0} if number % 2 else {"temperature": 1.0, "seed": number}
        keywords = {"max_tokens": 24, "ignore_eos": True, **chance}
        yield Ask(f"off[{number}]", prompt, keywords, late=number in late)


def _ask(fork: Fork, arguments: dict[str, Any], log: Path) -> Answers:
    served = arguments["configuration"].server is not None
    job = fork(_SERVER if served else _ENGINE, arguments, log)
    try:
        limit = SERVER_LIMIT if served else LIMIT
        answers: Answers = job.ask(str(log.parent), limit=limit)
    except JobDied as error:
        return Answers(started=True, problem=f"its process ended: {error}")
    except JobHung as error:
        return Answers(started=True, problem=f"it {error}")
    finally:
        job.close()
    return answers


def _unjudged(configuration: Configuration, why: str) -> Row:
    return Row(
        name=configuration.name,
        about=configuration.about,
        verdict=Verdict.NOT_VERIFIED,
        message=why,
    )
