# SPDX-License-Identifier: Apache-2.0
"""One hook, made with each of the arguments that its profile names: each is certified."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from conformance.comparison import shortened
from conformance.settings import UsageError
from conformance.suite import Opening, Trial
from conformance.verdict import RuleResult, gravest

Arguments = Mapping[str, Any]


def told(opening: Opening) -> list[Arguments]:
    """Return the arguments that a profile names, or none at all, once.

    Raises:
        UsageError: they are no keywords.

    """
    found: list[Arguments] = list(opening.section.get("arguments", ())) or [{}]
    for each in found:
        if not isinstance(each, dict) or not all(isinstance(name, str) for name in each):
            raise UsageError(
                f"profile {opening.origin}: [classifier-hook] arguments must hold tables of "
                f'keywords such as {{ words = [ "a" ] }}, not {each!r}.'
            )
    return found


@attrs.define(eq=False)
class Variants:
    """The trials of one hook, one for each of its arguments: a rule holds where it holds in all."""

    arguments: Sequence[Arguments]
    open_trial: Callable[[int], Trial]  #: with which of the arguments
    #: Whether a trial ends before the next one is asked: engines do not run at the same time.
    in_turn: bool
    _trials: list[Trial] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Open the trials; only the first, which comes last, touches the hook at once."""
        numbers = range(len(self.arguments))
        self._trials = [self.open_trial(number) for number in reversed(numbers)][::-1]

    def check(self, rule: str) -> RuleResult:
        """Judge one rule: the worst of what is found speaks."""
        results = []
        for number, arguments in enumerate(self.arguments):
            result = self._trials[number].check(rule)
            if self.in_turn:
                self._trials[number].close()
            if result.message:
                with_it = f"with the arguments {shortened(arguments)}"
                said = f"{with_it if arguments else 'without arguments'}: {result.message}"
                result = attrs.evolve(result, message=said)
            results.append(result)
        return gravest(results)

    def context(self) -> Mapping[str, Any]:
        """Return what a certificate says about these trials."""
        found = dict(self._trials[0].context())
        return {**found, "profile": {**found["profile"], "arguments": list(self.arguments)}}

    def close(self) -> None:
        """End what the trials have started."""
        for trial in self._trials:
            trial.close()
