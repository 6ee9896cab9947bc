# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance bench``, as its users meet it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from support import DEFECTIVE, DEFECTIVE_HOOK, DEFECTIVE_MODALITY, ROOT

from conformance.cli import main
from conformance.reporting import page, performance

if TYPE_CHECKING:
    from pathlib import Path

TARGET = ROOT / "reference_plugins" / "logits_batch" / "target_token.py"
PROCESSOR = ROOT / "reference_plugins" / "tiny_vlm" / "model.py"
PARSERS = ROOT / "reference_plugins" / "parser"
SLOT = ROOT / "reference_plugins" / "logits_slot" / "target_token.py"

RAISES = """\
from vllm.v1.sample.logits_processor import LogitsProcessor


class RaisesInLargeBatches(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.rows = set()

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        if batch_update:
            self.rows |= {index for index, *_ in batch_update.added}

    def apply(self, logits):
        if len(logits) > 100:
            raise RuntimeError("no room for so many")
        logits[:, 3] += 1.0
        return logits
"""

WAITS = RAISES.replace("len(logits) > 100", "logits[0, 0].item() is None")

ASLEEP = RAISES.replace("logits[:, 3] += 1.0", "pass")


def run(*arguments: object) -> Result:
    """Run the command in this process; workers import vLLM."""
    return CliRunner().invoke(main, ["bench", *map(str, arguments)])


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A certificate, and beside it what was measured afterwards; with what was printed."""
    folder = tmp_path_factory.mktemp("bench")
    options = ["--conformance-report", str(folder), "--budget", "quick"]
    certified = CliRunner().invoke(main, ["certify", str(TARGET), *options])
    assert certified.exit_code == 0, certified.output
    measured = run(TARGET, *options, "--against", f"{TARGET}:TargetTokenLogitsProcessor")
    assert measured.exit_code == 0, measured.output
    (place,) = folder.iterdir()
    return place, measured.output


@pytest.mark.slow
def test_figures_lie_beside_the_certificate(report: tuple[Path, str]) -> None:
    """With the machine, the versions, and intervals that hold their medians."""
    place, said = report
    document = json.loads((place / performance.FILE_NAME).read_text("utf-8"))
    assert document["environment"]["vllm"]
    assert document["environment"]["processor"]
    assert document["growth"]["name"] == "linear in batch x vocabulary"
    for cost in document["steps"]:
        low, middle, high = cost["added_seconds"]
        assert low <= middle <= high
        assert cost["floor"] >= 0
        busy = cost["share"] == 1
        assert not busy or low > 0, "what works on all rows takes longer than nothing"
    assert "linear in batch x vocabulary" in said
    assert document["environment"]["processor"] in said


@pytest.mark.slow
def test_a_plugin_against_itself_is_not_another(report: tuple[Path, str]) -> None:
    """Most of its steps cannot be told apart, and what is told apart is little."""
    place, _ = report
    document = json.loads((place / performance.FILE_NAME).read_text("utf-8"))
    told_apart = [cost for cost in document["steps"] if cost["against_differs"]]
    assert len(told_apart) <= 2, told_apart


@pytest.mark.slow
def test_the_certificate_has_a_line_about_cost(report: tuple[Path, str]) -> None:
    """It names machine and versions, and the certificate still verifies."""
    place, _ = report
    certificate = json.loads((place / "certificate.json").read_text("utf-8"))
    (note,) = [note for note in certificate["notes"] if note["about"].startswith("What it costs")]
    assert certificate["environment"]["vllm"] in note["about"]
    assert any("A step's cost grows" in sentence for sentence in note["says"])
    verified = CliRunner().invoke(main, ["verify", str(place / "certificate.json")])
    assert verified.exit_code == 0, verified.output


@pytest.mark.slow
def test_waits_for_a_gpu_are_said_where_there_is_one(report: tuple[Path, str]) -> None:
    """On a CPU there are none to count; files of older releases do not name them."""
    place, _ = report
    document = json.loads((place / performance.FILE_NAME).read_text("utf-8"))
    said = "\n".join(performance.sentences(document))
    cost = next(each for each in document["steps"] if f"A step ({each['name']})" in said)
    assert cost["waits"] is None
    assert "waits for the GPU" not in said
    cost["waits"] = 3
    assert any("waits for the GPU 3 times" in each for each in performance.sentences(document))
    del cost["waits"]
    assert not any("waits for the GPU" in each for each in performance.sentences(document))


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no CUDA GPU on this machine")
def test_waits_for_a_gpu_are_counted(tmp_path: Path) -> None:
    """A plugin that reads a number back in each step is told of it."""
    (tmp_path / "waits.py").write_text(WAITS)
    options = ["--conformance-report", tmp_path / "report", "--budget", "quick", "--json"]
    done = run(tmp_path / "waits.py", *options, "--device", "cuda")
    (document,) = json.loads(done.stdout)
    assert all(cost["waits"] == 1 for cost in document["steps"])


@pytest.mark.slow
def test_the_page_has_a_plot_for_each_figure(report: tuple[Path, str]) -> None:
    """Batch, vocabulary, and the comparison; each says in words what it shows."""
    place, _ = report
    source = (place / page.FILE_NAME).read_text("utf-8")
    assert source.count('<svg class="plot ') == 3
    assert source.count("<figcaption>") == 3
    assert 'aria-label="1 requests: ' in source


@pytest.mark.slow
def test_pytest_benchmark_compares_two_runs(report: tuple[Path, str], tmp_path: Path) -> None:
    """Its own command reads what is written for it."""
    place, _ = report
    earlier = tmp_path / "0001_earlier.json"
    earlier.write_bytes((place / performance.PYTEST_FILE_NAME).read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "compare", "--columns=median,rounds",
         str(earlier), str(place / performance.PYTEST_FILE_NAME)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "steps: 16 requests, 32000 tokens, 50% on" in done.stdout


@pytest.mark.slow
def test_benchmark_compare_of_pytest_reads_a_run(
    report: tuple[Path, str], pytester: pytest.Pytester
) -> None:
    """Where pytest-benchmark looks for earlier runs of its own."""
    place, _ = report
    pytester.makepyfile("def test_sum(benchmark):\n    benchmark(sum, [1, 2])\n")
    saved = pytester.mkdir(".benchmarks") / "0001_plugin.json"
    saved.write_bytes((place / performance.PYTEST_FILE_NAME).read_bytes())
    result = pytester.runpytest_subprocess("--benchmark-compare=0001", "-p", "no:xdist")
    result.assert_outcomes(passed=1)
    result.stderr.fnmatch_lines(["*Comparing against benchmarks from: 0001_plugin.json*"])


@pytest.mark.slow
def test_slot_plugins_are_measured(tmp_path: Path) -> None:
    """With the same loads, and as JSON for programs."""
    done = run(SLOT, "--budget", "quick", "--conformance-report", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    (document,) = json.loads(done.stdout)
    assert document["plugin"]["generation"] == "logits/slot"
    assert {cost["requests"] for cost in document["steps"]} == {1, 16, 64, 256}
    assert not document["failures"]


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.timeout(600)
def test_engines_with_and_without_the_plugin_take_turns(tmp_path: Path) -> None:
    """Tokens take the time of the wall and of the processor, and the noise is said."""
    done = run(
        TARGET, "--measure", "offline", "--budget", "quick", "--conformance-report", tmp_path,
        "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    (document,) = json.loads(done.stdout)
    assert [found["figure"] for found in document["throughput"]] == [
        "seconds per token",
        "processor seconds per token",
    ]
    for found in document["throughput"]:
        assert found["where"] == "offline"
        assert found["floor"] > 0
        low, _, high = found["overhead"]
        assert found["measurable"] == (low > 0 or high < 0) or not found["measurable"]


def test_what_raises_is_said_in_a_sentence(tmp_path: Path) -> None:
    """The rest is measured, nothing is lost, and the status tells."""
    plugin = tmp_path / "raises.py"
    plugin.write_text(RAISES, encoding="utf-8")
    done = run(plugin, "--budget", "quick", "--conformance-report", tmp_path / "report")
    assert done.exit_code == 2, done.output
    assert "RuntimeError: no room for so many" in done.output
    assert "Traceback" not in done.output
    (place,) = (tmp_path / "report").iterdir()
    document = json.loads((place / performance.FILE_NAME).read_text("utf-8"))
    assert {cost["requests"] for cost in document["steps"]} == {1, 16, 64}


def test_items_are_measured_in_turns(tmp_path: Path) -> None:
    """By size and number; what is in the cache takes less than processing it."""
    folder = tmp_path / "report"
    done = run(PROCESSOR, "--budget", "quick", "--conformance-report", folder)

    assert done.exit_code == 0, done.output
    (place,) = folder.iterdir()
    document = json.loads((place / performance.FILE_NAME).read_text("utf-8"))
    found = {(each["where"], each["crowd"]): each for each in document["throughput"]}
    assert {where.partition(",")[0] for where, _ in found} == {
        "items for text",
        "cached",
        "encoded at once",
    }
    assert {crowd for _, crowd in found} == {1, 4}
    several = next(each for (where, n), each in found.items() if "cached" in where and n == 4)
    # The median of the turns: other processes widen the interval, and change little of this.
    assert several["overhead"][1] < 0
    assert "items at once, seconds per item" in done.output.replace("\n", " ")


SLOW_PARSER = """\
from tagged import TaggedCallsParser


class ReadsAllAgain(TaggedCallsParser):
    def extract_tool_calls_streaming(self, previous, current, delta, *rest):
        for letter in current:
            sorted([letter, delta])
        return super().extract_tool_calls_streaming(previous, current, delta, *rest)
"""


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("tagged_calls.py", {"content", "an argument", "a list of calls"}),
        ("thinking.py:ThinkingParser", {"content", "reasoning"}),
    ],
)
def test_tokens_of_answers_are_measured_by_length(
    target: str, parts: set[str], tmp_path: Path
) -> None:
    """With intervals, and the noise of a parser that does nothing against itself."""
    done = run(PARSERS / target, "--budget", "quick", "--conformance-report", tmp_path)

    assert done.exit_code == 0, done.output
    (place,) = tmp_path.iterdir()
    document = json.loads((place / performance.FILE_NAME).read_text("utf-8"))
    assert {(each["where"], each["crowd"]) for each in document["throughput"]} == {
        (f"behind {part}", length) for part in parts for length in (64, 1024)
    }
    for each in document["throughput"]:
        low, middle, high = each["added_seconds"]
        assert low <= middle <= high
        assert each["floor"] > 0
        assert 0 < each["without_seconds"] < 0.01
    assert all(f"Behind {part} of 1,024 tokens, the next one" in done.output for part in parts)
    assert document["environment"]["processor"] in done.output


def test_a_parser_that_reads_all_again_is_seen_to_grow(tmp_path: Path) -> None:
    """A token costs many times as much behind an answer that is sixteen times as long."""
    path = tmp_path / "slow_parser.py"
    source = (PARSERS / "tagged_calls.py").read_text(encoding="utf-8")
    (tmp_path / "tagged.py").write_text(source, encoding="utf-8")
    path.write_text(SLOW_PARSER, encoding="utf-8")
    folder = tmp_path / "report"
    done = run(f"{path}:ReadsAllAgain", "--budget", "quick", "--conformance-report", folder)

    assert done.exit_code == 0, done.output
    (place,) = folder.iterdir()
    document = json.loads((place / performance.FILE_NAME).read_text("utf-8"))
    for found in performance.by_length(document).values():
        short, long = (each["added_seconds"] for each in found)
        assert long[0] > 3 * short[2], "each end of the one is far from the other's"
    said = [line for line in performance.sentences(document) if "times as much" in line]
    assert len(said) == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([PROCESSOR, "--measure", "server"], "items can be measured"),
        ([PARSERS / "tagged_calls.py", "--measure", "steps"], "tokens can be measured"),
        ([TARGET, "--measure", "step"], "--measure 'step' is unknown"),
        ([TARGET, "--measure", ","], "--measure is empty"),
        ([DEFECTIVE_HOOK / "fills_one_list.py", "--measure", "steps"], "server can be measured"),
        ([DEFECTIVE_MODALITY / "crops_at_random.py"], "what is measured is logits/batch"),
        ([TARGET, "--against", SLOT], "name a plugin of the same interface"),
    ],
)
def test_mistakes_get_a_sentence(arguments: list[Any], sentence: str) -> None:
    """With exit status 4 and no traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "conformance.cli", "bench", *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert sentence in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "extra_args", "sentence"),
    [
        ("raises_at_import.py", "target_token = 67", "cannot be measured"),
        ("exits_process.py", "limit = 3", "the process ended"),
    ],
)
def test_a_plugin_that_does_not_run_is_said_in_a_sentence(
    name: str, extra_args: str, sentence: str, tmp_path: Path
) -> None:
    """It raises, or takes its process with it; the harness has not failed."""
    profile = tmp_path / "profile.toml"
    on = f"[logits-processor]\non = [{{ extra_args = {{ {extra_args} }} }}]\n"
    profile.write_text(on, encoding="utf-8")
    options = ["--budget", "quick", "--conformance-report", tmp_path, "--plugin-profile", profile]
    done = run(DEFECTIVE / name, *options)
    assert done.exit_code in (2, 4), done.output
    assert sentence in done.output
    assert "Traceback" not in done.output


def test_a_plugin_that_nothing_switches_on_is_not_measured(tmp_path: Path) -> None:
    """Figures of a plugin that does nothing would say nothing."""
    plugin = tmp_path / "asleep.py"
    plugin.write_text(ASLEEP, encoding="utf-8")
    done = run(plugin, "--budget", "quick", "--conformance-report", tmp_path / "report")
    assert done.exit_code == 4
    assert "nothing was found that switches it on" in done.output
