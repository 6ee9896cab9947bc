# SPDX-License-Identifier: Apache-2.0
"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING

import psutil
import pytest
import sampling
from sight import seeing_zygote
from support import lasting
from user import CACHE
from xdist.scheduler import LoadScopeScheduling

from conformance.running.zygotes import start_nursery, start_zygote
from conformance.worker import nursery

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

    from conformance.worker import Zygote

pytest_plugins = ["pytester"]

CHOICE = pytest.StashKey[sampling.Choice]()
NURSERY = pytest.StashKey[Popen[bytes]]()
TAKEN = pytest.StashKey[Sequence[str]]()


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """One process that has imported vLLM, for all tests that certify."""
    with start_zygote() as process:
        process.wait_ready()
        yield process


@pytest.fixture(scope="session")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A process that has imported vLLM beside torchvision, without which some models are none."""
    with seeing_zygote(tmp_path_factory.mktemp("zygote")) as process:
        yield process


@pytest.fixture
def shared_zygote(zygote: Zygote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs within this process share the zygote; each by itself would import vLLM again."""
    monkeypatch.setattr("conformance.running.zygotes.start_zygote", lambda: lasting(zygote))
    # `pytester` moves the home folder, and with it the cache.
    monkeypatch.setenv("VLLM_CONFORMANCE_CACHE", CACHE)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the choice of tests."""
    group = parser.getgroup("sampling")
    group.addoption(
        "--tests",
        metavar="WHICH",
        help="'sample' (the short ones, each reference, the cheapest killer of each rule, and a "
        "part of the rest), 'all', or a part such as 2/5 (default: what is named; without a "
        "name a sample)",
    )
    group.addoption(
        "--day",
        type=int,
        metavar="N",
        help="take the sample of this day, counted from 1970 on (default: that of the commit)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Read the options once; workers are given what this process found."""
    option = config.option
    if option.tests is None:
        named = config.args_source is config.ArgsSource.ARGS or option.keyword or option.plugin_path
        option.tests = sampling.EVERYTHING if named else sampling.SAMPLE
    if option.day is None:
        option.day = sampling.day_of_commit()
    try:
        config.stash[CHOICE] = sampling.choice(option.tests, option.day)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    if config.stash[CHOICE].said != sampling.EVERYTHING:
        # syrupy fails for snapshots of a function of which other parameters run.
        option.disable_unused_snapshots = True


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what tries a plugin of a gallery, before ``-m`` is looked at."""
    if sampling.specimen_of(item) is not None:
        item.add_marker("gallery")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import vLLM once for all that the workers start, unless somebody has."""
    if getattr(session.config.option, "numprocesses", None) and nursery.ADDRESS not in os.environ:
        folder = session.config._tmp_path_factory.mktemp("nursery")  # type: ignore[attr-defined]
        os.environ[nursery.ADDRESS] = str(folder / "socket")
        session.config.stash[NURSERY] = start_nursery(folder / "socket")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what was started at the beginning."""
    if process := session.config.stash.get(NURSERY, None):
        process.kill()
        process.wait()


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what is left to chance, and how to have the same again."""
    if config.option.plugin_path:
        return None
    chosen = config.stash[CHOICE]
    if chosen.said == sampling.SAMPLE:
        return f"tests: the sample of --day {chosen.day}; --tests all runs all of them"
    return f"tests: {chosen.said}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run what is fast first, then engines, then servers; long ones among them first."""
    out = sampling.left_out(items, config.stash[CHOICE])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in out])
    items[:] = [item for item in items if item.nodeid not in out]
    items.sort(
        key=lambda item: (
            *(bool(item.get_closest_marker(name)) for name in ("server", "engine")),
            not sampling.shares(item.nodeid.partition("::")[0]),
        )
    )
    config.stash[TAKEN] = [item.nodeid for item in items]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: WorkerController, ids: Sequence[str]) -> None:
    """Hear from a worker which tests there are: this process collects none."""
    node.config.stash[TAKEN] = ids


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name the tests of a sample, in a file beside the report: they are too many for a screen."""
    taken, report = config.stash.get(TAKEN, ()), config.option.xmlpath
    if report and taken and config.stash[CHOICE].said == sampling.SAMPLE:
        path = Path(report).with_name("taken.txt")
        path.write_text("".join(f"{nodeid}\n" for nodeid in sorted(taken)), encoding="utf-8")
        day = config.stash[CHOICE].day
        terminalreporter.line(f"tests: --day {day} takes {len(taken)}, named in {path}")


class Scheduling(LoadScopeScheduling):
    """Gives workers a test at a time, and a whole module where its tests share a fixture.

    That is an engine, a server or a certification of everything, which every worker that gets a
    test of the module starts for itself.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return module if sampling.shares(module) else nodeid


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
