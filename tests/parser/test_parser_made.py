# SPDX-License-Identifier: Apache-2.0
"""Parsers that a function makes, so that no import reaches their class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import programs
import pytest
from support import Specimen, certify

from conformance.reporting import folder
from conformance.rules import Evidence
from conformance.running.replay import Outcome, replay_case
from conformance.running.runner import Certification
from conformance.settings import Budget, Settings, UsageError
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.plugin.target import Plugin
    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

#: A plugin as ``--tool-parser-plugin`` takes it, whose class is registered by what makes it.
CALLS = """\
from vllm.tool_parsers import ToolParserManager
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser


def register():
    class Mine(Hermes2ProToolParser):
        def extract_tool_calls(self, model_output, request):
            return super().extract_tool_calls(model_output.replace("x", LETTER), request)

    ToolParserManager.register_module(["mine", "ours"], module=Mine)


LETTER = "x"
register()
"""

#: Another one, by a decorator, and beside it a class with a name that is not its own.
THOUGHTS = """\
from reference_plugins.parser.thinking import ThinkingParser
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser


def registered(make):
    ReasoningParserManager.register_module("thinks", module=make(ThinkingParser))
    return make


@registered
def made(base):
    class Made(base):
        pass

    return Made


Calls = made(Hermes2ProToolParser)
"""

#: Two that a function of vLLM makes.
ADAPTED = """\
from vllm.parser.engine.adapters import make_adapters
from vllm.parser.engine.registered_adapters import Gemma4ParserToolAdapter
from vllm.parser.glm47_moe import Glm47MoeParser


class Mine(Glm47MoeParser):
    pass


Thinks, Calls = make_adapters(Mine)
"""

pytestmark = pytest.mark.usefixtures("shared_zygote")


def _certification(zygote: Zygote, target: str, place: Path) -> Certification:
    settings = Settings(targets=(target,), budget=Budget.QUICK, report=place / "report")
    return Certification(settings, zygote=zygote)


def _judged(
    zygote: Zygote, target: str, place: Path, *rules: str
) -> tuple[Plugin, dict[str, RuleResult]]:
    with _certification(zygote, target, place) as certification:
        (plugin,) = certification.load()
        checks = [check for check in certification.checks() if check.rule in rules]
        certification.select(checks)
        return plugin, {check.rule: certification.run(check) for check in checks}


@pytest.mark.parametrize("name", ["", ":mine", ":Mine"])
def test_a_parser_that_a_function_makes_is_certified(
    zygote: Zygote, name: str, tmp_path: Path
) -> None:
    """The file finds it, and so do the name that it is registered by, and that of its class."""
    path = tmp_path / "calls.py"
    path.write_text(CALLS, encoding="utf-8")
    plugin, results = _judged(zygote, f"{path}{name}", tmp_path, "TP-01", "TP-03", "TP-17")

    assert (plugin.generation, plugin.fqcn) == ("parser/tool", "calls:Mine")
    said = [result.message for result in results.values()]
    assert {result.verdict for result in results.values()} == {Verdict.PASS}, said


def test_what_fails_is_shown_and_played_again(zygote: Zygote, tmp_path: Path) -> None:
    """The program and the replay have its file register it, as vLLM does."""
    path, case = tmp_path / "calls.py", tmp_path / "TP-03.json"
    path.write_text(CALLS.replace('= "x"', '= "y"'), encoding="utf-8")
    plugin, results = _judged(zygote, str(path), tmp_path, "TP-03")
    failure = results["TP-03"]
    assert failure.verdict is Verdict.FAIL, failure.message
    document = {
        "schema": 1,
        "rule": "TP-03",
        "target": plugin.target,
        "generation": plugin.generation,
        "message": failure.message,
        "plugin": folder.place(plugin),
        "counterexample": failure.counterexample,
    }
    folder.write_case(document, tmp_path)

    for source, status, outcome in (
        (path.read_text(encoding="utf-8"), 1, Outcome.STILL_FAILS),
        (CALLS, 0, Outcome.FIXED),
    ):
        path.write_text(source, encoding="utf-8")
        assert programs.execute(zygote, case.with_suffix(".py"))[0] == status
        assert replay_case(case, python_path=())[0] is outcome


def test_several_of_a_file_are_certified(zygote: Zygote, tmp_path: Path) -> None:
    """One is registered, and the other has a name in the file that finds it."""
    path = tmp_path / "thoughts.py"
    path.write_text(THOUGHTS, encoding="utf-8")
    with _certification(zygote, str(path), tmp_path) as certification:
        found = {(plugin.generation, plugin.fqcn) for plugin in certification.load()}
        made = [check for check in certification.checks() if check.rule in ("TP-01", "RP-01")]
        certification.select(made)
        verdicts = [certification.run(check).verdict for check in made]

    assert found == {("parser/reasoning", "thoughts:Made"), ("parser/tool", "thoughts:Calls")}
    assert verdicts == [Verdict.PASS] * 2


def test_those_that_vllm_makes_of_an_engine_are_of_the_file(zygote: Zygote, tmp_path: Path) -> None:
    """They go by the name of vLLM's module, which has neither of them."""
    path = tmp_path / "adapted.py"
    path.write_text(ADAPTED, encoding="utf-8")
    for name, classes in (("", ["Thinks", "Calls"]), (":Thinks", ["Thinks"])):
        with _certification(zygote, f"{path}{name}", tmp_path) as certification:
            plugins = certification.load()
        assert [plugin.qualname for plugin in plugins] == classes
        assert {plugin.path for plugin in plugins} == {str(path)}


def test_one_that_vllm_cannot_find_fails_to_load(zygote: Zygote, tmp_path: Path) -> None:
    """The decorator has vLLM look for the class in the module, where a function's is not."""
    path = tmp_path / "decorated.py"
    source = CALLS.replace("    class", '    @ToolParserManager.register_module("mine")\n    class')
    path.write_text(source.replace('    ToolParserManager.register_module(["', "#"), "utf-8")
    for name in ("", ":mine"):
        with _certification(zygote, f"{path}{name}", tmp_path) as certification:
            (plugin,) = certification.load()
        assert plugin.generation == "parser/tool"
        assert "'mine' is registered as decorated:Mine, and decorated has no" in str(plugin.broken)


def test_a_function_that_nothing_calls_registers_nothing(zygote: Zygote, tmp_path: Path) -> None:
    """That vLLM calls nothing in the file is said."""
    path = tmp_path / "uncalled.py"
    path.write_text(CALLS.replace("\nregister()", ""), encoding="utf-8")
    with (
        _certification(zygote, str(path), tmp_path) as certification,
        pytest.raises(UsageError, match="has to be called by uncalled"),
    ):
        certification.load()


@pytest.mark.server
@pytest.mark.slow
def test_both_parsers_of_a_server_are_made(zygote: Zygote, tmp_path: Path) -> None:
    """A server has its file register each of them."""
    path, beside = tmp_path / "calls.py", tmp_path / "thoughts.py"
    path.write_text(CALLS, encoding="utf-8")
    beside.write_text(THOUGHTS, encoding="utf-8")
    section = {"partner": f"{beside}:thinks"}
    specimen = Specimen(f"{path}:mine", None, section, generation="parser/tool")
    found = certify(zygote, specimen, tmp_path, evidence=(Evidence.SERVER,))

    assert found["TP-14"].verdict is Verdict.PASS, found["TP-14"].message
    failed = {rule for rule, one in found.items() if one.verdict is Verdict.FAIL}
    assert failed <= {"TP-19"}  # that one is vLLM's own fault
