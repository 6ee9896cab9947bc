# SPDX-License-Identifier: Apache-2.0
"""The ladder: a live engine's orders, played in the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conformance.worker import Zygote


def test_orders_become_the_calls_that_an_engine_sends(zygote: Zygote, tmp_path: Path) -> None:
    """Joins, a one-way move, a step without change, and a resumed request with its outputs."""
    job = zygote.fork(
        "ladder_job:play_orders",
        {},
        log=tmp_path / "job.log",
        directory=tmp_path,
        python_path=[str(Path(__file__).parent)],
    )
    calls = job.ask("play", limit=60)
    job.close()

    assert calls == [
        ((), ((0, (7, 11), ()), (1, (13,), ())), ()),
        None,
        ((), (), ((1, 0, "UNIDIRECTIONAL"),)),
        ((0,), (), ()),
        ((), ((0, (13,), (5, 6, 7)),), ()),
    ]
