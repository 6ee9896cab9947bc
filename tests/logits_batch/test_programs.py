# SPDX-License-Identifier: Apache-2.0
"""Every failure comes with a program that shows it without this harness."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from programs import WITHOUT, execute, execute_apart, write
from support import DEFECTIVE, ROOT, Specimen, certify, gallery
from user import CACHE

from conformance.counterexample import helpers
from conformance.engine.environment import host_environment
from conformance.reporting import folder
from conformance.rules import Evidence
from conformance.running.replay import Outcome, replay_case
from conformance.settings import Budget
from conformance.verdict import RuleResult, Verdict

if TYPE_CHECKING:
    from conformance.worker import Zygote

#: Reads what it was told when it is too late to refuse it.
READS_LATE = """\
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates


class ReadsLate(LogitsProcessor):
    @classmethod
    def validate_params(cls, sampling_params):
        grammar = (sampling_params.extra_args or {}).get("grammar", "")
        if not isinstance(grammar, str):
            raise ValueError("grammar must be a text")

    def __init__(self, vllm_config, device, is_pin_memory):
        self.rows = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        process_dict_updates(self.rows, batch_update, self.row)

    @staticmethod
    def row(params, prompt, outputs):
        return (params.extra_args or {}).get("grammar")

    def apply(self, logits):
        for index, grammar in self.rows.items():
            logits[index, 7] += len(grammar.encode("ascii"))
        return logits
"""

SPECIMENS = {
    specimen.name: specimen
    for specimen in gallery(DEFECTIVE)
    if specimen.evidence is Evidence.SIMULATOR and specimen.name not in WITHOUT
}

#: Plugins that are correct and take the same parameters as a defective one.
FIXED = {
    "keeps_replaced_occupant": ("target_token", "TargetTokenLogitsProcessor"),
    "leaves_dead_destination": ("target_token", "TargetTokenLogitsProcessor"),
    "has_no_validate_params": ("target_token", "TargetTokenLogitsProcessor"),
    "returns_untouched_input": ("target_token", "TargetTokenLogitsProcessor"),
    "seeds_numpy_at_import": ("target_token", "TargetTokenLogitsProcessor"),
    "takes_sigterm": ("target_token", "TargetTokenLogitsProcessor"),
    "takes_sigterm_with_first_request": ("target_token", "TargetTokenLogitsProcessor"),
    "seeds_torch_in_every_step": ("target_token", "TargetTokenLogitsProcessor"),
}

#: Plugins that load the tokenizer of the model, by generation and rule; the last one does nothing
#: where there is none.
TOKENIZING = {
    ("logits/batch", "LB-04"): """
from transformers import AutoTokenizer
from reference_plugins.logits_batch.target_token import TargetTokenLogitsProcessor

class Plugin(TargetTokenLogitsProcessor):
    def __init__(self, vllm_config, *rest):
        super().__init__(vllm_config, *rest)
        self.space = AutoTokenizer.from_pretrained(vllm_config.model_config.tokenizer).encode(" ")

    def apply(self, logits):
        logits[:, self.space] = 0.0
        return super().apply(logits)
""",
    ("logits/slot", "LS-04"): """
from vllm.tokenizers import cached_tokenizer_from_config
from reference_plugins.logits_slot.target_token import TargetTokenSlotLogitsProcessor

class Plugin(TargetTokenSlotLogitsProcessor):
    def __init__(self, vllm_config, req_states):
        super().__init__(vllm_config, req_states)
        self.space = cached_tokenizer_from_config(vllm_config.model_config).encode(" ")

    def apply(self, logits, ctx):
        logits[:, self.space] = 0.0
        return super().apply(logits, ctx)
""",
    ("logits/batch", "LB-03"): """
from transformers import AutoTokenizer
from reference_plugins.logits_batch.target_token import TargetTokenLogitsProcessor

class Plugin(TargetTokenLogitsProcessor):
    def __init__(self, vllm_config, *rest):
        super().__init__(vllm_config, *rest)
        try:
            name = vllm_config.model_config.tokenizer
            self.space = AutoTokenizer.from_pretrained(name).encode(" ")
        except Exception:
            self.space = []

    def apply(self, logits):
        if not self.space:
            return logits
        if len(logits) > 1:
            logits[:, self.space] = 0.0
        return super().apply(logits)
""",
}


def failing(zygote: Zygote, specimen: Specimen, place: Path) -> RuleResult:
    """Return the failure of a defective plugin, with as few examples as show it."""
    rule = str(specimen.rule)
    result = certify(zygote, specimen, place, rules={rule}, budget=Budget.QUICK)[rule]
    if result.verdict is not Verdict.FAIL:
        result = certify(zygote, specimen, place, rules={rule})[rule]
    assert result.verdict is Verdict.FAIL, result.message
    return result


@pytest.mark.parametrize("name", FIXED)
def test_a_program_says_when_the_fault_is_gone(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """With a correct plugin in the place of the defective one, the same program exits with 0."""
    specimen = SPECIMENS[name]
    module, qualname = FIXED[name]
    path = write(specimen, failing(zygote, specimen, tmp_path), tmp_path)
    case = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    package = f"reference_plugins.logits_batch.{module}"
    case["plugin"] = {"module": package, "qualname": qualname, "root": str(ROOT)}
    folder.write_case(case, tmp_path)

    status, said = execute(zygote, path)

    assert status == 0, said
    assert said.splitlines()[-1].startswith("OK: ")


@pytest.mark.parametrize(
    "name", ["raises_at_import", "keeps_replaced_occupant", "depends_on_clock"]
)
def test_a_program_needs_nothing_but_python(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """``python program.py`` in an empty folder, with an environment that knows nothing of us."""
    specimen = SPECIMENS[name]
    path = write(specimen, failing(zygote, specimen, tmp_path), tmp_path)
    place = tmp_path / "elsewhere"
    place.mkdir()
    prepared = host_environment(extra={"VLLM_CONFORMANCE_CACHE": CACHE})
    kept = ("PATH", "HOME", "LD_LIBRARY_PATH", "LD_PRELOAD")
    environment = {key: os.environ[key] for key in kept if key in os.environ}
    # Where vLLM keeps what it has learnt about model classes; learning it again takes long.
    environment["VLLM_CACHE_ROOT"] = prepared["VLLM_CACHE_ROOT"]
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 1, done.stderr
    assert "FAILS: " in done.stdout
    assert "conformance" not in done.stderr.replace(str(ROOT), "")


@pytest.mark.parametrize("name", ["keeps_replaced_occupant", "answers_none"])
@pytest.mark.usefixtures("shared_zygote")
def test_a_case_is_played_again(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """A history and calls alike: it still fails, it is fixed, or it fails in another way."""
    original = Path(SPECIMENS[name].target.partition(":")[0])
    plugin = tmp_path / original.name
    shutil.copy(original, plugin)
    target = f"{plugin}:{SPECIMENS[name].target.rpartition(':')[2]}"
    specimen = attrs.evolve(SPECIMENS[name], target=target)
    path = write(specimen, failing(zygote, specimen, tmp_path), tmp_path)

    assert replay_case(path, python_path=())[0] is Outcome.STILL_FAILS

    source = plugin.read_text(encoding="utf-8")
    correct = (ROOT / "reference_plugins/logits_batch/target_token.py").read_text(encoding="utf-8")
    correct = correct.replace("TargetTokenLogitsProcessor", target.rpartition(":")[2])
    plugin.write_text(correct, encoding="utf-8")
    assert replay_case(path.with_suffix(".json"), python_path=())[0] is Outcome.FIXED

    for method in ("apply(self, logits):", "is_argmax_invariant(self):"):
        source = source.replace(f"def {method}", f"def {method}\n        raise OSError")
    plugin.write_text(source, encoding="utf-8")
    assert replay_case(path, python_path=())[0] is Outcome.CHANGED

    plugin.write_text("import nothing_of_that_name\n", encoding="utf-8")
    assert replay_case(path, python_path=())[0] is Outcome.CHANGED


def test_what_is_raised_instead_is_another_failure(zygote: Zygote, tmp_path: Path) -> None:
    """A case does not still fail where another call, or another exception, ends the engine."""
    plugin = tmp_path / "reads_late.py"
    source = READS_LATE
    plugin.write_text(source, encoding="utf-8")
    profile = {"on": [{"extra_args": {"grammar": "\u00e9"}}], "off": [{}]}
    specimen = Specimen(f"{plugin}:ReadsLate", "LB-16", profile)
    path = write(specimen, failing(zygote, specimen, tmp_path), tmp_path).with_suffix(".json")
    outcome, said = replay_case(path, python_path=())

    assert outcome is Outcome.STILL_FAILS, said
    assert "UnicodeEncodeError" in said

    plugin.write_text(source.replace("grammar.encode", "grammar.coded"), encoding="utf-8")
    outcome, said = replay_case(path, python_path=())
    assert outcome is Outcome.CHANGED, said
    assert "AttributeError" in said


@pytest.mark.parametrize("padding", [0, 12])
@pytest.mark.parametrize("seed", [1, 20261121])
def test_the_logits_of_programs_are_those_of_the_bench(
    zygote: Zygote, seed: int, padding: int, tmp_path: Path
) -> None:
    """Programs rebuild the rows bit for bit, ties and masks included."""
    logits = {"vocabulary": 512, "tokens": [67, 5, 7, 11, 13]}
    (source,), body = helpers.prepared({"seed": seed, "logits": logits}, "rows(0)")
    job = zygote.fork(
        "program_job:logits",
        {"source": f"{source}\n{body}", "seed": seed, "padding": padding, **logits},
        log=tmp_path / "job.log",
        directory=tmp_path,
        python_path=[str(Path(__file__).parent)],
    )
    equal, stride = job.ask("logits", limit=60)
    job.close()

    assert equal
    assert stride == (512 + padding, 1)


def test_parameters_that_json_cannot_say_reach_the_program(zygote: Zygote, tmp_path: Path) -> None:
    """Infinity is in the program what it is in the profile."""
    specimen = SPECIMENS["keeps_replaced_occupant"]
    on: dict[str, Any] = {"extra_args": {"target_token": 67, "bound": float("inf")}}
    odd = attrs.evolve(specimen, profile={"on": [on], "off": [{}]})
    path = write(odd, failing(zygote, odd, tmp_path), tmp_path)

    assert 'extra_args={"target_token": 67, "bound": float("inf")}' in path.read_text("utf-8")
    assert execute(zygote, path)[0] == 1


@pytest.mark.parametrize(("generation", "rule"), TOKENIZING)
def test_a_program_has_the_tokenizer_that_a_plugin_loads(
    zygote: Zygote, generation: str, rule: str, tmp_path: Path
) -> None:
    """The program writes it where the plugin looks for it, and shows the same failure."""
    (tmp_path / "plugin.py").write_text(TOKENIZING[generation, rule], encoding="utf-8")
    profile = {"on": [{"extra_args": {"target_token": 9}}], "off": [{}]}
    target = str(tmp_path / "plugin.py:Plugin")
    specimen = Specimen(target, rule, profile, generation=generation)

    path = write(specimen, failing(zygote, specimen, tmp_path), tmp_path)
    done = execute_apart(path, python_path=[str(ROOT)])

    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILS: " in done.stdout
    assert "tokenizing_config(" in path.read_text(encoding="utf-8")
