# SPDX-License-Identifier: Apache-2.0
"""What engines do when they start is done once, before they are forked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from conformance.engine.models import tiny_llama
from conformance.running.trials import ENGINES

if TYPE_CHECKING:
    from conformance.worker import Zygote


def test_engines_find_everything_done(zygote: Zygote, tmp_path: Path) -> None:
    """They register no kernels and compile nothing, and give the ranks that they would give."""
    job = zygote.fork(
        "beforehand_job:engines",
        {"model": str(tiny_llama())},
        log=tmp_path / "job.log",
        directory=tmp_path,
        python_path=[str(Path(__file__).parent)],
        preload=(ENGINES,),
    )
    missing, stands_in, registered, compiled, ranks = job.ask("run", limit=240)
    job.close()

    assert not missing
    assert stands_in
    assert registered == []
    assert compiled == 0
    assert ranks == [[1, 1, 1, 1]] * 2
