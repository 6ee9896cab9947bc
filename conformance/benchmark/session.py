# SPDX-License-Identifier: Apache-2.0
"""One run of measurements: from targets to figures.

Imports neither vLLM nor torch: what is measured runs in workers and servers.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import psutil

from conformance.benchmark import loads
from conformance.benchmark.figures import CROWDS, TURNS, Cost, Failed, Opened, Round, compare
from conformance.engine.models import tiny_llama
from conformance.engine.server import Server, ServerFailed
from conformance.settings import Budget, UsageError
from conformance.worker import JobDied, JobHung

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from conformance.benchmark.figures import Overhead
    from conformance.engine.model_runner import Runner
    from conformance.settings import Settings
    from conformance.target import Plugin
    from conformance.worker import Job, Zygote

#: What can be measured.
STEPS, OFFLINE, SERVER = "steps", "offline", "server"
MEASURES = (STEPS, OFFLINE, SERVER)

#: The runner whose interface a generation is.
RUNNERS: dict[str, Runner] = {"logits/batch": "v1", "logits/slot": "v2"}

#: Seconds of rounds for each load.
SECONDS = {Budget.QUICK: 1.0, Budget.STANDARD: 2.5, Budget.DEEP: 10.0}

#: Seconds for one load, and for an engine that starts.
LIMIT = 300.0

_OFFLINE_FIGURES = ("seconds per token", "processor seconds per token")
_SERVER_FIGURES = (
    "seconds per token",
    "processor seconds per token",
    "time to first token",
    "time per output token",
    "latency",
    "latency, 99th percentile",
)


class CannotMeasure(Exception):
    """A plugin could not be measured: one sentence."""


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
    settings: Settings
    plugin: Plugin
    other: Plugin | None = None
    model: str | None = None  #: folder of a model, instead of the tiny one
    eager: bool = True
    notify: Callable[[str], None] = attrs.field(default=lambda _: None)
    _job: Job = attrs.field(init=False)  #: where steps are measured

    def run(self, measures: Sequence[str]) -> Measured:
        """Measure, and return what was found.

        Raises:
            UsageError: nothing switches the plugin on, or its interface cannot be measured.

        """
        if self.plugin.generation not in RUNNERS:
            known = ", ".join(RUNNERS)
            raise UsageError(
                f"{self.plugin.target} is of {self.plugin.generation}: what is measured is {known}."
            )
        if self.plugin.broken:
            raise UsageError(f"{self.plugin.target} cannot be measured: {self.plugin.broken}.")
        costs: list[Cost] = []
        overheads: list[Overhead] = []
        failures: list[str] = []
        with tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder:
            opened = self._open(Path(folder))
            parts: dict[str, Callable[[Path, Opened], Iterator[Any]]] = {
                STEPS: self._steps,
                OFFLINE: self._offline,
                SERVER: self._server,
            }
            for name in measures:
                kept: list[Any] = costs if name == STEPS else overheads
                try:
                    kept += parts[name](Path(folder), opened)
                except (CannotMeasure, JobDied, JobHung, ServerFailed) as error:
                    failures.append(f"{name}: {error}")
        return Measured(
            self.plugin,
            self.other.target if self.other else None,
            opened.environment,
            tuple(costs),
            tuple(overheads),
            tuple(failures),
        )

    def _open(self, folder: Path) -> Opened:
        """Start the process in which steps are measured."""
        self._job = self._fork(
            "conformance.benchmark.step_cost:serve",
            {
                "plugin": self.plugin,
                "other": self.other,
                "settings": self.settings,
                "model": str(tiny_llama()),
            },
            folder / "steps.log",
        )
        answer = self._job.ask("open", limit=LIMIT)
        if isinstance(answer, UsageError):
            raise answer
        assert isinstance(answer, Opened)
        return answer

    def _steps(self, _folder: Path, _opened: Opened) -> Iterator[Cost]:
        planned = loads.plan(self.settings.budget)
        with contextlib.closing(self._job):
            for number, load in enumerate(planned, 1):
                self.notify(f"step cost, {number} of {len(planned)}: {load.name}")
                answer = self._job.ask((load, SECONDS[self.settings.budget]), limit=LIMIT)
                if isinstance(answer, Failed):
                    raise CannotMeasure(f"{load.name}: {answer.why}")
                yield answer

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
                _started(job.ask("start", limit=LIMIT))
            for crowd in CROWDS[self.settings.budget]:
                self.notify(f"offline engines, {crowd} requests at once")

                def turn(job: Job, crowd: int = crowd) -> Round:
                    return _round(job.ask(crowd, limit=LIMIT))

                turns = self._turns(lambda: turn(without), lambda: turn(with_plugin))
                yield from compare(
                    OFFLINE, crowd, turns, figures=_OFFLINE_FIGURES, seed=self.settings.seed
                )

    def _server(self, folder: Path, opened: Opened) -> Iterator[Overhead]:
        model = self.model or str(tiny_llama())

        def start(name: str, processors: Sequence[str]) -> Server:
            return Server.start(
                model,
                log=folder / f"{name}-server.log",
                logits_processors=processors,
                python_path=self._python_path(),
                device=opened.device,
                runner=RUNNERS[self.plugin.generation],
                arguments=["--max-num-seqs=64", "--max-model-len=512"]
                + ([] if self.eager else ["--no-enforce-eager"]),
            )

        def generator(on: Sequence[Any]) -> Job:
            return self._fork(
                "conformance.benchmark.load_generator:online",
                {"model": model, "on": on},
                folder / "generator.log",
            )

        self.notify("starting two servers")
        with (
            start("without", ()) as without,
            start("with", (self.plugin.fqcn,)) as with_plugin,
            contextlib.closing(generator(())) as plain,
            contextlib.closing(generator(opened.on)) as opting_in,
        ):
            for server in (without, with_plugin):
                server.wait_healthy()
            for crowd in CROWDS[self.settings.budget]:
                self.notify(f"servers, {crowd} requests at once")

                def turn(job: Job, server: Server, crowd: int = crowd) -> Round:
                    before = _processor_seconds(server.pid)
                    found = _round(job.ask((server.url, server.model_name, crowd), limit=LIMIT))
                    used = _processor_seconds(server.pid) - before
                    return attrs.evolve(found, processor_seconds=used)

                turns = self._turns(
                    lambda: turn(plain, without), lambda: turn(opting_in, with_plugin)
                )
                yield from compare(
                    SERVER, crowd, turns, figures=_SERVER_FIGURES, seed=self.settings.seed
                )

    def _turns(
        self, without: Callable[[], Round], with_plugin: Callable[[], Round]
    ) -> list[tuple[Round, Round, Round]]:
        without()  # the first rounds are slower
        with_plugin()
        return [(without(), with_plugin(), without()) for _ in range(TURNS[self.settings.budget])]

    def _fork(self, function: str, arguments: dict[str, Any], log: Path) -> Job:
        return self.zygote.fork(
            function,
            arguments,
            log=log,
            directory=self.settings.directory,
            python_path=self._python_path(),
        )

    def _python_path(self) -> list[str]:
        root = [self.plugin.root] if self.plugin.root else []
        paths = [*root, str(self.settings.directory), *self.settings.python_path]
        return list(dict.fromkeys(path for path in paths if path))


def _processor_seconds(pid: int) -> float:
    """Return the processor time of a server, with the processes that it started."""
    server = psutil.Process(pid)
    times = [process.cpu_times() for process in (server, *server.children(recursive=True))]
    return sum(time.user + time.system for time in times)


def _started(answer: object) -> None:
    if isinstance(answer, Failed):
        raise CannotMeasure(answer.why)


def _round(answer: Round | Failed) -> Round:
    """Return a round, unless it could not be made."""
    if isinstance(answer, Failed):
        raise CannotMeasure(answer.why)
    return answer
