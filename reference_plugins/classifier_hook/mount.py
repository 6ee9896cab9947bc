# SPDX-License-Identifier: Apache-2.0
"""``register_external_classifier_hook`` of ``AsyncLLM`` and ``LLMEngine``, with no change to vLLM.

The classes get that method and nothing else.
What serves an engine's requests is put before its own when its first hook is registered,
so an engine without hooks runs vLLM's functions and no others.
Only where hooks are configured for every engine is the constructor wrapped, to register them.

What is asked of vLLM is looked at, not its version: `missing` says what is not there.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from typing import TYPE_CHECKING, Any

from reference_plugins.classifier_hook import steps
from reference_plugins.classifier_hook.configuration import configured
from reference_plugins.classifier_hook.contract import REPLACED
from reference_plugins.classifier_hook.events import logger
from reference_plugins.classifier_hook.host import ATTRIBUTE, HookHost, hooks_of
from reference_plugins.classifier_hook.registry import Registry, checked

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from vllm.outputs import RequestOutput
    from vllm.sampling_params import SamplingParams

    from reference_plugins.classifier_hook.configuration import Policy
    from reference_plugins.classifier_hook.contract import ExternalClassifierHook

METHOD = "register_external_classifier_hook"
_GENERATE = ("prompt", "sampling_params", "request_id")


class MountRefused(RuntimeError):
    """Hooks cannot be mounted on this vLLM: one sentence on what it lacks."""


def register(
    engine: Any,  # noqa: ANN401 - AsyncLLM, which is not imported for its type alone
    hook: ExternalClassifierHook,
    *,
    policy: Policy | None = None,
) -> None:
    """Register *hook* on an engine, for requests that start from now on.

    ``engine.register_external_classifier_hook(hook)`` is the same.

    Args:
        engine: an ``AsyncLLM`` or an ``LLMEngine``.
        hook: the hook; its name is unique in the engine.
        policy: how the engine's hooks work, if it is to change.

    Raises:
        HookRefused: the hook does not keep the contract, or its name is taken.
        MountRefused: this vLLM leaves no place for hooks.

    """
    checked(hook)  # before anything is wrapped for it
    host = hooks_of(engine)
    if host is None:
        if lacking := missing(type(engine)):
            raise MountRefused(_refusal(lacking))
        host = HookHost(engine)
        host.register(hook)
        _attach(engine, host)
    else:
        host.register(hook)
    if policy is not None:
        host.policy = policy


def mount(kind: type) -> None:
    """Give an engine's class its method; may be called again.

    Raises:
        MountRefused: hooks are configured, and this vLLM leaves no place for them.

    """
    own = getattr(kind, METHOD, None)
    if own is None:
        own = register
        setattr(kind, METHOD, register)
    elif own is not register:
        logger.info("%s has a %s of its own, which stays", kind.__name__, METHOD)
    if not configured().factories:
        return
    if own is register and (lacking := missing(kind)):
        raise MountRefused(_refusal(lacking))
    construct = vars(kind)["__init__"]
    if not hasattr(construct, ATTRIBUTE):
        kind.__init__ = _registering(construct)  # type: ignore[misc] # that is the point


def missing(kind: type) -> list[str]:
    """Return what the runtime needs and this vLLM does not have, in words."""
    from vllm.outputs import CompletionOutput, RequestOutput
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    lacking = steps.missing(kind) if steps.steps(kind) else _missing(kind)
    if not {"DELTA", "CUMULATIVE", "FINAL_ONLY"} <= set(RequestOutputKind.__members__):
        lacking.append("RequestOutputKind has other members than DELTA, CUMULATIVE, FINAL_ONLY")
    params = ("n", "output_kind", "detokenize", "skip_special_tokens", "extra_args")
    absent = [name for name in params if not hasattr(SamplingParams(), name)]
    lacking += [f"SamplingParams has no {name}" for name in absent]
    try:
        completion = CompletionOutput(
            index=0,
            text="",
            token_ids=[],
            cumulative_logprob=None,
            logprobs=None,
            finish_reason=REPLACED,
            lora_request=None,
        )
        output = RequestOutput(
            request_id="probe",
            prompt=None,
            prompt_token_ids=[],
            prompt_logprobs=None,
            outputs=[completion],
            finished=True,
            kv_transfer_params=None,
        )
        output.metadata = {}
        completion.stop_reason  # noqa: B018 - that it is there is the question
    except (AttributeError, TypeError) as error:
        lacking.append(f"outputs cannot be made or annotated as expected ({error})")
    return lacking


def _missing(kind: type) -> list[str]:
    """Return what the runtime needs of an engine that generates, and does not find."""
    lacking = []
    generate = getattr(kind, "generate", None)
    if not inspect.isasyncgenfunction(generate):
        lacking.append(f"{kind.__name__}.generate is not an async generator function")
    elif tuple(inspect.signature(generate).parameters)[1:4] != _GENERATE:
        lacking.append(f"{kind.__name__}.generate does not start with {', '.join(_GENERATE)}")
    if not inspect.iscoroutinefunction(getattr(kind, "abort", None)):
        lacking.append(f"{kind.__name__}.abort is not a coroutine function")
    return lacking


def _attach(engine: Any, host: HookHost) -> None:  # noqa: ANN401 - AsyncLLM or LLMEngine
    """Put the hooks before what serves one engine's requests."""
    from vllm.outputs import RequestOutput

    if not hasattr(RequestOutput, "metadata"):
        # So that whoever reads outputs can ask each of them; those with scores have their own.
        RequestOutput.metadata = None
    attach = steps.attach if steps.steps(type(engine)) else _generating
    vars(engine).update({ATTRIBUTE: host, **attach(engine, host)})


def _generating(engine: Any, host: HookHost) -> dict[str, Callable[..., Any]]:  # noqa: ANN401 - AsyncLLM
    """Return what stands before one engine's own ``generate`` and ``abort``."""
    from reference_plugins.classifier_hook import beam_search

    generate, abort = type(engine).generate, type(engine).abort
    # An engine shuts down when its last reference goes: these must not hold one.
    reference = weakref.ref(engine)

    # No generator itself, so that what surrounds the call is read when the call is made, in the
    # order of an OpenAI request's prompts.
    @functools.wraps(generate)
    def hooked_generate(
        prompt: Any,  # noqa: ANN401 - as AsyncLLM has it
        sampling_params: SamplingParams,
        request_id: str,
        *args: Any,  # noqa: ANN401 - as AsyncLLM has it
        **kwargs: Any,  # noqa: ANN401 - as AsyncLLM has it
    ) -> AsyncGenerator[RequestOutput, None]:
        outputs = generate(reference(), prompt, sampling_params, request_id, *args, **kwargs)
        # An EngineCoreRequest brings parameters of its own, and those are the ones that count.
        params = getattr(prompt, "params", None) or sampling_params
        return host.watch(outputs, params, kwargs)

    @functools.wraps(abort)
    async def hooked_abort(
        request_id: str | Iterable[str],
        *args: Any,  # noqa: ANN401 - as AsyncLLM has it
        **kwargs: Any,  # noqa: ANN401 - as AsyncLLM has it
    ) -> None:
        ids = [request_id] if isinstance(request_id, str) else list(request_id)
        # vLLM's internal ids, which have a random end, are those of no hooks at work.
        host.abandon(ids)
        await abort(reference(), ids, *args, **kwargs)

    beam_search.mount()
    return {"generate": hooked_generate, "abort": hooked_abort}


def _registering(construct: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(construct)
    def constructed(
        self: Any,  # noqa: ANN401 - AsyncLLM
        *args: Any,  # noqa: ANN401 - as AsyncLLM has it
        **kwargs: Any,  # noqa: ANN401 - as AsyncLLM has it
    ) -> None:
        # Hooks are made and looked at first: an engine takes minutes to start.
        configuration = configured()
        hooks = configuration.hooks()
        names = ", ".join(entry.name for entry in Registry(hooks).entries)
        construct(self, *args, **kwargs)
        for hook in hooks:
            getattr(self, METHOD)(hook)
        if (host := hooks_of(self)) is not None:
            host.policy = configuration.policy
        logger.info("Classifier hooks: %s (streaming: %s)", names, configuration.policy.streaming)

    setattr(constructed, ATTRIBUTE, True)
    return constructed


def _refusal(lacking: list[str]) -> str:
    return f"classifier hooks cannot be mounted on this vLLM: {'; '.join(lacking)}"
