# SPDX-License-Identifier: Apache-2.0
"""Checks that need no history: loading, construction, claims, admission, determinism.

Each takes the :class:`~conformance.logits_batch.simulator.Trial` of a plugin
and returns a :class:`Finding`.
"""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch
from vllm.exceptions import VLLMValidationError
from vllm.v1.sample.logits_processor import BatchUpdate, _load_logitsprocs_by_fqcns

from conformance.logits_batch.bench import PluginRaised, call, limited, sampling_params
from conformance.logits_batch.parameters import rows_alone
from conformance.logits_batch.play import differing, same
from conformance.settings import Budget, UsageError
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conformance.history import Choice
    from conformance.logits_batch.bench import Bench
    from conformance.logits_batch.simulator import Trial


@attrs.frozen
class Finding:
    """What a check found: the verdict, what it rests on, and a sentence."""

    verdict: Verdict
    examples: int = 0
    acted: int = 0
    message: str | None = None
    #: For a failure without a history: what ``demonstrations`` needs to show it again.
    case: dict[str, Any] | None = None


def passed(examples: int, acted: int) -> Finding:
    """Return a pass, or ``not-verified`` where the plugin did nothing in any example."""
    if not acted:
        return Finding(
            Verdict.NOT_VERIFIED, examples, 0, f"the plugin did nothing in {examples} examples"
        )
    return Finding(Verdict.PASS, examples, acted)


def failed(
    message: str,
    examples: int = 1,
    acted: int | None = None,
    *,
    case: dict[str, Any] | None = None,
) -> Finding:
    """Return a failure."""
    acted = examples if acted is None else acted
    return Finding(Verdict.FAIL, examples, acted, message, case)


def no_claim() -> Finding:
    """Return that a rule about argmax-invariant processors does not apply."""
    return Finding(Verdict.NOT_APPLICABLE, message="the plugin does not claim argmax invariance")


def undefined(plugin: type) -> str:
    """Return the methods that the class leaves abstract, or an empty string."""
    return ", ".join(sorted(getattr(plugin, "__abstractmethods__", ())))


def loads(trial: Trial) -> Finding:
    """LB-01: vLLM's own loader finds the class."""
    try:
        (found,) = _load_logitsprocs_by_fqcns([trial.fqcn])
    except Exception as error:  # noqa: BLE001 - whatever vLLM's loader says is the finding
        cause = error.__cause__ or error
        return failed(f"vLLM's loader refuses {trial.fqcn!r}: {type(cause).__name__}: {cause}")
    if found is not trial.plugin:
        return failed(f"{trial.fqcn!r} names {found!r}, not the class under test")
    return Finding(Verdict.PASS, 1, 1)


def constructs(trial: Trial) -> Finding:
    """LB-02: three positional arguments, more than once."""
    bench = trial.bench
    for count in ("first", "second", "third"):
        try:
            with limited():
                call("__init__(vllm_config, device, is_pin_memory)", bench.construct)
        except PluginRaised as error:
            return failed(f"making the {count} instance: {error}")
    for first, second in _pairs(bench):
        if what := _shared(bench, first, second):
            return failed(what, 4)
    return Finding(Verdict.PASS, 4, 4)


def _pairs(bench: Bench) -> list[tuple[Choice, Choice]]:
    """Return a parameter set that switches on, with two others."""
    choices = [*_on(bench), *(choice for choice in bench.parameters if choice[0] == "off")]
    return [(choices[0], other) for other in dict.fromkeys((*choices[1:2], *choices[2:][-1:]))]


def _shared(bench: Bench, first: Choice, second: Choice) -> str | None:
    """Say whether the request of one instance is felt in another one."""
    with limited():
        alone = [[a.clone() for _, a in rows_alone(bench, c, 1)] for c in (first, second)]
        instances = [bench.new(), bench.new()]
        for instance, choice in zip(instances, (first, second), strict=True):
            prompt = [bench.tokens[0], bench.tokens[-1]]
            added = [(0, bench.params(choice), prompt, list[int]())]
            instance.update_state(BatchUpdate(1, [], added, []))
        for instance, choice, expected in zip(instances, (first, second), alone, strict=True):
            if not same(instance.apply(bench.table[:1].clone()), expected[0]):
                return (
                    f"two instances serve a request each ({_name(first)} and {_name(second)}), "
                    f"and the row of {_name(choice)} is not the one that it gets where there is "
                    "one instance"
                )
            bench.retire(instance, 1)
    return None


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
    for choice in _on(bench):
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
                    f"with outputs {list(first)} and {list(second)} the rows of {_name(choice)} "
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


def claim_is_true(trial: Trial) -> Finding:
    """LB-12: where invariance is claimed, the best token stays the best."""
    bench = trial.bench
    with limited():
        if not bench.new().is_argmax_invariant():
            return no_claim()
        examples = acted = 0
        for choice in _on(bench):
            for before, after in scaled_rows(bench, choice, trial.budget):
                examples += 1
                acted += not torch.equal(before, after)
                best = int(before[0].argmax())
                if after[0, best] < after[0].max():
                    other = int(after[0].argmax())
                    return failed(
                        f"is_argmax_invariant() returns True, yet {_name(choice)} makes token "
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
                added = [(0, bench.params(choice), [bench.tokens[0]], list[int]())]
                instance.update_state(BatchUpdate(1, [], added, []))
                claims.append((f"with a request {_name(choice)}", instance.is_argmax_invariant()))
                instance.apply(bench.table[:1].clone())
                claims.append(("after apply", instance.is_argmax_invariant()))
            instance.update_state(BatchUpdate(0, [0], [], []))
            claims.append(("after its requests finished", instance.is_argmax_invariant()))
    _, first = claims[0]
    for where, claim in claims:
        if not isinstance(claim, bool):
            return failed(f"is_argmax_invariant() returns {claim!r}, not a bool", len(claims))
        if claim != first:
            return failed(
                f"is_argmax_invariant() returned {first} first and {claim} {where}", len(claims)
            )
    return Finding(Verdict.PASS, len(claims), len(claims))


def refuses(trial: Trial) -> Finding:
    """LB-15: ``validate_params`` accepts what is good and refuses what is not."""
    bench = trial.bench
    validate = trial.plugin.validate_params
    for choice in bench.parameters:
        try:
            with limited():
                call("validate_params", validate, bench.params(choice))
        except PluginRaised as error:
            return failed(f"a request that is valid by the profile ({_name(choice)}): {error}")
    invalid = trial.parameters.invalid
    for index, keywords in enumerate(invalid):
        name = f"invalid[{index}] = {keywords}"
        try:
            params = sampling_params(keywords, name)
        except UsageError:
            continue  # refused by vLLM itself, before the plugin is asked
        try:
            with limited():
                call("validate_params", validate, params)
        except PluginRaised as error:
            if not isinstance(error.error, ValueError | VLLMValidationError):
                return failed(
                    f"{name} is refused with {type(error.error).__name__} ({error.error}): "
                    "only ValueError and VLLMValidationError become HTTP 400"
                )
        else:
            return failed(f"{name} is accepted by validate_params", index + 1)
    if not invalid:
        return Finding(
            Verdict.NOT_APPLICABLE,
            len(bench.parameters),
            message="the profile names no invalid requests",
        )
    return Finding(Verdict.PASS, len(invalid), len(invalid))


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
                        f"{_name(choice)}, step {step}: token {token} got {expected:.6g} the "
                        f"first time and {got:.6g} again, for the same request",
                        examples,
                        case={"choice": choice, "draws": False},
                    )
        after = _global_random_states()
        for name in [name for name in before if after[name] != before[name]]:
            return failed(
                f"{_name(choice)} changes the global random state of {name}",
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
            added = [(0, bench.params(choice), prompt, list[int]())]
            try:
                with limited():
                    instance.update_state(BatchUpdate(1, [], added, []))
                    instance.apply(bench.table[:1].clone())
            except PluginRaised as error:
                if prompt is not None:
                    raise  # not about the prompt
                return failed(f"for a request without prompt token ids ({_name(choice)}): {error}")
    return Finding(Verdict.PASS, len(bench.parameters), len(bench.parameters))


def keeps_masks(trial: Trial) -> Finding:
    """LB-34: what is ``-inf`` before stays so."""
    bench = trial.bench
    # As a grammar would that allows none of the tokens which parameters and outputs name.
    mask = torch.zeros(bench.vocabulary, dtype=torch.bool)
    mask[list(bench.tokens)] = True
    mask[bench.seed % 7 :: 7] = True
    examples = acted = 0
    for choice in _on(bench):
        with limited():
            # A plugin that respects the mask may leave such rows alone: whether it acts shows on
            # rows without one.
            instance, unmasked = bench.new(), bench.new()
            outputs: list[int] = []
            added = [(0, bench.params(choice), [bench.tokens[0]], outputs)]
            for each in (instance, unmasked):
                each.update_state(BatchUpdate(1, [], added, []))
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
                        f"{_name(choice)}, with {len(outputs)} outputs: token {token} was masked "
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


def _on(bench: Bench) -> list[Choice]:
    return [choice for choice in bench.parameters if choice[0] == "on"]


def _name(choice: Choice) -> str:
    return f"{choice[0]}[{choice[1]}]"


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
    prompt = [bench.tokens[0], bench.tokens[-1]]
    added = [(0, bench.params(choice), prompt, list(outputs))]
    instance.update_state(BatchUpdate(1, [], added, []))
    before = bench.table[len(outputs) : len(outputs) + 1]
    after = instance.apply(before.clone())
    bench.retire(instance, 1)
    return before, after


def _delta(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Return where and how much a row was changed; unchanged and masked tokens give 0 and -inf."""
    return torch.where(before == after, torch.zeros_like(after), after - before)


def _alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    return same(first.flatten(), second.flatten())


def scaled_rows(
    bench: Bench, choice: Choice, budget: Budget
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield logits before and after, over ties, near ties, masked, negative and scaled rows."""
    count = {Budget.QUICK: 1, Budget.STANDARD: 2, Budget.DEEP: 10}[budget]
    instance = bench.new()
    outputs: list[int] = []
    added = [(0, bench.params(choice), [bench.tokens[0]], outputs)]
    instance.update_state(BatchUpdate(1, [], added, []))
    for round_ in range(count):
        for scale, shift in ((1.0, 0.0), (0.01, 0.0), (30.0, 0.0), (1.0, -50.0), (1e-3, 0.0)):
            for row in range(round_, len(bench.table), count):
                before = bench.table[row : row + 1] * scale + shift
                if row % 3 == 0:
                    # A near tie: the runner-up is one rounding step below the best.
                    best, second = before[0].topk(2).indices.tolist()
                    before[0, second] = torch.nextafter(before[0, best], torch.tensor(-1e9))
                yield before, instance.apply(before.clone())
            outputs.append(bench.tokens[len(outputs) % len(bench.tokens)])
            instance.update_state(None)
