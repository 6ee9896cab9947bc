# SPDX-License-Identifier: Apache-2.0
"""What is asked of an offline engine for every kind of plugin that items come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import attrs

from conformance.engine.environment import has_no_room
from conformance.engine.multimodal_engine import MultiModalEngine, Request, Response
from conformance.ledger import Ledger
from conformance.watching.raised import said

_Prompt = TypeVar("_Prompt")


def unstarted(ledger: Ledger, rule: str, what: str, error: Exception) -> None:
    """Note that an engine does not start: by the rule about that, unless others have the GPU."""
    why = f"{what} does not start: {said(error)}"
    if has_no_room(str(error)):
        ledger.stop(why)
    else:
        ledger.did_not_start(rule, why)


def attempted(engine: MultiModalEngine, requests: Sequence[Request]) -> list[Response] | Exception:
    """Run requests at the same time; return what came of them, or what was raised."""
    try:
        return engine.run(requests)
    except Exception as error:  # noqa: BLE001 - vLLM and the plugin may raise anything
        return error


@attrs.define(eq=False)
class Asked(Generic[_Prompt]):
    """Prompts of one engine, and what each is answered alone."""

    ledger: Ledger
    prompts: list[_Prompt]
    #: Asks for prompts at the same time; returns None for trouble, which it notes.
    ask: Callable[[Sequence[_Prompt]], list[Response] | None]
    shown: Callable[[_Prompt], str] = str
    first: dict[_Prompt, Response] = attrs.field(init=False, factory=dict)

    def again(self, rule: str) -> None:
        """Prompts whose items are cached are answered as the first time."""
        for prompt in reversed(self.prompts):
            if not self._as_first("asked again,", [prompt], rule):
                return

    def together(self, rule: str) -> None:
        """All prompts at the same time are answered as each by itself."""
        self._as_first(f"among {len(self.prompts)} requests at once", self.prompts, rule)

    def after(self, what: str, rule: str) -> None:
        """When something was refused, the first prompt is answered as ever."""
        self._as_first(f"after {what}", self.prompts[:1], rule, tells=False)

    def _as_first(
        self, when: str, prompts: Sequence[_Prompt], rule: str, *, tells: bool = True
    ) -> bool:
        """Tell whether prompts are answered as the first time, and note what that shows.

        With ``tells`` an answer that is the same shows that the rule holds.
        """
        found = self.ask(prompts)
        if found is None:
            return False
        for prompt, got in zip(prompts, found, strict=True):
            if why := got.differs(self.first[prompt]):
                self.ledger.fail(rule, f"{when} {self.shown(prompt)} {why}")
                return False
            if tells:
                self.ledger.saw(rule)
        return True
