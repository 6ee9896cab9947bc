# SPDX-License-Identifier: Apache-2.0
"""What a step costs in the reference plugins, against processors of the same kind.

Those are vLLM's own and the document's examples; vLLM's own slot processors are kernels for GPUs,
so slot plugins stand against batch processors.

``./run bench tests/bench/test_step_cost.py`` keeps what it measures, and ``tests/costs.py``, which
the lane runs afterwards, draws ``docs/costs.md`` from it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import costs
import pytest
from support import ROOT

from conformance.benchmark.figures import Cost
from conformance.benchmark.loads import VOCABULARY, Load
from conformance.settings import DEFAULT_SEED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_benchmark.fixture import BenchmarkFixture

    from conformance.worker import Zygote

pytestmark = pytest.mark.bench

#: A class of both interfaces hands each call on to the processor inside.
MARGIN = 0.01

#: Each reference plugin with one of its kind, than which it is no slower at any size.
SAME_KIND = (
    ("target_token", "document's example"),
    ("request_level", "document's wrapped example"),
    ("probability_floor", "vLLM's min-p"),
    ("token_bias", "vLLM's logit bias"),
    ("dual_target_token, slots", "target_token, slots"),
)

#: Where there is none of its kind: the nearest, and how many times as much ours may cost.
NEAREST = (
    # A pass over all logits costs more than to follow what is generated, but for single requests.
    ("no_repeat_ngram", "vLLM's min-p", 1.0),
    ("no_repeat_ngram, slots", "vLLM's min-p", 3.0),
    # Both count tokens; ours looks at them when the budget may be spent.
    ("thinking_budget", "vLLM's min tokens", 1.0),
    # It masks in one pass over all rows, of which half may be nobody's: that is as slow as the
    # machine's memory.
    ("thinking_budget, forcing", "document's example", 3.5),
    # What is staged on the host is copied to the device, which here is the host again.
    ("target_token, slots", "target_token", 3.5),
)

SIZES = (1, 16, 256, 1024)

#: Requests, and the share of them that opts in.
BATCHES = tuple((requests, share) for share in (0.5, 1.0) for requests in SIZES)

REFERENCES = sorted({name for name, *_ in (*SAME_KIND, *NEAREST)} - {"thinking_budget, forcing"})

#: Seconds of rounds for one measurement.
SECONDS = 2.0

#: A step in which nobody opts in may take this many more seconds than calls that do nothing.
MOST_IDLE = 10e-6

#: Takes two processors, how many requests, and the share that opts in.
Ask = Callable[[str, str, int, float], Cost]


@pytest.fixture(scope="module")
def ask(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """A process that measures; what it answers is kept."""
    folder = tmp_path_factory.mktemp("step-cost")
    job = zygote.fork(
        "step_cost_job:compare",
        {},
        log=folder / "job.log",
        directory=folder,
        python_path=[str(Path(__file__).parent), str(ROOT)],
    )

    def ask(first: str, second: str, requests: int, share: float) -> Cost:
        load = Load(requests, VOCABULARY, share)
        found = job.ask((first, second, load, SECONDS, DEFAULT_SEED), limit=300)
        assert isinstance(found, Cost)
        costs.keep(first, second, found)
        return found

    yield ask
    job.close()


@pytest.fixture
def measured(benchmark: BenchmarkFixture, ask: Ask) -> Ask:
    """Let pytest-benchmark keep the figures, too; its own time is that of all rounds."""

    def measure(*arguments: str | float) -> Cost:
        found: Cost = benchmark.pedantic(ask, args=arguments, rounds=1)
        benchmark.extra_info["step_seconds"] = found.step.median
        benchmark.extra_info["against"] = found.against and found.against.median
        return found

    return measure


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize(("name", "other"), SAME_KIND, ids=str)
def test_is_no_slower_than_its_kind(
    measured: Ask, name: str, other: str, batch: tuple[int, float]
) -> None:
    """The whole interval is not above the margin, or what the run could tell from nothing."""
    found = measured(name, other, *batch)

    assert found.against is not None
    assert found.against.low <= max(MARGIN, found.floor)


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize(("name", "other", "most"), NEAREST, ids=str)
def test_costs_so_many_times_the_nearest(
    measured: Ask, name: str, other: str, most: float, batch: tuple[int, float]
) -> None:
    """It does other work, and how much more that is stays bounded."""
    found = measured(name, other, *batch)

    assert found.against is not None
    assert 1 + found.against.low <= most


@pytest.mark.parametrize("requests", SIZES)
@pytest.mark.parametrize("name", REFERENCES)
def test_costs_next_to_nothing_while_idle(measured: Ask, name: str, requests: int) -> None:
    """A step in which nobody opts in costs little more than calls that do nothing."""
    found = measured(name, "identity", requests, 0.0)

    assert found.added.low <= MOST_IDLE
