# SPDX-License-Identifier: Apache-2.0
"""Checks about what a plugin does to the rows of one request: when, from what, how surely."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING

import numpy as np
import torch

from conformance.logits_batch.bench import PluginRaised, limited
from conformance.logits_batch.findings import Finding, failed, label, passed, switched_on
from conformance.logits_batch.parameters import rows_alone
from conformance.logits_batch.play import differing, same
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conformance.history import Choice
    from conformance.logits_batch.bench import Bench
    from conformance.logits_batch.simulator import Trial


def acts(trial: Trial) -> Finding:
    """LB-05: each declared ``on`` changes a row somewhere."""
    examples = trial.examples()
    seen = frozenset[object]().union(*(example.played.acted for example in examples))
    acted = sum(bool(example.played.acted) for example in examples)
    if not trial.parameters.on:
        return Finding(Verdict.NOT_VERIFIED, len(examples), 0, trial.unknown_switch())
    idle = [choice for choice in trial.parameters.choices() if choice[0] == "on"]
    idle = [choice for choice in idle if choice not in seen]
    if not idle:
        return Finding(Verdict.PASS, len(examples), acted)
    entries = ", ".join(f"on[{index}] = {trial.parameters.on[index]}" for _, index in idle)
    sentence = f"{entries} changed no row in {len(examples)} examples"
    if trial.blocking():
        return Finding(Verdict.NOT_VERIFIED, len(examples), acted, trial.blocked())
    if trial.parameters.declared:
        return failed(sentence, len(examples), case={"choice": idle[0]})
    return Finding(Verdict.NOT_VERIFIED, len(examples), acted, sentence)


def live_list(trial: Trial) -> Finding:
    """LB-10: an effect that depends on outputs follows the list, not a copy of it.

    Two requests differ in nothing but the outputs they get.  Where fresh instances that are
    handed those outputs tell them apart and instances that watched them grow do not,
    the plugin looks at something that does not grow.
    """
    bench = trial.bench
    examples = depends = 0
    for choice in switched_on(bench):
        for first, second in _output_pairs(bench.tokens):
            examples += 1
            grown, rebuilt = [], []
            with limited():
                for outputs in (first, second):
                    rows = rows_alone(bench, choice, len(outputs) + 1, outputs)
                    grown.append([_delta(before, after) for before, after in rows])
                    rebuilt.append(
                        [
                            _delta(*resumed(bench, choice, outputs[:length]))
                            for length in range(len(outputs) + 1)
                        ]
                    )
            # Rows are compared as changes to the logits, since the logits differ themselves.
            told_apart = [
                step
                for step in range(len(rebuilt[0]))
                if not _alike(rebuilt[0][step], rebuilt[1][step])
            ]
            if not told_apart:
                continue
            depends += 1
            if all(_alike(grown[0][step], grown[1][step]) for step in told_apart):
                return failed(
                    f"with outputs {list(first)} and {list(second)} the rows of {label(choice)} "
                    f"differ in a fresh instance, and are the same in one that saw the outputs "
                    f"grow: it keeps a copy of the output list",
                    examples,
                    case={"choice": choice, "outputs": (first, second), "step": told_apart[0]},
                )
    if not depends:
        return Finding(
            Verdict.NOT_APPLICABLE, examples, 0, "no effect of the plugin depends on outputs"
        )
    return Finding(Verdict.PASS, examples, depends)


def deterministic(trial: Trial) -> Finding:
    """LB-23: the same request alone gives the same rows again, and draws no global randomness."""
    bench = trial.bench
    examples = acted = 0
    for choice in bench.parameters:
        before = _global_random_states()
        with limited():
            runs = [list(rows_alone(bench, choice, 6)) for _ in range(3)]
        examples += 1
        acted += any(not torch.equal(before, after) for before, after in runs[0])
        for again in runs[1:]:
            for step, ((_, first), (_, second)) in enumerate(zip(runs[0], again, strict=True)):
                if not torch.equal(first, second) and not _alike(first, second):
                    token, got, expected = differing(second[0], first[0])[0]
                    return failed(
                        f"{label(choice)}, step {step}: token {token} got {expected:.6g} the "
                        f"first time and {got:.6g} again, for the same request",
                        examples,
                        case={"choice": choice, "draws": False},
                    )
        after = _global_random_states()
        for name in [name for name in before if after[name] != before[name]]:
            return failed(
                f"{label(choice)} changes the global random state of {name}",
                examples,
                case={"choice": choice, "draws": name},
            )
    return passed(examples, acted)


def _global_random_states() -> dict[str, object]:
    return {
        "torch": torch.random.get_rng_state().numpy().tobytes(),
        "random": random.getstate(),
        "numpy.random": pickle.dumps(np.random.get_state()),  # noqa: NPY002 - plugins may use it
    }


def does_without_prompt(trial: Trial) -> Finding:
    """LB-25: requests whose prompt is given as embeddings have no prompt token ids."""
    bench = trial.bench
    for choice in bench.parameters:
        for prompt in ([bench.tokens[0]], None):
            instance = bench.new()
            try:
                with limited():
                    instance.begin(bench.params(choice), prompt, [])
                    instance.apply(bench.table[:1].clone())
            except PluginRaised as error:
                if prompt is not None:
                    raise  # not about the prompt
                return failed(f"for a request without prompt token ids ({label(choice)}): {error}")
    return Finding(Verdict.PASS, len(bench.parameters), len(bench.parameters))


def keeps_masks(trial: Trial) -> Finding:
    """LB-34: what is ``-inf`` before stays so."""
    bench = trial.bench
    # As a grammar would that allows none of the tokens which parameters and outputs name.
    mask = torch.zeros(bench.vocabulary, dtype=torch.bool)
    mask[list(bench.tokens)] = True
    mask[bench.seed % 7 :: 7] = True
    examples = acted = 0
    for choice in switched_on(bench):
        with limited():
            # A plugin that respects the mask may leave such rows alone: whether it acts shows on
            # rows without one.
            instance, unmasked = bench.new(), bench.new()
            outputs: list[int] = []
            for each in (instance, unmasked):
                each.begin(bench.params(choice), [bench.tokens[0]], outputs)
            for row in range(12):
                plain = bench.table[row : row + 1]
                acted += not torch.equal(plain, unmasked.apply(plain.clone()))
                before = plain.masked_fill(mask, -torch.inf)
                after = instance.apply(before.clone())
                examples += 1
                again = torch.isneginf(before) & ~torch.isneginf(after)
                if again.any():
                    token = int(again[0].nonzero()[0])
                    return failed(
                        f"{label(choice)}, with {len(outputs)} outputs: token {token} was masked "
                        f"(-inf) and got {after[0, token]:.5g}",
                        examples,
                        acted,
                    )
                outputs.append(bench.tokens[len(outputs) % len(bench.tokens)])
                for each in (instance, unmasked):
                    each.update_state(None)
            for each in (instance, unmasked):
                bench.retire(each, 1)
    if not acted:
        return Finding(
            Verdict.NOT_APPLICABLE, examples, message="the plugin changed none of these rows"
        )
    return passed(examples, acted)


def _output_pairs(tokens: Sequence[int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Pairs of outputs of equal length that differ in what history readers look at."""
    a, b, c = tokens[0], tokens[1], tokens[2]
    return [
        ((a,) * 4, (b,) * 4),
        ((a, b, a, b, a), (c, c, b, a, c)),
        ((a, b, c, a, b), (b, a, c, c, b)),
    ]


def resumed(
    bench: Bench, choice: Choice, outputs: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits before and after for a request that is added with outputs."""
    instance = bench.new()
    instance.begin(bench.params(choice), [bench.tokens[0], bench.tokens[-1]], list(outputs))
    before = bench.table[len(outputs) : len(outputs) + 1]
    after = instance.apply(before.clone())
    bench.retire(instance, 1)
    return before, after


def _delta(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Return where and how much a row was changed; unchanged and masked tokens give 0 and -inf."""
    return torch.where(before == after, torch.zeros_like(after), after - before)


def _alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    return same(first.flatten(), second.flatten())
