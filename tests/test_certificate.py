# SPDX-License-Identifier: Apache-2.0
"""The certificate: what it holds, where it lies, and that it is never half there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pytest
from samples import CONTEXT, COUNTEREXAMPLE, GENERATION, PLUGIN, SETTINGS, sample

from conformance.reporting import certificate, folder
from conformance.rules import Evidence
from conformance.settings import folder_name
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path


def test_the_schema_is_a_schema() -> None:
    """The JSON Schema of certificates is itself valid."""
    jsonschema.Draft202012Validator.check_schema(certificate.schema())


@pytest.mark.parametrize("verdict", list(Verdict))
def test_certificates_fit_their_schema(verdict: Verdict) -> None:
    """A certificate with any verdict in it is valid."""
    jsonschema.validate(sample({"LB-06": verdict}), certificate.schema())


def test_the_fields_that_others_rely_on_are_there() -> None:
    """These fields are the certificate's promise to programs that read it."""
    document = sample({"LB-06": Verdict.FAIL})
    rule = next(rule for rule in document["rules"] if rule["id"] == "LB-06")

    assert document["schema"] == 1
    assert document["verdict"] == "non-conformant"
    assert document["plugin"] == {
        "target": "plugins/sample.py:Sample",
        "interface": GENERATION.interface,
        "generation": "logits/batch",
        "version": "1.2.3",
        "digest": PLUGIN.digest,
        "source": "sample.py",
    }
    assert {key: rule[key] for key in rule if key not in ("title", "counterexample")} == {
        "id": "LB-06",
        "level": "MUST",
        "verdict": "fail",
        "evidence": ["simulator"],
        "examples": 200,
        "acted": 143,
        "seconds": 0.25,
        "message": "LB-06 is fail",
        "case": "LB-06",
    }


@pytest.mark.parametrize(
    "damage",
    [
        {"verdict": "excellent"},
        {"schema": 2},
        {"rules": [{"id": "LB-06"}]},
        {"plugin": {"target": "x"}},
        {"interrupted": None},
    ],
    ids=lambda damage: next(iter(damage)),
)
def test_a_damaged_certificate_is_refused(damage: dict[str, object], tmp_path: Path) -> None:
    """A certificate that its schema refuses is not written, and the one that is there stays."""
    certificate.write(sample(), tmp_path)

    with pytest.raises(jsonschema.ValidationError):
        certificate.write({**sample(), **damage}, tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["certificate.json"]
    assert json.loads((tmp_path / "certificate.json").read_text())["verdict"] == "conformant"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """When writing fails in the middle the old file is there, and nothing beside it."""
    path = tmp_path / "certificate.json"
    certificate.write_whole(path, "the old one")

    with pytest.raises(UnicodeEncodeError):
        certificate.write_whole(path, "the new one" * 10_000 + "\ud800")

    assert [found.name for found in tmp_path.iterdir()] == ["certificate.json"]
    assert path.read_text() == "the old one"
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_rule_without_a_result_is_not_verified() -> None:
    """What was asked for and has no result is not verified, and the certificate incomplete."""
    document = certificate.build(PLUGIN, [], settings=SETTINGS, context=CONTEXT)

    assert {rule["verdict"] for rule in document["rules"]} == {"not-verified"}
    assert document["verdict"] == "incomplete"


def test_rules_of_other_evidence_are_not_asked() -> None:
    """A rule that none of the asked evidence can show is listed, and not judged."""
    document = sample(evidence=(Evidence.SERVER,))
    asked = {rule.id for rule in GENERATION.rules if Evidence.SERVER in rule.evidence}

    assert {rule["id"] for rule in document["rules"]} == asked
    assert {rule.id for rule in GENERATION.rules} == asked | set(document["not_asked"])
    assert document["not_asked"]


def test_nothing_is_known_of_a_plugin_that_was_never_loaded() -> None:
    """Without a context the certificate is still valid, with nulls for what nobody told."""
    document = certificate.build(PLUGIN, [], settings=SETTINGS, context={}, interrupted=True)

    jsonschema.validate(document, certificate.schema())
    assert set(document["environment"].values()) == {None}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("package.module:Class", "package.module-Class"),
        ("path/to/file.py:Class", "path-to-file.py-Class"),
        ("/abs/file.py:Class_2", "-abs-file.py-Class_2"),
        ("entry-point:vllm.logits_processors/mine", "entry-point-vllm.logits_processors-mine"),
        ("dir with space/é.py:Klass", "dir-with-space--.py-Klass"),
        ("../file.py:Class", "__-file.py-Class"),
        (".hidden/file.py:Class", "_hidden-file.py-Class"),
    ],
)
def test_the_folder_is_named_by_the_target(target: str, expected: str) -> None:
    """Every character outside ``[A-Za-z0-9_.-]`` becomes a hyphen, and no folder is hidden."""
    assert folder_name(target) == expected


def test_the_folder_holds_what_belongs_to_one_certificate(tmp_path: Path) -> None:
    """Cases of an earlier run go; each failure has its own, which names plugin and rule."""
    folder.write(sample({"LB-06": Verdict.FAIL, "LB-07": Verdict.FAIL}), PLUGIN, tmp_path)
    folder.write(sample({"LB-06": Verdict.FAIL}), PLUGIN, tmp_path)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*") if path.is_file()}

    assert files == {
        "badge.json",
        "badge.svg",
        "cases/LB-06.json",
        "certificate.json",
        "index.html",
        "junit.xml",
        "summary.md",
        "test-result.intoto.json",
    }
    assert json.loads((tmp_path / "cases" / "LB-06.json").read_text()) == {
        "schema": 1,
        "rule": "LB-06",
        "target": PLUGIN.target,
        "generation": "logits/batch",
        "message": "LB-06 is fail",
        "plugin": {"module": "sample", "qualname": "Sample", "root": "/plugins"},
        "counterexample": COUNTEREXAMPLE,
    }
