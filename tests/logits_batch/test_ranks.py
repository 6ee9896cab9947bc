# SPDX-License-Identifier: Apache-2.0
"""Rule LB-33 in a real engine: two tensor-parallel ranks on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import DEFECTIVE, ROOT

from conformance.engine.models import tiny_llama

if TYPE_CHECKING:
    from conformance.worker import Zygote

REFERENCE = ROOT / "reference_plugins" / "logits_batch"


def _run(
    zygote: Zygote, log: Path, target: str, keywords: dict[str, Any], ranks: int
) -> tuple[list[tuple[int, ...]], list[list[str]]]:
    """Return the tokens of every request, and digests of what each rank computed."""
    job = zygote.fork(
        "ranks_job:run",
        {"target": target, "keywords": keywords, "model": str(tiny_llama()), "ranks": ranks},
        log=log,
        directory=log.parent,
        python_path=[str(folder) for folder in (Path(__file__).parent, REFERENCE, DEFECTIVE)],
    )
    try:
        tokens, digests = job.ask("run", limit=180)
    finally:
        job.close()
    return tokens, digests


@pytest.mark.engine
@pytest.mark.slow
def test_the_reference_agrees_on_two_ranks(zygote: Zygote, tmp_path: Path) -> None:
    """Both ranks get the same rows, bit for bit, and the tokens are those of one rank."""
    target, keywords = (
        "target_token:TargetTokenLogitsProcessor",
        {"extra_args": {"target_token": 67}},
    )
    tokens, (first, second) = _run(zygote, tmp_path / "two.log", target, keywords, 2)
    alone, (only,) = _run(zygote, tmp_path / "one.log", target, keywords, 1)

    assert first
    assert first == second
    assert len(only) == len(first)
    assert tokens == alone
    assert set(tokens[0]) == {67}
    assert set(tokens[1]) != {67}


@pytest.mark.engine
@pytest.mark.slow
def test_a_plugin_seeded_by_its_process_disagrees(zygote: Zygote, tmp_path: Path) -> None:
    """What the simulator finds by playing two processes, two real ranks show."""
    target, keywords = "seeds_from_process_id:SeedsFromProcessId", {"extra_args": {"noise": 2.0}}
    _, (first, second) = _run(zygote, tmp_path / "two.log", target, keywords, 2)

    assert len(first) == len(second)
    assert first != second
