# SPDX-License-Identifier: Apache-2.0
"""Entry points of ``vllm.general_plugins``, whose functions register models."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

from conformance.engine.entry_points import synthetic_distribution
from conformance.running.runner import Certification
from conformance.settings import Budget, Settings, UsageError
from conformance.verdict import Verdict
from reference_plugins.tiny_vlm.checkpoint import write

if TYPE_CHECKING:
    from pathlib import Path

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


NUMBER = 3
"""


def _install(name: str, reference: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Put a distribution with one entry point on the path: vLLM calls all that there are."""
    (folder / "mm_entry.py").write_text(FUNCTIONS, encoding="utf-8")
    synthetic_distribution(
        folder, name="mm-entries", group="vllm.general_plugins", entries={name: reference}
    )
    patch.syspath_prepend(str(folder))


def _certification(zygote: Zygote, name: str, folder: Path) -> Certification:
    settings = Settings(
        targets=(f"entry-point:vllm.general_plugins/{name}",),
        budget=Budget.QUICK,
        report=folder / "report",
        python_path=tuple(sys.path),
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
