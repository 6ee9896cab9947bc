# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance``: certify plugins, and read the rules they are certified by.

Imports neither vLLM nor torch: ``--help`` and ``rules`` answer at once.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from conformance import __version__
from conformance.commands.options import EPILOG
from conformance.generations import all_generations, find_rule
from conformance.rules import nearest
from conformance.settings import UsageError
from conformance.verdict import ExitStatus

#: In which module of ``conformance.commands`` each command is, unless it is below.
COMMANDS = {
    "badge": "certificates",
    "bench": "bench",
    "certify": "certify",
    "configurations": "configurations",
    "host": "host",
    "init": "init",
    "matrix": "matrix",
    "mutate": "mutate",
    "port": "port",
    "report": "certificates",
    "soak": "soak",
    "verify": "certificates",
    "warm": "warm",
}


#: Letters of the longest first sentence of a command.
_LONGEST = 120


class _Group(click.Group):
    """A group that imports a command when it is asked for: the sooner one begins, the better.

    Its usage errors have the exit status of the design, and no traceback.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"conformance.commands.{COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        wrong = not name.startswith("-") and self.get_command(ctx, name) is None
        if wrong and not ctx.resilient_parsing:
            # click looks for a likely name only among commands that are imported.
            likely = nearest(name, self.list_commands(ctx)) or " --help lists them."
            raise UsageError(f"there is no command {name!r}.{likely}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their first sentence: click would cut it off."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, found.get_short_help_str(_LONGEST)) for name, found in commands if found]
            )

    def main(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - click's own signature
        kwargs |= {"standalone_mode": False, "prog_name": "vllm-conformance"}
        try:
            sys.exit(super().main(*args, **kwargs) or 0)
        except click.exceptions.Exit as error:
            sys.exit(error.exit_code)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            sys.exit(int(ExitStatus.USAGE))
        except click.Abort:
            _fail("interrupted.", ExitStatus.INCOMPLETE)
        except click.MissingParameter as error:
            path = f"{error.ctx.command_path} " if error.ctx else ""
            _fail(f"{error.format_message()} {path}--help tells more.", ExitStatus.USAGE)
        except click.ClickException as error:
            _fail(error.format_message(), ExitStatus.USAGE)
        except UsageError as error:
            _fail(str(error), ExitStatus.USAGE)
        except Exception as error:  # noqa: BLE001 - never a verdict on a plugin, never a traceback
            from conformance.reporting.session import explained

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
    from conformance.running.replay import Outcome, replay_case

    outcome, message = replay_case(case, python_path=tuple(sys.path))
    click.echo(f"{outcome.value}: {message}")
    return 0 if outcome is Outcome.FIXED else 1


if __name__ == "__main__":
    main()
