# SPDX-License-Identifier: Apache-2.0
"""What checks of logits processors have in common."""

from __future__ import annotations

from conformance.inputs.history import Choice
from conformance.logits.requests import Stock

#: What an author does about a plugin that acts too rarely.
OFTENER = "name parameters in `on`, or tokens in `outputs`, with which it acts more often"


def unreached(bench: Stock) -> str:
    """Say which requests end before what the plugin waits for is said, or ""."""
    phrase = bench.words.phrase(0)
    ended = [choice for choice in switched_on(bench) if phrase and bench.short(1, choice)]
    if not ended:
        return ""
    counts = (f"{label(each)} gets {bench.served(len(phrase), each)}" for each in ended)
    return (
        f"what it waits for has {len(phrase)} tokens, and requests have to get another one behind "
        f"them: {', '.join(counts)}"
    )


def switched_on(bench: Stock) -> list[Choice]:
    """Return the parameter sets that switch the plugin on."""
    return [choice for choice in bench.parameters if choice[0] == "on"]


def label(choice: tuple[str, int]) -> str:
    """Return a parameter set as messages name it, for example ``on[0]`` or ``invalid[1]``."""
    return f"{choice[0]}[{choice[1]}]"
