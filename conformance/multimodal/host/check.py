# SPDX-License-Identifier: Apache-2.0
"""Judging an engine by the scenes of the host suite.  Worker processes only: vLLM is imported."""

from __future__ import annotations

import platform
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection

import vllm

from conformance.hosts import Broken, Sight, change
from conformance.multimodal.host.rules import RULES
from conformance.rules import Evidence
from conformance.verdict import RuleResult, Verdict
from conformance.watching.interruption import limited
from conformance.watching.raised import said


def judge(connection: Connection, *, patch: str | None, live: bool = True) -> None:
    """Answer with what is known about the surroundings, and a result for every rule.

    Args:
        connection: asks once.
        patch: ``module:function`` that changes vLLM before it is judged.
        live: whether an engine is started as well, which shows some rules a second time.

    """
    connection.recv()
    change(patch)
    surroundings = {"vllm": vllm.__version__, "python": platform.python_version()}
    connection.send((surroundings, [*results(), *(_live() if live else ())]))


def results() -> list[RuleResult]:
    """Judge every rule; where vLLM has no such scheduler, none can be shown."""
    try:
        from conformance.multimodal.host.scenes import SCENES
        from conformance.multimodal.host.stage import Stage

        Stage.make()
    except Exception as error:  # noqa: BLE001 - another release, or one that lacks something
        traceback.print_exc()
        why = f"the scheduler of this vLLM cannot be driven by itself: {said(error)}"
        return [
            RuleResult(rule.id, Verdict.NOT_VERIFIED, Evidence.SIMULATOR, message=why)
            for rule in RULES
        ]
    return [_result(rule.id, SCENES[rule.id]) for rule in RULES]


def _live() -> list[RuleResult]:
    """Judge the rules that a live engine shows."""
    try:
        from conformance.multimodal.host.recording import results as recorded

        return recorded()
    except Exception as error:  # noqa: BLE001 - an engine may raise anything
        traceback.print_exc()
        why = f"a live engine could not be observed: {said(error)}"
        return [RuleResult("ME-01", Verdict.NOT_VERIFIED, Evidence.OFFLINE, message=why)]


def _result(rule: str, scene: Callable[[Sight], None]) -> RuleResult:
    from conformance.multimodal.host.stage import Ended

    see = Sight()
    message = None
    try:
        with limited():
            scene(see)
    except (Broken, Ended) as broken:
        message = str(broken)
    except Exception as error:  # noqa: BLE001 - whatever a host raises in place of an answer
        traceback.print_exc()
        message = f"the engine raised {type(error).__name__}: {error}"
    verdict = Verdict.PASS if message is None else Verdict.FAIL
    return RuleResult(rule, verdict, Evidence.SIMULATOR, see.count, see.count, message=message)
