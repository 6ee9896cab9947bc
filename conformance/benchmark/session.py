# SPDX-License-Identifier: Apache-2.0
"""One run of measurements: from targets to figures.

Imports neither vLLM nor torch: what is measured runs in workers and servers.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from conformance.benchmark import loads, servers
from conformance.benchmark.figures import (
    CROWDS,
    TURNS,
    Cost,
    Opened,
    Overhead,
    Round,
    Switches,
    compare,
)
from conformance.benchmark.servers import CannotMeasure, Pair, Place, expected
from conformance.engine.model_runner import Runner
from conformance.engine.models import tiny_llama
from conformance.engine.server import ServerFailed
from conformance.plugin.target import Plugin
from conformance.settings import Budget, Settings, UsageError
from conformance.worker import Job, JobDied, JobHung, Zygote

#: What can be measured.
STEPS, OFFLINE, SERVER, ITEMS, TOKENS = "steps", "offline", "server", "items", "tokens"
MEASURES = (STEPS, OFFLINE, SERVER, ITEMS, TOKENS)

#: The runner whose interface a generation is.
RUNNERS: dict[str, Runner] = {"logits/batch": "v1", "logits/slot": "v2"}

#: Of the others, those whose servers are compared.
HOOK, IO = "hook/rfc", "io/data"

#: Those that are measured in calls of their own, as what, and the context that opens a plugin.
IN_TURNS = {
    "mm/processor": (ITEMS, "conformance.benchmark.item_cost:opened"),
    "parser/tool": (TOKENS, "conformance.benchmark.token_cost:opened"),
    "parser/reasoning": (TOKENS, "conformance.benchmark.token_cost:opened"),
}
GENERATIONS = (*RUNNERS, IO, HOOK, *IN_TURNS)

#: Seconds of rounds for each load.
SECONDS = {Budget.QUICK: 1.0, Budget.STANDARD: 2.5, Budget.DEEP: 10.0}

#: Seconds for one load, and for an engine that starts.
LIMIT = 300.0

_OFFLINE_FIGURES = ("seconds per token", "processor seconds per token")
_SERVER_FIGURES = (
    "seconds per token",
    "processor seconds per token",
    "seconds per request",
    "processor seconds per request",
    "time to first token",
    "time per output token",
    "latency",
    "latency, 99th percentile",
)


@attrs.frozen
class Measured:
    """Everything that one run found out about a plugin."""

    plugin: Plugin
    other: str | None  #: target of the plugin that it was compared with
    environment: Mapping[str, Any]  #: versions and the machine
    costs: tuple[Cost, ...] = ()
    overheads: tuple[Overhead, ...] = ()
    failures: tuple[str, ...] = ()  #: sentences about what could not be measured


@attrs.define
class Benchmark:
    """The measurements of one plugin, one after the other: they would disturb each other."""

    zygote: Zygote
    simulator: Zygote  #: the same, or one that takes no device but the CPU
    settings: Settings
    plugin: Plugin
    other: Plugin | None = None
    model: str | None = None  #: folder of a model, instead of the tiny one
    eager: bool = True
    notify: Callable[[str], None] = attrs.field(default=lambda _: None)
    _job: Job = attrs.field(init=False)  #: where steps are measured

    def run(self, measures: Sequence[str] = ()) -> Measured:
        """Measure, and return what was found.

        Args:
            measures: names out of :data:`MEASURES`; by default the first that the interface has.

        Raises:
            UsageError: the plugin's interface, or this of it, cannot be measured.

        """
        if self.plugin.broken:
            raise UsageError(f"{self.plugin.target} cannot be measured: {self.plugin.broken}.")
        known = self._known()
        if not measures or tuple(measures) == MEASURES:  # whatever there is
            measures = known if measures else known[:1]
        for name in measures:
            if name not in known:
                raise UsageError(
                    f"{self.plugin.target} is of {self.plugin.generation}, of which "
                    f"{' and '.join(known)} can be measured: say --measure {','.join(known)}."
                )
        with tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder:
            if self.plugin.generation in RUNNERS:
                return self._logits(Path(folder), measures)
            if self.plugin.generation in IN_TURNS:
                return self._in_turns(Path(folder), *IN_TURNS[self.plugin.generation])
            return self._front_end(Path(folder))

    def _known(self) -> tuple[str, ...]:
        """Return what can be measured of the plugin."""
        if self.plugin.generation in RUNNERS:
            return (STEPS, OFFLINE, SERVER)
        if self.plugin.generation in (HOOK, IO):
            return (SERVER,)
        if self.plugin.generation in IN_TURNS:
            return (IN_TURNS[self.plugin.generation][0],)
        raise UsageError(
            f"{self.plugin.target} is of {self.plugin.generation}: what is measured is "
            f"{', '.join(GENERATIONS)}."
        )

    def _logits(self, folder: Path, measures: Sequence[str]) -> Measured:
        costs: list[Cost] = []
        overheads: list[Overhead] = []
        failures: list[str] = []
        opened = self._open(folder)
        parts: dict[str, Callable[[Path, Opened], Iterator[Any]]] = {
            STEPS: self._steps,
            OFFLINE: self._offline,
            SERVER: self._server,
        }
        for name in measures:
            kept: list[Any] = costs if name == STEPS else overheads
            failures += self._kept(kept, name, parts[name](folder, opened))
        return Measured(
            self.plugin,
            self.other.target if self.other else None,
            opened.environment,
            tuple(costs),
            tuple(overheads),
            tuple(failures),
        )

    def _front_end(self, folder: Path) -> Measured:
        """Measure what changes what a server does before or after the engine."""
        if self.plugin.generation == HOOK:
            model = self.model or str(tiny_llama())
            clients = self._fork(
                "conformance.benchmark.load_generator:online",
                {"model": model, "on": (), "telling": self.settings.device},
                folder / "generator.log",
            )
            environment = clients.ask("open", limit=LIMIT)
        else:
            clients = self._fork(
                "conformance.benchmark.pooling:serve",
                {"plugin": self.plugin, "settings": self.settings, "model": str(tiny_llama())},
                folder / "clients.log",
            )
            model, environment = expected(_opened(clients))
        place = self._place(folder, model, str(environment["device"]))
        self.notify("starting two servers")
        serve = servers.of_hook if self.plugin.generation == HOOK else servers.of_io_processor
        overheads: list[Overhead] = []
        with contextlib.closing(clients):
            found = self._compared(lambda: serve(place, self.plugin, clients))
            failures = self._kept(overheads, SERVER, found)
        return Measured(self.plugin, None, environment, (), tuple(overheads), tuple(failures))

    def _in_turns(self, folder: Path, what: str, opened: str) -> Measured:
        """Measure calls in one process: of the plugin, and of what it is compared with."""
        arguments = {"opened": opened, "plugin": self.plugin, "settings": self.settings}
        function = "conformance.benchmark.in_turns:serve"
        overheads: list[Overhead] = []
        with contextlib.closing(self._fork(function, arguments, folder / "turns.log")) as job:
            environment, planned = expected(_opened(job))

            def measured() -> Iterator[Overhead]:
                for number, load in enumerate(planned, 1):
                    self.notify(f"{what}, {number} of {len(planned)}: {load.name}")
                    yield from expected(job.ask(load, limit=LIMIT))

            failures = self._kept(overheads, what, measured())
        return Measured(self.plugin, None, environment, (), tuple(overheads), tuple(failures))

    def _kept(self, kept: list[Any], name: str, found: Iterator[Any]) -> list[str]:
        """Keep what is found until something fails; return a sentence about that."""
        try:
            kept += found
        except (CannotMeasure, JobDied, JobHung, ServerFailed) as error:
            return [f"{name}: {error}"]
        return []

    def _open(self, folder: Path) -> Opened:
        """Start the process in which steps are measured."""
        # The profile that the run names is about the first.
        own = attrs.evolve(self.settings, profile=None)
        other = self.other and (self.other, self._switches(folder, self.other, own))
        self._job = self._fork(
            "conformance.benchmark.step_cost:serve",
            {
                "plugin": self.plugin,
                "switches": self._switches(folder, self.plugin, self.settings),
                "other": other,
                "settings": self.settings,
                "model": str(tiny_llama()),
            },
            folder / "steps.log",
        )
        opened: Opened = _opened(self._job)
        return opened

    def _switches(self, folder: Path, plugin: Plugin, settings: Settings) -> Switches:
        """Return what switches a plugin on."""
        arguments = {"plugin": plugin, "settings": settings, "model": str(tiny_llama())}
        function, log = "conformance.benchmark.switches:find", folder / "switches.log"
        with contextlib.closing(self._fork(function, arguments, log, self.simulator)) as job:
            switches: Switches = _opened(job)
        return switches

    def _steps(self, _folder: Path, _opened: Opened) -> Iterator[Cost]:
        planned = loads.plan(self.settings.budget)
        with contextlib.closing(self._job):
            for number, load in enumerate(planned, 1):
                self.notify(f"step cost, {number} of {len(planned)}: {load.name}")
                answer = self._job.ask((load, SECONDS[self.settings.budget]), limit=LIMIT)
                yield expected(answer)

    def _offline(self, folder: Path, opened: Opened) -> Iterator[Overhead]:
        def engine(name: str, plugin: str | None) -> Job:
            return self._fork(
                "conformance.benchmark.load_generator:offline",
                {
                    "model": self.model or str(tiny_llama()),
                    "plugin": plugin,
                    "on": opened.on if plugin else (),
                    "runner": RUNNERS[self.plugin.generation],
                    "device": opened.device,
                    "eager": self.eager,
                },
                folder / f"{name}.log",
            )

        with (
            contextlib.closing(engine("without", None)) as without,
            contextlib.closing(engine("with", self.plugin.fqcn)) as with_plugin,
        ):
            for job in (without, with_plugin):
                self.notify("starting two offline engines")
                expected(job.ask("start", limit=LIMIT))
            for crowd in CROWDS[self.settings.budget]:
                self.notify(f"offline engines, {crowd} requests at once")

                def turn(job: Job, crowd: int = crowd) -> Round:
                    found: Round = expected(job.ask(crowd, limit=LIMIT))
                    return found

                turns = self._turns(partial(turn, without), partial(turn, with_plugin))
                yield from compare(
                    OFFLINE, crowd, turns, figures=_OFFLINE_FIGURES, seed=self.settings.seed
                )

    def _server(self, folder: Path, opened: Opened) -> Iterator[Overhead]:
        model = self.model or str(tiny_llama())

        def generator(on: Sequence[Any]) -> Job:
            return self._fork(
                "conformance.benchmark.load_generator:online",
                {"model": model, "on": on},
                folder / "generator.log",
            )

        self.notify("starting two servers")
        place = self._place(folder, model, opened.device)
        runner = RUNNERS[self.plugin.generation]
        with (
            contextlib.closing(generator(())) as plain,
            contextlib.closing(generator(opened.on)) as opting_in,
        ):
            yield from self._compared(
                lambda: servers.of_logits_processor(place, self.plugin, runner, plain, opting_in)
            )

    def _place(self, folder: Path, model: str, device: str) -> Place:
        return Place(folder, model, device, self.eager, self.settings.import_path(self.plugin.root))

    def _compared(self, serve: Callable[[], AbstractContextManager[Pair]]) -> Iterator[Overhead]:
        """Start a pair of servers, and compare them crowd by crowd."""
        with serve() as pair:
            for crowd in CROWDS[self.settings.budget]:
                self.notify(f"servers, {crowd} requests at once")
                turns = self._turns(partial(pair.without, crowd), partial(pair.with_plugin, crowd))
                yield from compare(
                    SERVER, crowd, turns, figures=_SERVER_FIGURES, seed=self.settings.seed
                )

    def _turns(
        self, without: Callable[[], Round], with_plugin: Callable[[], Round]
    ) -> list[tuple[Round, Round, Round]]:
        without()  # the first rounds are slower
        with_plugin()
        return [(without(), with_plugin(), without()) for _ in range(TURNS[self.settings.budget])]

    def _fork(
        self, function: str, arguments: dict[str, Any], log: Path, zygote: Zygote | None = None
    ) -> Job:
        return (zygote or self.zygote).fork(
            function,
            arguments,
            log=log,
            directory=self.settings.directory,
            python_path=self.settings.import_path(self.plugin.root),
        )


def _opened(job: Job) -> Any:  # noqa: ANN401 - what the job answers first
    """Return what a job knows of its plugin.

    Raises:
        UsageError: it cannot be measured.

    """
    answer = job.ask("open", limit=LIMIT)
    if isinstance(answer, UsageError):
        raise answer
    return answer
