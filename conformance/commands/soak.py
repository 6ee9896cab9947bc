# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance soak``: one server under a mixed load for minutes, and what grows."""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

import click

from conformance.commands import options
from conformance.configuration.asked import NOBODY
from conformance.configuration.table import LOGITS
from conformance.settings import Settings, UsageError
from conformance.verdict import Verdict


@click.command()
@click.argument("target")
@options.plugin_profile
@click.option(
    "--minutes", type=click.FloatRange(0.1, 240), default=5.0, show_default=True, help="How long."
)
@click.option(
    "--clients",
    type=click.IntRange(1, 400),
    default=16,
    show_default=True,
    help="Requests at the same time.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    default="soak.svg",
    show_default=True,
    help="Where the plot goes.",
)
def soak(
    *, target: str, plugin_profile: str | None, minutes: float, clients: int, plot: Path
) -> int:
    """Keep a server with a logits processor busy, and watch its answers and what grows.

    Clients come, leave and send what is refused; every answer must be that of the plain engine.
    Memory and open files of every process, and how long answers take, must not grow.

    Exit status 0: nothing was wrong; 1: something was; 2: nothing could be shown.
    """
    verdict, told = _soaked(target, plugin_profile, minutes * 60, clients, plot)
    for line in told:
        click.echo(line)
    click.echo(f"{target}: {verdict.value}")
    return {Verdict.PASS: 0, Verdict.FAIL: 1}.get(verdict, 2)


def _soaked(
    target: str, plugin_profile: str | None, seconds: float, clients: int, plot: Path
) -> tuple[Verdict, list[str]]:
    """Return the verdict, and what is to be said of it."""
    from conformance.configuration import record as records
    from conformance.running.runner import Certification

    with tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder:
        settings = Settings(
            targets=(target,),
            profile=plugin_profile,
            report=Path(folder),
            python_path=tuple(sys.path),
        )
        with Certification(settings, partial(click.echo, err=True)) as certification:
            plugins = certification.load()
            if len(plugins) != 1 or plugins[0].generation not in LOGITS:
                raise UsageError(f"soak takes one logits processor, and {target!r} is not one.")
            if plugins[0].broken:
                return Verdict.NOT_VERIFIED, [plugins[0].broken]
            soaked = certification.configurations_of(plugins[0]).soaked
            record = soaked(seconds, clients)
            if isinstance(record, str):
                return Verdict.NOT_VERIFIED, [record]
            grown = records.Growth.of(record, seconds)
            beyond = grown.beyond(records.STILL)
            if beyond and not record.problem:
                control = soaked(seconds, clients, NOBODY)
                if isinstance(control, str):
                    return Verdict.NOT_VERIFIED, [*beyond, control]
                beyond = grown.beyond(records.Growth.of(control, seconds))
    plot.write_text(records.plot(record, seconds), encoding="utf-8")
    outcomes = ", ".join(f"{count} {what}" for what, count in sorted(record.outcomes.items()))
    told = [f"{record.sent} requests: {outcomes}", f"plot: {plot}"]
    if lost := record.sent - sum(record.outcomes.values()) - len(record.wrong):
        told.append(f"{lost} requests were lost")
    wrong = [*record.wrong[: records.TOLD], *filter(None, [record.problem]), *beyond]
    if len(record.wrong) > records.TOLD:
        wrong.append(f"and {len(record.wrong) - records.TOLD} more")
    return (Verdict.FAIL if wrong or lost else Verdict.PASS), [*told, *wrong]
