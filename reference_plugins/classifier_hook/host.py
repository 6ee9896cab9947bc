# SPDX-License-Identifier: Apache-2.0
"""The hooks of one engine at work: from a call of ``generate`` to scored outputs."""

from __future__ import annotations

import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from reference_plugins.classifier_hook import scope as scopes
from reference_plugins.classifier_hook.configuration import Policy
from reference_plugins.classifier_hook.contract import plain
from reference_plugins.classifier_hook.dispatch import Dispatcher
from reference_plugins.classifier_hook.events import log
from reference_plugins.classifier_hook.metrics import Metrics
from reference_plugins.classifier_hook.registry import Registry
from reference_plugins.classifier_hook.stream import Request, scored
from reference_plugins.classifier_hook.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping

    from vllm.outputs import RequestOutput
    from vllm.sampling_params import SamplingParams

    from reference_plugins.classifier_hook.contract import Entry, ExternalClassifierHook

#: True where calls of ``generate`` are steps of a search, whose result is scored as a whole.
within_search: ContextVar[bool] = ContextVar("classifier_hook_within_search", default=False)

#: The attribute of an engine that holds its hooks.
ATTRIBUTE = "_classifier_hook_host"

#: Arguments of ``generate`` that are plain facts about the request.
_FACTS = ("priority", "data_parallel_rank", "session_id", "trace_headers")


def hooks_of(engine: object) -> HookHost | None:
    """Return the hooks of an engine, or None if it never had one."""
    host: HookHost | None = getattr(engine, "__dict__", {}).get(ATTRIBUTE)
    return host


class HookHost:
    """The hooks of one engine, and what an operator has chosen for them.

    Attributes:
        registry: the hooks.
        policy: how streams are treated, and the default refusal; may be set at any time, for
            requests that start from then on.
        dispatcher: calls the hooks; its observers see every event.

    """

    def __init__(
        self, engine: object, *, policy: Policy | None = None, dispatcher: Dispatcher | None = None
    ) -> None:
        self.registry = Registry()
        self.policy = policy or Policy()
        self.metrics = Metrics()
        self.dispatcher = dispatcher or Dispatcher([log, self.metrics.observe])
        # An engine ends when its last reference goes, so there must be no circle.
        self._engine = weakref.ref(engine)

    def register(self, hook: ExternalClassifierHook) -> Entry:
        """Add *hook*, for requests that start from now on.

        Raises:
            HookRefused: the hook does not keep the contract, or its name is taken.

        """
        entry = self.registry.register(hook)
        self.metrics.announce(entry.name)
        return entry

    def watch(
        self,
        outputs: AsyncGenerator[RequestOutput, None],
        params: SamplingParams,
        arguments: Mapping[str, Any],
    ) -> AsyncGenerator[RequestOutput, None]:
        """Return *outputs*, of one call of ``generate``, with completions scored and replaced.

        Args:
            outputs: what the engine generates.
            params: the request's sampling parameters.
            arguments: the other arguments of ``generate``.

        """
        request = self.request(params, arguments)
        return outputs if request is None else scored(outputs, request)

    def request(self, params: SamplingParams, arguments: Mapping[str, Any]) -> Request | None:
        """Return how the completions of a request are to be scored; None if they are not.

        Args:
            params: the request's sampling parameters.
            arguments: the other arguments by which the engine was given it.

        """
        entries = self.registry.entries
        if not entries or within_search.get():
            return None
        scope = scopes.current()
        facts = {name: arguments[name] for name in _FACTS if arguments.get(name) is not None}
        if (lora := arguments.get("lora_request")) is not None:
            facts["lora"] = lora.lora_name
        given = params.extra_args or {}
        engine = self._engine()
        request = Request(
            entries=entries,
            dispatcher=self.dispatcher,
            transcript=Transcript(
                params,
                tokenizer=getattr(engine, "tokenizer", None),
                extra_fields=plain({**given, **scope.extra_fields} if scope else given),
                request_metadata=plain({**facts, **scope.request_metadata} if scope else facts),
            ),
            completions=params.n,
            hold=self.policy.streaming == "hold" and any(entry.blocking for entry in entries),
            refusal=self.policy.refusal,
            scope=scope,
        )
        if scope is not None:
            request.call = scope.calls
            scope.calls += 1
        return request

    def abandon(self, request_ids: str | Iterable[str]) -> None:
        """Cancel the hooks at work on aborted requests."""
        for request_id in (request_ids,) if isinstance(request_ids, str) else request_ids:
            self.dispatcher.abandon(request_id)
