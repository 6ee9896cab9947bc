# SPDX-License-Identifier: Apache-2.0
"""A failure of a processor comes with a program that shows it and needs vLLM alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cases import failing_copy
from programs import execute, imported
from support import DEFECTIVE_PROCESSOR, gallery

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote

#: A processor for each function of the player.
SHOWN = {
    "stacks_images": "processed",
    "adds_a_row_for_the_class": "rows",
    "encodes_no_long_sounds": "rows",
    "takes_nothing_for_no_rows": "rows",
    "centres_the_batch": "rows_alone",
    "counts_the_largest": "alone",
    "takes_the_layout_of_the_first": "alone",
    "keeps_an_option_for_all": "after",
    "looks_options_up": "refused",
    "knows_three_modes": "refused",
    "takes_any_side": "denied",
}

SPECIMENS = {specimen.name: specimen for specimen in gallery(DEFECTIVE_PROCESSOR)}

#: A class of the same name that has no fault, of any processor here.
CORRECT = """\
from fixtures.multimodal.small_model import SIDE, SmallModel, SmallProcessor, registered


class Processor(SmallProcessor):
    def image(self, image, side=SIDE):
        if side not in range(1, SIDE + 1):
            raise ValueError(f"a side of {side} patches")
        return super().image(image, side)


@registered(Processor)
class NAME(SmallModel):
    pass
"""

pytestmark = pytest.mark.usefixtures("shared_zygote")


@pytest.mark.parametrize("name", SHOWN)
def test_a_program_shows_what_was_found(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """It fails for the processor, and with a correct one in its place it says that all is well."""
    specimen: Specimen = SPECIMENS[name]
    correct = CORRECT.replace("NAME", specimen.target.rpartition(":")[2])
    case = failing_copy(zygote, specimen, tmp_path, correct=correct)
    source = case.program.read_text(encoding="utf-8")
    assert f"check_{SHOWN[name]}(" in source
    assert imported(source) <= {"PIL", "numpy", "torch", "vllm", case.plugin.stem}
    # What a message quotes is not broken.
    statements = source.split('"""', 2)[2].splitlines()
    assert max(len(line) for line in statements if "/" not in line) <= 100

    status, said = execute(zygote, case.program)
    assert status == 1, said
    assert "FAILS: " in said
    assert "expected" in said

    case.mend()
    status, said = execute(zygote, case.program)
    assert status == 0, said
    assert "OK: " in said


def test_what_no_file_can_hold_has_no_program(zygote: Zygote, tmp_path: Path) -> None:
    """A rule that no function of the player is about has a case, and no program."""
    case = failing_copy(zygote, SPECIMENS["adds_noise"], tmp_path)

    assert case.path.is_file()
    assert not case.program.exists()
