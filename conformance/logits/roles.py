# SPDX-License-Identifier: Apache-2.0
"""Which rule of a generation is about what live engines and servers show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from conformance.engine.model_runner import Runner


@attrs.frozen(kw_only=True)
class Roles:
    """The ids of rules by what they are about, and which model runner shows them."""

    runner: Runner
    loads: str
    alone: str  #: a request gets the same among others as alone
    opt_out: str
    acts: str
    refuses: str
    raises: str
    harmless: str  #: no request that a client can send ends the engine
    client_error: str  #: what is refused is the client's mistake
    survives: str
    combined: str  #: others get what they get, whatever else a client asks for
    means: str  #: rows are what the author says
    same: str  #: the same tokens by every way of loading and asking
    #: Rules about processors that claim argmax invariance.
    claimed: tuple[str, ...] = ()
    #: Whether a plugin acts where tokens are drawn at random only.
    invariant: Callable[[Any], bool] = lambda _: False
    #: Whether a plugin is known to fail for prompts of embeddings, by a rule of its own.
    needs_prompt: Callable[[Any], bool] = lambda _: False
    #: Whether every engine has the class already.
    builtin: Callable[[type], bool] = lambda _: False
