# SPDX-License-Identifier: Apache-2.0
"""Many seeds: every defect dies by its own rule, and no correct plugin is ever flagged."""

from __future__ import annotations

import json
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import survey
from specimens import OF_CLIENTS, correct, slot_references
from support import DEFECTIVE, DEFECTIVE_SLOT, PROFILES, UNUSUAL_SLOT, certify, gallery, of_surveys

from conformance.engine.models import tiny_llama
from conformance.generations import named
from conformance.plugin import target as targets
from conformance.rules import Evidence
from conformance.settings import DEFAULT_SEED, Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from support import Specimen
    from survey import Survey

    from conformance.interface import Generation
    from conformance.worker import Job, Zygote

GENERATION = {survey.BATCH: named("logits/batch"), survey.SLOT: named("logits/slot")}
DEFECTS = {survey.BATCH: gallery(DEFECTIVE), survey.SLOT: gallery(DEFECTIVE_SLOT)}
CORRECT = {survey.BATCH: correct(), survey.SLOT: [*slot_references(), *gallery(UNUSUAL_SLOT)]}
GOOD = {Verdict.PASS.value, Verdict.NOT_APPLICABLE.value}
PATIENCE = 900.0


def _simulated(generation: Generation) -> list[str]:
    return [rule.id for rule in generation.rules if Evidence.SIMULATOR in rule.evidence]


def _fork(
    zygote: Zygote, generation: Generation, specimen: Specimen, folder: Path, budget: Budget
) -> Job:
    (target,) = targets.parse(specimen.target, folder)
    here = Path(__file__).parent
    arguments = {
        "generation": generation.suite.rpartition(".")[0],
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
        python_path=[str(here), str(PROFILES), *([target.root] if target.root else [])],
    )


@pytest.mark.nightly
@pytest.mark.timeout(7200)  # a plugin that hangs is waited for, seed by seed
@pytest.mark.parametrize(("about", "specimen"), of_surveys(DEFECTS, attrgetter("name")))
def test_dies_for_every_seed(
    zygote: Zygote, about: Survey, specimen: Specimen, tmp_path: Path
) -> None:
    """A defective plugin fails by its own rule, whatever the seed."""
    assert specimen.rule is not None
    generation = GENERATION[about]
    first: list[int] = []
    also: list[str] = []
    # The loading rule is judged before there is anything to try.
    if specimen.evidence is not Evidence.SIMULATOR or specimen.rule == generation.loading_rule:
        seeds = [DEFAULT_SEED]
        evidence = (specimen.evidence,)
        results = certify(zygote, specimen, tmp_path, evidence=evidence, rules={specimen.rule})
        verdicts = [results[specimen.rule].verdict.value]
    else:
        seeds = [*range(1, survey.KILL_SEEDS), DEFAULT_SEED]
        verdicts = []
        job = _fork(zygote, generation, specimen, tmp_path, Budget.STANDARD)
        for seed in seeds:
            rules = _simulated(generation) if seed == DEFAULT_SEED else [specimen.rule]
            answers = job.ask((seed, rules), limit=PATIENCE)
            if answers is None:
                # That is what its rule is about, or the harness has a fault.
                verdicts.append("fail" if specimen.rule == generation.survival_rule else "died")
                continue
            assert Verdict.ERROR.value not in {answer[0] for answer in answers.values()}, answers
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
    survey.keep(about, "kills", specimen.name, record)

    assert killed == len(seeds), verdicts


@pytest.mark.nightly
@pytest.mark.timeout(7200)  # a plugin that hangs is waited for, seed by seed
@pytest.mark.parametrize(
    ("about", "specimen"),
    [
        pytest.param(about, specimen, id=f"{about.name}-{specimen.name}")
        for about, specimens in DEFECTS.items()
        for specimen in specimens
        if specimen.rule in OF_CLIENTS and specimen.profile
    ],
)
def test_dies_without_a_profile_for_every_seed(
    zygote: Zygote, about: Survey, specimen: Specimen, tmp_path: Path
) -> None:
    """What a client can kill fails by its own rule, whatever the seed, though nobody says how."""
    bare = attrs.evolve(specimen, profile={})
    job = _fork(zygote, GENERATION[about], bare, tmp_path, Budget.STANDARD)
    verdicts = {}
    for seed in [*range(1, survey.KILL_SEEDS), DEFAULT_SEED]:
        answers = job.ask((seed, [specimen.rule]), limit=PATIENCE)
        verdicts[seed] = answers[specimen.rule][:2] if answers else ("died", None)
    job.close()
    killed = [found[0] for found in verdicts.values()].count(Verdict.FAIL.value)
    record = {"rule": specimen.rule, "seeds": len(verdicts), "killed": killed}
    survey.keep(about, "bare", specimen.name, record)

    wrong = {seed: found for seed, found in verdicts.items() if found[0] != Verdict.FAIL.value}
    assert not wrong


@pytest.mark.nightly
@pytest.mark.timeout(7200)  # a plugin that hangs is waited for, seed by seed
@pytest.mark.parametrize(("about", "specimen"), of_surveys(CORRECT, attrgetter("label")))
def test_is_never_flagged(
    zygote: Zygote, about: Survey, specimen: Specimen, tmp_path: Path
) -> None:
    """A correct plugin passes every rule at the deepest budget, whatever the seed."""
    generation = GENERATION[about]
    alarms: dict[str, str | None] = {}
    examples = 0
    job = _fork(zygote, generation, specimen, tmp_path, Budget.DEEP)
    for seed in survey.quiet_seeds():
        answers = job.ask((seed, _simulated(generation)), limit=PATIENCE)
        assert answers is not None, f"seed {seed} ended the process"
        for rule, (verdict, message, _, played) in answers.items():
            examples += played
            if verdict not in GOOD and rule not in (*specimen.advice, *specimen.found):
                alarms[f"{rule}, seed {seed}"] = message
    job.close()
    record = {"seeds": len(survey.quiet_seeds()), "alarms": len(alarms), "examples": examples}
    survey.keep(about, "quiet", f"{specimen.label} {survey.QUIET_SEEDS}", record)

    assert not alarms


@pytest.mark.parametrize("about", GENERATION, ids=lambda about: about.name)
def test_the_committed_survey_covers_the_gallery(about: Survey) -> None:
    """The data in the repository shows no miss, and its page is drawn from it.

    It takes hours, so plugins that are new may still have to be surveyed.
    """
    data = json.loads(about.data.read_text(encoding="utf-8"))
    defects = {specimen.name for specimen in DEFECTS[about]}
    bare = data.get("bare", {})
    quiet = {specimen.label for specimen in CORRECT[about]}

    assert data["kills"].keys() <= defects
    assert data["quiet"].keys() <= quiet
    assert bare.keys() <= defects
    assert all(
        record["killed"] == record["seeds"] for record in (*data["kills"].values(), *bare.values())
    )
    assert not any(survey.total(parts, "alarms") for parts in data["quiet"].values())
    assert survey.page(about, data) == about.page.read_text(encoding="utf-8")
