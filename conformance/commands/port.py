# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance port``: a batch logits processor for Model Runner V2.

Imports neither vLLM nor torch: the plugin is looked at in a worker.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click
import tomlkit
from rich.console import Console

from conformance.commands import options
from conformance.commands.certify import certified
from conformance.commands.console import make_console, progress
from conformance.plugin import profile
from conformance.plugin.toml import inline, listed
from conformance.settings import Settings, UsageError, shorter

if TYPE_CHECKING:
    from conformance.plugin.target import Plugin
    from conformance.porting.writing import Kind
    from conformance.worker import Zygote

BATCH = "logits/batch"

#: Seconds that looking at a class may take, beyond its import.
LIMIT = 60.0


@click.command(epilog=options.EPILOG)
@click.argument("target", metavar="TARGET")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write; by default NAME_ported.py beside the plugin, or here where the plugin "
    "is installed elsewhere.",
)
@click.option("--force", is_flag=True, help="Write over files that are there.")
@options.plugin_profile
@options.report("reports/local", "Where certificates go: one folder for each interface.")
@options.seed()
def port(
    *,
    target: str,
    output: Path | None,
    force: bool,
    plugin_profile: str | None,
    report: Path,
    seed: int,
) -> int:
    """Write a class for both model runners from a logits processor for the V1 model runner.

    \b
    For example:
      vllm-conformance port my_package.my_module:MyLogitsProcessor

    The new class derives from yours and can replace it wherever vLLM loads it. It is one readable
    file that needs only vLLM, and a starting point: under Model Runner V2 it calls your class as
    the V1 runner would, and for that copies tokens to the host in every step. If your class wraps
    request-level callables, the new one calls them itself, also for draft tokens.

    The new class is then certified for both interfaces, and the two are compared (LS-31). What
    fails shows what is left to do.
    """
    from conformance.porting.writing import name_of, written
    from conformance.running.zygotes import start_zygote

    console = make_console()
    settings = Settings(
        targets=(target,),
        profile=plugin_profile,
        report=report,
        seed=seed,
        python_path=tuple(sys.path),
    )
    zygote = start_zygote()  # looks at the class, and serves the certification
    try:
        with progress(console, "importing vLLM"):
            plugin, kind = _looked_at(settings, zygote)
        path = _place(plugin, output)
        texts = {path: written(plugin, kind)}
        if plugin_profile is None and (own := _profile(plugin)):
            texts[path.with_suffix(".conformance.toml")] = own
        for each, text in texts.items():
            _write(each, text, console, force=force)
        console.print()
        targets = (f"{shorter(path)}:{name_of(plugin)}",)
        _, status = certified(attrs.evolve(settings, targets=targets), console, zygote=zygote)
    finally:
        zygote.close()
    return status


def _looked_at(settings: Settings, zygote: Zygote) -> tuple[Plugin, Kind]:
    """Return the batch logits processor of a target, and its kind.

    Raises:
        UsageError: the target has no batch logits processor or several, or the class cannot be
            ported.

    """
    from conformance.running.runner import Certification

    (target,) = settings.targets
    with (
        tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder,
        Certification(settings, zygote=zygote) as certification,
    ):
        certification.start()
        found = [each for each in certification.load() if each.generation == BATCH]
        if len(found) != 1:
            names = ", ".join(each.target for each in found)
            raise UsageError(
                f"{target} has several logits processors ({names}): name one."
                if found
                else f"{target} has no logits processor for the V1 model runner."
            )
        if found[0].broken:
            raise UsageError(f"{target} cannot be loaded: {found[0].broken}.")
        log = Path(folder) / "look.log"
        arguments = {"plugin": found[0]}
        what = "conformance.porting.looking:look"
        job = certification.trials.fork(found[0], what, arguments, log)
        kind, hindrance = job.ask("look", limit=LIMIT)
        job.close()
    if hindrance:
        raise UsageError(f"{target} cannot be ported: {hindrance}.")
    return found[0], kind


def _place(plugin: Plugin, output: Path | None) -> Path:
    """Return the file to write."""
    if output is not None:
        return Path.cwd() / output
    assert plugin.path is not None
    source = Path(plugin.path)
    folder = source.parent if source.is_relative_to(Path.cwd()) else Path.cwd()
    return folder / f"{source.stem}_ported.py"


def _profile(plugin: Plugin) -> str | None:
    """Return the profile that lies beside a plugin, for the written class."""
    found = profile.find(plugin.path)
    if found is None:
        return None
    own = found.of_class(plugin.qualname).section(plugin.interface)
    document = tomlkit.document()
    document.add(tomlkit.comment(f"That of {plugin.qualname}, from {Path(found.origin).name}."))
    document.add(tomlkit.nl())
    table = tomlkit.table()
    for key, value in own.items():
        table.add(key, listed(value) if isinstance(value, list) else inline(value))
    document.add(plugin.interface, table)
    return tomlkit.dumps(document)


def _write(path: Path, text: str, console: Console, *, force: bool) -> None:
    name = shorter(path)
    if path.exists() and not force:
        raise UsageError(f"{name} is there already: --force writes over it, --output elsewhere.")
    path.write_text(text, encoding="utf-8")
    console.print(f"wrote {name}")
