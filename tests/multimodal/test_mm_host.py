# SPDX-License-Identifier: Apache-2.0
"""The host suite: vLLM's scheduler keeps every rule, and ones that are broken in one way fail."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from support import FIXTURES, ROOT

from conformance.cli import main
from conformance.multimodal.host.rules import HOST, RULES
from conformance.rules import Evidence
from conformance.verdict import ExitStatus, Verdict

if TYPE_CHECKING:
    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

DEFECTIVE = FIXTURES / "defective" / "mm_hosts"

INDEX = tomllib.loads((DEFECTIVE / "index.toml").read_text(encoding="utf-8"))["host"]
#: The rules that a live engine shows as well.
LIVE = ("ME-01", "ME-02", "ME-03", "ME-04", "ME-07", "ME-08", "ME-09", "ME-10")

HOSTS = [(Path(entry["file"]).stem, entry["rule"]) for entry in INDEX]


def _judged(
    zygote: Zygote,
    folder: Path,
    patch: str | None = None,
    evidence: Evidence = Evidence.SIMULATOR,
) -> dict[str, RuleResult]:
    _, found = HOST.judge(
        zygote,
        folder,
        patch=patch and f"{patch}:patch",
        live=evidence is Evidence.OFFLINE,
        python_path=[str(ROOT), str(DEFECTIVE)],
    )
    return {result.rule: result for result in found if result.evidence is evidence}


def test_the_scheduler_keeps_every_rule(zygote: Zygote, tmp_path: Path) -> None:
    """Each is shown by something that was seen to hold."""
    found = _judged(zygote, tmp_path)

    broken = {rule: one.message for rule, one in found.items() if one.verdict is not Verdict.PASS}
    assert not broken
    assert all(one.examples >= 10 for one in found.values())


@pytest.mark.parametrize(("name", "rule"), HOSTS, ids=[name for name, _ in HOSTS])
def test_defective_hosts_fail_by_their_rule(
    zygote: Zygote, name: str, rule: str, tmp_path: Path
) -> None:
    """A scheduler that is broken in one way fails by the rule that is about it, in a sentence."""
    found = _judged(zygote, tmp_path, name)

    assert found[rule].verdict is Verdict.FAIL
    assert found[rule].message
    assert Verdict.ERROR not in {one.verdict for one in found.values()}


@pytest.mark.engine
def test_a_live_engine_keeps_what_it_shows(zygote: Zygote, tmp_path: Path) -> None:
    """Its steps are shorter than a sound, and the same one is asked about at once."""
    found = _judged(zygote, tmp_path, evidence=Evidence.OFFLINE)

    assert {rule: one.message for rule, one in found.items()} == dict.fromkeys(LIVE)
    assert all(one.verdict is Verdict.PASS and one.examples >= 2 for one in found.values())


@pytest.mark.engine
def test_images_are_served_by_the_same_rules(zygote: Zygote, tmp_path: Path) -> None:
    """An engine of the reference model, whose largest pictures fill a step."""
    job = zygote.fork(
        "tiny_vlm_job:recorded",
        {"folder": tmp_path},
        log=tmp_path / "engine.log",
        directory=tmp_path,
        python_path=[str(ROOT), str(Path(__file__).parent)],
    )
    try:
        found = job.ask("recorded", limit=300)
    finally:
        job.close()

    assert {one.rule: one.message for one in found} == dict.fromkeys(LIVE)
    assert all(one.verdict is Verdict.PASS and one.examples >= 2 for one in found)


#: Hosts that are seen to fail in a live engine, and by which rule.
LIVE_HOSTS = {
    "hashes_tokens_alone": "ME-08",
    "hashes_requests_too": "ME-07",
    "keeps_items_of_aborted": "ME-10",
}


@pytest.mark.engine
@pytest.mark.parametrize("name", LIVE_HOSTS)
def test_defective_live_engines_fail_by_their_rule(
    zygote: Zygote, name: str, tmp_path: Path
) -> None:
    """What a scene shows of prefixes and aborted requests, orders show too."""
    found = _judged(zygote, tmp_path, name, Evidence.OFFLINE)

    assert found[LIVE_HOSTS[name]].verdict is Verdict.FAIL
    assert found[LIVE_HOSTS[name]].message


@pytest.mark.engine
def test_a_defective_live_engine_fails(zygote: Zygote, tmp_path: Path) -> None:
    """One that encodes an item for each request is seen to encode what is cached."""
    found = _judged(zygote, tmp_path, "encodes_for_each_request", Evidence.OFFLINE)

    assert found["ME-02"].verdict is Verdict.FAIL
    assert "while it is cached" in str(found["ME-02"].message)


def test_every_rule_has_a_defective_host() -> None:
    """No rule is without an engine that it catches, and no engine is left out."""
    assert {rule for _, rule in HOSTS} == {rule.id for rule in RULES}
    assert {name for name, _ in HOSTS} == {p.stem for p in DEFECTIVE.glob("*.py")} - {"replacing"}


@pytest.mark.engine
@pytest.mark.usefixtures("shared_zygote")
def test_the_command_judges_the_engine(tmp_path: Path) -> None:
    """``--interface multimodal`` writes host.json, and exits with 0."""
    arguments = ["host", "--interface", "multimodal", "--json"]
    done = CliRunner().invoke(main, [*arguments, "--conformance-report", str(tmp_path)])

    assert done.exit_code == ExitStatus.CONFORMANT, done.output
    document: dict[str, Any] = json.loads((tmp_path / "host.json").read_text(encoding="utf-8"))
    assert document["interface"] == "multimodal"
    assert document["generation"] == "mm/processor"
    assert [rule["id"] for rule in document["rules"]] == [rule.id for rule in RULES]
