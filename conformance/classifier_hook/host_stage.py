# SPDX-License-Identifier: Apache-2.0
"""Where scenes of the host suite are played: an engine with hooks, and what is seen of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from conformance.classifier_hook.host_engine import Out, ScriptedLLM, Step
from conformance.hosts import Broken, Sight
from conformance.watching.interruption import limited
from reference_plugins.classifier_hook import Policy, hooks_of
from reference_plugins.classifier_hook.mount import METHOD, mount
from reference_plugins.classifier_hook.virtual_time import Deadlock, VirtualTimeLoop


class Unsupported(Exception):
    """The runtime has nothing that the rule could be shown with: one sentence."""


class Missing(Exception):
    """The installed vLLM lacks what the rule is about: one sentence."""


def stage(
    scripts: Mapping[str, Sequence[Step]], *hooks: object, policy: Policy | None = None
) -> ScriptedLLM:
    """Return an engine of these scripts, with these hooks."""
    mount(ScriptedLLM)
    engine = ScriptedLLM(scripts)
    for hook in hooks:
        register(engine, hook)
    if policy is not None:
        host = hooks_of(engine)
        if host is None:
            raise Unsupported("this runtime has no policy")
        host.policy = policy
    return engine


def register(engine: object, hook: object) -> None:
    """Register a hook, as a program does."""
    getattr(engine, METHOD)(hook)


def scores(outs: Sequence[Out]) -> Any:  # noqa: ANN401 - by the names of the hooks
    """Return the scores of the last output."""
    return outs[-1].scores


def ended(outs: Sequence[Out]) -> float:
    """Return when the last output went out."""
    return outs[-1].at


def play(scene: Callable[[Sight], Awaitable[None]]) -> tuple[int, str | None]:
    """Play a scene in virtual time; return what was seen to hold, and what does not.

    Raises:
        Missing: the installed vLLM lacks what the rule is about.
        Unsupported: the runtime has nothing that the rule could be shown with.

    """
    see = Sight()

    async def main() -> None:
        await scene(see)

    try:
        with limited(), asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(main())
    except Broken as broken:
        return see.count, str(broken)
    except Deadlock:
        return see.count, "everything waits, and nothing will end it"
    except (Missing, Unsupported):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a runtime raises in place of an answer
        return see.count, f"the engine's caller got {type(error).__name__}: {error}"
    return see.count, None
