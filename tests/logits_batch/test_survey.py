# SPDX-License-Identifier: Apache-2.0
"""Many seeds: every defect dies by its own rule, and no correct plugin is ever flagged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import survey
from specimens import correct
from support import DEFECTIVE, certify, gallery

from conformance import target as targets
from conformance.engine.models import tiny_llama
from conformance.logits_batch.catalogue import RULES
from conformance.rules import Evidence
from conformance.settings import DEFAULT_SEED, Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from support import Specimen

    from conformance.worker import Job, Zygote

SIMULATED = [rule.id for rule in RULES if Evidence.SIMULATOR in rule.evidence]
GOOD = {Verdict.PASS.value, Verdict.NOT_APPLICABLE.value}
PATIENCE = 900.0
LOADING = "LB-01"  # judged before there is anything to try
SURVIVAL = "LB-24"


def _fork(zygote: Zygote, specimen: Specimen, folder: Path, budget: Budget) -> Job:
    (target,) = targets.parse(specimen.target, folder)
    here = Path(__file__).parent
    arguments = {
        "target": target,
        "profile": specimen.profile,
        "model": str(tiny_llama()),
        "budget": budget,
    }
    return zygote.fork(
        "survey_job:survey",
        arguments,
        log=folder / "survey.log",
        directory=folder,
        python_path=[str(here), *([target.root] if target.root else [])],
    )


@pytest.mark.nightly
@pytest.mark.parametrize("specimen", gallery(DEFECTIVE), ids=lambda specimen: specimen.name)
def test_dies_for_every_seed(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A defective plugin fails by its own rule, whatever the seed."""
    assert specimen.rule is not None
    first: list[int] = []
    also: list[str] = []
    if specimen.evidence is not Evidence.SIMULATOR or specimen.rule == LOADING:
        seeds = [DEFAULT_SEED]
        evidence = (specimen.evidence,)
        results = certify(zygote, specimen, tmp_path, evidence=evidence, rules={specimen.rule})
        verdicts = [results[specimen.rule].verdict.value]
    else:
        seeds = [*range(1, survey.KILL_SEEDS), DEFAULT_SEED]
        verdicts = []
        job = _fork(zygote, specimen, tmp_path, Budget.STANDARD)
        for seed in seeds:
            rules = SIMULATED if seed == DEFAULT_SEED else [specimen.rule]
            answers = job.ask((seed, rules), limit=PATIENCE)
            if answers is None:
                # That is what its rule is about, or the harness has a fault.
                verdicts.append("fail" if specimen.rule == SURVIVAL else "died")
                continue
            verdict, message, examples, _ = answers[specimen.rule]
            verdicts.append(verdict if verdict == "fail" else f"{verdict}, seed {seed}: {message}")
            first += [examples] if examples else []
            failing = [rule for rule, answer in answers.items() if answer[0] == "fail"]
            also += [rule for rule in failing if rule != specimen.rule]
        job.close()
    killed = verdicts.count(Verdict.FAIL.value)
    record: dict[str, Any] = {
        "rule": specimen.rule,
        "kind": specimen.kind,
        "seeds": len(seeds),
        "killed": killed,
        "first": first,
        "also": also,
    }
    survey.keep("kills", specimen.name, record)

    assert killed == len(seeds), verdicts


@pytest.mark.nightly
@pytest.mark.parametrize("specimen", correct(), ids=lambda specimen: specimen.label)
def test_is_never_flagged(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A correct plugin passes every rule at the deepest budget, whatever the seed."""
    alarms: dict[str, str | None] = {}
    examples = 0
    job = _fork(zygote, specimen, tmp_path, Budget.DEEP)
    for seed in survey.quiet_seeds():
        answers = job.ask((seed, SIMULATED), limit=PATIENCE)
        for rule, (verdict, message, _, played) in answers.items():
            examples += played
            if verdict not in GOOD and rule not in specimen.advice:
                alarms[f"{rule}, seed {seed}"] = message
    job.close()
    record = {"seeds": len(survey.quiet_seeds()), "alarms": len(alarms), "examples": examples}
    survey.keep("quiet", f"{specimen.label} {survey.QUIET_SEEDS}", record)

    assert not alarms


def test_the_committed_survey_covers_the_gallery() -> None:
    """The data in the repository is about every plugin of the galleries, and shows no miss."""
    data = json.loads(survey.DATA.read_text(encoding="utf-8"))

    assert set(data["kills"]) == {specimen.name for specimen in gallery(DEFECTIVE)}
    assert set(data["quiet"]) == {specimen.label for specimen in correct()}
    assert all(record["killed"] == record["seeds"] for record in data["kills"].values())
    assert not any(survey.total(parts, "alarms") for parts in data["quiet"].values())
    assert survey.page(data) == survey.PAGE.read_text(encoding="utf-8")
