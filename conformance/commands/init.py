# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance init``: a profile and a CI file for a plugin, by looking at it.

Imports neither vLLM nor torch: the plugin is watched in a worker, as in any certification.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import tomlkit
from rich.console import Console
from tomlkit.items import Table

from conformance.commands.console import make_console, progress
from conformance.generations import sections
from conformance.plugin.profile import CLASSES
from conformance.plugin.target import Plugin
from conformance.plugin.toml import inline, listed
from conformance.reporting import templates
from conformance.settings import Budget, Settings, UsageError, shorter
from conformance.verdict import ExitStatus, Verdict

#: Below what a profile says of a key whose values come from watching the plugin.
FOUND = "Found by trying it: correct what is wrong."

#: Below what it says of a key whose value may be what the source has.
LIKELY = "From the plugin's source:"

#: Below what it says of a key of which several values fit, so that none is chosen.
ALIKE = "Found by trying it, and no more than one of these is right"

#: Where each CI service looks for its file, and the template of it.
SERVICES = {
    "github": (".github/workflows/conformance.yml", "github.yml.j2"),
    "gitlab": (".gitlab-ci.yml", "gitlab.yml.j2"),
}


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@click.option(
    "--ci",
    type=click.Choice([*SERVICES, "none"]),
    help="The CI service to write a file for; by default the one whose files are here, if any.",
)
@click.option("--force", is_flag=True, help="Write over files that are there.")
def init(targets: tuple[str, ...], ci: str | None, *, force: bool) -> int:
    """Inspect a plugin, and write its first profile and a CI file.

    The profile says how requests switch the plugin on and off. What the harness observes is filled
    in; the rest is a comment to complete. The file is NAME.conformance.toml beside the plugin's
    source, or in this folder if the plugin is installed elsewhere.
    """
    console = make_console()
    plugins, profiles, unknown = _watched(targets, console)
    here = Path.cwd()
    commands: dict[str, list[str]] = {}
    sources: dict[Path, dict[str, tuple[Plugin, Mapping[str, Any]]]] = {}
    for plugin, found in zip(plugins, profiles, strict=True):
        path = _place(plugin, here)
        # The generations of one class share a profile.
        sources.setdefault(path, {}).setdefault(plugin.qualname, (plugin, found))
        beside = plugin.path is not None and path.parent == Path(plugin.path).parent
        commands.setdefault("" if beside else path.name, []).append(plugin.target)
    written = {path: profile(list(classes.values())) for path, classes in sources.items()}
    service = ci or _service(here)
    if service in SERVICES:
        file, name = SERVICES[service]
        # GitHub has a meaning for double braces.
        workflow = templates.template(name, marks=("<<", ">>"))
        written[here / file] = workflow.render(commands=commands)
    for path, text in written.items():
        _write(path, text, console, force=force)
    if service is None:
        console.print(f"no file for CI: no service has one here (--ci {'|'.join(SERVICES)})")
    for name, why in unknown.items():
        console.print(f"{name}: {why}", soft_wrap=True, markup=False)
    todo = "Complete" if unknown else "Look through"
    console.print(f"{todo} the profile, then:", soft_wrap=True)
    for name, certified in commands.items():
        words = ["vllm-conformance", "certify", *certified]
        words += ["--plugin-profile", name] if name else []
        console.print(f"  {shlex.join(words)}", soft_wrap=True, markup=False)
    return int(ExitStatus.CONFORMANT)


def profile(classes: Sequence[tuple[Plugin, Mapping[str, Any]]]) -> str:
    """Return a profile to start from, as TOML; classes that differ have sections of their own.

    Args:
        classes: those of one file, each with the effective profile of its certificate.

    """
    document = tomlkit.document()
    plugin, found = classes[0]
    if len({tomlkit.dumps({p.interface: _section(p, f)}) for p, f in classes}) == 1:
        names = ", ".join(each.qualname for each, _ in classes)
        document.add(tomlkit.comment(f"What {names} is tried with."))
        document.add(tomlkit.nl())
        document.add(plugin.interface, _section(plugin, found))
        return tomlkit.dumps(document)
    every = tomlkit.table(is_super_table=True)
    for plugin, found in classes:
        own = tomlkit.table(is_super_table=True)
        own.append(plugin.interface, _section(plugin, found))
        every.append(plugin.qualname, own)
    document.add(CLASSES, every)
    return tomlkit.dumps(document)


def _section(plugin: Plugin, found: Mapping[str, Any]) -> Table:
    table = tomlkit.table()
    for key, field in sections()[plugin.interface].items():
        # What was seen to be refused is what the author's own check says is invalid.
        values = found.get(key) or (found.get("refused") if key == "invalid" else None)
        # What is off is known only where what is on is; if all requests are on, no request is off.
        known = found.get("on") if key == "off" else values
        table.add(tomlkit.comment(field.says))
        if alike := (found.get("alike") or {}).get(key):
            table.add(tomlkit.comment(f"{ALIKE}: {', '.join(alike)}"))
            table.add(tomlkit.comment(f'{key} = "{alike[0]}"'))
        elif likely := (found.get("likely") or {}).get(key):
            table.add(tomlkit.comment(LIKELY))
            table.add(tomlkit.comment(f"{key} = {inline(likely).as_string()}"))
        elif known and (key, known) != ("arguments", [{}]):  # none says nothing
            table.add(tomlkit.comment(FOUND))
            table.add(key, values if isinstance(values, str | dict) else listed(values or ()))
        else:
            template = field.template(found.get("keys") or (), found.get("tables") or {})
            table.add(tomlkit.comment(f"{key} = {template}"))
    return table


def _watched(
    targets: Sequence[str], console: Console
) -> tuple[tuple[Plugin, ...], list[Mapping[str, Any]], dict[str, str]]:
    """Return the plugins of targets, the effective profile of each, and why some are empty.

    Raises:
        UsageError: a plugin cannot be loaded, so there is nothing to look at.

    """
    from conformance.running.runner import Certification

    with tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder:
        settings = Settings(
            targets=tuple(targets),
            budget=Budget.QUICK,
            report=Path(folder),
            python_path=tuple(sys.path),
        )
        why: dict[str, str] = {}
        with (
            progress(console, "starting") as display,
            Certification(settings, display.say) as certification,
        ):
            plugins = certification.load()
            for plugin in plugins:
                if plugin.broken is not None:
                    raise UsageError(f"no profile for {plugin.target}: {plugin.broken}")
            checks = certification.checks()
            certification.select(checks)
            for check in checks:
                display.show(f"watching {check.plugin.target}")
                result = certification.run(check)
                if result.verdict is Verdict.NOT_VERIFIED and not result.waits_for:
                    why.setdefault(check.plugin.target, result.message or "")
        contexts = certification.contexts
    found = [contexts.get(plugin.target, {}).get("profile") or {} for plugin in plugins]
    unknown = {
        plugin.target: why[plugin.target]
        for plugin, profile in zip(plugins, found, strict=True)
        if plugin.target in why and not _section(plugin, profile).unwrap()
    }
    return plugins, found, unknown


def _service(here: Path) -> str | None:
    """Return the CI service that has files in a folder."""
    if (here / ".gitlab-ci.yml").exists():
        return "gitlab"
    return "github" if (here / ".github").is_dir() else None


def _place(plugin: Plugin, here: Path) -> Path:
    """Return where the profile of a plugin goes: beside its source, if that is in this folder."""
    if plugin.path is not None and Path(plugin.path).is_relative_to(here):
        source = Path(plugin.path)
        return source.with_name(f"{source.stem}.conformance.toml")
    return here / f"{plugin.module.rpartition('.')[2]}.conformance.toml"


def _write(path: Path, text: str, console: Console, *, force: bool) -> None:
    if path.exists() and not force:
        console.print(f"kept {shorter(path)}: it is there already (--force writes over it)")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    console.print(f"wrote {shorter(path)}")
