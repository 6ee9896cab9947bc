# SPDX-License-Identifier: Apache-2.0
"""Two servers that take turns: one without the plugin, one with it; by interface.

Starts servers and asks workers to load them; imports neither vLLM nor torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import psutil

from conformance.benchmark.figures import Failed, Round
from conformance.engine.entry_points import HOOK_RUNTIME
from conformance.engine.server import Server
from conformance.plugin.target import IO_PROCESSORS, Plugin
from conformance.worker import Job

#: Name under which the second server knows an IO processor.
IO_NAME = "measured"

#: Seconds for one round.
LIMIT = 300.0

_ARGUMENTS = ("--max-num-seqs=64", "--max-model-len=512")


class CannotMeasure(Exception):
    """A plugin could not be measured: one sentence."""


@attrs.frozen
class Pair:
    """Two servers, and how each is asked for a round of so many requests at once."""

    without: Callable[[int], Round]
    with_plugin: Callable[[int], Round]


@attrs.frozen
class Place:
    """Where servers of a run live."""

    folder: Path
    model: str
    device: str
    eager: bool
    python_path: Sequence[str]

    def start(self, name: str, arguments: Sequence[str] = (), **more: Any) -> Server:  # noqa: ANN401 - those of Server.start
        """Start a server."""
        path = [*more.pop("python_path", ()), *self.python_path]
        return Server.start(
            self.model,
            log=self.folder / f"{name}-server.log",
            python_path=path,
            device=self.device,
            arguments=[
                *_ARGUMENTS,
                *([] if self.eager else ["--no-enforce-eager"]),
                *arguments,
            ],
            **more,
        )


@contextlib.contextmanager
def of_logits_processor(
    place: Place, plugin: Plugin, runner: str, plain: Job, opting_in: Job
) -> Iterator[Pair]:
    """Serve a logits processor; *opting_in* makes requests that switch it on, *plain* others."""
    with (
        place.start("without", runner=runner) as without,
        place.start("with", runner=runner, logits_processors=[plugin.fqcn]) as with_plugin,
    ):
        yield _pair(without, with_plugin, _asking(plain), _asking(opting_in))


@contextlib.contextmanager
def of_hook(place: Place, plugin: Plugin, plain: Job) -> Iterator[Pair]:
    """Serve a classifier hook, whose runtime the first server does not have."""
    environment = {"CLASSIFIER_HOOKS": plugin.fqcn}
    with (
        place.start("without") as without,
        place.start("with", entry_points=HOOK_RUNTIME, environment=environment) as with_plugin,
    ):
        yield _pair(without, with_plugin, _asking(plain), _asking(plain))


@contextlib.contextmanager
def of_io_processor(place: Place, plugin: Plugin, clients: Job) -> Iterator[Pair]:
    """Serve an IO processor of a pooling model."""
    entry = place.folder / "entry"
    entry.mkdir(parents=True)
    name = f"{plugin.module}.{plugin.qualname}"
    (entry / "measured_entry.py").write_text(
        f'def qualname():\n    return "{name}"\n', encoding="utf-8"
    )
    with (
        place.start("without", ["--runner=pooling"]) as without,
        place.start(
            "with",
            ["--runner=pooling", f"--io-processor-plugin={IO_NAME}"],
            python_path=[str(entry)],
            entry_points={IO_PROCESSORS: {IO_NAME: "measured_entry:qualname"}},
        ) as with_plugin,
    ):
        yield _pair(
            without,
            with_plugin,
            lambda server, crowd: clients.ask(
                (server.url, server.model_name, crowd, False), limit=LIMIT
            ),
            lambda server, crowd: clients.ask(
                (server.url, server.model_name, crowd, True), limit=LIMIT
            ),
        )


def _asking(job: Job) -> Callable[[Server, int], object]:
    return lambda server, crowd: job.ask((server.url, server.model_name, crowd), limit=LIMIT)


def _pair(
    without: Server,
    with_plugin: Server,
    ask_without: Callable[[Server, int], object],
    ask_with: Callable[[Server, int], object],
) -> Pair:
    for server in (without, with_plugin):
        server.wait_healthy()
    return Pair(
        lambda crowd: _round(without, ask_without, crowd),
        lambda crowd: _round(with_plugin, ask_with, crowd),
    )


def _round(server: Server, ask: Callable[[Server, int], object], crowd: int) -> Round:
    """Make a round, with the processor time of the server."""
    before = _processor_seconds(server.pid)
    found: Round = expected(ask(server, crowd))
    return attrs.evolve(found, processor_seconds=_processor_seconds(server.pid) - before)


def expected(answer: object) -> Any:  # noqa: ANN401 - whatever a worker answers
    """Return an answer of a worker, unless it could not do what it was asked for."""
    if isinstance(answer, Failed):
        raise CannotMeasure(answer.why)
    return answer


def _processor_seconds(pid: int) -> float:
    """Return the processor time of a server, with the processes that it started."""
    server = psutil.Process(pid)
    times = [process.cpu_times() for process in (server, *server.children(recursive=True))]
    return sum(time.user + time.system for time in times)
