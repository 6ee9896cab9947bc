# SPDX-License-Identifier: Apache-2.0
"""Checks of what a slot plugin does to logits: masks, tokens that are left, waiting."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import torch

from conformance.counterexample.logits_slot_player import Waits
from conformance.findings import Finding, failed, passed
from conformance.inputs.history import label
from conformance.logits.findings import switched_on
from conformance.logits.masks import preferred
from conformance.logits.requests import REFUSES_MASKS
from conformance.logits.trial import Trial
from conformance.logits_slot.bench import Alone, Bench
from conformance.logits_slot.parameters import rows_alone
from conformance.verdict import Verdict
from conformance.watching.interruption import limited

#: Steps for which a request runs alone, behind what it says first; behind masks it takes more.
STEPS = 8
_MASKED_STEPS = 12

#: Calls after which the host waits for the device; reading does where it is by a mask.
_WAITING = frozenset(
    (
        "item",
        "tolist",
        "numpy",
        "cpu",
        "nonzero",
        "argwhere",
        "masked_select",
        "unique",
        "unique_consecutive",
        "equal",
        "allclose",
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "__contains__",
        "__iter__",
        "__getitem__",
    )
)


def keeps_masks(trial: Trial) -> Finding:
    """LS-19: what a grammar masked stays masked."""
    bench: Bench = trial.bench
    if not bench.maskable:
        return Finding(Verdict.NOT_APPLICABLE, message=REFUSES_MASKS)
    start, every = bench.seed % 7, 7
    examples = acted = 0
    for choice in switched_on(bench):
        mask = torch.zeros(bench.vocabulary, dtype=torch.bool)
        mask[start::every] = True
        with limited():
            steps = bench.behind(_MASKED_STEPS, choice)
            plain = list(rows_alone(bench, choice, steps))
            tokens = preferred(bench.tokens, plain)
            mask[tokens] = True
            masked = list(rows_alone(bench, choice, steps, _said(bench, plain), masked=mask))
        for step, (before, after) in enumerate(masked):
            examples += 1
            # A plugin that respects the mask may leave such rows alone.
            acted += not torch.equal(*plain[step])
            again = torch.isneginf(before) & ~torch.isneginf(after)
            if again.any():
                token = int(again[0].nonzero()[0])
                return failed(
                    f"{label(choice)}, step {step}: token {token} was masked (-inf) and got "
                    f"{after[0, token]:.5g}",
                    examples,
                    acted,
                    case={
                        "choice": choice,
                        "masked": [tokens, start, bench.vocabulary, every],
                        "steps": step + 1,
                    },
                )
    return passed(examples, acted)


def _said(bench: Bench, rows: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> list[int]:
    """Return the outputs of a request whose rows no grammar masks.

    What it says comes in a step in which a grammar allows it, and is said behind masks as well.
    """
    return [bench.takes(after[0], bench.words.said(step)) for step, (_, after) in enumerate(rows)]


def leaves_a_token(trial: Trial) -> Finding:
    """LS-21: also where a grammar leaves tokens that the plugin would not."""
    bench: Bench = trial.bench
    examples = acted = 0
    for choice in switched_on(bench):
        steps = bench.behind(STEPS, choice)
        with limited():
            said = _said(bench, rows_alone(bench, choice, steps))
        for masked in bench.tokens:
            mask = torch.zeros(bench.vocabulary, dtype=torch.bool)
            mask[masked] = True
            with limited():
                rows = list(rows_alone(bench, choice, steps, said, masked=mask))
            for step, (before, after) in enumerate(rows):
                examples += 1
                acted += not torch.equal(before, after)
                if torch.isneginf(after).all():
                    return failed(
                        f"{label(choice)}, step {step}: where a grammar masks token {masked}, "
                        "every token of the row is -inf: none can be sampled",
                        examples,
                        acted,
                        case={"choice": choice, "masked": [[masked]], "steps": step + 1},
                    )
    return passed(examples, acted)


def never_waits(trial: Trial) -> Finding:
    """LS-28: nothing in ``apply`` makes the host wait for the device."""
    bench: Bench = trial.bench
    examples = acted = 0
    for choice in switched_on(bench):
        with limited():
            instance = bench.new(trusted=True)
            prompt = bench.prompt
            alone = Alone(instance, bench.params(choice), prompt)
            alone.begin()
            instance.watching = partial(Waits, _WAITING)
            for step in range(bench.behind(STEPS, choice)):
                (before,) = bench.given(step)
                after = alone.row(before)
                examples += 1
                acted += not torch.equal(after, before)
                if instance.waited:
                    return failed(
                        f"apply calls {instance.waited[0]}() on what is on the device: the host "
                        "waits until everything before it is done",
                        examples,
                        acted,
                        case={"choice": choice, "waits": instance.waited[0], "steps": step + 1},
                    )
                alone.append(bench.takes(after, bench.words.said(step)))
            bench.retire(instance)
    return passed(examples, acted)
