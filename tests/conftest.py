# SPDX-License-Identifier: Apache-2.0
"""What all tests share."""

from __future__ import annotations

import os
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psutil
import pytest
from support import ROOT
from user import CACHE
from xdist.scheduler import LoadScopeScheduling

from conformance.runner import start_zygote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdist.remote import Producer

    from conformance.worker import Zygote

pytest_plugins = ["pytester"]


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """One process that has imported vLLM, for all tests that certify."""
    with start_zygote() as process:
        process.wait_ready()
        yield process


@pytest.fixture
def shared_zygote(zygote: Zygote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs within this process share the zygote; each by itself would import vLLM again."""
    lasting = SimpleNamespace(fork=zygote.fork, wait_ready=zygote.wait_ready, close=lambda: None)
    monkeypatch.setattr("conformance.runner.start_zygote", lambda: lasting)
    # `pytester` moves the home folder, and with it the cache.
    monkeypatch.setenv("VLLM_CONFORMANCE_CACHE", CACHE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what is fast first, then engines, then servers; long ones among them first."""
    items.sort(
        key=lambda item: (
            *(bool(item.get_closest_marker(name)) for name in ("server", "engine")),
            not _shares(item.nodeid.partition("::")[0]),
        )
    )


class Scheduling(LoadScopeScheduling):
    """Gives workers a test at a time, and a whole module where its tests share a fixture.

    That is an engine, a server or a certification of everything, which every worker that gets a
    test of the module starts for itself.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return module if _shares(module) else nodeid


@cache
def _shares(module: str) -> bool:
    return 'scope="module"' in (ROOT / module).read_text(encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Take two workers for each core: half of the time tests wait, for servers and time limits.

    Each may have engines and servers, which take some gigabytes.
    """
    cores, memory = len(os.sched_getaffinity(0)), psutil.virtual_memory().total
    return max(1, min(2 * cores, memory // (5 << 30)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Let workers share the tests, in the order that they are in."""
    config.option.loadscopereorder = False
    return Scheduling(config, log)
