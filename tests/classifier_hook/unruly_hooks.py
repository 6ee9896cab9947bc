# SPDX-License-Identifier: Apache-2.0
"""Hooks that a server must live with: slow ones, some that raise, some that take too long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reference_plugins.classifier_hook import ScoringContext


class Number:
    """Says which number is in the text, after a while that depends on it."""

    name = "number"
    blocking = False
    timeout_ms = 20_000

    async def score(self, ctx: ScoringContext) -> dict[str, Any]:
        """Take up to a fifth of a second."""
        found = _number(ctx)
        await asyncio.sleep(found * 7 % 10 / 50)
        return {"number": found, "id": ctx.request_id}


class Raising:
    """Raises for every second text."""

    name = "raising"
    blocking = False
    timeout_ms = 20_000

    async def score(self, ctx: ScoringContext) -> dict[str, Any]:
        """Raise, or answer."""
        if _number(ctx) % 2:
            raise RuntimeError(f"odd: {_number(ctx)}")
        return {"even": _number(ctx)}


class Late:
    """Never answers in time."""

    name = "late"
    blocking = False
    timeout_ms = 100

    async def score(self, ctx: ScoringContext) -> dict[str, Any]:
        """Wait for ever, for texts with certain numbers."""
        if _number(ctx) % 5 == 0:
            await asyncio.Event().wait()
        return {"in time": _number(ctx)}


class Third:
    """Blocks every third text, and takes too long for every seventh, which closes."""

    name = "third"
    blocking = True
    timeout_ms = 3000

    async def score(self, ctx: ScoringContext) -> dict[str, Any]:
        """Decide."""
        found = _number(ctx)
        if found % 7 == 0:
            raise ValueError("it cannot decide")
        await asyncio.sleep(0.01)
        return {"block": found % 3 == 0, "replacement": f"Withheld: {found}."}


class Quick:
    """Counts letters; four of them are registered to see what annotations cost."""

    blocking = False
    timeout_ms = 1000

    def __init__(self, name: str) -> None:
        self.name = name

    async def score(self, ctx: ScoringContext) -> dict[str, Any]:
        """Count."""
        await asyncio.sleep(0)
        return {"letters": len(ctx.generated_text)}


def _number(ctx: ScoringContext) -> int:
    return int("".join(one for one in ctx.generated_text if one.isdigit()) or "0")
