# SPDX-License-Identifier: Apache-2.0
"""A failure of a parser comes with a program that shows it and needs vLLM alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cases import failing_copy
from programs import execute, imported
from specimens import REFERENCE_PARSER
from support import DEFECTIVE_PARSER, gallery

from conformance.rules import Evidence
from conformance.settings import Budget

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote

#: Rules whose failures a program shows: the others are about making, hanging and requests.
SHOWN = ("03", "04", "05", "06", "07", "08", "10", "11", "18", "21", "23")

#: Where the tokens make the difference, and not the text: those of a program are other ones.
TOKENS = ("decodes_all_again",)

#: Where the event loop makes the difference: a program has none.
LOOPS = ("asks_a_loop_of_its_own",)

SPECIMENS = [
    specimen
    for folder in DEFECTIVE_PARSER
    for specimen in gallery(folder)
    if str(specimen.rule)[3:] in SHOWN
    and specimen.rule not in ("RP-06", "RP-07", "RP-08", "RP-18")
    and "skipped_tokens" not in specimen.profile
    and specimen.name not in TOKENS + LOOPS
    and specimen.evidence is Evidence.SIMULATOR
]

CORRECT = {
    "parser/tool": ("tagged_calls.py", "TaggedCallsParser"),
    "parser/reasoning": ("thinking.py", "ThinkingParser"),
}

#: Markers of parsers whose models have other ones than the reference's.
OWN = {"strips_label_in_one_delta": {"<think>": "<unused94>", "</think>": "<unused95>"}}

pytestmark = pytest.mark.usefixtures("shared_zygote")


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen.label)
def test_a_program_shows_what_was_found(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """It fails for the parser, and with the reference in its place it says that all is well."""
    file, name = CORRECT[specimen.generation]
    correct = (REFERENCE_PARSER / file).read_text(encoding="utf-8")
    correct = correct.replace(name, specimen.target.rpartition(":")[2])
    for known, own in OWN.get(specimen.name, {}).items():
        correct = correct.replace(known, own)
    case = failing_copy(zygote, specimen, tmp_path, budget=Budget.STANDARD, correct=correct)
    source = case.program.read_text(encoding="utf-8")
    assert imported(source) <= {"tokenizers", "transformers", "vllm", case.plugin.stem}
    # What a message quotes is not broken.
    statements = source.split('"""', 2)[2].splitlines()
    assert max(len(line) for line in statements if "/" not in line) <= 100

    status, said = execute(zygote, case.program)
    assert status == 1, said
    assert "FAILS: " in said
    if specimen.rule == "TP-07":  # the program shows what the message says, and nothing else
        assert "no JSON" in said
    assert "expected" in said

    case.mend()
    status, said = execute(zygote, case.program)
    assert status == 0, said
    assert said.splitlines()[-1].startswith("OK: ")


def test_a_cut_is_kept_as_data(zygote: Zygote, tmp_path: Path) -> None:
    """The case has the deltas of the smallest cut that shows it."""
    (specimen,) = (each for each in SPECIMENS if each.name == "leaks_the_marker")
    case = failing_copy(zygote, specimen, tmp_path)
    answer = (case.result.counterexample or {})["answer"]

    assert len(answer["deltas"]) <= 2
    assert "".join(answer["deltas"]) == answer["text"]
