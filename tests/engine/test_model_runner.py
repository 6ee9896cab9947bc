# SPDX-License-Identifier: Apache-2.0
"""Model Runner V2 on a CPU without Triton, in forks of a process that runs V1 as well."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance.engine import model_runner
from conformance.engine.models import tiny_llama

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.worker import Zygote

HERE = Path(__file__).parent
LIMIT = 240.0

SLOT_INTERFACE = "vllm.v1.worker.gpu.sample.logits_processor.LogitsProcessor"

# What the jobs ask.
PROMPTS = 8
TOKENS = 16


@pytest.fixture
def run(zygote: Zygote, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that runs a job and returns its answer."""

    def ask(function: str, **arguments: object) -> object:
        job = zygote.fork(
            f"model_runner_job:{function}",
            {"model": str(tiny_llama()), **arguments},
            log=tmp_path / "job.log",
            directory=tmp_path,
            python_path=[str(HERE)],
        )
        answer = job.ask("run", limit=LIMIT)
        job.close()
        return answer

    return ask


@pytest.fixture(scope="module")
def plain(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, ...]]:
    """Tokens of an engine with the V1 model runner and no plugin."""
    folder = tmp_path_factory.mktemp("plain")
    job = zygote.fork(
        "model_runner_job:greedy",
        {"model": str(tiny_llama()), "runner": "v1"},
        log=folder / "job.log",
        directory=folder,
        python_path=[str(HERE)],
    )
    answers, _ = job.ask("run", limit=LIMIT)
    job.close()
    assert all(decided == len(tokens) == TOKENS for tokens, decided in answers)
    return [tokens for tokens, _ in answers]


def _forced(plain: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return what is expected when every other request is forced."""
    return [
        (100 + number,) * TOKENS if number % 2 else tokens for number, tokens in enumerate(plain)
    ]


def test_another_model_runner_is_refused() -> None:
    """The sentence names the two that there are."""
    with pytest.raises(ValueError, match="no model runner 'v3': name v1 or v2"):
        model_runner.environment("v3")  # type: ignore[arg-type]


def test_a_gpu_needs_nothing() -> None:
    """Only processes on a CPU have something of ours on their path."""
    assert model_runner.python_path("v2", "cuda") == model_runner.python_path("v1", "cpu") == []
    (site,) = model_runner.python_path("v2", "cpu")
    assert (
        next(Path(site).glob("*.dist-info/entry_points.txt")).read_text().splitlines()[1]
        == "conformance-model-runner-v2 = conformance.engine.model_runner:prepare"
    )


@pytest.mark.engine
def test_both_runners_give_the_same_tokens(
    run: Callable[..., Any], plain: list[tuple[int, ...]]
) -> None:
    """Greedy tokens are those of V1, with preemptions, resumed requests and chunked prefills."""
    answers, facts = run("greedy", runner="v2")

    assert [tokens for tokens, _ in answers] == plain
    assert all(decided == TOKENS for _, decided in answers)
    assert facts["preempted"] == facts["resumed"] > 0
    assert facts["chunked"] > 0


@pytest.mark.engine
@pytest.mark.parametrize("how", ["class", "name", "entry point"])
def test_a_plugin_acts_however_it_is_loaded(
    run: Callable[..., Any], plain: list[tuple[int, ...]], how: str
) -> None:
    """It forces tokens where asked to; other requests, and refused ones, leave no trace."""
    tokens, refusal, after = run("forced", runner="v2", how=how, target="forcing:Slots")

    assert tokens == _forced(plain)
    assert refusal == "target_token 'x' is no int"
    assert after == plain


@pytest.mark.engine
@pytest.mark.parametrize(
    ("runner", "how", "sentence"),
    [
        ("v2", "class", f"ValueError: Batches is not a subclass of {SLOT_INTERFACE}"),
        ("v2", "name", f"ValueError: Batches is not a subclass of {SLOT_INTERFACE}"),
        (
            "v2",
            "entry point",
            (
                f"ValueError: LogitsProcessor plugin forced is not a subclass of {SLOT_INTERFACE}; "
                "V1-interface plugins are not supported by the V2 model runner."
            ),
        ),
        ("v1", "class", "ValueError: Slots is not a subclass of LogitsProcessor"),
        ("v1", "name", "ValueError: Slots must be a subclass of LogitsProcessor"),
        (
            # Here vLLM does not look before it leaps.
            "v1",
            "entry point",
            "TypeError: Slots.__init__() takes 3 positional arguments but 4 were given",
        ),
    ],
)
def test_each_runner_refuses_the_interface_of_the_other(
    run: Callable[..., Any], runner: str, how: str, sentence: str
) -> None:
    """What vLLM says to it, which a user may have to be told in other words."""
    target = "forcing:Batches" if runner == "v2" else "forcing:Slots"
    (raised,) = run("forced", runner=runner, how=how, target=target)

    assert raised == sentence


@pytest.mark.engine
def test_what_the_engine_sends_is_recorded(run: Callable[..., Any]) -> None:
    """Requests enter slots, writes are flushed once a step, and rows tell where they stand."""
    events, sentence = run("recorded", target="forcing:Slots")

    assert sentence == "the sampler holds no instance of Slots"
    entered = [values for kind, values in events if kind == "Entered"]
    assert {values["name"] for values in entered} == {str(number) for number in range(PROMPTS)}
    resumed = [values for values in entered if values["prefill_len"] > values["prompt_len"]]
    assert resumed
    flushed = False
    for kind, values in events:
        if kind == "Applied":
            assert flushed
            assert sorted({row["slot"] for row in values["rows"]}) == sorted(values["slots"])
            for row in values["rows"]:
                unfinished = row["position"] + 1 < row["prefill_len"]
                assert row["length"] == row["position"] + 1
                assert unfinished or len(row["tokens"]) == row["length"]
                assert row["tokens"][row["position"]] == row["token"]
        flushed = kind == "Flushed"


@pytest.mark.server
def test_async_engines_and_forked_servers_run_it(
    run: Callable[..., Any], plain: list[tuple[int, ...]]
) -> None:
    """A plugin acts in ``AsyncLLM`` and in a server that is forked, as it does in ``LLM``."""
    tokens, completions = run("asked", target="forcing:Slots")

    assert tokens == _forced(plain)
    assert completions == _forced(plain)[:2]


@pytest.mark.server
@pytest.mark.slow
def test_a_server_of_its_own_runs_it(run: Callable[..., Any], plain: list[tuple[int, ...]]) -> None:
    """A server that imports everything finds the way to V2 on its path."""
    completions = run("served", target="forcing:Slots", python_path=[])

    assert completions == _forced(plain)[:2]
