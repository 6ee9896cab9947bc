# SPDX-License-Identifier: Apache-2.0
"""Requests that are over because they have all of their outputs, whatever a history says.

vLLM finishes a request with its ``max_tokens``-th output, so a plugin never sees it with more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from conformance.history import Step


@attrs.define
class Endings:
    """What is known of the requests of a history while it is played."""

    #: Outputs that a live request gets, where its parameters say how many.
    most: dict[str, int] = attrs.field(factory=dict)
    over: set[str] = attrs.field(factory=set)

    def follow(self, name: str, most: int | None) -> None:
        """Take note of a request that joins, with its number of outputs if it has one."""
        if most is not None:
            self.most[name] = most

    def left(self, name: str, outputs: Sequence[int]) -> int | None:
        """Return how many outputs a request still gets; None where nothing says it."""
        return self.most[name] - len(outputs) if name in self.most else None

    def step(self, step: Step, outputs: Mapping[str, Sequence[int]], *, free: bool) -> Step | None:
        """Return the step in which requests with all of their outputs finish.

        Args:
            step: what the history says.
            outputs: of every request.
            free: whether the history's shape lets any request finish in any step.

        Returns:
            None where it does not, and the history ends before that step.

        """
        for name in step.finish:
            self.most.pop(name, None)
        ending = [name for name in self.most if self.left(name, outputs.get(name, ())) == 0]
        if ending and not free:
            return None
        for name in ending:
            del self.most[name]
        finish = tuple(name for name in step.finish if name not in self.over)
        self.over.update(ending)
        if not self.over:
            return step
        return attrs.evolve(self._without(step), finish=(*finish, *ending))

    def _without(self, step: Step) -> Step:
        """Return the step without what it says of requests that are over."""
        over = self.over
        return attrs.evolve(
            step,
            pause=tuple(name for name in step.pause if name not in over),
            chunk=tuple((name, count) for name, count in step.chunk if name not in over),
            rest=tuple(name for name in step.rest if name not in over),
            draft=tuple((name, count) for name, count in step.draft if name not in over),
            lost=tuple(name for name in step.lost if name not in over),
        )
