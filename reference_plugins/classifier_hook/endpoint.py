# SPDX-License-Identifier: Apache-2.0
"""The same hook as a vLLM endpoint plugin, for the direction that vLLM is taking.

vLLM pull request 53512 gives endpoint plugins an optional method ``post_generation``, which the
server awaits for each answer before it is written.  A package names its hook twice and has both:

    def plugin():
        return EndpointHook(MyHook())

as an entry point of ``vllm.endpoint_plugins``, which the operator allows by ``VLLM_PLUGINS``.
Where vLLM has no such method, the hook is registered on the server's engine by this runtime.

That request asks plugins one after the other, waits for a cancelled one as long as it takes, lets
an answer through that a blocking plugin scored with something else than a dict, and keeps no
scores of one that fails.  So calls are made by this runtime here as well, and vLLM is told the
outcome.  What remains of its own: several completions of a request are scored as one text, and a
stream that is blocked ends in an error.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from reference_plugins.classifier_hook.contract import DEFAULT_REFUSAL, ScoringContext
from reference_plugins.classifier_hook.dispatch import Dispatcher
from reference_plugins.classifier_hook.events import log
from reference_plugins.classifier_hook.metrics import Metrics
from reference_plugins.classifier_hook.registry import checked

if TYPE_CHECKING:
    from reference_plugins.classifier_hook.contract import ExternalClassifierHook

#: Where vLLM defines what calls ``post_generation``.
MODULE = "vllm.plugins.endpoint_plugins.post_generation"

#: Milliseconds that vLLM's own timeout comes after the end that this runtime puts to a call.
_LATER = 1000


def has_post_generation() -> bool:
    """Tell whether the installed vLLM calls ``post_generation`` of endpoint plugins."""
    try:
        return importlib.util.find_spec(MODULE) is not None
    except (ImportError, ValueError):
        return False


class EndpointHook:
    """A classifier hook as vLLM's ``EndpointPlugin``.

    Args:
        hook: the hook.
        refusal: what replaces an answer where the hook has no text of its own.

    Raises:
        HookRefused: the hook does not keep the contract.

    """

    required_tasks = ("generate",)

    def __init__(self, hook: ExternalClassifierHook, *, refusal: str = DEFAULT_REFUSAL) -> None:
        self._entry = checked(hook)
        self._refusal = refusal
        metrics = Metrics()
        metrics.announce(self._entry.name)
        self._dispatcher = Dispatcher([log, metrics.observe])
        self.name = self._entry.name
        self.blocking = self._entry.blocking
        # The calls end by this runtime's clock, which leaves the scores of who was too late.
        bound = self._entry.timeout + self._dispatcher.margin
        self.timeout_ms = round(bound * 1000) + _LATER

    def attach_router(self, app: object) -> None:
        """Add no routes."""

    async def init_state(self, engine_client: Any, state: object, args: object) -> None:  # noqa: ANN401 - as vLLM has it
        """Register the hook on the engine, where vLLM does not call ``post_generation``.

        Raises:
            HookRefused: the engine has a hook of that name.
            MountRefused: this vLLM leaves no place for hooks.

        """
        if engine_client is None or has_post_generation():
            return
        from reference_plugins.classifier_hook.mount import register

        register(engine_client, self._entry.hook)

    async def post_generation(self, ctx: Any) -> dict[str, Any]:  # noqa: ANN401 - vLLM's own context
        """Return the scores and the decision, in the words of vLLM's endpoint plugins."""
        verdict = await self._dispatcher.start((self._entry,), _context(ctx)).verdict()
        if verdict is None:  # its request was aborted
            return {}
        scores = verdict.scores[self.name]
        if verdict.blocker is None:
            return scores
        return {**scores, "block": True, "replacement": verdict.replacement or self._refusal}


def _context(ctx: Any) -> ScoringContext:  # noqa: ANN401 - vLLM's own context
    return ScoringContext(
        request_id=ctx.request_id,
        prompt=ctx.prompt or "",
        generated_text=ctx.generated_text,
        finish_reason=ctx.finish_reason or "stop",
        prompt_token_ids=list(ctx.prompt_token_ids or ()),
        output_token_ids=list(ctx.output_token_ids),
        extra_fields=dict(getattr(ctx, "vllm_xargs", None) or {}),
    )
