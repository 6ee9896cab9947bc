# SPDX-License-Identifier: Apache-2.0
"""One plugin through chosen configurations: a job for each engine, and a row for each verdict."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from conformance.configuration.asked import IDLE, NOBODY, TESTED, Answers, Workload
from conformance.configuration.judgement import Controls, Row, judge
from conformance.configuration.table import PLAIN, named
from conformance.settings import UsageError
from conformance.verdict import Verdict
from conformance.worker import JobDied, JobHung

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from conformance.configuration.table import Configuration
    from conformance.settings import Settings
    from conformance.target import Plugin
    from conformance.worker import Job

#: Seconds in which an engine on a tiny model starts and answers a workload; beyond, it hangs.
LIMIT = 240.0

_REQUESTS = "conformance.configuration.requests:run"
_ENGINE = "conformance.configuration.engine:serve"


class Fork(Protocol):
    """Forks a job of the process that has imported vLLM."""

    def __call__(self, what: str, arguments: dict[str, Any], log: Path) -> Job:
        """Start ``module:function`` with these arguments; what it writes goes to the log."""


def rows(
    plugin: Plugin,
    settings: Settings,
    names: Sequence[str],
    *,
    fork: Fork,
    folder: Path,
    model: str,
    notify: Callable[[str], None],
) -> Iterator[Row]:
    """Judge a plugin under configurations, one row after the other.

    Args:
        plugin: the class under test.
        settings: the options of the run.
        names: which configurations, in their own order.
        fork: starts a job.
        folder: where logs go.
        model: folder of the tiny model.
        notify: is told what is waited for.

    Raises:
        UsageError: the profile of the plugin is wrong.

    """
    chosen = [each for each in map(named, names) if plugin.generation in each.generations]
    if not chosen:
        return
    job = fork(
        _REQUESTS,
        {"plugin": plugin, "settings": settings, "model": model},
        folder / "configuration-requests.log",
    )
    try:
        workload = job.ask("requests", limit=LIMIT)
    except (JobDied, JobHung) as error:
        why = f"finding out what switches the plugin on: {error}"
        yield from (_unjudged(each, why) for each in chosen)
        return
    finally:
        job.close()
    if isinstance(workload, UsageError):
        raise workload
    assert isinstance(workload, Workload)

    @cache
    def ask(configuration_name: str, loaded: str) -> Answers:
        configuration = named(configuration_name)
        notify(f"{plugin.target}: {configuration.name}, an engine with {loaded}")
        return _ask(
            fork,
            {
                "plugin": plugin,
                "settings": settings,
                "model": model,
                "configuration": configuration,
                "workload": workload,
                "loaded": loaded,
            },
            folder / f"configuration-{configuration.name}.log",
        )

    without = ask(PLAIN.name, NOBODY)
    if without.problem:
        why = f"the plain engine fails without the plugin: {without.problem}"
        yield from (_unjudged(each, why) for each in chosen)
        return
    for each in chosen:
        plain = ask(PLAIN.name, TESTED), without
        controls = Controls(
            bare=partial(ask, each.name, NOBODY), idle=partial(ask, each.name, IDLE)
        )
        yield judge(each, workload, plain, ask(each.name, TESTED), controls)


def _ask(fork: Fork, arguments: dict[str, Any], log: Path) -> Answers:
    job = fork(_ENGINE, arguments, log)
    try:
        answers: Answers = job.ask("serve", limit=LIMIT)
    except JobDied as error:
        return Answers(started=True, problem=f"its process ended: {error}")
    except JobHung as error:
        return Answers(started=True, problem=f"it {error}")
    finally:
        job.close()
    return answers


def _unjudged(configuration: Configuration, why: str) -> Row:
    return Row(
        name=configuration.name,
        about=configuration.about,
        verdict=Verdict.NOT_VERIFIED,
        message=why,
    )
