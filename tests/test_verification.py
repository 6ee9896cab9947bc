# SPDX-License-Identifier: Apache-2.0
"""A certificate that was changed does not verify, and what is drawn from one says what it says."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import attrs
import pytest
from click.testing import CliRunner
from samples import GENERATION, PLUGIN, SETTINGS, results, sample

from conformance.cli import main
from conformance.reporting import attestation, certificate, folder, junit
from conformance.reporting.verification import State, of_document, of_file, wrong
from conformance.rules import Level
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

ADVICE = next(rule.id for rule in GENERATION.rules if rule.level is Level.SHOULD)
SOURCE = "class Sample: ...\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The source file of a plugin."""
    path = tmp_path / "sample.py"
    path.write_text(SOURCE)
    return path


def _written(
    place: Path, source: Path | None = None, verdicts: Mapping[str, Verdict] | None = None
) -> Path:
    """Write the certificate of a plugin whose source lies in a file."""
    plugin = PLUGIN
    if source is not None:
        digest = "sha256:" + hashlib.sha256(source.read_bytes()).hexdigest()
        plugin = attrs.evolve(
            PLUGIN, target=f"{source}:Sample", path=str(source), root=None, digest=digest
        )
    document = certificate.build(plugin, results(verdicts), settings=SETTINGS, context={})
    return folder.write(document, plugin, place / "report")


def _changed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("verdict", list(Verdict))
def test_what_was_written_verifies(verdict: Verdict, tmp_path: Path, source: Path) -> None:
    """Nothing is wrong with a certificate as it is written, and its source is found."""
    checks = of_file(_written(tmp_path, source, {"LB-06": verdict}))

    assert wrong(checks) == []
    assert {check.about: check.state for check in checks}["source"] is State.HOLDS


@pytest.mark.parametrize(
    ("about", "change"),
    [
        ("verdict", lambda c: c.update(verdict="conformant")),
        ("verdict", lambda c: c["rules"][5].update(verdict="not-verified")),
        ("rules", lambda c: c["rules"].pop()),
        ("rules", lambda c: c["rules"].append(c["rules"][0])),
        ("rules", lambda c: c["rules"][5].update(level="SHOULD")),
        ("rules", lambda c: c["plugin"].update(generation="logits/none")),
        ("counts", lambda c: c["rules"][0].update(acted=201, examples=200)),
        ("counts", lambda c: c["rules"][0].update(evidence=["server"])),
        ("source", lambda c: c["plugin"].update(digest="sha256:" + "1" * 64)),
        ("badge.json", lambda c: c["environment"].update(vllm="9.9.9")),
        ("badge.svg", lambda c: c["environment"].update(vllm="9.9.9")),
        (attestation.FILE_NAME, lambda c: c["environment"].update(torch="9.9.9")),
    ],
)
def test_what_was_changed_does_not_verify(
    about: str, change: Callable[[dict[str, Any]], object], tmp_path: Path, source: Path
) -> None:
    """A better verdict, a rule left out or softened, another source: each is told by its name."""
    path = _written(tmp_path, source, {"LB-06": Verdict.FAIL})
    _changed(path, change)

    assert about in {check.about for check in wrong(of_file(path))}


def test_another_source_does_not_verify(tmp_path: Path, source: Path) -> None:
    """One changed byte of the plugin is another plugin."""
    path = _written(tmp_path, source)
    source.write_text(SOURCE + " ")

    assert [check.about for check in wrong(of_file(path))] == ["source"]


def test_a_source_that_is_not_here_is_not_wrong(tmp_path: Path, source: Path) -> None:
    """It cannot be compared, which is said; named by hand, it is."""
    path = _written(tmp_path, source)
    elsewhere = source.rename(tmp_path / "moved.py")
    unknown = [check.about for check in of_file(path) if check.state is State.UNKNOWN]

    assert unknown == ["source"]
    assert wrong(of_file(path, source=elsewhere)) == []


def test_rules_of_another_release_are_not_compared() -> None:
    """A certificate of another rule set is judged by what it holds alone."""
    document = sample()
    document["harness"]["rules"] = "2020.01"
    document["rules"].pop()
    states = {check.about: check.state for check in of_document(document)}

    assert states == {
        "verdict": State.HOLDS,
        "rules": State.UNKNOWN,
        "counts": State.HOLDS,
    }


def test_the_command_tells_each_check(tmp_path: Path, source: Path) -> None:
    """``verify`` takes a file or a folder and exits by what it found."""
    path = _written(tmp_path, source)
    count = len(json.loads(path.read_text(encoding="utf-8"))["rules"])
    runner = CliRunner()
    good = runner.invoke(main, ["verify", str(path)])
    _changed(path, lambda c: c["rules"][0].update(verdict="fail"))
    bad = runner.invoke(main, ["verify", str(tmp_path), "--json"])

    assert good.exit_code == 0
    assert f"✓ verdict: conformant, as its {count} rules say" in good.output
    assert bad.exit_code == 1
    told = json.loads(bad.output)[str(path)]
    assert {"about": "verdict", "state": "wrong"}.items() <= told[1].items()


def test_a_certificate_that_does_not_verify_gets_no_badge(tmp_path: Path) -> None:
    """``badge`` refuses it with a sentence, and writes none."""
    path = _written(tmp_path)
    path.with_name("badge.svg").unlink()
    _changed(path, lambda c: c["rules"].pop())
    told = CliRunner().invoke(main, ["badge", str(tmp_path)])

    assert told.exit_code == 4
    assert f"{path} does not verify: rules: " in told.output
    assert not path.with_name("badge.svg").exists()


@pytest.mark.parametrize(
    ("verdicts", "result"),
    [
        ({}, "PASSED"),
        ({ADVICE: Verdict.FAIL}, "WARNED"),
        ({"LB-06": Verdict.FAIL}, "FAILED"),
        ({"LB-06": Verdict.NOT_VERIFIED}, None),
        ({"LB-06": Verdict.ERROR}, None),
    ],
)
def test_the_statement_says_no_more(
    verdicts: dict[str, Verdict], result: str | None, tmp_path: Path
) -> None:
    """The in-toto statement has the verdict, broken rules and digests; undecided, there is none."""
    path = _written(tmp_path, verdicts=verdicts)
    beside = path.with_name(attestation.FILE_NAME)

    assert beside.exists() is (result is not None)
    if result is not None:
        statement = json.loads(beside.read_text())
        told = statement["predicate"]
        assert told["result"] == result
        assert told["failedTests"] + told["warnedTests"] == list(verdicts)
        assert not set(told["passedTests"]) & set(verdicts)
        assert statement["subject"][0]["digest"] == {"sha256": "0" * 64}
        (configuration,) = told["configuration"]
        assert configuration["digest"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_earlier_statement_goes(tmp_path: Path) -> None:
    """Where nothing is decided any more, no statement of another run stays."""
    _written(tmp_path)
    path = _written(tmp_path, verdicts={"LB-06": Verdict.NOT_VERIFIED})

    assert not path.with_name(attestation.FILE_NAME).exists()


def test_other_tests_and_rules_stand_together() -> None:
    """The JUnit file has a case for each rule with its id, and red is what exits red."""
    verdicts = {"LB-06": Verdict.FAIL, "LB-07": Verdict.NOT_VERIFIED, ADVICE: Verdict.FAIL}
    document = sample(verdicts)
    document["rules"][5]["message"] += "\x00 & <more>"
    (suite,) = ET.fromstring(junit.render(document))  # noqa: S314 - our own
    cases = {
        next(p.attrib["value"] for p in case.iter("property") if p.attrib["name"] == "rule"): case
        for case in suite.iter("testcase")
    }

    assert list(cases) == [rule["id"] for rule in document["rules"]]
    assert suite.attrib["failures"] == "1"
    assert suite.attrib["errors"] == "1"
    assert cases["LB-06"].find("failure") is not None
    assert cases["LB-07"].find("error") is not None
    assert cases[ADVICE].find("skipped") is not None
    assert len(cases["LB-05"]) == 1
