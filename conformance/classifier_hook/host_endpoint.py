# SPDX-License-Identifier: Apache-2.0
"""The scene of vLLM's endpoint plugins, where these have ``post_generation``."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from vllm.outputs import RequestOutput
from vllm.plugins.endpoint_plugins.interface import EndpointPlugin

from conformance.classifier_hook.host_engine import (
    PROMPT,
    Hook,
    blocks,
    completion_of,
    ignores_cancellation,
    takes,
)
from conformance.classifier_hook.host_stage import Missing
from conformance.classifier_hook.host_verdicts import FAILURES
from conformance.hosts import Sight
from reference_plugins.classifier_hook.contract import DEFAULT_REFUSAL
from reference_plugins.classifier_hook.endpoint import MODULE, EndpointHook, has_post_generation

#: Why the rule cannot be shown.
MISSING = (
    "this vLLM's endpoint plugins have no post_generation (pull request 53512 is not in it), so "
    "nothing would call an EndpointHook"
)


async def serves_endpoints(see: Sight) -> None:
    """CR-29: what vLLM makes of a hook's scores, decisions and failures."""
    if not has_post_generation():
        raise Missing(MISSING)
    see(isinstance(EndpointHook(Hook("one", takes(0))), EndpointPlugin), "vLLM does not know it")
    output, outcome = await _applied(Hook("one", takes(0, n=1)), "fine")
    see(_scores(output) == {"one": {"n": 1}}, f"the scores are {_scores(output)}")
    see(not outcome.blocked, "an annotation blocked")
    for replacement, wanted in (("No.", "No."), (None, DEFAULT_REFUSAL)):
        hook = Hook("blocker", blocks("bad", replacement=replacement), blocking=True)
        output, outcome = await _applied(hook, "so bad")
        text = output.outputs[0].text
        see(text == wanted, f"a blocked answer became {text!r}, and should be {wanted!r}")
        output, outcome = await _applied(hook, "fine")
        see(output.outputs[0].text == "fine", "an answer was replaced that nobody blocked")
    for what, (does, kind) in FAILURES.items():
        for blocking, on_error, wanted in (
            (False, "block", "fine"),
            (True, "allow", "fine"),
            (True, "block", DEFAULT_REFUSAL),
        ):
            hook = Hook("fails", does, blocking=blocking, on_error=on_error)
            output, _ = await _applied(hook, "fine")
            text, found = output.outputs[0].text, _scores(output).get("fails", {})
            who = f"a hook (blocking {blocking}, on_error {on_error!r}) that {what}"
            see(text == wanted, f"{who}: the answer became {text!r}")
            see(found.get("error", {}).get("type") == kind, f"{who} left {found}")
    loop = asyncio.get_running_loop()
    began = loop.time()
    await _applied(Hook("deaf", ignores_cancellation, blocking=True, timeout_ms=100), "fine")
    held = loop.time() - began
    see(held < 1, f"a hook of 100 ms that ignores its cancellation held the answer {held:.2f} s")


async def _applied(hook: Hook, text: str) -> tuple[RequestOutput, Any]:
    """Have vLLM's own function ask a hook about an answer; return both as they are then."""
    apply: Any = importlib.import_module(MODULE).apply_post_generation_hooks
    output = RequestOutput(
        request_id="request",
        prompt="x",
        prompt_token_ids=PROMPT,
        prompt_logprobs=None,
        outputs=[completion_of({"text": text, "finish_reason": "stop"})],
        finished=True,
    )
    return output, await apply([EndpointHook(hook)], output)


def _scores(output: RequestOutput) -> dict[str, Any]:
    found: dict[str, Any] = (getattr(output, "metadata", None) or {}).get("external_scores", {})
    return found


SCENES = {"CR-29": serves_endpoints}
