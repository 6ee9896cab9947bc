# SPDX-License-Identifier: Apache-2.0
"""Hooks in a program with ``AsyncLLM`` and in a real server, judged rule by rule."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs
import pytest
from old_hosts import certified, failures
from specimens import REFERENCE_HOOK, hook_references
from support import DEFECTIVE_HOOK, GOOD, UNUSUAL_HOOK, certify, gallery

from conformance.classifier_hook import witness
from conformance.classifier_hook.catalogue import RULES
from conformance.generations import named
from conformance.rules import Evidence
from conformance.verdict import ExitStatus, Verdict
from reference_plugins.classifier_hook.contract import ScoringContext, TokenLogprob

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote

LIVE = [
    specimen for specimen in gallery(DEFECTIVE_HOOK) if specimen.evidence is not Evidence.SIMULATOR
]
MARKS = {Evidence.OFFLINE: pytest.mark.engine, Evidence.SERVER: pytest.mark.server}

#: Correct hooks that do something of their own with the event loop, contexts or time.
UNUSUAL = ("works_in_batches", "limits_its_own_time", "works_in_a_thread", "says_when")


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize(
    "target",
    [
        pytest.param("annotator.py:PatternAnnotator", marks=pytest.mark.smoke),
        "blocker.py:PiiBlocker",
    ],
)
def test_references_are_conformant_live(target: str, tmp_path: Path) -> None:
    """Every reference hook passes with all evidence, and the certificate says where."""
    status, certificate = certified(f"{REFERENCE_HOOK / target}", tmp_path, "--evidence", "all")

    assert status == ExitStatus.CONFORMANT, failures(certificate)
    shown = {rule["id"]: rule["evidence"] for rule in certificate["rules"]}
    everywhere = ["simulator", "offline", "server"]
    assert shown["CH-01"] == shown["CH-10"] == shown["CH-31"] == everywhere
    assert shown["CH-20"] == ["simulator", "offline"]
    assert shown["CH-33"] == ["simulator", "server"]
    if "blocker" in target:
        assert shown["CH-11"] == shown["CH-12"] == shown["CH-13"] == everywhere


@pytest.mark.slow
@pytest.mark.parametrize(
    ("evidence", "name"),
    [
        pytest.param(evidence, name, marks=mark)
        for evidence, mark in MARKS.items()
        for name in UNUSUAL
    ],
)
def test_unusual_hooks_pass_live(
    zygote: Zygote, evidence: Evidence, name: str, tmp_path: Path
) -> None:
    """A correct hook breaks no rule that engines and servers show."""
    specimen = next(one for one in gallery(UNUSUAL_HOOK) if one.name == name)
    found = certify(zygote, specimen, tmp_path, evidence=(evidence,))

    broken = {rule: one.message for rule, one in found.items() if one.verdict not in GOOD}
    assert set(broken) <= set(specimen.advice), broken
    shown = {rule.id for rule in RULES if evidence in rule.evidence}
    assert set(found) == shown - {named(specimen.generation).configured}


@pytest.mark.slow
@pytest.mark.parametrize(
    "specimen",
    [pytest.param(one, marks=MARKS[one.evidence], id=one.name) for one in LIVE],
)
def test_a_fault_that_shows_only_live_is_shown(
    zygote: Zygote, specimen: Specimen, tmp_path: Path
) -> None:
    """The simulator finds nothing, and the engine or the server finds the rule."""
    rule = str(specimen.rule)
    simulated = certify(zygote, specimen, tmp_path, rules={rule})[rule]
    found = certify(zygote, specimen, tmp_path, evidence=(specimen.evidence,))

    assert simulated.verdict is Verdict.PASS, simulated.message
    assert found[rule].verdict is Verdict.FAIL, found
    assert {name for name, one in found.items() if one.verdict is Verdict.FAIL} == {rule}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "evidence", "rule"),
    [
        pytest.param("sleeps_on_the_loop", Evidence.OFFLINE, "CH-20", marks=pytest.mark.engine),
        pytest.param("finishes_its_work", Evidence.OFFLINE, "CH-23", marks=pytest.mark.engine),
        pytest.param("leaves_siblings", Evidence.OFFLINE, "CH-24", marks=pytest.mark.engine),
        pytest.param("asks_for_url", Evidence.OFFLINE, "CH-01", marks=pytest.mark.engine),
        pytest.param("gives_seconds", Evidence.OFFLINE, "CH-01", marks=pytest.mark.engine),
        pytest.param("misses_capitals", Evidence.SERVER, "CH-12", marks=pytest.mark.server),
        pytest.param("finds_words_in_words", Evidence.SERVER, "CH-11", marks=pytest.mark.server),
        pytest.param("asks_for_url", Evidence.SERVER, "CH-01", marks=pytest.mark.server),
        pytest.param(
            "scores_first_completions", Evidence.OFFLINE, "CH-39", marks=pytest.mark.engine
        ),
        pytest.param(
            "scores_first_completions", Evidence.SERVER, "CH-39", marks=pytest.mark.server
        ),
        pytest.param(
            "leaves_its_words_as_they_are", Evidence.OFFLINE, "CH-12", marks=pytest.mark.engine
        ),
    ],
)
def test_faults_of_the_simulator_show_live(
    zygote: Zygote, name: str, evidence: Evidence, rule: str, tmp_path: Path
) -> None:
    """What is wrong in the simulator is wrong in engines and servers, and by the same rule."""
    specimen = next(one for one in gallery(DEFECTIVE_HOOK) if one.name == name)
    found = certify(zygote, specimen, tmp_path, evidence=(evidence,))

    assert found[rule].verdict is Verdict.FAIL, found
    assert f"{evidence.value}: " in str(found[rule].message)


@pytest.mark.engine
@pytest.mark.slow
def test_a_blocker_without_texts_is_not_verified(zygote: Zygote, tmp_path: Path) -> None:
    """Nobody can say that it blocks what it must, and the sentence says what to give."""
    specimen = attrs.evolve(hook_references()[1], profile={})
    found = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))

    for rule, key in (("CH-11", "allowed"), ("CH-12", "blocked")):
        assert found[rule].verdict is Verdict.NOT_VERIFIED
        assert f"[classifier-hook] {key} = " in str(found[rule].message)


def test_a_context_survives_being_told() -> None:
    """What the witness writes down is JSON, and reads as the same context."""
    context = ScoringContext(
        request_id="a \u00e9",
        prompt="p",
        generated_text="\U0001f600",
        finish_reason="length",
        prompt_token_ids=[1, 2],
        output_token_ids=[3],
        extra_fields={"tags": ["x", {"deep": 1}]},
        request_metadata={"lora": "one"},
        index=2,
        stop_reason=7,
        logprobs=[{3: TokenLogprob(float("-inf"), None, "a")}],
        cumulative_logprob=float("-inf"),
        prompt_logprobs=[None, {2: TokenLogprob(-0.5, 1, None)}],
    )
    told = json.loads(json.dumps(witness.written(context), allow_nan=False))

    assert witness.read(told) == context
