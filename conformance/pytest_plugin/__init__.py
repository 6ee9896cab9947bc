# SPDX-License-Identifier: Apache-2.0
"""``pytest --plugin-path TARGET``: rules become pytest items.

A thin adapter: what is run and how it is judged is decided in ``running`` and ``verdict``.
Loaded by every pytest of the environment, so it imports nothing heavy before it is asked to.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from conformance.pytest_plugin import options

if TYPE_CHECKING:
    from collections.abc import Generator

    from conformance.worker import Zygote

#: The worker process, where it was started before there was a session.
_ZYGOTE: pytest.StashKey[Zygote] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the harness."""
    options.add(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin to import vLLM before pytest has loaded anything else."""
    known = early_config.known_args_namespace
    if known.plugin_path:
        # Rules have no fixtures: what pytest-asyncio wants to be told of theirs is about nothing.
        unset = "The configuration option .asyncio_default_fixture_loop_scope. is unset"
        early_config.addinivalue_line("filterwarnings", f"ignore:{unset}")
    if known.plugin_path and not getattr(known, "numprocesses", None) and not known.help:
        from conformance.running.zygotes import start_zygote

        # What is wrong with the machine is told by the session, which tries again.
        with suppress(OSError):
            early_config.stash[_ZYGOTE] = start_zygote()
            early_config.add_cleanup(early_config.stash[_ZYGOTE].close)


def pytest_configure(config: pytest.Config) -> None:
    """Switch the harness on where a target is named."""
    config.addinivalue_line("markers", "conformance: a rule of the vLLM plugin conformance harness")
    if not config.getoption("plugin_path") or config.option.help:
        return
    if getattr(config.option, "forked", False):
        raise pytest.UsageError(
            "--forked cannot be used with --plugin-path: rules run in processes of their own"
        )
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        # Neither testpaths nor the folder pytest was started in: the rules only.
        config.args = []
    # With several workers, one target stays in one process: its engines are started once.  Not by
    # groups, which xdist 3.8 writes to where pytest 9.2 no longer reads them.
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "loadscope"
    from conformance.pytest_plugin.session import Session

    session = Session(config, zygote=config.stash.get(_ZYGOTE, None))
    config.pluginmanager.register(session, "vllm-conformance-session")


@pytest.hookimpl(wrapper=True)
def pytest_report_teststatus(
    report: pytest.TestReport | pytest.CollectReport,
) -> Generator[None, Any, Any]:
    """Name the verdicts that pytest has no word for."""
    status = yield
    verdict = dict(getattr(report, "user_properties", ())).get("verdict")
    letters = {"not-applicable": "-", "not-verified": "?", "advice": "!"}
    if report.when == "call" and verdict in letters:
        # Categories of their own: none may be counted among passes or skips.
        letter = letters[verdict]
        return verdict, letter, (verdict.upper().replace("-", " "), {"yellow": letter != "-"})
    return status
