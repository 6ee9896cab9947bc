# SPDX-License-Identifier: Apache-2.0
"""Whether a plugin keeps to the device of the logits, told without one: see ``pretended``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from conformance.findings import Finding, failed, passed
from conformance.inputs.history import Choice
from conformance.logits.calls import PluginMisshapen, PluginRaised
from conformance.logits.configuration import MAX_REQUESTS
from conformance.logits.effects import MORE_STEPS
from conformance.logits.pretended import Accelerator, PretenceError
from conformance.logits.requests import Stock
from conformance.verdict import Verdict
from conformance.watching.interruption import PluginHung, limited
from conformance.worker.limits import explained

#: Serves requests together with a bench, on an accelerator if there is one; yields logits before
#: and after each ``apply``.
Serve = Callable[
    [Any, Accelerator | None, Sequence[Choice]], Iterator[tuple[torch.Tensor, torch.Tensor]]
]

#: Steps for which requests run together.
STEPS = 6


def steps_of(bench: Stock, choices: Sequence[Choice], after: int = 0) -> int:
    """Return for how many steps requests run before ``after`` others; alone they run for longer.

    Some plugins act late in a request.
    """
    if len(choices) == 1:
        return bench.behind(MORE_STEPS, *choices)
    return bench.behind(STEPS + after, *choices) - after


def keeps_to_device(bench: Stock, serve: Serve) -> Finding:
    """Nothing of the plugin takes a tensor of the CPU for one of the logits' device.

    Only what torch is certain to refuse is a failure. Whatever else goes wrong where the device
    is not what it says is no fault of the plugin: the rule is then not-applicable.

    Raises:
        PluginRaised, PluginMisshapen, PluginHung: something goes wrong on a CPU, too.

    """
    accelerator = Accelerator(bench.plugin)
    examples = acted = 0
    wrong, everywhere = None, False
    try:
        with limited(), accelerator.watching():
            for before, after in _served(bench, serve, accelerator):
                examples += 1
                acted += not torch.equal(before, after)
                if accelerator.returned_host:
                    wrong = "apply(logits) returns logits of the CPU"
                    break
    except PluginRaised as error:
        raised = error.error
        assert isinstance(raised, PretenceError)
        if raised.refusal is None:
            _serve_here(bench, serve)
            said = f"{error.call} raised {explained(raised.error)}"
            return _untold(_UNKNOWN.format(said), examples)
        wrong, everywhere = f"in {error.call}, {raised.refusal}", raised.refusal.everywhere
    except (PluginMisshapen, PluginHung) as error:
        _serve_here(bench, serve)
        return _untold(_UNKNOWN.format(error), examples)
    if wrong is None:
        return passed(examples, acted)
    if not everywhere and accelerator.looks_at_machine():
        return _untold(_LOOKS.format(wrong), examples)
    return failed(f"on a GPU: {wrong}", examples + 1, acted, case={"device": "cuda"})


def _untold(why: str, examples: int) -> Finding:
    """Return the finding that the rule is for machines with a GPU; none fails it here."""
    return Finding(Verdict.NOT_APPLICABLE, examples, message=why)


def _serve_here(bench: Stock, serve: Serve) -> None:
    """Do the same on the CPU: what goes wrong there has nothing to do with devices.

    Raises:
        PluginRaised, PluginMisshapen, PluginHung: it goes wrong here, too.

    """
    with limited():
        for _ in _served(bench, serve, None):
            pass


def _served(
    bench: Stock, serve: Serve, accelerator: Accelerator | None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Serve each parameter set alone, and as many as fit together."""
    for choice in bench.parameters:
        yield from serve(bench, accelerator, [choice])
    several = list(bench.parameters)[:MAX_REQUESTS]
    if len(several) > 1:
        yield from serve(bench, accelerator, several)


_UNKNOWN = "{}, where a GPU was only pretended: an engine on one shows it"
_LOOKS = (
    "{}; whether that is so on a GPU cannot be told here, since the plugin looks at the machine "
    "that it is on"
)
