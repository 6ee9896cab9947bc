# SPDX-License-Identifier: Apache-2.0
"""The catalogue: every rule says where it comes from, and reading it costs nothing."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
from user import PYTEST, environment

from conformance.generations import all_generations, find_rule
from conformance.rules import Evidence, Level, Reason, Rule, Source, nearest, sentence
from conformance.settings import UsageError

if TYPE_CHECKING:
    from conformance.interface import Generation

RULES = list(
    dict.fromkeys(
        rule
        for generation in all_generations()
        for rule in (*generation.rules, *generation.host_rules)
    )
)
#: What writes the stand-alone programs, which the process of a command or of pytest imports.
WRITERS = sorted(
    {each.program.partition(":")[0] for each in all_generations() if each.program is not None}
)
HARMS = list(
    dict.fromkeys(
        source for rule in RULES for source in rule.reasons if source.reason is not Reason.SENTENCE
    )
)

# Runs a module as a user would, and tells which of the heavy packages it imported.
WATCH = """
import runpy, sys
program, sys.argv[1:] = sys.argv[1], sys.argv[2:]
try:
    runpy.run_module(program, run_name="__main__", alter_sys=True)
except SystemExit as error:
    assert error.code in (None, 0, 5), error  # 5: pytest found no tests
print("heavy:", sorted({"torch", "vllm"} & set(sys.modules)))
"""


def test_ids_are_unique() -> None:
    """An id names one rule of all interfaces; generations of one interface may share it."""
    assert len({rule.id for rule in RULES}) == len(set(RULES))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_is_whole(rule: Rule) -> None:
    """A rule has a stable id, a statement, a source, a hint and evidence."""
    assert re.fullmatch(r"[A-Z]{2}-\d{2}", rule.id)
    assert rule.title
    assert not rule.title.endswith(".")
    assert rule.statement.endswith(".")
    assert rule.hint.endswith(".")
    assert rule.sources
    assert all(source.where and source.says for source in rule.sources)
    assert rule.evidence
    assert list(rule.evidence) == [kind for kind in Evidence if kind in rule.evidence]


def test_a_must_says_why_it_is_one() -> None:
    """Only a rule with a reason, by the interface's words or by harm to others, is a MUST."""
    told = Source("A Document", "rows stay apart")

    assert attrs.evolve(RULES[0], sources=(told,)).level is Level.SHOULD
    assert attrs.evolve(RULES[0], sources=(told, sentence(told))).level is Level.MUST


@pytest.mark.parametrize("source", HARMS, ids=lambda source: source.where)
def test_harm_has_its_place_in_vllm(source: Source) -> None:
    """Where others come to harm is a function or a class of the installed vLLM."""
    file, _, symbol = source.where.removeprefix("vllm/").partition(":")
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    scope = ast.parse((Path(spec.origin).parent / file).read_text(encoding="utf-8")).body

    for name in symbol.split("."):
        found = [
            node
            for node in scope
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name == name
        ]
        assert found, name
        scope = [node for one in found for node in one.body]


@pytest.mark.parametrize("generation", all_generations(), ids=lambda generation: generation.name)
def test_a_generation_names_rules_it_has(generation: Generation) -> None:
    """The rules for what cannot be loaded, and for what does not survive, are in the catalogue."""
    ids = {rule.id for rule in generation.rules}

    assert {generation.loading_rule, generation.survival_rule} <= ids


def test_rules_are_found_in_any_case() -> None:
    """``lb-06`` is LB-06."""
    generation, rule = find_rule("lb-06")

    assert (generation.name, rule.id) == ("logits/batch", "LB-06")


@pytest.mark.parametrize(
    ("asked", "meant"), [("LB06", "LB-06"), ("LB-5", "LB-05"), ("mm7", "MM-07")]
)
def test_an_unknown_rule_is_told(asked: str, meant: str) -> None:
    """A misspelt rule id is refused with the nearest one."""
    with pytest.raises(UsageError, match=rf"there is no rule '{asked}'\. Did you mean '{meant}'\?"):
        find_rule(asked)


@pytest.mark.parametrize("asked", ["XX-01", "placeholder"])
def test_what_is_like_no_rule_is_told_where_all_are(asked: str) -> None:
    """An id that shares only a number with others gets no suggestion."""
    with pytest.raises(UsageError, match=r"no rule '.*'\. `vllm-conformance rules` lists all\."):
        find_rule(asked)


def test_only_likely_words_are_offered() -> None:
    """A word that is like no other gets no suggestion; an enum is offered by its value."""
    assert nearest("servr", Evidence) == " Did you mean 'server'?"
    assert nearest("xyz", Evidence) == ""


@pytest.mark.parametrize(
    "program",
    [
        ["conformance.generations"],
        *([name] for name in WRITERS),
        ["conformance.cli", "--help"],
        ["conformance.cli", "certify", "--help"],
        ["conformance.cli", "rules"],
        [*PYTEST, "--help"],
        [*PYTEST, "empty"],
    ],
    ids=" ".join,
)
def test_nothing_heavy_is_imported_unasked(program: list[str], tmp_path: Path) -> None:
    """The package, what writes programs, help and plain pytest import neither vLLM nor torch."""
    (tmp_path / "empty").mkdir()

    done = subprocess.run(
        [sys.executable, "-c", WATCH, *program],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "heavy: []"
