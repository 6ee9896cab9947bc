# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance``: certify plugins, and read the rules they are certified by.

Imports neither vLLM nor torch: ``--help`` and ``rules`` answer at once.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from conformance import __version__, options
from conformance.bench_command import bench
from conformance.certificate_commands import badge, report, verify
from conformance.configuration import table
from conformance.configurations_command import configurations
from conformance.generations import all_generations, find_rule, named
from conformance.host_command import host
from conformance.init_command import init
from conformance.matrix_command import matrix
from conformance.mutate_command import mutate
from conformance.settings import (
    Budget,
    Device,
    Settings,
    UsageError,
    parse_evidence,
    parse_headers,
)
from conformance.soak_command import soak
from conformance.target import Plugin
from conformance.verdict import ExitStatus, RuleResult, Verdict
from conformance.warm_command import warm

EPILOG = """\
Exit status: 0 conformant, 1 non-conformant, 2 incomplete (something applicable could not be
shown), 3 the harness itself failed, 4 usage.
"""


class _Group(click.Group):
    """A group whose usage errors have the exit status of the design, and no traceback."""

    def main(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - click's own signature
        kwargs["standalone_mode"] = False
        try:
            sys.exit(super().main(*args, **kwargs) or 0)
        except click.exceptions.Exit as error:
            sys.exit(error.exit_code)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            sys.exit(int(ExitStatus.USAGE))
        except click.Abort:
            _fail("interrupted.", ExitStatus.INCOMPLETE)
        except click.ClickException as error:
            _fail(error.format_message(), ExitStatus.USAGE)
        except UsageError as error:
            _fail(str(error), ExitStatus.USAGE)
        except Exception as error:  # noqa: BLE001 - never a verdict on a plugin, never a traceback
            from conformance.session import explained

            _fail(explained(error), ExitStatus.HARNESS_FAILED)


def _fail(message: str, status: ExitStatus) -> None:
    click.echo(f"vllm-conformance: {message}", err=True)
    sys.exit(int(status))


@click.group(cls=_Group, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vllm-conformance")
def main() -> None:
    """Certify vLLM plugins against the contract of their interface.

    \b
    Start here:
      vllm-conformance certify my_package.my_module:MyLogitsProcessor
      vllm-conformance rules
      vllm-conformance explain LB-06

    The same rules run as pytest items:  pytest --plugin-path TARGET

    \b
    Completion, for bash (zsh_source and fish_source do the same for others):
      eval "$(_VLLM_CONFORMANCE_COMPLETE=bash_source vllm-conformance)"
    """


@main.command(epilog=EPILOG)
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
    console = Console(highlight=False, stderr=as_json)
    documents, outcome = _certify(settings, console, quiet=quiet)
    if as_json:
        from conformance.reporting.folder import without_calls

        written = [without_calls(document) for document in documents]
        click.echo(json.dumps(written, indent=2, ensure_ascii=False))
    return outcome


def _certify(
    settings: Settings, console: Console, *, quiet: bool
) -> tuple[list[dict[str, Any]], int]:
    """Run every check, show progress, write and show the certificates."""
    from conformance.runner import Certification, HarnessError, affordable
    from conformance.session import Reports, interruptible, status

    reports = Reports(settings, time.monotonic())
    results: dict[str, list[RuleResult]] = {}
    interrupted = False
    plugins: tuple[Plugin, ...] = ()
    documents: list[dict[str, Any]] = []
    with console.status("starting") as display, interruptible():
        say = (lambda _: None) if quiet else _speaker(console, display.update)
        with Certification(settings, say, at_once=affordable(settings)) as certification:
            try:
                certification.start()
                plugins = certification.load()
                checks = certification.checks()
                certification.select(checks)
                for number, check in enumerate(checks, 1):
                    title = named(check.plugin.generation).rule(check.rule).title
                    display.update(
                        f"{check.name} ({number} of {len(checks)}) {check.plugin.target}: {title}"
                    )
                    result = certification.run(check)
                    results.setdefault(check.plugin.target, []).append(result)
                    shown = result.verdict in (Verdict.FAIL, Verdict.ERROR) and not quiet
                    if shown and not certification.known(check):
                        _show_failure(console, settings, check.plugin, result)
                    reports.take(certification, check.plugin, results)
                for plugin in plugins:
                    for name in certification.configurations(plugin):
                        display.update(f"{name}: {plugin.target}")
                        certification.configured(plugin, name)
                    reports.take(certification, plugin, results)
            except KeyboardInterrupt:
                interrupted = True
            except HarnessError as error:
                _fail(str(error), ExitStatus.HARNESS_FAILED)
            # Before anything is ended, which may take longer than there is time left.
            documents = reports.write(
                plugins, results, certification.contexts, interrupted=interrupted
            )
    _show_certificates(console, settings, plugins, documents, quiet=quiet)
    if interrupted and not documents:
        return documents, int(ExitStatus.INCOMPLETE)
    return documents, int(status(documents))


def _speaker(console: Console, update: Callable[[str], None]) -> Callable[[str], None]:
    def say(sentence: str) -> None:
        update(sentence)
        # A log file gets lines instead of a display.
        if not console.is_terminal:
            console.print(sentence, style="dim")

    return say


def _show_failure(console: Console, settings: Settings, plugin: Plugin, result: RuleResult) -> None:
    from conformance.reporting.failure import render
    from conformance.session import report_folder

    if result.verdict is Verdict.ERROR:
        console.print(
            f"the harness failed on {result.rule}: {result.message}; please report this.",
            style="magenta",
            markup=False,
        )
        return
    # Where the command was given, as a person would name it.
    folder = settings.report / report_folder(settings, plugin).name
    case = folder / "cases" / f"{result.rule}.json"
    console.print(
        render(
            named(plugin.generation).rule(result.rule),
            message=result.message,
            evidence=[result.evidence.value],
            counterexample=result.counterexample,
            case=str(case) if result.counterexample else None,
            width=min(console.width, 100),
        ),
        markup=False,
        soft_wrap=True,
    )
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
    from conformance.session import report_folder

    for plugin, document in zip(plugins, documents, strict=True):
        console.print(summary.headline(document))
        if quiet:
            continue
        summary.show(console, document)
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


@main.command()
@click.option("--interface", help="Only this interface or generation, for example logits/batch.")
@click.option("--json", "as_json", is_flag=True, help="The catalogue as JSON.")
def rules(interface: str | None, *, as_json: bool) -> None:
    """List the rules of every interface."""
    generations = [
        generation
        for generation in all_generations()
        if interface in (None, generation.interface, generation.name)
    ]
    if not generations:
        names = ", ".join(generation.name for generation in all_generations())
        raise UsageError(f"there is no interface {interface!r}: there are {names}.")
    if as_json:
        click.echo(json.dumps([generation.document() for generation in generations], indent=2))
        return
    from conformance.reporting.reference import by_section

    for generation in generations:
        click.echo(f"{generation.name}: {generation.title}\n")
        for section, members in by_section(generation.rules + generation.host_rules).items():
            click.echo(section)
            for rule in members:
                click.echo(f"  {rule.id}  {rule.level:<6}  {rule.title}")
            click.echo()


@main.command()
@click.argument("rule_id", metavar="RULE")
@click.option("--json", "as_json", is_flag=True, help="The rule as JSON.")
def explain(rule_id: str, *, as_json: bool) -> None:
    """Explain one rule: what it demands, where from, and what to check."""
    from conformance.reporting import reference

    generation, rule = find_rule(rule_id)
    if as_json:
        import attrs

        click.echo(json.dumps({"generation": generation.name, **attrs.asdict(rule)}, indent=2))
        return
    specimens = reference.gallery(generation)
    width = shutil.get_terminal_size().columns
    click.echo(reference.text(rule, generation, specimens, width=width))


@main.command()
@click.argument("case", type=click.Path(path_type=Path, dir_okay=False))
def replay(case: Path) -> int:
    """Play a counterexample again on the plugin as it is now.

    CASE is a file under cases/ of a report. Says FIXED (exit status 0), STILL FAILS (1)
    or CHANGED (1: it fails in another way).
    """
    from conformance.replay import Outcome, replay_case

    outcome, message = replay_case(case, python_path=tuple(sys.path))
    click.echo(f"{outcome.value}: {message}")
    return 0 if outcome is Outcome.FIXED else 1


for command in (
    badge,
    bench,
    configurations,
    report,
    verify,
    host,
    init,
    matrix,
    mutate,
    soak,
    warm,
):
    main.add_command(command)


if __name__ == "__main__":
    main()
