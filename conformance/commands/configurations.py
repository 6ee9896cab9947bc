# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance configurations``: in which ways engines run plugins, and which run here."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from conformance.commands import options
from conformance.configuration.table import LOGITS, TABLE
from conformance.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from conformance.configuration.table import Configuration

_LEGEND = (
    "✓ pass, ✗ fail, - not applicable, ? not verified, ! the harness failed; "
    "an empty cell: not about this interface."
)

#: Part of a name that vLLM makes up: it differs in each run.
_MADE_UP = re.compile(r"\b[0-9a-f]{8,}\b")

#: By name and generation, why a configuration shows nothing here.
Absences = dict[str, dict[str, str | None]]


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@options.plugin_profile
@click.option("--probe", is_flag=True, help="Start an engine of each, without a plugin.")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON.")
def configurations(
    *, targets: tuple[str, ...], plugin_profile: str | None, probe: bool, as_json: bool
) -> None:
    """List the configurations that certify --configuration takes.

    With --probe it takes a minute or two, and says of each whether it shows anything on this
    machine with this release, and if not, why.

    With targets, these plugins are run under all configurations and nothing else is judged:
    a table in Markdown.
    """
    if targets:
        rows = _run(targets, plugin_profile)
        click.echo(json.dumps(rows, indent=2) if as_json else markdown(rows))
        return
    found = _probed() if probe else {}
    documents = [_document(each, found) for each in TABLE]
    if as_json:
        click.echo(json.dumps(documents, indent=2))
        return
    for document in documents:
        declared = "  (a profile may declare it unsupported)" if document["refusable"] else ""
        click.echo(f"{document['name']:<20}  {document['about']}{declared}")
        for generation, reason in document.get("here", {}).items():
            click.echo(f"{'':<22}{generation}: " + (f"not here: {reason}" if reason else "runs"))


def markdown(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return a numbered list of plugins, a table of them by configurations, and what is no pass.

    Args:
        rows: by target, as a certificate has them under ``configurations``.

    """
    from conformance.reporting.page import SIGNS

    names = list(dict.fromkeys(row["name"] for each in rows.values() for row in each))
    lines = [f"{number}. `{target}`" for number, target in enumerate(rows, 1)]
    lines += ["", "| configuration | " + " | ".join(map(str, range(1, len(rows) + 1))) + " |"]
    lines.append("|---" + "|:-:" * len(rows) + "|")
    reasons: dict[str, list[int]] = {}
    for name in names:
        cells = []
        for number, found in enumerate(rows.values(), 1):
            row = next((row for row in found if row["name"] == name), None)
            cells.append(SIGNS[row["verdict"]] if row else "")
            if row and row["message"]:
                reasons.setdefault(f"{name}: {_told(row)}", []).append(number)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", _LEGEND]
    if reasons:
        lines += ["", *(f"- {reason} ({_spans(of)})" for reason, of in reasons.items())]
    return "\n".join(lines)


def _told(row: Mapping[str, Any]) -> str:
    """Return the reason of a row without names that vLLM made up, which differ in each run."""
    return _MADE_UP.sub("...", row["message"])


def _spans(numbers: Sequence[int]) -> str:
    """Return numbers in ascending order as a person writes them: 1-3, 5."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][-1] == number - 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    return ", ".join(f"{s[0]}-{s[-1]}" if len(s) > 1 else str(s[0]) for s in spans)


def _run(targets: tuple[str, ...], plugin_profile: str | None) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of plugins under all configurations, by target."""
    from conformance.running.runner import Certification

    found = {}
    with tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder:
        settings = Settings(
            targets=targets,
            profile=plugin_profile,
            report=Path(folder),
            configurations=tuple(each.name for each in TABLE),
            python_path=tuple(sys.path),
        )
        tell = partial(click.echo, err=True)
        with Certification(settings, tell) as certification:
            for plugin in certification.load():
                for name in certification.configurations(plugin):
                    certification.configured(plugin, name)
                found[plugin.target] = certification.rows(plugin)
    return found


def _document(
    configuration: Configuration, found: dict[str, dict[str, str | None]]
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": configuration.name,
        "about": configuration.about,
        "arguments": dict(configuration.arguments),
        "generations": sorted(configuration.generations),
        "refusable": configuration.refusable,
    }
    if configuration.name in found:
        document["here"] = found[configuration.name]
    return document


def _probed() -> Absences:
    """Return by name and generation why a configuration shows nothing here; None where it does."""
    from conformance.configuration.run import absences
    from conformance.engine.models import tiny_llama
    from conformance.running.runner import HarnessError
    from conformance.running.trials import Trials
    from conformance.running.zygotes import start_zygote
    from conformance.worker import ZygoteFailed

    settings = Settings(targets=(), python_path=tuple(sys.path))
    found: Absences = {each.name: {} for each in TABLE}
    with (
        tempfile.TemporaryDirectory(prefix="vllm-conformance-") as name,
        contextlib.closing(start_zygote()) as zygote,
    ):
        folder = Path(name)
        try:
            zygote.wait_ready()
            fork = Trials(settings, zygote, folder, at_once=1, contexts={}).fork
            for generation in sorted(LOGITS):
                for configuration, reason in absences(
                    generation, settings, fork=fork, folder=folder, model=str(tiny_llama())
                ):
                    found[configuration][generation] = reason
        except ZygoteFailed as error:
            raise HarnessError(str(error)) from None
    return found
