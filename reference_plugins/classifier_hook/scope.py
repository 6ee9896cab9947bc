# SPDX-License-Identifier: Apache-2.0
"""What is known of a request outside the engine: who called, and who waits for the scores.

``AsyncLLM.generate`` is told of none of it, so it travels in a context variable, from where the
request arrives to where the call is made.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reference_plugins.classifier_hook.contract import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(slots=True)
class Scope:
    """What surrounds the calls of ``generate`` that serve one request of a client."""

    extra_fields: Mapping[str, Any] = field(default_factory=dict)
    request_metadata: Mapping[str, Any] = field(default_factory=dict)
    calls: int = 0  #: of ``generate``, one for each prompt
    #: scores by choice, in the order of OpenAI's choices, and by the names of the hooks
    scores: dict[int, Mapping[str, Any]] = field(default_factory=dict)


_scope: ContextVar[Scope | None] = ContextVar("classifier_hook_scope", default=None)


def current() -> Scope | None:
    """Return the scope of the code that runs, if there is one."""
    return _scope.get()


@contextlib.contextmanager
def request_scope(
    *,
    extra_fields: Mapping[str, Any] | None = None,
    request_metadata: Mapping[str, Any] | None = None,
) -> Iterator[Scope]:
    """Tell hooks more about the requests that are made in this block.

    Copies of both arguments arrive in the ``ScoringContext`` of each completion, and go before
    what the runtime finds by itself.
    """
    scope = Scope(plain(extra_fields or {}), plain(request_metadata or {}))
    token = _scope.set(scope)
    try:
        yield scope
    finally:
        _scope.reset(token)
