# SPDX-License-Identifier: Apache-2.0
"""What a step costs in the reference plugins, against vLLM's own processors of the same kind.

vLLM's own slot processors are kernels for GPUs, so slot plugins stand against batch processors.

Run with ``./run bench tests/bench/test_step_cost.py``; it prints a table.
A step is ``update_state`` and ``apply``, or ``add_request``, ``apply_staged_writes`` and ``apply``,
on a CPU, with one thread. Absolute times mean nothing on a shared machine: processors take turns
step by step, and the median of the ratios is judged.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_benchmark.fixture import BenchmarkFixture

    from conformance.worker import Zygote

pytestmark = pytest.mark.bench

IDENTITY = "identity"
SLOTS = ", slots"  #: ends the names of slot processors

#: Each reference plugin, its nearest relative, and how many times as much it may cost.
PAIRS = (
    ("target_token", "document's example", 1.1),
    ("request_level", "document's wrapped example", 1.5),
    ("probability_floor", "vLLM's min-p", 1.5),
    # No relative follows what is generated: a pass over all logits costs more, though.
    ("no_repeat_ngram", "vLLM's min-p", 1.0),
    ("thinking_budget", "vLLM's min tokens", 5.0),
    ("thinking_budget, forcing", "document's example", 3.0),
    ("target_token, slots", "target_token", 3.0),
    ("dual_target_token, slots", "target_token, slots", 1.2),
    ("no_repeat_ngram, slots", "vLLM's min-p", 1.0),
)
SIZES = (1, 16, 256)
SHARES = (0.5, 1.0)

REFERENCES = {name for name, _, _ in PAIRS}
NAMES = sorted(
    {name for pair in PAIRS for name in (*pair[:2], "vLLM's logit bias")}
    - {"thinking_budget, forcing"}
)

#: Ratios are judged where work on logits outweighs the calls around it.
JUDGED = 256

#: A step in which nobody opts in may cost this many times two calls that do nothing.
MOST_IDLE = 3.0

#: The same for slots. Nobody tells a plugin who has finished, so it looks at the slots of each
#: batch, and that look at a NumPy array costs as much as thirty calls.
MOST_IDLE_SLOTS = 60.0

#: Takes two processors, how many requests, and the share that opts in; returns a ratio.
Ask = Callable[[str, str, int, float], float]


@pytest.fixture(scope="module")
def ask(
    request: pytest.FixtureRequest, zygote: Zygote, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ask]:
    """A process that measures; at the end its answers are printed as a Markdown table."""
    folder = tmp_path_factory.mktemp("step-cost")
    job = zygote.fork(
        "step_cost_job:measure",
        {},
        log=folder / "job.log",
        directory=folder,
        python_path=[str(Path(__file__).parent), str(ROOT)],
    )
    lines = ["| plugin | requests | opted in | µs a step | against | µs a step | ratio |"]
    lines += ["| --- | --: | --: | --: | --- | --: | --: |"]

    def ask(first: str, second: str, requests: int, share: float) -> float:
        one, other, ratio = job.ask((first, second, requests, share), limit=300)
        lines.append(
            f"| {first} | {requests} | {share:.0%} | {one * 1e6:.3g} "
            f"| {second} | {other * 1e6:.3g} | {ratio:.2f} |"
        )
        return float(ratio)

    yield ask
    job.close()
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(*lines, sep="\n")  # noqa: T201 - who measures wants to see it


@pytest.mark.timeout(600)
@pytest.mark.parametrize("requests", SIZES)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
def test_step_against_a_relative(
    benchmark: BenchmarkFixture, ask: Ask, pair: tuple[str, str, float], requests: int
) -> None:
    """A step costs no more than in a relative, by a margin, half the requests opted in or all."""
    plugin, relative, most = pair

    def ratios() -> list[float]:
        return [ask(plugin, relative, requests, share) for share in SHARES]

    found = benchmark.pedantic(ratios, rounds=1)  # type: ignore[no-untyped-call] # it has no types
    benchmark.extra_info["ratios"] = found

    assert requests != JUDGED or max(found) <= most


@pytest.mark.timeout(600)
@pytest.mark.parametrize("requests", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_idle_step(benchmark: BenchmarkFixture, ask: Ask, name: str, requests: int) -> None:
    """A step in which nobody opts in costs little more than two calls that do nothing."""
    slots = name.endswith(SLOTS)
    arguments = (name, IDENTITY + SLOTS if slots else IDENTITY, requests, 0.0)
    ratio = benchmark.pedantic(ask, args=arguments, rounds=1)  # type: ignore[no-untyped-call] # it has no types
    benchmark.extra_info["ratio"] = ratio

    assert ratio <= (MOST_IDLE_SLOTS if slots else MOST_IDLE) or name not in REFERENCES
