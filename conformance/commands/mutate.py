# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance mutate``: how much of a plugin would its certificate notice?

Imports neither vLLM nor torch.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from conformance.commands import options
from conformance.commands.console import make_console, progress
from conformance.settings import Budget, Settings
from conformance.verdict import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conformance.mutation.session import Mutant, Subject

#: Changes that are tried of a file, unless somebody says otherwise.
MUTANTS = 60


@click.command(
    epilog="Exit status: 0 whatever was noticed, 1 the plugin is not conformant as it is, 3 the "
    "harness itself failed, 4 usage."
)
@options.targets
@options.plugin_profile
@click.option(
    "--mutants",
    type=click.IntRange(min=1),
    default=MUTANTS,
    show_default=True,
    help="Changes to try of each file; drawn by the seed where there are more.",
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Change this file, which the plugin imports, instead of the plugin's own; repeatable.",
)
@click.option(
    "--json",
    "written",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write every change and what became of it to this file, anew after each file.",
)
@options.seed("Seed of the choice of changes, and of every example.")
def mutate(
    *,
    targets: tuple[str, ...],
    plugin_profile: str | None,
    mutants: int,
    sources: tuple[Path, ...],
    written: Path | None,
    seed: int,
) -> int:
    """Change a plugin in small ways, and show which changes its certificate does not notice.

    \b
    For example:
      vllm-conformance mutate my_package.my_module:MyLogitsProcessor
      vllm-conformance mutate path/to/file.py --mutants 200 --json changes.json

    Each copy of the plugin gets one change: a statement is removed, a comparison replaced, a
    number made one greater, or a condition negated. It is certified in the simulator with the
    quick budget. A change that does not change the certificate is printed as a diff: either it
    makes no difference, or this mistake would go unnoticed.

    \b
    If a mistake would go unnoticed:
      state in the profile what the plugin is for (expected; see docs/expected.md)
      add parameters to the profile that reach the changed line
      report the missing rule
    """
    from conformance.mutation import session
    from conformance.running.runner import Certification
    from conformance.running.validation import affordable

    started = time.monotonic()
    console = make_console()
    done: list[tuple[Subject, list[Mutant], int]] = []
    with (
        tempfile.TemporaryDirectory(prefix="vllm-conformance-mutate-") as folder,
        progress(console, "importing vLLM") as display,
    ):
        settings = Settings(
            targets=targets,
            profile=plugin_profile,
            budget=Budget.QUICK,
            report=Path(folder) / "reports",
            seed=seed,
            python_path=tuple(sys.path),
        )

        def tell(subject: Subject, found: Sequence[Mutant], of: int) -> None:
            noticed = session.tally(found)["noticed"]
            display.say(f"{subject.name}: {len(found)} of {of} changes, {noticed} noticed")

        with Certification(
            settings, at_once=affordable(settings), limit=session.LIMIT, unopened={}
        ) as certification:
            try:
                certification.start()
                certification.load()
                for subject, found, there in session.run(
                    certification, Path(folder), sources=sources, most=mutants, tell=tell
                ):
                    done.append((subject, found, there))
                    _show(console, subject, found, there)
                    if written is not None:  # of a long run that is interrupted, too
                        _write(written, _document(done, seed, time.monotonic() - started))
            except session.Unsound as error:
                click.echo(f"vllm-conformance: {error}", err=True)
                return int(ExitStatus.NON_CONFORMANT)
    seconds = time.monotonic() - started
    console.print(f"seed {seed}, budget quick, {seconds:.1f} s", style="dim")
    return 0


def _show(console: Console, subject: Subject, found: Sequence[Mutant], there: int) -> None:
    """Print what was noticed of one file, and the differences that were not."""
    from conformance.mutation.session import Outcome, tally

    counts = tally(found)
    lines = [f"{subject.name}  {subject.generation}: noticed {_share(counts['noticed'], counts)}"]
    if counts["noticed"] != counts["noticed_without_expected"]:
        without = _share(counts["noticed_without_expected"], counts)
        lines.append(f"  without `expected` of the profile: {without}")
    if there > len(found):
        lines.append(f"  {len(found)} of {there} changes were tried; --mutants {there} tries all")
    if counts["unloaded"]:
        lines.append(f"  not counted: {counts['unloaded']} cannot be imported")
    if counts["rules"]:
        by = ", ".join(f"{rule} {count}" for rule, count in counts["rules"].items())
        lines.append(f"  first by: {by}")
    for each in found:
        if each.outcome is Outcome.SURVIVED:
            where = f"{each.file}:{each.edit.line}"
            never = "" if each.ran else "  (the line never ran)"
            said = f"not noticed: {where}  {each.edit.operator}{never}"
            lines += ["", said, each.edit.diff.rstrip()]
    console.print("\n".join([*lines, ""]), markup=False, soft_wrap=True)


def _write(path: Path, document: dict[str, Any]) -> None:
    from conformance.reporting.certificate import write_whole

    write_whole(Path.cwd() / path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _share(count: int, counts: dict[str, Any]) -> str:
    of = counts["mutants"]
    return f"{count} of {of}" + (f" ({100 * count / of:.0f} %)" if of else "")


def _document(
    done: Sequence[tuple[Subject, list[Mutant], int]], seed: int, seconds: float
) -> dict[str, Any]:
    from conformance.mutation.session import tally

    return {
        "schema": 1,
        "seed": seed,
        "seconds": round(seconds, 1),
        "files": [
            {
                "file": subject.name,
                "generation": subject.generation,
                "plugins": [plugin.fqcn for plugin in subject.plugins],
                "changes": there,
                **tally(found),
                "changed": [each.document() for each in found],
            }
            for subject, found, there in done
        ],
    }
