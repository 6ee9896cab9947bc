# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance`` on the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
from click.testing import CliRunner
from samples import PLUGIN, sample
from support import DEFECTIVE, ROOT
from user import CLI, certificates, environment, run

from conformance import __version__
from conformance.cli import main
from conformance.generations import all_generations
from conformance.reporting import badge
from conformance.reporting import folder as folders
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

FAULTY = "faulty.py:KeepsReplacedOccupant"
CASE = "reports/local/faulty.py-KeepsReplacedOccupant/cases/LB-06.json"


@attrs.frozen
class Certified:
    """A folder in which a faulty plugin was certified, and what the command said."""

    folder: Path
    status: int
    said: str


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certified:
    """Certify a faulty plugin once, as a user does."""
    folder = tmp_path_factory.mktemp("certified")
    shutil.copy(DEFECTIVE / "keeps_replaced_occupant.py", folder / "faulty.py")
    return Certified(folder, *run(*CLI, "certify", FAULTY, "--budget", "quick", folder=folder))


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Make a report folder with a certificate that failed and one that did not."""
    folders.write(sample({"LB-06": Verdict.FAIL}), PLUGIN, tmp_path / "reports" / "bad")
    folders.write(sample(), PLUGIN, tmp_path / "reports" / "good")
    return tmp_path / "reports"


def test_a_certification_shows_failures_and_the_verdict(certified: Certified) -> None:
    """``certify`` shows each failure, then the certificate, and exits by its verdict."""
    lines = certified.said.splitlines()

    assert certified.status == 1
    assert "LB-06 A request that takes over a row starts clean (MUST, simulator)" in lines
    (replay,) = [line for line in lines if line.endswith(CASE)]
    assert replay.startswith("Replay    vllm-conformance replay ")
    assert any(line.startswith(f"{FAULTY}  NON-CONFORMANT  ") for line in lines)
    assert any(line.startswith("certificate: ") for line in lines)
    assert lines[-1].startswith("seed 20261121, budget quick, ")
    assert any(line.startswith(f"{FAULTY}: judging ") for line in lines)
    assert "Traceback" not in certified.said


def test_a_certification_leaves_a_certificate(certified: Certified) -> None:
    """The certificate says what the terminal said, and with what it was found."""
    document = certificates(certified.folder)[FAULTY]

    assert document["verdict"] == "non-conformant"
    assert document["environment"]["vllm"]
    assert document["environment"]["torch"]
    assert document["plugin"]["digest"].startswith("sha256:")


def test_a_case_fails_on_the_plugin_as_it_was(certified: Certified) -> None:
    """``replay`` plays the history of a case again, and tells what the plugin did."""
    status, said = run(*CLI, "replay", CASE, folder=certified.folder)

    assert status == 1
    assert said == "STILL FAILS: LB-06: the row of a request that did not opt in was changed\n"


def test_a_case_is_fixed_on_the_plugin_that_was_mended(
    certified: Certified,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shared_zygote: None,  # noqa: ARG001 - a fixture
) -> None:
    """The plugin is looked for from where the command is typed."""
    source = (certified.folder / "faulty.py").read_text()
    mended = source.replace(
        "            if token is not None:", "            self.targets.pop(row, None)\n"
        "            if token is not None:"
    )  # fmt: skip
    assert mended != source
    (tmp_path / "faulty.py").write_text(mended)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["replay", str(certified.folder / CASE)])

    assert done.exit_code == 0, done.output
    assert done.output == "FIXED: LB-06 holds in this history now\n"


@pytest.mark.parametrize(
    "command", [(), ("certify",), ("replay",), ("matrix",), ("mutate",), ("port",)], ids=" ".join
)
def test_help(command: tuple[str, ...], tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """The help tells the commands, what a TARGET is, and the exit statuses."""
    status, said = run(*CLI, *command, "--help", folder=tmp_path)

    assert status == 0
    assert said == snapshot


def test_version(tmp_path: Path) -> None:
    """``--version`` names program and version."""
    expected = f"vllm-conformance, version {__version__}\n"

    assert run(*CLI, "--version", folder=tmp_path) == (0, expected)


def test_rules_are_listed(tmp_path: Path) -> None:
    """``rules`` lists every rule with its level and title by section, and as JSON."""
    _, text = run(*CLI, "rules", folder=tmp_path)
    _, listed = run(*CLI, "rules", "--interface", "logits/batch", "--json", folder=tmp_path)
    (generation,) = json.loads(listed)

    for known in all_generations():
        page = text.partition(known.title)[2]
        for rule in known.rules:
            section = page.partition(f"\n{rule.section}\n")[2].partition("\n\n")[0]
            assert f"  {rule.id}  {rule.level:<6}  {rule.title}" in section.splitlines()
    assert generation["name"] == "logits/batch"
    assert generation["rules"][0]["id"] == "LB-01"
    assert generation["rules"][0]["sources"]


def test_a_rule_is_explained(tmp_path: Path) -> None:
    """``explain`` gives all that the reference has for a rule, the defective plugins included."""
    status, said = run(*CLI, "explain", "lb-06", folder=tmp_path)
    headings = {line[:11].strip() for line in said.splitlines()}

    assert status == 0
    assert said.startswith("LB-06 A request that takes over a row starts clean\n\n")
    assert headings >= {"level", "interface", "section", "evidence", "source", "check"}
    assert f"\ndefective  {DEFECTIVE.relative_to(ROOT)}/keeps_replaced_occupant.py: a " in said

    # Of one with many the page has the others.
    said = run(*CLI, "explain", "LB-38", folder=tmp_path)[1]
    assert said.count("\ndefective") == 10
    assert said.endswith(" more: see docs/rules/logits-batch.md\n")


def test_badges_are_drawn_again(reports: Path, tmp_path: Path) -> None:
    """``badge`` writes both badges of every certificate under a folder."""
    for path in reports.rglob("badge.*"):
        path.unlink()
    status, said = run(*CLI, "badge", "reports", folder=tmp_path)

    assert status == 0
    assert said.splitlines() == [
        f"reports/bad: {badge.label(sample())} {badge.message(sample({'LB-06': Verdict.FAIL}))}",
        f"reports/good: {badge.label(sample())} {badge.message(sample())}",
    ]
    assert len(list(reports.rglob("badge.*"))) == 4


def test_reports_are_shown_again(reports: Path) -> None:
    """``report`` shows every certificate under a folder, and exits by the worst."""
    status, said = run(*CLI, "report", ".", folder=reports)
    good, _ = run(*CLI, "report", "good", folder=reports)

    assert "plugins/sample.py:Sample  NON-CONFORMANT  " in said
    assert "plugins/sample.py:Sample  CONFORMANT  " in said
    assert (status, good) == (1, 0)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("rulez", "there is no command 'rulez'. Did you mean 'rules'?"),
        ("certifi x.py", "there is no command 'certifi'. Did you mean 'certify'?"),
        ("certify", "Missing argument 'TARGET...'. vllm-conformance certify --help tells more."),
        ("certify x.py --bugdet deep", "No such option '--bugdet'. (Did you mean one of:"),
        ("certify x.py --budget fast", "Invalid value for '--budget': 'fast' is not one of"),
        ("certify x.py --conformance-seed x", "'x' is not a valid integer."),
        ("rules --interface logit", "there is no interface 'logit': there are logits/batch"),
        ("explain LB06", "there is no rule 'LB06'. Did you mean 'LB-06'?"),
        ("replay nothing.json", "there is no case file nothing.json."),
        ("replay damaged.json", "damaged.json is no case file: give one from the cases folder"),
        ("host --conformance-report /proc/host", "/proc cannot be written to ("),
        (
            "matrix --vllm 0.31,0.32 --conformance-report /proc/matrix x.py",
            "/proc cannot be written to (",
        ),
        ("bench --conformance-report /proc/bench x.py", "/proc cannot be written to ("),
        ("badge nowhere", "there is no certificate.json under nowhere."),
        ("report damaged", "damaged/certificate.json is no certificate: "),
    ],
)
def test_wrong_commands_are_told(tmp_path: Path, command: str, sentence: str) -> None:
    """A mistake on the command line is one sentence and exit status 4."""
    (tmp_path / "damaged.json").write_text('{"schema": 1}')
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "certificate.json").write_text('{"schema": 1}')
    status, said = run(*CLI, *command.split(), folder=tmp_path)

    assert status == 4
    assert said.startswith("vllm-conformance: ")
    assert sentence in said
    assert said.count("\n") == 1


def test_machines_get_json_alone(tmp_path: Path) -> None:
    """With ``--json`` standard output is the certificates, and people are spoken to beside it."""
    shutil.copy(DEFECTIVE / "keeps_replaced_occupant.py", tmp_path / "faulty.py")
    command = [sys.executable, "-m", *CLI, "certify", FAULTY, "--budget", "quick", "--json"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    (document,) = json.loads(done.stdout)

    assert done.returncode == 1
    assert document == certificates(tmp_path)[FAULTY]
    assert "NON-CONFORMANT" in done.stderr


def test_a_rule_is_data() -> None:
    """``explain --json`` gives the rule as the catalogue has it."""
    told = json.loads(CliRunner().invoke(main, ["explain", "LB-06", "--json"]).output)

    assert told["generation"] == "logits/batch"
    assert told["level"] == "MUST"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str, tmp_path: Path) -> None:
    """The script that each shell evaluates asks for what there is."""
    program = Path(sys.executable).with_name("vllm-conformance")
    words = {"COMP_WORDS": "vllm-conformance ver", "COMP_CWORD": "ver" if shell == "fish" else "1"}
    variable = "_VLLM_CONFORMANCE_COMPLETE"
    script, found = (
        subprocess.run(
            [program],
            cwd=tmp_path,
            env=environment() | words | {variable: f"{shell}_{what}"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for what in ("source", "complete")
    )

    assert variable in script
    assert "verify" in found
