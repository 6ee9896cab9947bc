# SPDX-License-Identifier: Apache-2.0
"""What engines of all configurations are asked, and what they answer: data alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from conformance.logits.ways import Reply

#: What an engine is loaded with.
TESTED, NOBODY, IDLE = "the plugin", "no plugin", "a plugin that does nothing"


@attrs.frozen
class Ask:
    """One request of the workload; no two have the same prompt."""

    label: str  #: of its parameters in a profile, for example ``on[0]``
    prompt: tuple[int, ...]
    keywords: Mapping[str, Any]  #: of ``SamplingParams``
    late: bool = False  #: whether it joins when others run
    aborted: bool = False  #: whether it is aborted after some tokens; nobody compares those

    @property
    def on(self) -> bool:
        """Whether the plugin is to act on it."""
        return self.label.startswith("on")

    @property
    def greedy(self) -> bool:
        """Whether it always takes the most likely token."""
        return bool(self.keywords["temperature"] == 0)


@attrs.frozen(kw_only=True)
class Workload:
    """The requests for one plugin, and what its profile says it does not support."""

    asks: tuple[Ask, ...]
    unsupported: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Answers:
    """What an engine of one configuration did with a workload."""

    #: Tokens by number of the request, for each time that the workload was sent.
    passes: tuple[Mapping[int, tuple[int, ...]], ...] = ()
    #: How far the tokens of each request are beyond doubt; of the plain engine alone.
    replies: Mapping[int, Reply] = attrs.field(factory=dict)
    started: bool = False
    problem: str | None = None  #: what was raised, if anything was
    #: Why nothing was asked: what the configuration is about is not to be had here.
    absent: str | None = None
    seconds: float = 0.0
