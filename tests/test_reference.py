# SPDX-License-Identifier: Apache-2.0
"""The rule reference: pages that are never stale, and one rule in the terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs
import pytest
from click.testing import CliRunner
from support import ROOT

from conformance.generations import all_generations
from conformance.interface import Generation
from conformance.reporting import reference
from conformance.reporting.reference import Specimen
from conformance.rules import Evidence, Rule, Source, sentence

if TYPE_CHECKING:
    from pathlib import Path

    from syrupy.assertion import SnapshotAssertion

PAGES = ROOT / "docs" / "rules"

RULE = Rule(
    id="LX-01",
    title="A row | a slot is __init__ialised before it is read",
    statement=(
        "The state of a row is written when a request is added, in *every* update, whatever the "
        "row held before, and `a < b` holds for it and <module>:<type>."
    ),
    section="Rows and moves",
    sources=(
        sentence(Source("A Document", "state is written ... when a request is added", "0.10.2")),
        Source("v1/sample/logits_processor/interface.py:BatchUpdate", "added may replace"),
    ),
    hint="Look at the loop over `added`; it must not skip requests that do not opt in.",
    evidence=(Evidence.SIMULATOR, Evidence.OFFLINE),
    resembles=("vllm-project/vllm#23401", "torch-spyre/sendnn-inference@07928f2f"),
)
GENERATION = Generation(
    interface="sample",
    name="sample/one",
    title="A sample",
    loading_rule="LX-01",
    survival_rule="LX-01",
    rules=(RULE, attrs.evolve(RULE, id="LX-02", sources=RULE.further, section="Logits")),
    fields={},
    suite="conformance.reporting.suite",
    cases={},
)
SPECIMENS = [
    Specimen("fixtures/a.py", "A", "LX-01", "it writes *nothing*.", "owner/plugin#7"),
    Specimen("fixtures/b.py", "B", "LX-01", "it writes late.", "vllm-project/vllm#23401"),
    Specimen("fixtures/c.py", "C", "LX-02", "of another rule.", None),
]


@pytest.mark.parametrize("generation", all_generations(), ids=lambda generation: generation.name)
def test_the_page_is_what_the_catalogue_gives(generation: Generation) -> None:
    """The committed page is the one that is drawn from rules, requirements and gallery now."""
    committed = (PAGES / reference.file_name(generation)).read_text(encoding="utf-8")
    current = committed == reference.page(generation)

    assert current, f"docs/rules is stale: run `{reference.COMMAND}`"


def test_no_page_is_left_over() -> None:
    """Every page under docs/rules belongs to a generation."""
    pages = {reference.file_name(generation) for generation in all_generations()}

    assert {path.name for path in PAGES.iterdir()} == pages


@pytest.mark.parametrize("generation", all_generations(), ids=lambda generation: generation.name)
def test_links_of_a_page_lead_somewhere(generation: Generation) -> None:
    """Links within a page have an anchor there, and links to the repository a file."""
    page = reference.page(generation)
    anchors = set(re.findall(r'<a id="([^"]+)">', page))
    files = re.findall(r"\]\((\.\.[^)#]*)", page)

    rules = (*generation.rules, *generation.host_rules)
    assert anchors == {rule.id.lower() for rule in rules}
    linked = set(re.findall(r"\]\(#([^)]+)\)", page))
    assert {rule.id.lower() for rule in generation.rules} <= linked <= anchors
    assert files
    assert all((PAGES / file).is_file() for file in files)


@pytest.mark.parametrize("generation", all_generations(), ids=lambda generation: generation.name)
def test_defects_can_be_linked(generation: Generation) -> None:
    """What a rule or a defective plugin resembles is an issue or a commit on GitHub."""
    specimens = reference.gallery(generation)
    defects = {one for rule in generation.rules for one in reference.resembled(rule, specimens)}

    # Of an interface that no vLLM has nobody's plugin was ever broken.
    assert defects or generation.name == "hook/rfc"
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+(#\d+|@[0-9a-f]{7,40})", one) for one in defects)


@pytest.mark.parametrize("generation", all_generations(), ids=lambda generation: generation.name)
def test_defective_plugins_say_their_fault(generation: Generation) -> None:
    """The docstring of a defective plugin says what is wrong, in one sentence, after the rule."""
    assert all(specimen.fault.endswith(".") for specimen in reference.gallery(generation))


def test_addresses_of_defects() -> None:
    """An issue or pull request has one address, a commit another."""
    issue, commit = map(reference.link, RULE.resembles)

    assert issue == "https://github.com/vllm-project/vllm/issues/23401"
    assert commit == "https://github.com/torch-spyre/sendnn-inference/commit/07928f2f"


def test_a_page(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    """A page has rules under sections; Markdown in their words is escaped, but for code."""
    monkeypatch.setattr(reference, "gallery", lambda _: SPECIMENS)

    assert reference.page(GENERATION) == snapshot


@pytest.mark.parametrize("width", [60, 300])
def test_a_rule_in_the_terminal(width: int, snapshot: SnapshotAssertion) -> None:
    """A rule is told in full, wrapped to the terminal, and never wider than can be read."""
    told = reference.text(RULE, GENERATION, SPECIMENS, width=width)

    assert told == snapshot
    for line in told.splitlines():
        # A single word after the heading is an address or a symbol, which is not cut.
        assert len(line) <= min(width, reference.WIDEST) or " " not in line[11:]


def test_without_the_repository_there_is_no_gallery(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where the package is installed, a rule is told without its defective plugins."""
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    (generation,) = (one for one in all_generations() if one.name == "logits/batch")
    specimens = reference.gallery(generation)

    assert specimens == []
    assert "defective" not in reference.text(generation.rule("LB-06"), generation, specimens)


def test_the_command_writes_the_pages(tmp_path: Path) -> None:
    """The command that a stale page names writes every page into a folder."""
    done = CliRunner().invoke(reference.main, [str(tmp_path / "rules")])

    assert done.exit_code == 0, done.output
    for generation in all_generations():
        written = tmp_path / "rules" / reference.file_name(generation)
        assert written.read_text(encoding="utf-8") == reference.page(generation)
