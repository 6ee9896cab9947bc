# SPDX-License-Identifier: Apache-2.0
"""Options that several commands have: each is spelled, and explained, in one place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from conformance.settings import DEFAULT_SEED, SERVER_LOAD, Budget, Device

F = TypeVar("F", bound="Callable[..., object]")

#: What commands that certify end with.
EPILOG = """\
Exit status: 0 conformant, 1 non-conformant, 2 incomplete (something applicable could not be
shown), 3 the harness itself failed, 4 usage.
"""

targets = click.argument("targets", nargs=-1, required=True, metavar="TARGET...")

plugin_profile = click.option(
    "--plugin-profile",
    metavar="FILE_OR_OBJECT",
    help="How to switch the plugin on and off: a TOML file, or module:object. "
    "Without it: NAME.conformance.toml beside the plugin, or "
    "[tool.vllm-conformance] of its pyproject.toml.",
)

evidence = click.option(
    "--evidence",
    default="simulator",
    show_default=True,
    metavar="LIST",
    help="Any of simulator,offline,server (comma separated), or all.",
)

configuration = click.option(
    "--configuration",
    metavar="LIST",
    help="Run logits processors in engines of these configurations, too (comma separated, or all): "
    "vllm-conformance configurations lists them.",
)

_HEADER = click.option(
    "--server-header",
    multiple=True,
    metavar="NAME:VALUE",
    help="A header of each request to that server, for example 'Authorization: Bearer ...'; "
    "as often as needed, and never written anywhere. OPENAI_API_KEY is taken without it.",
)
_LOAD = click.option(
    "--server-load",
    type=int,
    default=SERVER_LOAD,
    show_default=True,
    metavar="N",
    help="Requests to that server under way at the same time, at most.",
)
_HOSTILE = click.option(
    "--server-hostile",
    is_flag=True,
    help="Send that server odd requests, too, which the profile does not name. "
    "Not for one that serves others.",
)


def running_server(command: F) -> F:
    """Add how a server that runs already is reached, and spared."""
    return _HEADER(_LOAD(_HOSTILE(command)))


baseline = click.option(
    "--baseline",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Known failures, as TOML: [[known]] with rule, reason and, if you like, issue, expires "
    "and plugin. Only others fail the run, and so do stale and expired entries. It never makes "
    "a plugin conformant.",
)


def budget(says: str) -> Callable[[F], F]:
    """Return ``--budget``: how much is tried, or measured."""
    return _one_of("--budget", Budget.STANDARD, says)


def device(says: str) -> Callable[[F], F]:
    """Return ``--device``: where something runs."""
    return _one_of("--device", Device.AUTO, says)


def _one_of(flag: str, default: Budget | Device, says: str) -> Callable[[F], F]:
    return click.option(
        flag,
        type=click.Choice([each.value for each in type(default)]),
        default=default.value,
        show_default=True,
        help=says,
    )


def report(default: str, says: str) -> Callable[[F], F]:
    """Return ``--conformance-report``: the folder for what is written."""
    return click.option(
        "--conformance-report",
        "report",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path(default),
        show_default=True,
        help=says,
    )


def seed(says: str = "Seed of every random choice.") -> Callable[[F], F]:
    """Return ``--conformance-seed``."""
    return click.option(
        "--conformance-seed",
        "seed",
        type=int,
        default=DEFAULT_SEED,
        show_default=True,
        help=says,
    )
