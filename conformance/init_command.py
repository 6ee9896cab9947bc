# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance init``: a profile and a CI file for a plugin, by looking at it.

Imports neither vLLM nor torch: the plugin is watched in a worker, as in any certification.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
import jinja2
import tomlkit
from rich.console import Console

from conformance.settings import Budget, Settings
from conformance.verdict import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from conformance.target import Plugin


@attrs.frozen
class Field:
    """One key of a profile, for somebody who sees it for the first time."""

    says: str
    example: str  #: TOML


#: The keys of a profile by interface, in the order in which a new one has them.
FIELDS: Mapping[str, Mapping[str, Field]] = {
    "logits-processor": {
        "on": Field(
            "Requests that it acts on: keywords of SamplingParams.",
            "[{ extra_args = { your_key = 1 } }]",
        ),
        "off": Field("Requests that it must leave exactly as they are.", "[{}]"),
        "invalid": Field(
            "Requests that it must refuse at admission.",
            '[{ extra_args = { your_key = "x" } }]',
        ),
    },
    "io-processor": {
        "valid": Field("Data that it answers, as a client sends it.", '[{ text = "some text" }]'),
        "invalid": Field("Data that it must refuse as the client's error.", '["nonsense"]'),
        "model": Field("The model it is for, where a tiny one cannot do.", '"path/to/model"'),
    },
    "classifier-hook": {
        "allowed": Field("Texts that it must let through.", '["a harmless text"]'),
        "blocked": Field("Texts that it must block.", '["a text to block"]'),
    },
    "multimodal": {
        "model": Field("A folder with a tiny model of the class.", '"path/to/model"'),
        "items": Field("Items by modality, where made-up ones cannot do.", "{ image = [] }"),
        "options": Field("Values of mm_processor_kwargs to try.", "[{}]"),
        "valid": Field("Input that it takes.", '["path/to/file"]'),
        "invalid": Field("Input that it must refuse as the client's error.", '["nonsense"]'),
    },
}

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
    help="The CI service to write a file for; by default the one whose files are here.",
)
@click.option("--force", is_flag=True, help="Write over files that are there.")
def init(targets: tuple[str, ...], ci: str | None, *, force: bool) -> int:
    """Write a profile and a CI file for a plugin, by looking at it.

    The profile says how requests switch the plugin on and off. What can be found out by watching
    the plugin is filled in, the rest is a comment to complete. It lies beside the plugin's source
    as NAME.conformance.toml, or here where the plugin is installed elsewhere.
    """
    console = Console(highlight=False)
    plugins, profiles = _watched(targets, console)
    here = Path.cwd()
    commands: dict[str, list[str]] = {}
    written: dict[Path, str] = {}
    for plugin, found in zip(plugins, profiles, strict=True):
        path = _place(plugin, here)
        # Classes of one file share a profile, and so do the generations of one class.
        written.setdefault(path, profile(plugin, found))
        beside = plugin.path is not None and path.parent == Path(plugin.path).parent
        commands.setdefault("" if beside else path.name, []).append(plugin.target)
    service = ci or ("gitlab" if (here / ".gitlab-ci.yml").exists() else "github")
    if service != "none":
        file, template = SERVICES[service]
        written[here / file] = _template(template).render(commands=commands)
    for path, text in written.items():
        _write(path, text, console, force=force)
    console.print("Look through the profile, then:", soft_wrap=True)
    for name, certified in commands.items():
        words = ["vllm-conformance", "certify", *certified]
        words += ["--plugin-profile", name] if name else []
        console.print(f"  {shlex.join(words)}", soft_wrap=True, markup=False)
    return int(ExitStatus.CONFORMANT)


def profile(plugin: Plugin, found: Mapping[str, Any]) -> str:
    """Return a profile to start from, as TOML.

    Args:
        plugin: the class that it is for.
        found: the effective profile of a certificate.

    """
    document = tomlkit.document()
    name = plugin.qualname.rpartition(".")[2]
    document.add(tomlkit.comment(f"How {name} is switched on and off."))
    if any(found.get(key) for key in FIELDS[plugin.interface]):
        document.add(tomlkit.comment("Found by trying it: correct what is wrong."))
    table = tomlkit.table()
    for key, field in FIELDS[plugin.interface].items():
        table.add(tomlkit.comment(field.says))
        values = found.get(key)
        if values:
            table.add(key, _listed(values) if isinstance(values, list) else values)
        else:
            table.add(tomlkit.comment(f"{key} = {field.example}"))
    document.add(tomlkit.nl())
    document.add(plugin.interface, table)
    return tomlkit.dumps(document)


def _listed(values: Sequence[Any]) -> Any:  # noqa: ANN401 - an array of tomlkit
    array = tomlkit.array()
    for value in values:
        array.append(_inline(value))
    return array.multiline(multiline=len(values) > 1)


def _inline(value: Any) -> Any:  # noqa: ANN401 - any value of a profile
    """Return a value as TOML writes it on one line; TOML has no null, so those are left out."""
    if isinstance(value, dict):
        table = tomlkit.inline_table()
        for key, item in value.items():
            if item is not None:
                table.append(key, _inline(item))
        return table
    if isinstance(value, list | tuple):
        array = tomlkit.array()
        for item in value:
            if item is not None:
                array.append(_inline(item))
        return array
    return value


def _watched(
    targets: Sequence[str], console: Console
) -> tuple[tuple[Plugin, ...], list[Mapping[str, Any]]]:
    """Return the plugins of targets, and the effective profile of each."""
    from conformance.runner import Certification

    with tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder:
        settings = Settings(
            targets=tuple(targets),
            budget=Budget.QUICK,
            report=Path(folder),
            python_path=tuple(sys.path),
        )
        with console.status("starting") as display:
            say: Callable[[str], None] = display.update
            with Certification(settings, say) as certification:
                plugins = certification.load()
                checks = certification.checks()
                certification.select(checks)
                for check in checks:
                    say(f"watching {check.plugin.target}")
                    certification.run(check)
        contexts = certification.contexts
    found = [contexts.get(plugin.target, {}).get("profile") or {} for plugin in plugins]
    return plugins, found


def _place(plugin: Plugin, here: Path) -> Path:
    """Return where the profile of a plugin goes: beside its source, if that is in this folder."""
    if plugin.path is not None and Path(plugin.path).is_relative_to(here):
        source = Path(plugin.path)
        return source.with_name(f"{source.stem}.conformance.toml")
    return here / f"{plugin.module.rpartition('.')[2]}.conformance.toml"


def _write(path: Path, text: str, console: Console, *, force: bool) -> None:
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    if path.exists() and not force:
        console.print(f"kept {shown}: it is there already (--force writes over it)")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    console.print(f"wrote {shown}")


def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("conformance.reporting"),
        autoescape=False,  # noqa: S701 - YAML, of names without quotes in them
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # GitHub has a meaning for double braces.
        variable_start_string="<<",
        variable_end_string=">>",
    )
    return environment.get_template(name)
