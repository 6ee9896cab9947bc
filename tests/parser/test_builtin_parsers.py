# SPDX-License-Identifier: Apache-2.0
"""What is told of vLLM's own parsers is what was found, and its programs show it."""

from __future__ import annotations

import ast
import json
import tomllib
from typing import TYPE_CHECKING

import builtin_parsers
import pytest
from parser_programs import PRINTED, told
from programs import execute, imported

from conformance.parser.formats import KNOWN

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

DATA = json.loads(builtin_parsers.DATA.read_text(encoding="utf-8"))
NOTES = tomllib.loads(builtin_parsers.NOTES.read_text(encoding="utf-8"))
PARSERS = DATA["parsers"]
PROGRAMS = sorted(path.name for path in builtin_parsers.PROGRAMS.glob("*.py"))


def test_the_page_is_drawn_from_the_data() -> None:
    """Nobody edits it: ``python tests/builtin_parsers.py --draw`` draws it again."""
    drawn = builtin_parsers.page(DATA, NOTES)

    assert builtin_parsers.PAGE.read_text(encoding="utf-8") == drawn


def test_notes_are_about_parsers_that_there_are() -> None:
    """A thread is about one that fails, a reason about one that is not judged."""
    failing = {name for name, parser in PARSERS.items() if parser["failing"]}
    found = {f"{name} {each['id']}" for name in failing for each in PARSERS[name]["failing"]}

    assert NOTES["threads"].keys() <= found
    assert NOTES["rules"].keys() <= {each.rpartition(" ")[2] for each in found}
    assert NOTES["not_judged"].keys() <= PARSERS.keys() - failing


def test_formats_name_parsers_that_there_are() -> None:
    """A format that was checked for a parser is the one that the parser was judged by."""
    for role, known in KNOWN.items():
        for name in {name for each in known for name in each.parsers}:
            formats = {each.name for each in known if name in each.parsers}
            assert PARSERS[f"{role}-parser:{name}"]["format"] in formats, name


def test_each_finding_has_its_cut_and_its_program() -> None:
    """At least ten disagree, in no more deltas than it takes, and no program is left over."""
    failures = [failure for parser in PARSERS.values() for failure in parser["failing"]]
    shown = [failure for failure in failures if "program" in failure]

    assert sorted(failure["program"] for failure in shown) == PROGRAMS
    assert len(PROGRAMS) >= 10


@pytest.mark.usefixtures("shared_zygote")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_shows_what_was_found(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """It needs vLLM and what vLLM needs, is short, and prints what it tells."""
    source = (builtin_parsers.PROGRAMS / name).read_text(encoding="utf-8")
    assert imported(source) <= {"transformers", "vllm"}
    path = tmp_path / "program.py"
    path.write_text(source, encoding="utf-8")

    status, said = execute(zygote, path)

    assert status == 0, said
    program, _, printed = source.partition(PRINTED)
    for line in printed.splitlines():
        assert told(line.removeprefix("# ")) in told(said)
    body = ast.parse(program).body
    most = 26 if name.endswith("P-19.py") else 20  # it streams twice, and holds text back
    assert sum(isinstance(node, ast.stmt) for part in body for node in ast.walk(part)) <= most
