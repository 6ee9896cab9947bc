# SPDX-License-Identifier: Apache-2.0
"""Whether rows are served that are wider than the tokenizer has tokens.

Most models have some more rows in their embeddings than their tokenizer has tokens, for alignment.
A mask with ``len(tokenizer)`` columns does not fit their logits: the first step ends the engine.
And clients may send the tokens that these rows are for, and allow no others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from conformance.counterexample.logits_player import WIDER
from conformance.findings import Finding, failed, inapplicable
from conformance.inputs.history import Choice, label
from conformance.logits.calls import PluginMisshapen, PluginRaised
from conformance.logits.requests import Stock
from conformance.logits.trial import Trial
from conformance.verdict import Verdict
from conformance.watching.interruption import limited

#: Steps for which a request is served.
STEPS = 6

#: Makes an instance for a vocabulary of so many tokens, more than the tokenizer has.
New = Callable[[Any, int], Any]
#: Serves a request with an instance.
Serve = Callable[[Any, Any, Choice], None]


def beyond(bench: Stock) -> int:
    """Return the last token of the larger vocabulary, which has no text."""
    return bench.vocabulary + WIDER - 1


def wider(logits: torch.Tensor) -> torch.Tensor:
    """Return logits ``[rows, vocabulary]`` with columns of zeros for the other tokens."""
    return torch.nn.functional.pad(logits, (0, WIDER))


def said(bench: Stock, step: int, steps: int) -> int:
    """Return the token that a request is to get in a step: one without a text before the last."""
    return beyond(bench) if step >= steps - 2 else bench.words.said(step)


def judge(trial: Trial, new: New, serve: Serve) -> Finding:
    """Judge that requests are served where the vocabulary is larger than the tokenizer's.

    Args:
        trial: of the plugin.
        new: how a generation makes an instance.
        serve: how it serves a request.

    Raises:
        PluginRaised: the plugin raised where the vocabulary is the tokenizer's, too.

    """
    bench: Stock = trial.bench
    try:
        with limited():
            instance = new(bench, bench.vocabulary + WIDER)
    except PluginRaised as error:  # it says so before an engine starts
        why = f"the plugin refuses models with {WIDER} more rows than their tokenizer has tokens"
        return inapplicable(f"{why}: {error}")
    chosen, _ = bench.pair
    count = 0
    for count, choice in enumerate(chosen or bench.choices[:1], 1):
        with limited():
            for _ in trial.contract.rows_alone(bench, choice, bench.behind(STEPS, choice)):
                pass
        try:
            with limited():
                serve(bench, instance, choice)
        except (PluginRaised, PluginMisshapen) as error:
            size, last = bench.vocabulary, beyond(bench)
            why = (
                f"with a vocabulary of {last + 1}, of which the tokenizer has {size}, a request "
                f"({label(choice)}) with the token {last} is not served: {error}"
            )
            return failed(why, count, count, case={"choice": choice, "wider": WIDER})
    return Finding(Verdict.PASS, count, count)
