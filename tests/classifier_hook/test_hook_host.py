# SPDX-License-Identifier: Apache-2.0
"""The host suite: the runtime keeps every rule, and runtimes that are broken in one way fail."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from support import FIXTURES, ROOT

from conformance.classifier_hook.host_rules import HOST, RULES
from conformance.cli import main
from conformance.commands.host import build_played
from conformance.verdict import Conclusion, ExitStatus, Verdict

if TYPE_CHECKING:
    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

DEFECTIVE = FIXTURES / "defective" / "hook_hosts"
UNUSUAL = FIXTURES / "unusual" / "hook_hosts"

INDEX = tomllib.loads((DEFECTIVE / "index.toml").read_text(encoding="utf-8"))["host"]
HOSTS = [(Path(entry["file"]).stem, entry["rule"]) for entry in INDEX]

#: The rule that no vLLM of today can show.
ENDPOINTS = "CR-29"


def _judged(zygote: Zygote, folder: Path, patch: str | None = None) -> dict[str, RuleResult]:
    context, found = HOST.judge(
        zygote,
        folder,
        patch=patch and f"{patch}:patch",
        python_path=[str(ROOT), str(DEFECTIVE), str(UNUSUAL)],
    )
    assert context["runtime"] == "reference_plugins.classifier_hook"
    return {result.rule: result for result in found}


def test_the_runtime_keeps_every_rule(zygote: Zygote, tmp_path: Path) -> None:
    """Each is shown by something that was seen to hold, but for what this vLLM lacks."""
    found = _judged(zygote, tmp_path)
    endpoints = found.pop(ENDPOINTS)

    broken = {rule: one.message for rule, one in found.items() if one.verdict is not Verdict.PASS}
    assert not broken
    assert all(one.examples for one in found.values())
    assert endpoints.verdict is Verdict.NOT_VERIFIED
    assert "pull request 53512" in str(endpoints.message)


@pytest.mark.parametrize("name", sorted(path.stem for path in UNUSUAL.glob("*.py")))
def test_unusual_hosts_pass(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """On a vLLM that has what today's lacks the same hooks are served as well."""
    found = _judged(zygote, tmp_path, name)

    assert {one.verdict for one in found.values()} == {Verdict.PASS}
    assert found[ENDPOINTS].examples


@pytest.mark.parametrize(("name", "rule"), HOSTS, ids=[name for name, _ in HOSTS])
def test_defective_hosts_fail_by_their_rule(
    zygote: Zygote, name: str, rule: str, tmp_path: Path
) -> None:
    """A runtime that is broken in one way fails by the rule that is about it, in a sentence."""
    found = _judged(zygote, tmp_path, name)

    assert found[rule].verdict is Verdict.FAIL
    assert found[rule].message
    assert Verdict.ERROR not in {one.verdict for one in found.values()}


def test_every_rule_has_a_defective_host() -> None:
    """No rule is without a runtime that it catches, and no runtime is left out."""
    assert {rule for _, rule in HOSTS} == {rule.id for rule in RULES}
    assert {name for name, _ in HOSTS} == {p.stem for p in DEFECTIVE.glob("*.py")} - {"replacing"}


def test_a_document_says_what_was_judged(zygote: Zygote, tmp_path: Path) -> None:
    """A SHOULD that cannot be shown decides nothing."""
    found = HOST.judge(zygote, tmp_path, python_path=[str(ROOT)])
    document = build_played(HOST, found, seconds=1.0)

    assert document["interface"] == "classifier-hook"
    assert document["verdict"] == Conclusion.CONFORMANT
    assert [rule["id"] for rule in document["rules"]] == [rule.id for rule in RULES]


@pytest.mark.usefixtures("shared_zygote")
def test_the_command_judges_hooks(tmp_path: Path) -> None:
    """``--interface classifier-hook`` writes host.json, and exits with 0."""
    arguments = ["host", "--interface", "classifier-hook", "--json"]
    done = CliRunner().invoke(main, [*arguments, "--conformance-report", str(tmp_path)])

    assert done.exit_code == ExitStatus.CONFORMANT, done.output
    document: dict[str, Any] = json.loads((tmp_path / "host.json").read_text(encoding="utf-8"))
    assert document["generation"] == "hook/rfc"
    assert not (tmp_path / "stream.jsonl").exists()


def test_a_stream_is_for_logits_processors(tmp_path: Path) -> None:
    """The two options do not go together, and the sentence says why."""
    arguments = ["host", "--interface", "classifier-hook", "--stream", str(tmp_path / "s.jsonl")]
    done = CliRunner().invoke(main, arguments)

    assert done.exit_code == ExitStatus.USAGE
    assert "--stream is for logits processors" in done.output
