# SPDX-License-Identifier: Apache-2.0
"""Checks that need no history: loading, construction, claims, admission.

Each takes the :class:`~conformance.logits.trial.Trial` of a plugin
and returns a :class:`Finding`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from conformance.findings import Finding, failed, passed
from conformance.inputs.history import Choice, label
from conformance.logits import effects
from conformance.logits.calls import call
from conformance.logits.findings import switched_on
from conformance.logits.rows import dethroned
from conformance.logits.trial import Trial
from conformance.logits_batch.bench import Bench, all_leave
from conformance.settings import Budget
from conformance.verdict import Verdict
from conformance.watching.interruption import limited


def constructs(trial: Trial) -> Finding:
    """LB-02: three positional arguments, more than once, and nothing shared."""
    made = partial(call, "__init__(vllm_config, device, is_pin_memory)", trial.bench.construct)
    return effects.constructs(trial, made)


def claim_is_true(trial: Trial) -> Finding:
    """LB-12: where invariance is claimed, the best token stays the best."""
    bench = trial.bench
    with limited():
        if not bench.new().is_argmax_invariant():
            why = "the plugin does not claim argmax invariance"
            return Finding(Verdict.NOT_APPLICABLE, message=why)
        examples = acted = 0
        for choice in switched_on(bench):
            for before, after in scaled_rows(bench, choice, trial.budget):
                examples += 1
                acted += not torch.equal(before, after)
                if dethroned(before[0], after[0]):
                    best = int(before[0].argmax())
                    other = int(after[0].argmax())
                    return failed(
                        f"is_argmax_invariant() returns True, yet {label(choice)} makes token "
                        f"{other} the highest (logit {before[0, other]:.6g} -> "
                        f"{after[0, other]:.6g}) instead of token {best} "
                        f"({before[0, best]:.6g} -> {after[0, best]:.6g})",
                        examples,
                        case={"choice": choice},
                    )
    return passed(examples, acted)


def claim_is_stable(trial: Trial) -> Finding:
    """LB-13: a bool, the same in every instance and state."""
    bench = trial.bench
    claims: list[tuple[str, object]] = []
    with limited():
        for name in ("a fresh instance", "another instance"):
            instance = bench.new()
            claims += [(name, instance.is_argmax_invariant()) for _ in range(3)]
            for choice in bench.choices:
                instance.begin(bench.params(choice), [bench.tokens[0]], [])
                claims.append((f"with a request {label(choice)}", instance.is_argmax_invariant()))
                instance.apply(bench.table[:1].clone())
                claims.append(("after apply", instance.is_argmax_invariant()))
            instance.update_state(all_leave(1))
            claims.append(("after its requests finished", instance.is_argmax_invariant()))
    _, first = claims[0]
    for where, claim in claims:
        if not isinstance(claim, bool | np.bool_):  # as comparing arrays gives it
            return failed(f"is_argmax_invariant() returns {claim!r}, not a bool", len(claims))
        if claim != first:
            return failed(
                f"is_argmax_invariant() returned {first} first and {claim} {where}", len(claims)
            )
    return Finding(Verdict.PASS, len(claims), len(claims))


def scaled_rows(
    bench: Bench, choice: Choice, budget: Budget
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield logits before and after, over ties, near ties, masked, negative and scaled rows."""
    count = {Budget.QUICK: 1, Budget.STANDARD: 2, Budget.DEEP: 10}[budget]
    begun = bench.begun(choice)
    instance, outputs = bench.new(), [*begun]
    instance.begin(bench.params(choice), bench.prompt, outputs)
    for round_ in range(count):
        if begun and round_ == (count + 1) // 2:
            # The first half was behind what is waited for, as of a request that is resumed.
            instance, outputs = bench.new(), []
            instance.begin(bench.params(choice), bench.prompt, outputs)
        for scale, shift in ((1.0, 0.0), (0.01, 0.0), (30.0, 0.0), (1.0, -50.0), (1e-3, 0.0)):
            for row in range(round_, len(bench.table), count):
                before = bench.table[row : row + 1] * scale + shift
                if row % 3 == 0:
                    # A near tie: the runner-up is one rounding step below the best.
                    best, second = before[0].topk(2).indices.tolist()
                    before[0, second] = torch.nextafter(before[0, best], before.new_tensor(-1e9))
                yield before, instance.apply(before.clone())
            if bench.goes_on(choice, outputs):
                outputs.append(bench.words.said(len(outputs)))
            instance.update_state(None)
