# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance bench``: what a plugin costs, per step and in throughput.

Imports neither vLLM nor torch.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.benchmark.figures import PER_TOKEN
from conformance.benchmark.servers import CannotMeasure
from conformance.benchmark.session import GENERATIONS, MEASURES, RUNNERS, Benchmark
from conformance.commands import options
from conformance.commands.console import make_console, progress
from conformance.plugin.target import Plugin
from conformance.reporting.terminal import open_table
from conformance.settings import Budget, Device, Settings, UsageError, choose
from conformance.verdict import ExitStatus
from conformance.worker import Zygote


@click.command(
    epilog="Exit status: 0 measured, 2 something could not be measured, 3 the harness itself "
    "failed, 4 usage. Figures never decide about conformance."
)
@options.targets
@click.option(
    "--against",
    metavar="TARGET",
    help="A plugin of the same interface to compare the steps with, for example your last release.",
)
@click.option(
    "--measure",
    metavar="LIST",
    help=f"Any of {','.join(MEASURES)} (comma separated), or all: single steps, and throughput "
    "of offline engines and of servers with the plugin and without; items of multi-modal prompts; "
    "tokens of answers.  [default: steps of logits processors, items of multi-modal ones, tokens "
    "of parsers, server of others]",
)
@options.plugin_profile
@options.budget("How many batches are measured, and for how long.")
@options.device("Where steps, engines and servers run.")
@click.option(
    "--model",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of a model for engines and servers.  [default: a tiny one with random weights]",
)
@click.option(
    "--cuda-graphs", is_flag=True, help="Let engines and servers compile and capture graphs."
)
@options.report("reports/local", "Where figures go: in the folder of the plugin's certificate.")
@options.seed()
@click.option(
    "--json", "as_json", is_flag=True, help="The figures as JSON; everything else goes to stderr."
)
def bench(
    *,
    targets: tuple[str, ...],
    against: str | None,
    measure: str | None,
    plugin_profile: str | None,
    budget: str,
    device: str,
    model: Path | None,
    cuda_graphs: bool,
    report: Path,
    seed: int,
    as_json: bool,
) -> int:
    """Measure what a plugin costs: per step, and in throughput.

    Two things are always measured in turns: a step with the plugin and one with a processor that
    does nothing, an engine with the plugin and one without it. Measuring the same thing against
    itself gives the noise of the machine; a smaller difference is never reported as one.

    Writes performance.json beside the certificate, and benchmark.json for pytest-benchmark
    compare. If the certificate is of the same source, its page is drawn again with the figures.
    """
    measures = () if measure is None else choose("--measure", measure, MEASURES)
    settings = Settings(
        targets=targets,
        profile=plugin_profile,
        budget=Budget(budget),
        device=Device(device),
        report=report,
        seed=seed,
        python_path=tuple(sys.path),
    )
    console = make_console(stderr=as_json)
    documents = _measure(settings, console, measures, against, model=model, eager=not cuda_graphs)
    if as_json:
        click.echo(json.dumps(documents, indent=2, ensure_ascii=False))
    failed = any(document["failures"] for document in documents)
    return int(ExitStatus.INCOMPLETE) if failed else 0


def _measure(
    settings: Settings,
    console: Console,
    measures: tuple[str, ...],
    against: str | None,
    *,
    model: Path | None,
    eager: bool,
) -> list[dict[str, Any]]:
    from conformance.reporting import folder, performance
    from conformance.reporting.session import report_folder
    from conformance.running.validation import validate
    from conformance.running.zygotes import start_zygote
    from conformance.worker import JobDied, JobHung

    documents = []
    validate(settings)
    with contextlib.ExitStack() as ends:
        zygote = simulator = ends.enter_context(contextlib.closing(start_zygote()))
        display = ends.enter_context(progress(console, "importing vLLM"))
        plugins = _load(settings, settings.targets, zygote)
        other = _load(settings, (against,), zygote)[0] if against else None
        # A class of several generations is measured in those that can be.
        known = [plugin for plugin in plugins if plugin.generation in GENERATIONS]
        if not zygote.on_cpu and any(plugin.generation in RUNNERS for plugin in known):
            simulator = ends.enter_context(contextlib.closing(start_zygote(simulates=True)))
        for plugin in known or plugins[:1]:
            started = time.monotonic()
            _comparable(plugin, other)
            run = Benchmark(
                zygote,
                simulator,
                settings,
                plugin,
                other,
                model=str(model) if model else None,
                eager=eager,
                notify=_speaker(display.say, plugin.target),
            )
            try:
                measured = run.run(measures)
            except (CannotMeasure, JobDied, JobHung) as error:
                raise UsageError(f"{plugin.target} cannot be measured: {error}") from None
            document = performance.build(
                measured,
                settings=settings,
                finished=datetime.now(UTC).isoformat(timespec="seconds"),
                seconds=time.monotonic() - started,
                command=shlex.join(["vllm-conformance", *sys.argv[1:]]),
            )
            place = report_folder(settings, plugin)
            performance.write(document, measured, place)
            folder.draw_again(place)
            documents.append(document)
            _show(console, document)
    return documents


def _speaker(say: Callable[[str], None], name: str) -> Callable[[str], None]:
    return lambda sentence: say(f"{name}: {sentence}")


def _load(settings: Settings, texts: tuple[str, ...], zygote: Zygote) -> tuple[Plugin, ...]:
    from conformance.running.runner import Certification

    with Certification(attrs.evolve(settings, targets=texts), zygote=zygote) as run:
        return run.load()


def _comparable(plugin: Plugin, other: Plugin | None) -> None:
    if other is not None and other.generation != plugin.generation:
        raise UsageError(
            f"--against {other.target!r} is of {other.generation}, and {plugin.target} of "
            f"{plugin.generation}: name a plugin of the same interface."
        )


def _show(console: Console, document: Mapping[str, Any]) -> None:
    from conformance.reporting import performance

    console.print(Text(document["plugin"]["target"], style="bold"))
    if document["steps"]:
        console.print(_steps(document))
    if document["throughput"]:
        console.print(_throughput(document))
    for sentence in performance.sentences(document):
        console.print(f"- {sentence}", markup=False, soft_wrap=True)
    for sentence in document["failures"]:
        console.print(f"- not measured: {sentence}", style="yellow", markup=False, soft_wrap=True)
    where = performance.machine(document)
    console.print(f"measured on {where}", style="dim", markup=False, soft_wrap=True)
    console.print()


def _steps(document: Mapping[str, Any]) -> Table:
    against = ["against"] if document["against"] else []
    table = _table("requests", "vocabulary", "opted in", "adds (us)", "noise", *against)
    for cost in document["steps"]:
        cells = [
            str(cost["requests"]),
            str(cost["vocabulary"]),
            f"{cost['share']:.0%}" + (", churning" if cost["churning"] else ""),
            _plus_minus(cost["added_seconds"], 1e6, ".1f"),
            f"{cost['floor']:.1%}",
        ]
        if against:
            found = _plus_minus(cost["against"], 100, "+.1f") + " %"
            cells.append(found if cost["against_differs"] else "not measurable")
        table.add_row(*cells)
    return table


def _throughput(document: Mapping[str, Any]) -> Table:
    tokens = all(found["figure"] == PER_TOKEN for found in document["throughput"])
    unit, scale, many = ("us", 1e6, "tokens") if tokens else ("ms", 1e3, "at once")
    table = _table("where", many, "figure", f"without ({unit})", "adds", "noise")
    for found in document["throughput"]:
        added = _plus_minus(found["overhead"], 100, "+.1f") + " %"
        table.add_row(
            found["where"],
            str(found["crowd"]),
            found["figure"],
            f"{scale * found['without_seconds']:.2f}",
            added if found["measurable"] else "not measurable",
            f"{found['floor']:.0%}",
        )
    return table


def _plus_minus(bounds: Sequence[float], scale: float, form: str) -> str:
    """Return a median and how far its interval goes on the longer side."""
    low, middle, high = (scale * value for value in bounds)
    return f"{middle:{form}} ± {max(high - middle, middle - low):{form.removeprefix('+')}}"


def _table(*columns: str) -> Table:
    table = open_table()
    for name in columns:
        words = name in ("where", "figure")
        table.add_column(name, justify="left" if words else "right", no_wrap=True)
    return table
