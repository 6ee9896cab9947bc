# SPDX-License-Identifier: Apache-2.0
"""Checks about what a plugin does to the rows of one request: when, from what, how surely."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

import torch
from vllm.v1.sample.logits_processor import BatchUpdate

from conformance.findings import Finding, failed, passed
from conformance.inputs.history import Choice, label
from conformance.inputs.words import Words
from conformance.logits.calls import PluginMisshapen, PluginRaised
from conformance.logits.configuration import ROOM
from conformance.logits.findings import switched_on, unreached
from conformance.logits.masks import preferred
from conformance.logits.requests import REFUSES_MASKS
from conformance.logits.rows import alike, delta
from conformance.logits.trial import Trial
from conformance.logits.waiting import TokenList
from conformance.logits_batch.bench import Bench
from conformance.logits_batch.parameters import rows_alone
from conformance.verdict import Verdict
from conformance.watching.interruption import PluginHung, limited

#: Phrases that outputs are told apart by, and tokens behind one.
PHRASES, COUNTED = 3, 4

#: Steps of a request without a prompt, and of one whose tokens are masked, behind what it says
#: first.
_FEW, _MASKED_STEPS = 5, 12


def live_list(trial: Trial) -> Finding:
    """LB-10: an effect that depends on outputs follows the list, not a copy of it.

    Two requests differ in nothing but the outputs they get, or one is looked at with fewer outputs
    and with more of them.  Where fresh instances that are handed those outputs tell them apart and
    instances that watched them grow do not, the plugin looks at something that does not grow.
    What the rows of the fresh ones rule out is no output.
    """
    bench = trial.bench
    examples = depends = longer = 0
    for choice in switched_on(bench):
        found = _grows(bench, choice)
        if found.verdict is Verdict.FAIL:
            return found
        longer += found.acted
        for pair in _output_pairs(bench.words):
            examples += 1
            grown, rebuilt = [], []
            with limited():
                followed = [_followed(bench, choice, wanted) for wanted in pair]
                for outputs, again in followed:
                    rows = rows_alone(bench, choice, len(outputs) + 1, outputs)
                    grown.append([delta(before, after) for before, after in rows])
                    rebuilt.append([delta(before, after) for before, after in again])
            first, second = (tuple(outputs) for outputs, _ in followed)
            # Rows are compared as changes to the logits, since the logits differ themselves.
            told_apart = [
                step
                for step in range(len(rebuilt[0]))
                if not alike(rebuilt[0][step], rebuilt[1][step])
            ]
            if not told_apart:
                continue
            depends += 1
            same = all(alike(grown[0][step], grown[1][step]) for step in told_apart)
            # Whoever keeps the list can read it: what goes wrong then is not that it is a copy.
            if same and not _keeps_list(bench, choice):
                return failed(
                    f"with outputs {list(first)} and {list(second)} the rows of {label(choice)} "
                    f"differ in a fresh instance, and are the same in one that saw the outputs "
                    f"grow: it did not keep the output list that it was given",
                    examples,
                    case={"choice": choice, "outputs": (first, second), "step": told_apart[0]},
                )
    if not depends and longer:
        # It looks at how many there are, and not at which.
        return passed(longer, longer)
    if not depends and not unreached(bench):
        return Finding(
            Verdict.NOT_APPLICABLE,
            examples,
            0,
            "fresh instances that were handed an output or more did the same to a row, whichever "
            "they were and however many",
        )
    return passed(examples, depends)


def _grows(bench: Bench, choice: Choice) -> Finding:
    """Look whether rows that depend on how many outputs there are follow those of a request.

    All are made of the same logits, so that nothing but outputs tells them apart.  A request
    without outputs is not compared: a plugin that acts on new requests alone keeps no copy.
    """
    piece = bench.words.pieces(ROOM)[0]
    with limited():
        wanted = (piece * bench.life)[: max(len(piece), bench.life)]
        outputs, rows = _followed(bench, choice, wanted, place=0)
        rebuilt, steps = [after for _, after in rows[1:]], range(1, len(rows))
        other = next((step for step in steps if not alike(rebuilt[step - 1], rebuilt[0])), None)
        if other is None:
            return passed(len(steps), 0)
        grown = watched(bench, choice, outputs[: steps[-1]])
    if all(alike(row, grown[0]) for row in grown) and not _keeps_list(bench, choice):
        return failed(
            f"with outputs {list(outputs[:1])} and {list(outputs[:other])} the rows of "
            f"{label(choice)} differ in fresh instances, and are the same in one that saw the "
            f"outputs grow: it did not keep the output list that it was given",
            len(steps),
            case={"choice": choice, "outputs": (outputs[:1], outputs[:other])},
        )
    return passed(len(steps), len(steps))


def _followed(
    bench: Bench, choice: Choice, wanted: Sequence[int], place: int | None = None
) -> tuple[list[int], list[tuple[torch.Tensor, torch.Tensor]]]:
    """Return the outputs that fresh instances allow, and the rows behind each number of them."""
    outputs: list[int] = []
    rows = [resumed(bench, choice, outputs, place)]
    for token in wanted[: bench.served(len(wanted) + 1, choice) - 1]:
        outputs.append(bench.takes(rows[-1][1][0], token))
        rows.append(resumed(bench, choice, outputs, place))
    return outputs, rows


def watched(bench: Bench, choice: Choice, said: Sequence[int]) -> list[torch.Tensor]:
    """Return the rows of a request behind each of its outputs, all made of the same logits."""
    instance, rows = bench.new(), []
    outputs: list[int] = []
    instance.begin(bench.params(choice), bench.prompt, outputs)
    instance.apply(bench.given(0).clone())
    for token in said:
        outputs.append(token)
        instance.update_state(None)
        rows.append(instance.apply(bench.given(0).clone()))
    bench.retire(instance, 1)
    return rows


def does_without_prompt(trial: Trial) -> Finding:
    """LB-25: requests whose prompt is given as embeddings have no prompt token ids."""
    return _without_prompt(trial.bench)


def needs_prompt(bench: Bench) -> bool:
    """Tell whether a plugin breaks LB-25: then no engine has to show it again."""
    with suppress(PluginRaised, PluginMisshapen, PluginHung):
        return _without_prompt(bench).verdict is Verdict.FAIL
    return False


def _without_prompt(bench: Bench) -> Finding:
    """Serve requests without prompts; some plugins look at them when there are outputs."""
    for choice in bench.parameters:
        for prompt in ([bench.tokens[0]], None):
            instance = bench.new()
            try:
                with limited():
                    outputs: list[int] = []
                    instance.begin(bench.params(choice), prompt, outputs)
                    for step in range(bench.behind(_FEW, choice)):
                        (row,) = instance.apply(bench.given(step).clone())
                        outputs.append(bench.takes(row, bench.words.said(step)))
                        instance.update_state(None)
            except PluginRaised as error:
                if prompt is not None:
                    raise  # not about the prompt
                return failed(f"for a request without prompt token ids ({label(choice)}): {error}")
        if _alike_beside(bench, choice, [bench.tokens[0]]) and not _alike_beside(
            bench, choice, None
        ):
            return failed(
                f"beside a request without prompt token ids another one ({label(choice)}) does not "
                f"get what it gets alone, and beside one with them it does"
            )
        for earlier in switched_on(bench):
            taken = partial(_alike_after, bench, earlier, choice)
            if taken([bench.tokens[0]]) and not taken(None):
                return failed(
                    f"a request without prompt token ids ({label(choice)}) that takes over the row "
                    f"of another one ({label(earlier)}) does not get what it gets in an instance "
                    f"of its own, and one with them does"
                )
    return Finding(Verdict.PASS, len(bench.parameters), len(bench.parameters))


def _alike_after(bench: Bench, earlier: Choice, choice: Choice, prompt: list[int] | None) -> bool:
    """Tell whether a request gets in the row of one that has ended what it gets without it."""
    row = bench.table[:1]
    alone, after = bench.new(), bench.new()
    try:
        with limited():
            alone.begin(bench.params(choice), prompt, bench.begun(choice))
            expected = alone.apply(row.clone())
            after.begin(bench.params(earlier), [bench.tokens[-1]], bench.begun(earlier))
            after.apply(row.clone())
            after.begin(bench.params(choice), prompt, bench.begun(choice))
            return alike(after.apply(row.clone()), expected)
    except PluginRaised:
        return False


def _alike_beside(bench: Bench, choice: Choice, prompt: list[int] | None) -> bool:
    """Tell whether requests get behind one of the same parameters what they get alone."""
    own, rows = [bench.tokens[-1]], bench.table[:3]
    alone, behind = bench.new(), bench.new()
    params = bench.params(choice)
    prompts = enumerate((prompt, own, own))
    try:
        with limited():
            alone.begin(bench.params(choice), own, bench.begun(choice))
            expected = alone.apply(rows[2:].clone())
            added = [(row, params, each, bench.begun(choice)) for row, each in prompts]
            update = BatchUpdate(3, [], added, [])
            behind.update_state(update)
            return alike(behind.apply(rows.clone())[2:], expected)
    except PluginRaised:
        return False


def _mask(bench: Bench, free: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """Return the mask of a grammar that allows nothing of what a plugin may prefer."""
    bench.masked = tuple(preferred(bench.tokens, free))
    mask = torch.zeros(bench.vocabulary, dtype=torch.bool)
    mask[list(bench.masked)] = True
    mask[bench.seed % 7 :: 7] = True
    return mask


def keeps_masks(trial: Trial) -> Finding:
    """LB-34: what is ``-inf`` before stays so."""
    bench = trial.bench
    if not bench.maskable:
        return Finding(Verdict.NOT_APPLICABLE, message=REFUSES_MASKS)
    examples = acted = 0
    for choice in switched_on(bench):
        with limited():
            # A plugin that respects the mask may leave such rows alone: whether it acts, and on
            # which tokens, shows on rows without one.
            free = list(rows_alone(bench, choice, bench.behind(_MASKED_STEPS, choice)))
            mask = _mask(bench, free)
            instance, outputs = bench.new(), list[int]()
            instance.begin(bench.params(choice), bench.prompt, outputs)
            for step, (plain, unmasked) in enumerate(free):
                before = plain.masked_fill(mask, -torch.inf)
                after = instance.apply(before.clone())
                examples += 1
                acted += not torch.equal(plain, unmasked)
                again = torch.isneginf(before) & ~torch.isneginf(after)
                if again.any():
                    token = int(again[0].nonzero()[0])
                    return failed(
                        f"{label(choice)}, with {len(outputs)} outputs: token {token} was masked "
                        f"(-inf) and got {after[0, token]:.5g}",
                        examples,
                        acted,
                    )
                # The mask may have left no token at all.
                outputs.append(bench.takes(unmasked[0], bench.words.said(step)))
                instance.update_state(None)
            bench.retire(instance, 1)
    if not acted and not unreached(bench):
        return Finding(
            Verdict.NOT_APPLICABLE, examples, message="the plugin changed none of these rows"
        )
    return passed(examples, acted)


def _keeps_list(bench: Bench, choice: Choice) -> bool:
    """Tell whether an instance holds on to the list of outputs of a request."""
    instance = bench.new()
    outputs = TokenList([], "outputs", set())
    kept = weakref.ref(outputs)
    with limited():
        instance.begin(bench.params(choice), bench.prompt, outputs)
        del outputs
        gc.collect()
        keeps = kept() is not None
        bench.retire(instance, 1)
    return keeps


def _output_pairs(words: Words) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Pairs of outputs of equal length that differ in what history readers look at."""
    a, b, c = words.tokens[:3]
    # What is waited for is said, or not, and then tokens come that are counted.
    waited = [(*phrase, *(a,) * COUNTED) for phrase in words.phrases[:PHRASES]]
    return [
        *((said, (a,) * len(said)) for said in waited),
        ((a,) * 4, (b,) * 4),
        ((a, b, a, b, a), (c, c, b, a, c)),
        ((a, b, c, a, b), (b, a, c, c, b)),
    ]


def resumed(
    bench: Bench, choice: Choice, outputs: Sequence[int], place: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits before and after for a request that is added with outputs.

    They are those of the step that so many outputs make it, or of another *place*.
    """
    instance = bench.new()
    instance.begin(bench.params(choice), bench.prompt, list(outputs))
    before = bench.given(len(outputs) if place is None else place)
    after = instance.apply(before.clone())
    bench.retire(instance, 1)
    return before, after
