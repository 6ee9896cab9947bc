# SPDX-License-Identifier: Apache-2.0
"""Having the engine's side of multi-modal requests judged in a worker.  Imports no vLLM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conformance.multimodal.host.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

__all__ = ["RULES", "Judged", "judge"]

#: Seconds for all scenes, in which nothing is computed, and for an engine.
LIMIT = 300.0

#: What is known about the surroundings, and one or two results for each rule.
Judged = tuple[dict[str, Any], list["RuleResult"]]


def judge(
    zygote: Zygote,
    folder: Path,
    *,
    patch: str | None = None,
    live: bool = True,
    python_path: Sequence[str] = (),
) -> Judged:
    """Judge vLLM's scheduler and its caches of items in a forked process.

    Args:
        zygote: the process to fork from.
        folder: where the process writes its log.
        patch: ``module:function`` on ``python_path`` that changes vLLM first.
        live: whether an engine is started as well, which shows some rules a second time.
        python_path: folders for the worker's ``sys.path``.

    Returns:
        What is known about the surroundings, and a result for each rule.

    Raises:
        JobDied: the process ended.
        JobHung: there was no answer within five minutes.
        ZygoteFailed: vLLM cannot be imported.

    """
    job = zygote.fork(
        "conformance.multimodal.host.check:judge",
        {"patch": patch, "live": live},
        log=folder / "host.log",
        directory=folder,
        python_path=python_path,
    )
    try:
        answer: Judged = job.ask("judge", limit=LIMIT)
    finally:
        job.close()
    return answer
