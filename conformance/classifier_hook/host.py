# SPDX-License-Identifier: Apache-2.0
"""Having the runtime of classifier hooks judged in a worker.  Imports neither vLLM nor torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conformance.classifier_hook.host_rules import RULES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

__all__ = ["RULES", "Judged", "judge"]

#: Seconds for all scenes, whose own time is virtual.
LIMIT = 300.0

#: What is known about the surroundings, and a result for each rule.
Judged = tuple[dict[str, Any], list["RuleResult"]]


def judge(
    zygote: Zygote,
    folder: Path,
    *,
    patch: str | None = None,
    python_path: Sequence[str] = (),
) -> Judged:
    """Judge the runtime of classifier hooks in a forked process.

    Args:
        zygote: the process to fork from.
        folder: where the process writes its log.
        patch: ``module:function`` on ``python_path`` that changes the runtime first.
        python_path: folders for the worker's ``sys.path``.

    Returns:
        What is known about the surroundings, and a result for each rule.

    Raises:
        JobDied: the process ended.
        JobHung: there was no answer within five minutes.
        ZygoteFailed: vLLM cannot be imported.

    """
    job = zygote.fork(
        "conformance.classifier_hook.host_check:judge",
        {"patch": patch},
        log=folder / "host.log",
        directory=folder,
        python_path=python_path,
    )
    try:
        answer: Judged = job.ask("judge", limit=LIMIT)
    finally:
        job.close()
    return answer
