# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance certify``: the verdict on plugins.

Imports neither vLLM nor torch.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from conformance.commands import options
from conformance.commands.console import make_console, progress
from conformance.configuration import table
from conformance.generations import named
from conformance.rules import Level
from conformance.settings import (
    Budget,
    Device,
    Settings,
    UsageError,
    parse_evidence,
    parse_headers,
)
from conformance.verdict import ExitStatus, RuleResult, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from conformance.plugin.target import Plugin
    from conformance.worker import Zygote


@click.command(epilog=options.EPILOG)
@options.targets
@options.plugin_profile
@options.evidence
@options.budget("Examples per rule.")
@options.device("Where offline engines and servers run.")
@click.option(
    "--server-url", metavar="URL", help="Use a running vLLM server; server evidence only."
)
@options.running_server
@options.report("reports/local", "Where certificates go: one folder for each plugin.")
@options.seed()
@options.configuration
@options.baseline
@click.option(
    "--lines",
    is_flag=True,
    help="Watch which lines of the plugin run in engines and servers, too, which become slower; "
    "those of the simulator are always watched.",
)
@click.option("--quiet", "-q", is_flag=True, help="The verdict of each plugin, and nothing else.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="The certificates as a JSON list; everything else goes to stderr.",
)
def certify(
    *,
    targets: tuple[str, ...],
    plugin_profile: str | None,
    evidence: str,
    budget: str,
    device: str,
    server_url: str | None,
    server_header: tuple[str, ...],
    server_load: int,
    server_hostile: bool,
    report: Path,
    seed: int,
    configuration: str | None,
    baseline: Path | None,
    lines: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Certify one or more plugins and write a certificate for each.

    \b
    TARGET is one of
      package.module:Class          vLLM's own form
      path/to/file.py:Class
      path/to/file.py               every plugin in it
      package.module                every plugin in it
      entry-point:GROUP/NAME        for example entry-point:vllm.logits_processors/mine
      dist:DISTRIBUTION             every vLLM entry point of an installed distribution
      tool-parser:NAME              as --tool-call-parser has it, for example tool-parser:hermes
      reasoning-parser:NAME         as --reasoning-parser has it
      path/to/model                 the multi-modal processor of a model's folder

    With the default evidence nothing but vLLM itself is needed: no GPU, no model, no server,
    and an answer within seconds.  --evidence all also starts a real engine and real servers.
    """
    settings = Settings(
        targets=targets,
        profile=plugin_profile,
        evidence=parse_evidence(evidence),
        budget=Budget(budget),
        device=Device(device),
        server_url=server_url,
        server_headers=parse_headers(server_header),
        server_load=server_load,
        server_hostile=server_hostile,
        report=report,
        seed=seed,
        baseline=baseline,
        lines=lines,
        configurations=table.parse(configuration),
        python_path=tuple(sys.path),
    )
    console = make_console(stderr=as_json)
    documents, outcome = certified(settings, console, quiet=quiet)
    if as_json:
        from conformance.reporting.folder import without_calls

        written = [without_calls(document) for document in documents]
        click.echo(json.dumps(written, indent=2, ensure_ascii=False))
    return outcome


def certified(
    settings: Settings,
    console: Console,
    *,
    quiet: bool = False,
    zygote: Zygote | None = None,
) -> tuple[list[dict[str, Any]], int]:
    """Run every check, show progress, write and show the certificates.

    Returns:
        The certificates, and the exit status.

    """
    from conformance.running.runner import Certification
    from conformance.running.signals import interruptible
    from conformance.running.validation import affordable

    began = time.monotonic()
    results: dict[str, list[RuleResult]] = {}
    interrupted = False
    plugins: tuple[Plugin, ...] = ()
    with (
        progress(console, "starting", quiet=quiet) as display,
        interruptible(),
        Certification(
            settings, display.say, at_once=affordable(settings), zygote=zygote
        ) as certification,
    ):
        certification.start()
        # Not before: it is imported while vLLM is.
        from conformance.reporting.session import Reports, status

        reports = Reports(settings, began)
        try:
            reports.get_ready()
            plugins = certification.load()
            checks = certification.checks()
            certification.select(checks)
            ahead = Counter(check.key for check in checks)
            for number, check in enumerate(checks, 1):
                if check.key in ahead:
                    rules = f"{ahead.pop(check.key)} rules ({check.evidence.value})"
                    display.say(f"{check.plugin.target}: judging {rules}")
                title = named(check.plugin.generation).rule(check.rule).title
                display.show(
                    f"{check.name} ({number} of {len(checks)}) {check.plugin.target}: {title}"
                )
                result = certification.run(check)
                results.setdefault(check.plugin.target, []).append(result)
                shown = result.verdict in (Verdict.FAIL, Verdict.ERROR) and not quiet
                again = _told(result, results[check.plugin.target][:-1])
                if shown and not again and not certification.known(check):
                    _show_failure(console, settings, check.plugin, result)
                reports.take(certification, check.plugin, results)
            for plugin in plugins:
                for name in certification.configurations(plugin):
                    display.show(f"{name}: {plugin.target}")
                    certification.configured(plugin, name)
                reports.take(certification, plugin, results)
        except UsageError:
            # What was found before a profile turned out to be wrong is told first.
            done = tuple(plugin for plugin in plugins if plugin.target in reports.documents)
            found = [reports.documents[plugin.target] for plugin in done]
            _show_certificates(console, settings, done, found, quiet=quiet)
            raise
        except KeyboardInterrupt:
            interrupted = True
        # Before anything is ended, which may take longer than there is time left.
        documents = reports.write(plugins, results, certification.contexts, interrupted=interrupted)
        if interrupted:
            certification.close(hurried=True)
    _show_certificates(console, settings, plugins, documents, quiet=quiet)
    if interrupted and not documents:
        return documents, int(ExitStatus.INCOMPLETE)
    return documents, int(status(documents))


def _told(result: RuleResult, earlier: Iterable[RuleResult]) -> bool:
    """Tell whether the harness failed for the same cause before."""
    if result.verdict is not Verdict.ERROR or result.cause is None:
        return False
    causes = {one.cause.id for one in earlier if one.cause and one.verdict is Verdict.ERROR}
    return result.cause.id in causes


def _show_failure(console: Console, settings: Settings, plugin: Plugin, result: RuleResult) -> None:
    from conformance.reporting.failure import told
    from conformance.reporting.session import report_folder

    # Where the command was given, as a person would name it.
    folder = settings.report / report_folder(settings, plugin).name
    case = folder / "cases" / f"{result.rule}.json"
    text = told(plugin, result, str(case), width=min(console.width, 100))
    if result.verdict is Verdict.ERROR:
        console.print(text, style="magenta", markup=False)
        return
    console.print(text, markup=False, soft_wrap=True)
    console.print()


def _show_certificates(
    console: Console,
    settings: Settings,
    plugins: tuple[Plugin, ...],
    documents: list[dict[str, Any]],
    *,
    quiet: bool,
) -> None:
    from conformance.reporting import summary
    from conformance.reporting.session import report_folder

    for plugin, document in zip(plugins, documents, strict=True):
        console.print(summary.headline(document))
        if quiet:
            continue
        summary.show(console, document, told=[*Level])
        folder = settings.report / report_folder(settings, plugin).name
        console.print(f"certificate: {folder}", style="dim", markup=False, soft_wrap=True)
        console.print()
    if documents and not quiet:
        console.print(_closing([document["run"] for document in documents]))


def _closing(runs: list[dict[str, Any]]) -> str:
    """Return the last line, of what certificates say of their run.

    Each tells how long the run had lasted when its plugin was done.
    """
    seconds = max(run["seconds"] for run in runs)
    return f"seed {runs[0]['seed']}, budget {runs[0]['budget']}, {seconds:.1f} s"
