# SPDX-License-Identifier: Apache-2.0
"""The options that the harness adds to pytest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conformance.settings import Settings

_DEFAULTS = {
    "evidence": "simulator",
    "budget": "standard",
    "device": "auto",
    "report": "reports/local",
    "server_load": 8,
}


def add(parser: pytest.Parser) -> None:
    """Add the options to a parser."""
    group = parser.getgroup(
        "vllm-conformance", "conformance of vLLM plugins (vllm-conformance --help teaches more)"
    )
    group.addoption(
        "--plugin-path",
        action="append",
        default=[],
        metavar="TARGET",
        help="certify a vLLM plugin: package.module:Class, path/to/file.py[:Class], "
        "package.module, entry-point:GROUP/NAME or dist:DISTRIBUTION; may be repeated. "
        "With no test paths, nothing but the conformance rules is collected.",
    )
    group.addoption(
        "--plugin-profile",
        metavar="FILE_OR_OBJECT",
        help="how to switch the plugin on and off: a TOML file, or module:object "
        "(default: NAME.conformance.toml beside the plugin, or [tool.vllm-conformance] "
        "of its pyproject.toml)",
    )
    group.addoption(
        "--evidence",
        default=_DEFAULTS["evidence"],
        metavar="LIST",
        help="any of simulator,offline,server, or all (default: simulator)",
    )
    group.addoption(
        "--budget",
        choices=("quick", "standard", "deep"),
        default=_DEFAULTS["budget"],
        help="examples per rule (default: standard)",
    )
    group.addoption(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default=_DEFAULTS["device"],
        help="where offline engines and servers run (default: auto)",
    )
    group.addoption(
        "--server-url",
        metavar="URL",
        help="use a running vLLM server for server evidence instead of starting one",
    )
    group.addoption(
        "--server-header",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="a header of each request to that server, never written anywhere; OPENAI_API_KEY is "
        "taken without it",
    )
    group.addoption(
        "--server-load",
        type=int,
        default=_DEFAULTS["server_load"],
        metavar="N",
        help="requests to that server under way at the same time, at most (default: 8)",
    )
    group.addoption(
        "--server-hostile",
        action="store_true",
        help="send that server odd requests, too; not for one that serves others",
    )
    group.addoption(
        "--conformance-report",
        default=_DEFAULTS["report"],
        metavar="DIR",
        help="where certificates go (default: reports/local)",
    )
    group.addoption(
        "--conformance-seed",
        type=int,
        metavar="N",
        help="seed of every random choice (default: fixed)",
    )
    group.addoption(
        "--configuration",
        metavar="LIST",
        help="run logits processors in engines of these configurations, too (comma separated, or "
        "all): vllm-conformance configurations lists them",
    )
    group.addoption(
        "--baseline",
        metavar="FILE",
        help="known failures (rule, reason, optional issue and expiry): only others fail the run, "
        "and so do stale and expired entries; never makes a plugin conformant",
    )
    group.addoption(
        "--lines",
        action="store_true",
        help="watch which lines of the plugin run in engines and servers, too, which become slower",
    )


def settings(config: pytest.Config) -> Settings:
    """Return the settings of a run.

    Raises:
        pytest.UsageError: an option has a value that it cannot have.

    """
    from conformance.configuration.table import parse
    from conformance.settings import (
        DEFAULT_SEED,
        Budget,
        Device,
        Settings,
        UsageError,
        parse_evidence,
        parse_headers,
    )

    try:
        return Settings(
            targets=tuple(config.getoption("plugin_path")),
            profile=config.getoption("plugin_profile"),
            evidence=parse_evidence(config.getoption("evidence")),
            budget=Budget(config.getoption("budget")),
            device=Device(config.getoption("device")),
            server_url=config.getoption("server_url"),
            server_headers=parse_headers(config.getoption("server_header")),
            server_load=config.getoption("server_load"),
            server_hostile=config.getoption("server_hostile"),
            report=Path(config.getoption("conformance_report")),
            seed=(
                DEFAULT_SEED
                if config.getoption("conformance_seed") is None
                else config.getoption("conformance_seed")
            ),
            configurations=parse(config.getoption("configuration")),
            baseline=Path(path) if (path := config.getoption("baseline")) else None,
            lines=config.getoption("lines"),
            directory=config.invocation_params.dir,
            python_path=tuple(sys.path),
        )
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
