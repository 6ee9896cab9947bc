# SPDX-License-Identifier: Apache-2.0
"""Rule LB-32: the same tokens, however a plugin is loaded and asked; steps without ``apply``."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from support import DEFECTIVE, ROOT, Specimen, as_toml, certify, gallery

from conformance.engine.models import tiny_llama
from conformance.ledger import Ledger
from conformance.logits.ways import HANDOVER, Reply, Ways, difference, hand_over, handed_over
from conformance.logits.workload import Job
from conformance.logits_batch.live import ROLES
from conformance.rules import Evidence
from conformance.running.runner import Certification
from conformance.settings import Settings
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

REFERENCE = ROOT / "reference_plugins" / "logits_batch" / "target_token.py"
TARGET = {
    "on": [{"extra_args": {"target_token": 67}}, {"extra_args": {"target_token": 5}}],
    "off": [{}, {"extra_args": {"unrelated": 1}}],
}
MIN_P = "vllm.v1.sample.logits_processor:MinPLogitsProcessor"
BOOST = {"on": [{"extra_args": {"boost": 67}}], "off": [{}]}
OFFLINE = (Evidence.OFFLINE,)
BOTH = (Evidence.OFFLINE, Evidence.SERVER)

#: A plugin whose bonus is another in any server than in an engine of one's own.
SERVES = """
import sys
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

class KnowsServers(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.boosted = {}
        self.bonus = 100.0 if "serve" in sys.argv else 0.5
    def is_argmax_invariant(self):
        return False
    def update_state(self, batch_update):
        process_dict_updates(self.boosted, batch_update, self.boost_of)
    def boost_of(self, params, prompt_ids, output_ids):
        return (params.extra_args or {}).get("boost")
    def apply(self, logits):
        for row, token in self.boosted.items():
            logits[row, token] += self.bonus
        return logits
"""


def _job(index: int) -> Job:
    return Job((3 + index, 7), ("on", 0), {"temperature": 0.0})


def _live(zygote: Zygote, specimen: Specimen, folder: Path, *rules: str) -> dict[str, RuleResult]:
    """Ask the offline trial about any rules, also those that the catalogue asks elsewhere."""
    profile = folder / "profile.toml"
    profile.write_text(as_toml(specimen.profile), encoding="utf-8")
    settings = Settings(
        targets=(specimen.target,),
        profile=str(profile),
        evidence=(Evidence.OFFLINE,),
        report=folder / "report",
    )
    with Certification(settings, zygote=zygote) as certification:
        (plugin,) = certification.load()
    job = zygote.fork(
        "conformance.worker.jobs:trial",
        {
            "plugin": plugin,
            "evidence": Evidence.OFFLINE,
            "settings": settings,
            "model": str(tiny_llama()),
            "folder": str(folder),
            "rules": frozenset(rules),
        },
        log=folder / "trial.log",
        directory=folder,
        python_path=[],
    )
    try:
        return {rule: job.ask(rule, limit=180) for rule in rules}
    finally:
        job.close()


@pytest.mark.parametrize(
    ("tokens", "decided", "expected"),
    [
        ((5, 6, 7), 3, None),
        ((5, 9, 7), 3, "token 1 is 9, there 6"),
        ((5, 9, 7), 1, None),
        ((5, 6), 3, "2 of them, there 3"),
        ((5, 6, 7, 8), 3, "4 of them, there 3"),
        ((5, 6, 7, 8), 2, None),
        ((), 0, None),
    ],
)
def test_the_first_difference_is_named(
    tokens: tuple[int, ...], decided: int, expected: str | None
) -> None:
    """Tokens are compared as far as rounding cannot change them."""
    assert difference(Reply((5, 6, 7), decided), tokens, "there") == expected


def test_both_ways_are_named() -> None:
    """A failure names the request, both ways and the first token that differs."""
    ledger = Ledger(Evidence.OFFLINE)
    ways = Ways(
        ledger, ROLES.same, "LLM.generate", [_job(0), _job(1)], [Reply((5,), 1), Reply((6,), 1)]
    )

    assert ways.compare("plain REST", [(5,), (6,)])
    assert not ways.compare("AsyncLLM.generate", [(5,), (9,)])
    assert ledger.troubles["LB-32"] == (
        "on[0] got other tokens with AsyncLLM.generate: token 0 is 9, with LLM.generate 6"
    )
    assert ledger.seen["LB-32"] == 3


def test_undecided_answers_show_nothing() -> None:
    """Where rounding decides the very first token, the comparison does not count."""
    ledger = Ledger(Evidence.OFFLINE)

    assert Ways(ledger, ROLES.same, "LLM.generate", [_job(0)], [Reply((5,), 0)]).compare(
        "REST", [(9,)]
    )
    assert not ledger.seen["LB-32"]


def test_answers_are_handed_over(tmp_path: Path) -> None:
    """The trial on servers reads what the offline trial of its run has left, whole or not."""
    jobs, replies = [_job(0), _job(1)], [Reply((5, 6), 2), Reply((7,), 0)]
    hand_over(
        Ways(Ledger(Evidence.OFFLINE), ROLES.same, "LLM.generate", jobs, replies), str(tmp_path)
    )

    assert handed_over(jobs, str(tmp_path)) == replies
    assert handed_over(jobs[1:], str(tmp_path)) == replies[1:]
    assert handed_over([*jobs, _job(2)], str(tmp_path)) is None


def test_answers_of_another_run_say_nothing(tmp_path: Path) -> None:
    """What an earlier run has left is about an earlier plugin."""
    jobs = [_job(0)]
    assert handed_over(jobs, str(tmp_path)) is None

    hand_over(
        Ways(Ledger(Evidence.OFFLINE), ROLES.same, "LLM.generate", jobs, [Reply((5,), 1)]),
        str(tmp_path),
    )
    document = json.loads((tmp_path / HANDOVER).read_text())
    assert document["run"] == os.getppid()
    (tmp_path / HANDOVER).write_text(json.dumps(document | {"run": 0}))

    assert handed_over(jobs, str(tmp_path)) is None


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "way", "evidence"),
    [
        ("differs_by_process_name", "AsyncLLM.generate, loaded as a class", OFFLINE),
        # Then the entry point is found here and not by a server.
        (
            "differs_by_process_name",
            "AsyncLLM.generate, loaded as a vllm.logits_processors entry point",
            BOTH,
        ),
        ("is_stronger_by_name", "LLM.generate, loaded by name", OFFLINE),
    ],
)
def test_a_plugin_that_knows_how_it_came_is_found(
    zygote: Zygote, name: str, way: str, evidence: tuple[Evidence, ...], tmp_path: Path
) -> None:
    """The message names the way in which the tokens are others."""
    specimen = next(s for s in gallery(DEFECTIVE) if s.name == name)
    results = certify(
        zygote,
        specimen,
        tmp_path,
        evidence=evidence,
        only=Evidence.OFFLINE,
        rules={"LB-01", "LB-32"},
    )

    assert results["LB-01"].verdict is Verdict.PASS
    assert results["LB-32"].verdict is Verdict.FAIL
    assert f"got other tokens with {way}: token" in str(results["LB-32"].message)
    assert "with LLM.generate, loaded as a class" in str(results["LB-32"].message)


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize(
    ("evidence", "way"),
    [((Evidence.SERVER,), "entry point: token"), (BOTH, "vllm serve: token")],
)
def test_a_command_line_that_makes_a_difference_is_found(
    zygote: Zygote, evidence: tuple[Evidence, ...], way: str, tmp_path: Path
) -> None:
    """A server that is named the plugin answers as one that is not, or as offline engines do."""
    specimen = next(s for s in gallery(DEFECTIVE) if s.name == "differs_by_command_line")
    results = certify(zygote, specimen, tmp_path, evidence=evidence, rules={"LB-01", "LB-32"})

    assert results["LB-01"].verdict is Verdict.PASS
    assert results["LB-32"].verdict is Verdict.FAIL
    assert way in str(results["LB-32"].message)
    logs = {path.name for path in (tmp_path / "report").rglob("server*.log")}
    assert ("server-entry-point.log" in logs) == (evidence != BOTH)


@pytest.mark.server
@pytest.mark.slow
def test_servers_and_offline_engines_answer_the_same(zygote: Zygote, tmp_path: Path) -> None:
    """With both kinds of evidence, a server must give the tokens of the offline engines."""
    (tmp_path / "serves.py").write_text(SERVES)
    good = Specimen(f"{REFERENCE}:TargetTokenLogitsProcessor", None, TARGET)
    bad = Specimen(f"{tmp_path / 'serves.py'}:KnowsServers", None, BOOST)

    # The last piece of evidence for a rule is the server's.
    right = certify(zygote, good, tmp_path, evidence=BOTH, rules={"LB-32"})["LB-32"]
    wrong = certify(zygote, bad, tmp_path, evidence=BOTH, rules={"LB-32"})["LB-32"]

    assert right.verdict is Verdict.PASS
    assert wrong.evidence is Evidence.SERVER
    assert wrong.verdict is Verdict.FAIL
    assert "LLM.generate in an offline engine" in str(wrong.message)


@pytest.mark.engine
def test_skipped_steps_are_seen_in_an_engine(zygote: Zygote, tmp_path: Path) -> None:
    """Greedy requests alone, then random ones: state is right, and the highest logit stays."""
    results = _live(zygote, Specimen(MIN_P, None, {}), tmp_path, "LB-12", "LB-26", "LB-32")

    assert {rule: r.verdict for rule, r in results.items()} == dict.fromkeys(results, Verdict.PASS)
    assert all(result.acted for result in results.values())


@pytest.mark.engine
def test_lost_steps_show_in_an_engine(zygote: Zygote, tmp_path: Path) -> None:
    """Bookkeeping that waits for ``apply`` is lost where a live engine skips it."""
    specimen = next(s for s in gallery(DEFECTIVE) if s.name == "drops_removed_in_apply")
    results = _live(zygote, specimen, tmp_path, "LB-26")

    assert results["LB-26"].verdict is Verdict.FAIL, results["LB-26"].message


@pytest.mark.engine
def test_without_the_claim_there_is_nothing_to_skip(zygote: Zygote, tmp_path: Path) -> None:
    """A plugin that does not claim invariance is shown greedy requests, and acts on them."""
    specimen = Specimen(f"{REFERENCE}:TargetTokenLogitsProcessor", None, TARGET)
    results = _live(zygote, specimen, tmp_path, "LB-05", "LB-12", "LB-26")

    assert results["LB-05"].verdict is Verdict.PASS
    assert results["LB-12"].verdict is Verdict.NOT_APPLICABLE
    assert results["LB-26"].verdict is Verdict.NOT_APPLICABLE
