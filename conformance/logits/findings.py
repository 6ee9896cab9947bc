# SPDX-License-Identifier: Apache-2.0
"""What checks of logits processors have in common."""

from __future__ import annotations

from conformance.findings import IDLE, Finding, inapplicable
from conformance.inputs.history import Choice, label
from conformance.logits.calls import PluginRaised
from conformance.logits.requests import SWITCHING, Stock
from conformance.logits.waiting import Found
from conformance.verdict import Cause, Verdict

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


def unknown_tokens(waits: Found, vocabulary: int) -> str:
    """Say which tokens a plugin names that the model does not have, and what to write, or ""."""
    if not waits.beyond:
        return ""
    return (
        f"it names {', '.join(map(str, waits.beyond))}, which the vocabulary of {vocabulary} "
        "tokens here does not have: if it waits for them, give the profile a larger one, such as "
        f"config = {{ vocab_size = {max(waits.beyond) + 1} }}"
    )


def without_effect(finding: Finding, unknown: Cause, why: str, *, shown: bool) -> Finding:
    """Return what a finding says of a plugin that nothing switches on, and that nobody expects to.

    What it must leave alone, and what its calls must not do, every request shows.

    Args:
        finding: one that is not verified.
        unknown: that no request is known that switches it on.
        why: why none has to be.
        shown: whether the rule is one that every request shows.

    """
    idle = finding.tried and not finding.acted
    if not idle and finding.cause not in (IDLE, unknown):
        return finding
    if finding.examples and shown:
        return Finding(Verdict.PASS, finding.examples, finding.examples)
    return Finding(Verdict.NOT_APPLICABLE, finding.examples, message=why)


def switched_on(bench: Stock) -> list[Choice]:
    """Return the parameter sets that switch the plugin on."""
    return [choice for choice in bench.parameters if choice[0] == "on"]


def may_act(bench: Stock) -> list[Choice]:
    """Return the parameter sets in whose rows the plugin may do something: all, if none opts in."""
    on = [choice for choice in bench.parameters if choice[0] in SWITCHING]
    return on or list(bench.parameters)


def refused(error: PluginRaised, requests: int) -> Finding:
    """Return that a constructor refuses engines for so many requests, before these start.

    Raises:
        PluginRaised: it was another call.

    """
    if error.call != "__init__":
        raise error
    return inapplicable(f"the plugin refuses engines with max_num_seqs={requests}: {error}")
