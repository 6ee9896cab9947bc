# SPDX-License-Identifier: Apache-2.0
"""Judging what runs plugins: vLLM, a fork of it or a hardware plugin.  Imports no vLLM itself."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from conformance.rules import Evidence, Rule, Source
from conformance.verdict import RuleResult

if TYPE_CHECKING:
    from conformance.worker import Zygote

#: Seconds for what is asked of a host: an engine of a tiny model, or scenes without one.
LIMIT = 300.0

#: What is known about the surroundings, and results for each rule.
Judged = tuple[dict[str, Any], list[RuleResult]]


class Broken(Exception):
    """A scene shows that a rule does not hold: one sentence."""


@attrs.define
class Sight:
    """Counts what was seen to hold, and ends a scene at the first thing that does not."""

    count: int = 0

    def __call__(self, holds: object, otherwise: str) -> None:
        """Note something; *otherwise* says what is so where it does not hold."""
        self.count += 1
        if not holds:
            raise Broken(otherwise)


@attrs.frozen
class Host:
    """What runs the plugins of an interface, and is judged by scenes that are played with it."""

    generation: str
    rules: tuple[Rule, ...]
    check: str  #: ``module:function`` of the job that plays the scenes

    def judge(
        self,
        zygote: Zygote,
        folder: Path,
        *,
        patch: str | None = None,
        python_path: Sequence[str] = (),
        **arguments: bool,
    ) -> Judged:
        """Judge the host in a forked process; ``arguments`` are for the job.

        Raises:
            JobDied, JobHung, ZygoteFailed: as :func:`asked` does.

        """
        answer: Judged = asked(
            zygote, folder, self.check, {"patch": patch, **arguments}, python_path
        )
        return answer


def asked(
    zygote: Zygote,
    folder: Path,
    job: str,
    arguments: Mapping[str, Any],
    python_path: Sequence[str] = (),
) -> Any:  # noqa: ANN401 - whatever the job answers
    """Have a host observed in a forked process; return what the job answers.

    Args:
        zygote: the process to fork from.
        folder: where the process writes its log.
        job: ``module:function`` that observes.
        arguments: for it; ``patch`` is a ``module:function`` on ``python_path`` that changes the
            host first.
        python_path: folders for the worker's ``sys.path``.

    Raises:
        JobDied: the process ended.
        JobHung: there was no answer within five minutes.
        ZygoteFailed: vLLM cannot be imported.

    """
    worker = zygote.fork(
        job, arguments, log=folder / "host.log", directory=folder, python_path=python_path
    )
    try:
        return worker.ask("observe", limit=LIMIT)
    finally:
        worker.close()


def change(patch: str | None) -> None:
    """Change the host as ``module:function`` does, if anything is to."""
    if patch is not None:
        module, _, function = patch.partition(":")
        getattr(importlib.import_module(module), function)()


def rule(
    rule_id: str,
    section: str,
    title: str,
    statement: str,
    hint: str,
    *sources: Source,
    evidence: tuple[Evidence, ...] = (Evidence.SIMULATOR,),
) -> Rule:
    """Return a rule of hosts: its words in the order in which they are read."""
    return Rule(
        id=rule_id,
        title=title,
        statement=statement,
        section=section,
        sources=sources,
        hint=hint,
        evidence=evidence,
    )
