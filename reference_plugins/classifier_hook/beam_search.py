# SPDX-License-Identifier: Apache-2.0
"""Beam search, which vLLM's server does in front of the engine.

Each step of it is a request of one token, and its result never passes the engine.
So the steps go unscored, and the result is scored as a whole.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import TYPE_CHECKING, Any

from reference_plugins.classifier_hook.events import logger
from reference_plugins.classifier_hook.host import hooks_of, within_search

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from vllm.outputs import RequestOutput

_MODULE = "vllm.entrypoints.generate.beam_search.online"
_MARK = "_classifier_hooks"


def mount() -> None:
    """Wrap the server's beam search; may be called again.

    Where it is not found, its steps are scored like other requests, and the log says so.
    """
    try:
        module = importlib.import_module(_MODULE)
    except ImportError:
        classes: list[Any] = []
    else:
        classes = [
            kind
            for kind in vars(module).values()
            if isinstance(kind, type) and _searches(vars(kind).get("beam_search"))
        ]
    if not classes:
        logger.warning("This vLLM's beam search was not found: hooks score each of its steps")
    for kind in classes:
        if not hasattr(kind.beam_search, _MARK):
            kind.beam_search = _scoring(kind.beam_search)


def _searches(function: object) -> bool:
    if hasattr(function, _MARK):  # wrapped for the hooks of another engine
        return True
    return (
        inspect.isasyncgenfunction(function) and "params" in inspect.signature(function).parameters
    )


def _scoring(search: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(search)
    def scoring(
        self: Any,  # noqa: ANN401 - as vLLM has it
        *args: Any,  # noqa: ANN401 - as vLLM has it
        **kwargs: Any,  # noqa: ANN401 - as vLLM has it
    ) -> AsyncGenerator[RequestOutput, None]:
        results: AsyncGenerator[RequestOutput, None] = search(self, *args, **kwargs)
        host = hooks_of(self.engine_client)
        if host is None:
            return results
        given = inspect.signature(search).bind(self, *args, **kwargs).arguments
        return host.watch(_within(results), _final(given["params"]), given)

    setattr(scoring, _MARK, True)
    return scoring


async def _within(
    results: AsyncGenerator[RequestOutput, None],
) -> AsyncGenerator[RequestOutput, None]:
    """Yield the results of a search whose steps know that they are such."""
    try:
        while True:
            token = within_search.set(True)
            try:
                result = await anext(results, None)
            finally:
                within_search.reset(token)
            if result is None:
                return
            yield result
    finally:
        await results.aclose()


def _final(params: Any) -> Any:  # noqa: ANN401 - vLLM's BeamSearchParams
    """Return sampling parameters that say of a search's result what the hooks ask of them."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    return SamplingParams(
        n=params.beam_width,
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_special_tokens=getattr(params, "skip_special_tokens", True),
    )
