# SPDX-License-Identifier: Apache-2.0
"""What the reference plugins mean, beside the contract that their certificates show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import ROOT

if TYPE_CHECKING:
    from conformance.worker import Zygote

CASES = (
    "reference_job:generates_200_tokens_without_a_trigram_twice",
    "reference_histories:n_gram_bans_equal_an_obvious_search",
    "reference_histories:forced_markers_equal_an_obvious_search",
    "reference_job:thinking_ends_after_its_budget_across_preemption",
    "reference_job:floor_equals_min_p_row_for_row",
    "reference_job:biases_equal_logit_bias_row_for_row",
    "reference_job:steps_do_not_read_the_outputs_again",
    "reference_job:refuses_what_json_cannot_say",
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rpartition(":")[2])
def test_means_what_it_says(zygote: Zygote, case: str, tmp_path: Path) -> None:
    """Each case, described where it is defined, holds."""
    job = zygote.fork(
        "reference_job:run",
        {"case": case},
        log=tmp_path / "job.log",
        directory=tmp_path,
        python_path=[str(Path(__file__).parent), str(ROOT)],
    )
    trouble = job.ask("run", limit=120)
    job.close()

    assert not trouble, "\n".join(trouble)
