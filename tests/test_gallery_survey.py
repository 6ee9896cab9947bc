# SPDX-License-Identifier: Apache-2.0
"""Many seeds: every defective plugin dies by its own rule, and no correct one does."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import pytest
import survey
from specimens import (
    builtin_processors,
    modality_references,
    parser_references,
    processor_references,
)
from support import (
    DEFECTIVE_MODALITY,
    DEFECTIVE_PARSER,
    DEFECTIVE_PROCESSOR,
    FIXTURES,
    UNUSUAL_MODALITY,
    UNUSUAL_PARSER,
    UNUSUAL_PROCESSOR,
    certify,
    gallery,
    of_surveys,
)

from conformance.rules import Evidence
from conformance.settings import DEFAULT_SEED, Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from support import Specimen
    from survey import Survey

    from conformance.worker import Zygote

PARSERS = {"parser/tool": survey.TOOL_PARSER, "parser/reasoning": survey.REASONING_PARSER}


def _parsers(specimens: Iterable[Specimen]) -> dict[Survey, list[Specimen]]:
    """Return those that the simulator judges, by what they are for."""
    found: dict[Survey, list[Specimen]] = {about: [] for about in PARSERS.values()}
    for each in specimens:
        if each.evidence is Evidence.SIMULATOR:
            found[PARSERS[str(each.generation)]].append(each)
    return found


DEFECTS = {
    survey.PROCESSOR: gallery(DEFECTIVE_PROCESSOR),
    survey.MODALITY: gallery(DEFECTIVE_MODALITY),
    **_parsers(each for folder in DEFECTIVE_PARSER for each in gallery(folder)),
}
CORRECT = {
    survey.PROCESSOR: [
        *processor_references(),
        *builtin_processors(),
        *gallery(UNUSUAL_PROCESSOR),
    ],
    survey.MODALITY: [*modality_references(), *gallery(UNUSUAL_MODALITY)],
    **_parsers(
        [*parser_references(), *(each for folder in UNUSUAL_PARSER for each in gallery(folder))]
    ),
}
GOOD = {Verdict.PASS, Verdict.NOT_APPLICABLE}


def _known_as(specimen: Specimen) -> str:
    """Return the file of one in a gallery, else the class: two classes may have one name."""
    of_gallery = specimen.target.startswith(str(FIXTURES))
    return specimen.name if of_gallery else specimen.label


@pytest.mark.nightly
@pytest.mark.timeout(7200)  # twenty seeds
@pytest.mark.parametrize(("about", "specimen"), of_surveys(DEFECTS, attrgetter("name")))
def test_dies_for_every_seed(
    zygote: Zygote, about: Survey, specimen: Specimen, tmp_path: Path
) -> None:
    """A defective plugin fails by its own rule, whatever the seed."""
    rule = str(specimen.rule)
    evidence = (specimen.evidence,)
    seeds = [*range(1, survey.KILL_SEEDS), DEFAULT_SEED]
    found = [
        certify(zygote, specimen, tmp_path, seed=seed, evidence=evidence, rules={rule})[rule]
        for seed in seeds
    ]
    whole = certify(zygote, specimen, tmp_path, evidence=evidence)
    failing = [name for name, one in whole.items() if one.verdict is Verdict.FAIL]
    killed = [one for one in found if one.verdict is Verdict.FAIL]
    record = {
        "rule": rule,
        "kind": specimen.kind,
        "seeds": len(seeds),
        "killed": len(killed),
        "first": [one.examples for one in killed if one.examples],
        "also": [name for name in failing if name != rule],
    }
    survey.keep(about, "kills", specimen.name, record)

    assert len(killed) == len(seeds), [one.message for one in found]


@pytest.mark.nightly
@pytest.mark.timeout(7200)  # fifty seeds
@pytest.mark.parametrize(("about", "specimen"), of_surveys(CORRECT, _known_as))
def test_is_never_flagged(
    request: pytest.FixtureRequest, about: Survey, specimen: Specimen, tmp_path: Path
) -> None:
    """A correct plugin passes every rule at the deepest budget, whatever the seed."""
    of_vllm = specimen.target.startswith("vllm.")
    zygote: Zygote = request.getfixturevalue("seeing" if of_vllm else "zygote")
    alarms: dict[str, str | None] = {}
    examples = 0
    for seed in survey.quiet_seeds():
        for rule, one in certify(zygote, specimen, tmp_path, seed=seed, budget=Budget.DEEP).items():
            examples += one.examples
            if one.verdict not in GOOD and rule not in specimen.advice:
                alarms[f"{rule}, seed {seed}"] = one.message
    record = {"seeds": len(survey.quiet_seeds()), "alarms": len(alarms), "examples": examples}
    survey.keep(about, "quiet", f"{_known_as(specimen)} {survey.QUIET_SEEDS}", record)

    assert not alarms
