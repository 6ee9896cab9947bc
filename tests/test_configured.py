# SPDX-License-Identifier: Apache-2.0
"""The rule about configurations of engines, and what certificates say of it."""

from __future__ import annotations

import tomllib
from typing import Any

import attrs
import pytest
from samples import CONTEXT, GENERATION, PLUGIN, SETTINGS, results
from support import FIXTURES

from conformance.configuration.table import named
from conformance.generations import all_generations
from conformance.reporting import certificate, page, verification
from conformance.verdict import Verdict

GALLERY = FIXTURES / "defective" / "configurations"
DEFECTS = tomllib.loads((GALLERY / "index.toml").read_text(encoding="utf-8"))["plugin"]
#: Of generations, by the rule about configurations; IO processors of both have one.
RULES: dict[str, set[str]] = {}
for _generation in all_generations():
    if _generation.configured:
        RULES.setdefault(_generation.configured, set()).add(_generation.name)


def _row(name: str, verdict: Verdict, message: str | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "about": named(name).about,
        "verdict": verdict.value,
        "requests": 12,
        "acted": 6,
        "seconds": 1.5,
        "message": message,
    }


def _certificate(*rows: dict[str, Any]) -> dict[str, Any]:
    chosen = ("plain", "tensor-parallel-2") if rows else ()
    return certificate.build(
        PLUGIN,
        results(),
        settings=attrs.evolve(SETTINGS, configurations=chosen),
        context=CONTEXT | {"configurations": list(rows)},
    )


def _judged_rule(document: dict[str, Any]) -> dict[str, Any]:
    rule: dict[str, Any] = next(r for r in document["rules"] if r["id"] == GENERATION.configured)
    return rule


PLAIN_ROW = _row("plain", Verdict.PASS)


@pytest.mark.parametrize(
    ("row", "verdict", "concluded"),
    [
        (_row("tensor-parallel-2", Verdict.PASS), "pass", "conformant"),
        (_row("tensor-parallel-2", Verdict.FAIL, "other tokens"), "fail", "non-conformant"),
        (_row("tensor-parallel-2", Verdict.NOT_APPLICABLE, "no ranks"), "pass", "conformant"),
        (_row("tensor-parallel-2", Verdict.NOT_VERIFIED, "hung"), "not-verified", "incomplete"),
    ],
    ids=lambda each: each if isinstance(each, str) else None,
)
def test_the_worst_configuration_speaks_for_the_rule(
    row: dict[str, Any], verdict: str, concluded: str
) -> None:
    """One rule has the verdict of all configurations; its message names the one it is about."""
    document = _certificate(PLAIN_ROW, row)
    rule = _judged_rule(document)

    assert rule["verdict"] == verdict
    assert rule["evidence"] == ["offline"]
    assert document["verdict"] == concluded
    assert rule["message"] == (f"{row['name']}: {row['message']}" if verdict != "pass" else None)
    assert not verification.wrong(verification.of_document(document))


def test_a_configuration_that_was_not_run_is_not_verified() -> None:
    """An interrupted run has a row for what it did not come to."""
    document = _certificate(PLAIN_ROW)

    assert [row["verdict"] for row in document["configurations"]] == ["pass", "not-verified"]
    assert document["verdict"] == "incomplete"


def test_without_configurations_the_rule_is_not_asked() -> None:
    """A run that names none says nothing of the rule, whatever its evidence, and tells the way."""
    document = _certificate()

    assert GENERATION.configured in document["not_asked"]
    assert "configurations" not in document
    assert "--configuration" in page.render(document, {})


def test_the_page_shows_every_row_and_makes_it_again() -> None:
    """A page has the rows, and the command that makes the certificate names them."""
    document = _certificate(PLAIN_ROW, _row("tensor-parallel-2", Verdict.FAIL, "other tokens"))

    assert "other tokens" in page.render(document, {})
    assert "--configuration plain,tensor-parallel-2" in page.command(document)


def test_defects_are_about_configurations_that_there_are() -> None:
    """Every rule about configurations has defects, each about configurations of the table."""
    assert {entry["rule"] for entry in DEFECTS} == set(RULES)
    for entry in DEFECTS:
        assert (GALLERY / entry["file"]).is_file()
        assert all(
            RULES[entry["rule"]] & named(name).generations for name in entry["configurations"]
        )
