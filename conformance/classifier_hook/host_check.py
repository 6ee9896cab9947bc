# SPDX-License-Identifier: Apache-2.0
"""Judging a runtime by the scenes of the host suite.  Worker processes only: vLLM is imported."""

from __future__ import annotations

import platform
import traceback
from multiprocessing.connection import Connection
from typing import Any

import vllm

from conformance.classifier_hook import host_endpoint, host_outputs, host_requests, host_verdicts
from conformance.classifier_hook.host_rules import RULES
from conformance.classifier_hook.host_stage import Missing, Unsupported, play
from conformance.hosts import change
from conformance.rules import Evidence
from conformance.verdict import RuleResult, Verdict

SCENES = {
    **host_verdicts.SCENES,
    **host_outputs.SCENES,
    **host_requests.SCENES,
    **host_endpoint.SCENES,
}


def judge(connection: Connection, *, patch: str | None) -> None:
    """Answer with what is known about the surroundings, and a result for every rule.

    Args:
        connection: asks once.
        patch: ``module:function`` that changes the runtime before it is judged.

    """
    connection.recv()
    change(patch)
    connection.send((context(), [result(rule.id) for rule in RULES]))


def context() -> dict[str, Any]:
    """Return what is known about the surroundings."""
    from vllm.v1.engine.async_llm import AsyncLLM

    from reference_plugins.classifier_hook.mount import METHOD, mount, register

    mount(AsyncLLM)
    mine = getattr(AsyncLLM, METHOD) is register
    return {
        "vllm": vllm.__version__,
        "runtime": "reference_plugins.classifier_hook" if mine else "vLLM's own",
        "python": platform.python_version(),
    }


def result(rule: str) -> RuleResult:
    """Judge one rule."""
    try:
        count, broken = play(SCENES[rule])
    except Missing as why:
        return RuleResult(rule, Verdict.NOT_VERIFIED, Evidence.SIMULATOR, message=str(why))
    except Unsupported as why:
        return RuleResult(rule, Verdict.NOT_APPLICABLE, Evidence.SIMULATOR, message=str(why))
    except BaseException as error:  # noqa: BLE001 - also what a runtime lets a hook raise
        traceback.print_exc()
        message = f"the event loop ended with {type(error).__name__}: {error}"
        return RuleResult(rule, Verdict.FAIL, Evidence.SIMULATOR, 1, 1, message=message)
    verdict = Verdict.PASS if broken is None else Verdict.FAIL
    return RuleResult(rule, verdict, Evidence.SIMULATOR, count, count, message=broken)
