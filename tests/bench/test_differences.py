# SPDX-License-Identifier: Apache-2.0
"""What a run calls a difference: one of 5 % is found, and the same thing against itself never is.

Each twenty times; ``./run bench tests/bench/test_differences.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import ROOT

from conformance.benchmark.loads import Load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.worker import Job, Zygote

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

LOAD = Load(16, 32_000, 0.5)
RUNS, ENOUGH = 20, 19
SECONDS = 1.5


@pytest.fixture
def job(zygote: Zygote, tmp_path: Path) -> Iterator[Job]:
    """A process that measures."""
    made = zygote.fork(
        "slowed_job:compare",
        {},
        log=tmp_path / "job.log",
        directory=tmp_path,
        python_path=[str(Path(__file__).parent), str(ROOT)],
    )
    yield made
    made.close()


@pytest.mark.parametrize("part", [0.05, 0.10])
def test_a_slower_step_is_found(job: Job, part: float) -> None:
    """Work that is planted in a plugin is a difference, of about its size."""
    found = [job.ask((part, LOAD, SECONDS, seed), limit=120) for seed in range(RUNS)]

    slower = [cost for cost in found if cost.against.beyond(cost.floor) and cost.against.low > 0]
    assert len(slower) >= ENOUGH, [(cost.against, cost.floor) for cost in found]
    assert all(abs(cost.against.median - part) < part / 2 for cost in slower)


def test_the_same_step_is_no_difference(job: Job) -> None:
    """A plugin against an equal one differs by no more than the run can tell from nothing."""
    found = [job.ask((0.0, LOAD, SECONDS, seed), limit=120) for seed in range(RUNS)]

    quiet = [cost for cost in found if not cost.against.beyond(cost.floor)]
    assert len(quiet) >= ENOUGH, [(cost.against, cost.floor) for cost in found]
