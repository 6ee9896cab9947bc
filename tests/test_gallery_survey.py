# SPDX-License-Identifier: Apache-2.0
"""Many seeds: every defective plugin dies by its own rule, and no correct one does."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import pytest
import survey
from specimens import (
    builtin_processors,
    hook_references,
    io_references,
    modality_references,
    parser_references,
    processor_references,
)
from support import (
    DEFECTIVE_HOOK,
    DEFECTIVE_IO,
    DEFECTIVE_MODALITY,
    DEFECTIVE_PARSER,
    DEFECTIVE_PROCESSOR,
    FIXTURES,
    UNUSUAL_HOOK,
    UNUSUAL_IO,
    UNUSUAL_MODALITY,
    UNUSUAL_PARSER,
    UNUSUAL_PROCESSOR,
    certify,
    gallery,
    good,
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

ABOUT = {
    "io/data": survey.IO_DATA,
    "io/request": survey.IO_REQUEST,
    "hook/rfc": survey.HOOK,
    "mm/processor": survey.PROCESSOR,
    "mm/modality": survey.MODALITY,
    "parser/tool": survey.TOOL_PARSER,
    "parser/reasoning": survey.REASONING_PARSER,
}


def _by_survey(specimens: Iterable[Specimen]) -> dict[Survey, list[Specimen]]:
    """Return those that the simulator judges, by what they are for."""
    found: dict[Survey, list[Specimen]] = {about: [] for about in ABOUT.values()}
    for each in specimens:
        if each.evidence is Evidence.SIMULATOR:
            found[ABOUT[each.generation]].append(each)
    return found


def _of(*folders: Path) -> list[Specimen]:
    return [specimen for folder in folders for specimen in gallery(folder)]


DEFECTS = _by_survey(
    _of(*DEFECTIVE_IO, DEFECTIVE_HOOK, DEFECTIVE_PROCESSOR, DEFECTIVE_MODALITY, *DEFECTIVE_PARSER)
)
CORRECT = _by_survey(
    [
        *io_references(),
        *hook_references(),
        *processor_references(),
        *builtin_processors(),
        *modality_references(),
        *parser_references(),
        *_of(*UNUSUAL_IO, UNUSUAL_HOOK, UNUSUAL_PROCESSOR, UNUSUAL_MODALITY, *UNUSUAL_PARSER),
    ]
)


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
    seeds = [*range(1, survey.KILL_SEEDS), DEFAULT_SEED]
    found = [certify(zygote, specimen, tmp_path, seed=seed, rules={rule})[rule] for seed in seeds]
    whole = certify(zygote, specimen, tmp_path)
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
            if one.verdict not in good(rule) and rule not in specimen.advice:
                alarms[f"{rule}, seed {seed}"] = one.message
    record = {"seeds": len(survey.quiet_seeds()), "alarms": len(alarms), "examples": examples}
    survey.keep(about, "quiet", f"{_known_as(specimen)} {survey.QUIET_SEEDS}", record)

    assert not alarms
