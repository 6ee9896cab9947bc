# SPDX-License-Identifier: Apache-2.0
"""Entry points of ``vllm.general_plugins``, whose functions register models."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import programs
import pytest

from conformance.engine.entry_points import synthetic_distribution
from conformance.reporting import folder
from conformance.running.replay import Outcome, replay_case
from conformance.running.runner import Certification
from conformance.settings import Budget, Settings, UsageError
from conformance.verdict import Verdict
from reference_plugins.tiny_vlm.checkpoint import write

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.plugin.target import Plugin
    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

FUNCTIONS = """\
def nothing():
    pass


def raises():
    raise OSError("no weights")


def text_only():
    from vllm import ModelRegistry

    ModelRegistry.register_model("Texts", "vllm.model_executor.models.llama:LlamaForCausalLM")


def calls():
    from vllm.tool_parsers import ToolParserManager

    module = "vllm.tool_parsers.hermes_tool_parser"
    ToolParserManager.register_lazy_module("mine", module, "Hermes2ProToolParser")


def thoughts():
    from vllm.reasoning import ReasoningParserManager
    from vllm.reasoning.deepseek_r1_reasoning_parser import DeepSeekR1ReasoningParser

    ReasoningParserManager.register_module("mine", module=DeepSeekR1ReasoningParser)


def makes():
    from vllm import ModelRegistry
    from vllm.multimodal import MULTIMODAL_REGISTRY

    import reference_plugins.tiny_vlm.configuration
    from reference_plugins.tiny_vlm.model import TinyVlm
    from reference_plugins.tiny_vlm.processing import (
        TinyVlmDummyInputs,
        TinyVlmInfo,
        TinyVlmProcessor,
    )

    @MULTIMODAL_REGISTRY.register_processor(
        TinyVlmProcessor, info=TinyVlmInfo, dummy_inputs=TinyVlmDummyInputs
    )
    class Made(TinyVlm):
        def embed_multimodal(self, **kwargs):
            return [rows[:KEPT] for rows in super().embed_multimodal(**kwargs)]

    ModelRegistry.register_model("TinyVlm", Made)


KEPT = 10**9
NUMBER = 3
Made = "another thing of that name"
"""


def _install(name: str, reference: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Put a distribution with one entry point on the path: vLLM calls all that there are."""
    (folder / "mm_entry.py").write_text(FUNCTIONS, encoding="utf-8")
    synthetic_distribution(
        folder, name="mm-entries", group="vllm.general_plugins", entries={name: reference}
    )
    patch.syspath_prepend(str(folder))


def _certification(
    zygote: Zygote, name: str, folder: Path, profile: str | None = None
) -> Certification:
    settings = Settings(
        targets=(f"entry-point:vllm.general_plugins/{name}",),
        budget=Budget.QUICK,
        report=folder / "report",
        python_path=tuple(sys.path),
        profile=profile,
    )
    return Certification(settings, zygote=zygote)


def test_a_model_is_certified_by_its_entry_point(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference model is found by what registers it, with the profile beside its class."""
    _install("tiny_vlm", "reference_plugins.tiny_vlm:register", tmp_path, monkeypatch)
    with _certification(zygote, "tiny_vlm", tmp_path) as certification:
        (plugin,) = certification.load()
        assert plugin.broken is None
        assert (plugin.generation, plugin.fqcn) == (
            "mm/processor",
            "reference_plugins.tiny_vlm.model:TinyVlm",
        )
        checks = [c for c in certification.checks() if c.rule in ("MM-01", "MM-21")]
        certification.select(checks)
        results = [certification.run(check) for check in checks]
    said = [result.message for result in results]
    assert [result.verdict for result in results] == [Verdict.PASS, Verdict.PASS], said


def test_a_model_that_the_entry_point_makes_is_certified(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No import reaches its class: certifying, the program and replaying call what makes it."""
    _install("makes", "mm_entry:makes", tmp_path, monkeypatch)
    file, case = tmp_path / "mm_entry.py", tmp_path / "MM-21.json"
    profile = tmp_path / "profile.toml"
    profile.write_text('[multimodal]\nmodel = "reference_plugins.tiny_vlm.checkpoint:write"\n')

    def certified() -> tuple[Plugin, dict[str, RuleResult]]:
        with _certification(zygote, "makes", tmp_path, str(profile)) as certification:
            (plugin,) = certification.load()
            checks = [c for c in certification.checks() if c.rule in ("MM-01", "MM-21", "MM-79")]
            certification.select(checks)
            return plugin, {check.rule: certification.run(check) for check in checks}

    plugin, results = certified()
    assert (plugin.fqcn, plugin.known_as) == ("mm_entry:Made_", "TinyVlm")
    said = [result.message for result in results.values()]
    assert {result.verdict for result in results.values()} == {Verdict.PASS}, said

    file.write_text(FUNCTIONS.replace("10**9", "3"), encoding="utf-8")
    plugin, results = certified()
    failure = results["MM-21"]
    assert failure.verdict is Verdict.FAIL, failure.message
    document = {
        "schema": 1,
        "rule": "MM-21",
        "target": plugin.target,
        "generation": plugin.generation,
        "message": failure.message,
        "profile": str(profile),
        "plugin": folder.place(plugin),
        "counterexample": failure.counterexample,
    }
    folder.write_case(document, tmp_path)
    path = tuple(sys.path)
    assert programs.execute(zygote, case.with_suffix(".py"))[0] == 1
    assert replay_case(case, python_path=path)[0] is Outcome.STILL_FAILS
    file.write_text(FUNCTIONS, encoding="utf-8")
    assert programs.execute(zygote, case.with_suffix(".py"))[0] == 0
    assert replay_case(case, python_path=path)[0] is Outcome.FIXED


@pytest.mark.parametrize(
    ("name", "generation"),
    [("calls", "parser/tool"), ("thoughts", "parser/reasoning")],
)
def test_a_parser_is_certified_by_its_entry_point(
    zygote: Zygote, name: str, generation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """General plugins register parsers, too, by the class or by its name."""
    _install(name, f"mm_entry:{name}", tmp_path, monkeypatch)
    with _certification(zygote, name, tmp_path) as certification:
        (plugin,) = certification.load()
    assert plugin.broken is None
    assert plugin.generation == generation
    assert plugin.module.startswith("vllm.")


def test_one_that_raises_fails_to_load(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with the function is said in a sentence, and fails the loading rule."""
    _install("raises", "mm_entry:raises", tmp_path, monkeypatch)
    with _certification(zygote, "raises", tmp_path) as certification:
        (plugin,) = certification.load()
    assert "mm_entry:raises raised OSError: no weights" in str(plugin.broken)


@pytest.mark.parametrize("name", ["nothing", "text_only", "NUMBER"])
def test_one_that_registers_something_else_is_not_judged(
    zygote: Zygote, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most general plugins are none of what is certified here, and break no rule by it."""
    _install(name, f"mm_entry:{name}", tmp_path, monkeypatch)
    with (
        _certification(zygote, name, tmp_path) as certification,
        pytest.raises(UsageError, match=f"mm_entry:{name} registers neither a model with"),
    ):
        certification.load()


def test_a_model_is_certified_by_its_folder(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM knows the class of the architecture, and the folder is the checkpoint."""
    _install("tiny_vlm", "reference_plugins.tiny_vlm:register", tmp_path, monkeypatch)
    model = tmp_path / "a model"
    model.mkdir()
    write(model)
    settings = Settings(
        targets=(str(model),),
        budget=Budget.QUICK,
        report=tmp_path / "report",
        python_path=tuple(sys.path),
    )
    with Certification(settings, zygote=zygote) as certification:
        (plugin,) = certification.load()
        assert plugin.fqcn == "reference_plugins.tiny_vlm.model:TinyVlm"
        checks = [c for c in certification.checks() if c.rule in ("MM-01", "MM-21")]
        certification.select(checks)
        results = [certification.run(check) for check in checks]
        assert certification.contexts[plugin.target]["profile"]["model"] == str(model)
    said = [result.message for result in results]
    assert [result.verdict for result in results] == [Verdict.PASS, Verdict.PASS], said
    assert (model / "config.json").is_file()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('{"architectures": ["LlavaForConditionalGeneratio"]}', "Did you mean 'LlavaForCondit"),
        ('{"architectures": []}', "config.json names no architectures."),
        ("{", "config.json is no JSON object: "),
    ],
    ids=["unknown", "none", "damaged"],
)
def test_a_folder_that_is_no_model_is_a_mistake(
    zygote: Zygote, tmp_path: Path, config: str, said: str
) -> None:
    """It is told in a sentence that names the file or the nearest architecture."""
    (tmp_path / "config.json").write_text(config)
    settings = Settings(targets=(str(tmp_path),), report=tmp_path / "report")
    with (
        Certification(settings, zygote=zygote) as certification,
        pytest.raises(UsageError, match=re.escape(said)),
    ):
        certification.load()
