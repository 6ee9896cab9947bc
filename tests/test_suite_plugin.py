# SPDX-License-Identifier: Apache-2.0
"""A suite that another distribution registers, for an interface of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support import ROOT
from user import CLI, PYTEST, certificates, run, verdicts

from conformance.engine.entry_points import synthetic_distribution
from conformance.generations import GROUP

if TYPE_CHECKING:
    from pathlib import Path

SUITE = ROOT / "tests" / "scorer_suite"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with scorers, and an environment that has their suite."""
    shutil.copy(SUITE / "scorers.py", tmp_path)
    shutil.copytree(SUITE / "scorer_suite", tmp_path / "site" / "scorer_suite")
    synthetic_distribution(
        tmp_path / "site", name="scorer-suite", group=GROUP, entries={"scorer": "scorer_suite"}
    )
    return tmp_path


def test_plugins_of_another_suite_are_certified(here: Path) -> None:
    """From the verdict to the report, the program, and the replay of the case."""
    paths = (here / "site",)
    status, said = run(*PYTEST, "--plugin-path", "scorers.py", folder=here, paths=paths)

    assert status == 1, said
    found = certificates(here)
    assert verdicts(found["scorers.py:Capitals"]) == {"TS-01": "pass", "TS-02": "pass"}
    assert verdicts(found["scorers.py:CapitalsPerWord"]) == {"TS-01": "pass", "TS-02": "fail"}
    folder = here / "reports/local/scorers.py-CapitalsPerWord"
    status, said = run(*CLI, "report", "reports/local", folder=here, paths=paths)
    assert status == 1, said  # that of the worst plugin
    pages = [path.read_text(encoding="utf-8") for path in folder.glob("*.html")]
    assert any("A score lies between 0 and 1" in page for page in pages)

    program = subprocess.run(
        [sys.executable, folder / "cases/TS-02.py"], capture_output=True, text=True, check=False
    )
    assert (program.returncode, program.stderr) == (1, "")
    assert program.stdout == "FAILS: score_text('AA') returned 2.0; expected a number from 0 to 1\n"

    case = str(folder / "cases" / "TS-02.json")
    status, said = run(*CLI, "replay", case, folder=here, paths=paths)
    assert (status, said) == (1, "STILL FAILS: TS-02: score_text('AA') returned 2.0\n")
    source = here / "scorers.py"
    source.write_text(source.read_text(encoding="utf-8").replace("text.split()", "text"))
    status, said = run(*CLI, "replay", case, folder=here, paths=paths)
    assert (status, said) == (0, "FIXED: TS-02 holds in this case now\n")


def test_its_rules_are_explained(here: Path) -> None:
    """They are listed and explained, and have a reference page."""
    paths = (here / "site",)
    _, said = run(*CLI, "rules", "--interface", "scorer/one", folder=here, paths=paths)
    assert "TS-02  MUST    A score lies between 0 and 1" in said
    _, said = run(*CLI, "explain", "ts-02", folder=here, paths=paths)
    assert "Look for a sum that is not divided" in said
    status, said = run("conformance.reporting.reference", "rules", folder=here, paths=paths)
    assert status == 0, said
    page = (here / "rules" / "scorer-one.md").read_text(encoding="utf-8")
    assert "A score lies between 0 and 1" in page


def test_its_profile_has_a_section(here: Path) -> None:
    """The section is read and checked as those of others are."""
    paths = (here / "site",)
    profile = here / "scorers.conformance.toml"
    profile.write_text('[scorer]\ntext = ["a"]\n', encoding="utf-8")
    status, said = run(*CLI, "certify", "scorers.py:Capitals", folder=here, paths=paths)
    assert status == 4
    assert "[scorer] has no key 'text'; it takes texts. Did you mean 'texts'?" in said
    profile.write_text('[scorer]\ntexts = ["AB"]\n', encoding="utf-8")
    status, said = run(*CLI, "certify", "scorers.py:CapitalsPerWord", folder=here, paths=paths)
    assert status == 1
    (document,) = certificates(here).values()
    assert document["profile"] == {"texts": ["AB"]}
    failed = {rule["id"]: rule["message"] for rule in document["rules"]}
    assert failed["TS-02"] == "score_text('AB') returned 2.0"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("no_such_suite", "cannot be loaded (no_such_suite): ModuleNotFoundError"),
        ("json", "cannot be loaded (json): AttributeError"),
        ("conformance.logits_batch.again", "ModuleNotFoundError"),
    ],
)
def test_a_suite_that_cannot_be_loaded_is_named(tmp_path: Path, value: str, said: str) -> None:
    """One sentence names the entry point."""
    synthetic_distribution(tmp_path / "site", name="broken", group=GROUP, entries={"broken": value})
    status, output = run(*CLI, "rules", folder=tmp_path, paths=(tmp_path / "site",))

    assert status == 4
    assert said in output
    assert "the suite 'broken'" in output
    assert "Traceback" not in output


def test_the_walk_through_shows_this_suite() -> None:
    """The pieces of code in the document are those of the example."""
    text = (ROOT / "docs" / "new-interface.md").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in sorted(SUITE.rglob("*.py"))]
    sources.append((SUITE / "pyproject.toml").read_text(encoding="utf-8"))
    blocks = [block.partition("\n")[2] for block in text.split("```")[1::2]]
    shown = [block for block in blocks if "scorer" in block.lower() or "def " in block]

    assert shown
    for block in shown:
        assert any(block.strip() in source for source in sources), block
