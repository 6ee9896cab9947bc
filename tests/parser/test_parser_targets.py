# SPDX-License-Identifier: Apache-2.0
"""Parsers by the names that vLLM knows them by, and files that register one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conformance.parser.roles import REASONING, TOOL, manager, name_of
from conformance.plugin import target as targets
from conformance.plugin.target import Target
from conformance.running.runner import Certification
from conformance.settings import Budget, Settings, UsageError
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

#: A plugin as ``--tool-parser-plugin`` takes it.
REGISTERED = """\
from vllm.tool_parsers import ToolParserManager
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser

@ToolParserManager.register_module("mine")
class Mine(Hermes2ProToolParser):
    pass
"""

pytestmark = pytest.mark.usefixtures("shared_zygote")


def _certified(
    zygote: Zygote, target: str, folder: Path, rules: tuple[str, ...]
) -> tuple[str, str, dict[str, RuleResult]]:
    """Return the generation, the class, and what rules come to."""
    settings = Settings(targets=(target,), budget=Budget.QUICK, report=folder / "report")
    with Certification(settings, zygote=zygote) as certification:
        (plugin,) = certification.load()
        checks = [check for check in certification.checks() if check.rule in rules]
        certification.select(checks)
        found = {check.rule: certification.run(check) for check in checks}
    return plugin.generation, plugin.fqcn, found


def test_the_form_of_a_name_is_a_familys_own() -> None:
    """The module with the registry stands for the class until a worker has found it."""
    assert targets.parse("tool-parser:hermes", Path()) == (
        Target("tool-parser:hermes", "vllm.tool_parsers", "hermes"),
    )
    assert "reasoning-parser:NAME" in targets.forms()


@pytest.mark.parametrize(
    ("target", "generation", "cls"),
    [
        ("tool-parser:hermes", "parser/tool", "Hermes2ProToolParser"),
        ("reasoning-parser:seed_oss", "parser/reasoning", "SeedOssParserReasoningAdapter"),
    ],
)
def test_a_parser_is_certified_by_its_name(
    zygote: Zygote, tmp_path: Path, target: str, generation: str, cls: str
) -> None:
    """The class is the one that vLLM would import."""
    found, fqcn, results = _certified(zygote, target, tmp_path, ("TP-05", "RP-05"))

    assert (found, fqcn.rpartition(":")[2]) == (generation, cls)
    assert [result.verdict for result in results.values()] == [Verdict.PASS]


@pytest.mark.parametrize(("role", "name"), [(TOOL, "hf"), (REASONING, "kimi_k2")])
def test_a_class_has_the_name_of_the_module_that_shows_it(role: str, name: str) -> None:
    """One is defined elsewhere than its manager says, the class of the other has another name."""
    kept = manager(role)
    find = kept.get_tool_parser if role == TOOL else kept.get_reasoning_parser

    assert name_of(find(name), role) == name


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("tool-parser:hermez", "no tool parser 'hermez'. Did you mean 'hermes'?"),
        ("reasoning-parser:seed-oss", "no reasoning parser 'seed-oss'. Did you mean 'seed_oss'?"),
    ],
)
def test_an_unknown_name_is_refused(zygote: Zygote, tmp_path: Path, target: str, said: str) -> None:
    """The sentence names the nearest name."""
    with pytest.raises(UsageError, match=said):
        _certified(zygote, target, tmp_path, ())


def test_what_a_parser_is_made_of_may_be_missing(zygote: Zygote, tmp_path: Path) -> None:
    """A parser whose package is not installed fails nothing: the sentence says what to install."""
    _, _, results = _certified(zygote, "tool-parser:cohere_command3", tmp_path, ("TP-01", "TP-04"))

    assert {found.verdict for found in results.values()} == {Verdict.NOT_VERIFIED}
    assert "pip install 'cohere-melody" in str(results["TP-01"].message)


def test_a_file_that_registers_its_parser_is_certified(zygote: Zygote, tmp_path: Path) -> None:
    """The file that vLLM takes is the file that the harness takes."""
    path = tmp_path / "mine.py"
    path.write_text(REGISTERED, encoding="utf-8")
    found, fqcn, results = _certified(zygote, str(path), tmp_path, ("TP-01", "TP-04"))

    assert (found, fqcn) == ("parser/tool", "mine:Mine")
    assert {result.verdict for result in results.values()} == {Verdict.PASS}
