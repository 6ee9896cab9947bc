# SPDX-License-Identifier: Apache-2.0
"""Checks about a batch as a whole: idle, laid out with padding, as full as it may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from conformance.counterexample.clock_player import Clock
from conformance.counterexample.logits_player import CONTEXT
from conformance.counterexample.work_player import Work
from conformance.findings import Finding, failed, passed, unjudged
from conformance.inputs.history import Choice
from conformance.logits import hours, lengths, reasons, widths
from conformance.logits.calls import PluginRaised, call
from conformance.logits.configuration import MAX_MODEL_LEN, MAX_REQUESTS, vllm_config
from conformance.logits.findings import refused
from conformance.logits.rows import differing, handed_over, same
from conformance.logits.trial import Trial
from conformance.logits_batch import host
from conformance.logits_batch.bench import Bench, Watched, all_join, all_leave
from conformance.verdict import Reason, Verdict
from conformance.watching.interruption import CONSTRUCTOR_LIMIT, PluginHung, limited

#: Rows of logits in memory are this much longer than the vocabulary, as vLLM pads it to 64.
PADDING = 12

#: Steps for which a batch runs: some effects come late, and some only when outputs repeat
#: themselves. More would be past vLLM's default of ``max_tokens``.
STEPS = 8
MORE_STEPS = 16

#: A batch far larger than those of the histories, in an engine that allows it: vLLM's default for
#: large GPUs is 1024 requests.  Where its steps take longer than so many seconds, it has fewer.
FULL, LARGE = 1_100, 300
MAX_FULL = 1_536
FULL_LIMIT = 10.0


def comes_back(trial: Trial) -> Finding:
    """LB-28: where nobody opted in, ``apply`` returns its argument and does not work on it."""
    bench = trial.bench
    off = [choice for choice in bench.parameters if choice[0] == "off"]
    if not off or not trial.parameters.on:
        return Finding(Verdict.NOT_APPLICABLE, message="the plugin has no opt-in")
    on = next(choice for choice in bench.parameters if choice[0] == "on")
    instance = bench.new()
    with limited():
        for examples, (when, before) in enumerate(
            (("from the start", ()), ("after one that did has finished", (on,))), 1
        ):
            if before:
                _serve(bench, instance, before)
                instance.apply(bench.table[:1].clone())
                instance.update_state(all_leave(len(before)))
            _serve(bench, instance, off)
            logits = bench.table[: len(off)].clone()
            with Work(logits) as work:
                result = instance.apply(logits)
            instance.update_state(all_leave(len(off)))
            if not _same_memory(result, logits):
                return failed(
                    f"with no opted-in request in the batch ({when}), apply returns another "
                    "tensor than it was given",
                    examples,
                )
            if work.operations:
                return failed(
                    f"with no opted-in request in the batch ({when}), apply works on all logits: "
                    f"{', '.join(dict.fromkeys(work.operations))}",
                    examples,
                )
    return Finding(Verdict.PASS, examples, examples)


def takes_views(trial: Trial) -> Finding:
    """LB-29: rows with padding behind them, in inference mode, give what plain tensors give."""
    bench = trial.bench
    choices = list(bench.parameters)
    with limited():
        plain = _acting(bench, bench.new, choices)
    if isinstance(plain, PluginRaised):
        if not minds_inference_mode(bench):
            raise plain  # not about how logits are handed over
        return failed(f"under torch.inference_mode, in which engines run, {plain}")
    with limited():
        padded = _rows(bench, bench.new(), choices, _padded, len(plain))
    what = f"for logits that are a view (stride ({bench.vocabulary + PADDING}, 1))"
    if isinstance(padded, PluginRaised):
        return failed(f"{what} {padded}")
    for step, (got, expected) in enumerate(zip(padded, plain, strict=True)):
        if apart := _apart(got, expected):
            return failed(f"{what} {apart} as for logits that are not (step {step})", step + 1)
    return passed(len(plain), _acted(bench, choices, plain))


def minds_inference_mode(bench: Bench) -> bool:
    """Tell whether the plugin raises in inference mode, and only there."""
    choices = list(bench.parameters)
    with limited():
        inside = _rows(bench, bench.new(), choices)
        bare = Watched(bench.new().plugin, inference=False)
        outside = _rows(bench, bare, choices, torch.Tensor.clone)
    return isinstance(inside, PluginRaised) and not isinstance(outside, PluginRaised)


def serves_full_batches(trial: Trial) -> Finding:
    """LB-30: the rows of a batch of a thousand are those of a batch of a few."""
    bench = trial.bench
    choices = list(bench.parameters)
    new = partial(_made, bench, MAX_FULL)
    try:
        with limited():
            small = _acting(bench, new, choices)
    except PluginRaised as error:
        return refused(error, MAX_FULL)
    if isinstance(small, PluginRaised):
        raise small
    count, large = _full(bench, new, choices, len(small))
    if wrong := _unlike(large, small, [row % len(choices) for row in range(count)]):
        what = f"with {count} requests and max_num_seqs={MAX_FULL}{wrong}"
        why = _no_matter_of_size(trial, new, small)
        return unjudged(why, len(small)) if why else failed(what, len(small))
    return passed(len(small), _acted(bench, choices, small))


def _full(
    bench: Bench, new: Callable[[], Watched], choices: Sequence[Choice], steps: int
) -> tuple[int, list[torch.Tensor] | PluginRaised]:
    """Return how many requests a full batch has, and the rows of each step, or what was raised."""
    every = [choices[row % len(choices)] for row in range(FULL)]
    with suppress(PluginHung), limited(FULL_LIMIT):
        return FULL, _rows(bench, new(), every, steps=steps)
    with limited():
        return LARGE, _rows(bench, new(), every[:LARGE], steps=steps)


def _made(
    bench: Bench,
    requests: int = MAX_REQUESTS,
    *,
    vocabulary: int | None = None,
    length: int = MAX_MODEL_LEN,
) -> Watched:
    """Make an instance for an engine with such a batch, vocabulary and context."""
    config = vllm_config(bench.model, requests, vocabulary, length=length)
    with limited(CONSTRUCTOR_LIMIT):
        return Watched(call("__init__", bench.plugin, config, host.CPU, False))  # noqa: FBT003 - as vLLM calls it


def _serve_long(bench: Bench, instance: Watched, choice: Choice, request: lengths.Long) -> None:
    params, prompt, outputs, ends = request.made(bench, choice)
    instance.begin(params, prompt, outputs)
    for step in range(request.steps):
        if step:
            instance.update_state(None)
        row = instance.apply(bench.given(step))[0]
        token = bench.takes(row, bench.words.said(step))
        if token in ends:
            break
        outputs.append(token)
    instance.update_state(all_leave(1))


#: LB-49: a request may be as long as ``max_model_len`` says.
serves_long_requests = partial(
    lengths.judge, server=lengths.Server(partial(_made, length=CONTEXT), _serve_long)
)


def _with_vocabulary(bench: Bench, vocabulary: int) -> Watched:
    return _made(bench, vocabulary=vocabulary)


def _serve_wider(bench: Bench, instance: Watched, choice: Choice) -> None:
    outputs: list[int] = []
    instance.begin(bench.params(choice), [widths.beyond(bench), *bench.prompt], outputs)
    steps = bench.behind(widths.STEPS, choice)
    for step in range(steps):
        if step:
            instance.update_state(None)
        row = instance.apply(widths.wider(bench.given(step)))[0]
        outputs.append(bench.takes(row, widths.said(bench, step, steps)))
    instance.update_state(all_leave(1))


#: LB-50: the vocabulary may be larger than the tokenizer's.
serves_wider_logits = partial(widths.judge, new=_with_vocabulary, serve=_serve_wider)


def _serve_later(
    bench: Bench, pair: tuple[Choice, Choice], clock: Clock, pauses: hours.Pauses
) -> None:
    instance = bench.new()
    first_leaves = BatchUpdate(1, [0], [], [(1, 0, MoveDirectionality.UNIDIRECTIONAL)])
    for _ in range(2):
        choices, lists = list(pair), _serve(bench, instance, pair)
        steps = bench.served(hours.STEPS, *pair)
        for step in range(steps):
            if step and step == steps // 2:
                instance.update_state(first_leaves)
                del choices[0], lists[0]
            elif step:
                instance.update_state(None)
            rows = instance.apply(handed_over(_logits(bench, choices, step)))
            for row, outputs in zip(rows, lists, strict=True):
                outputs.append(bench.takes(row, bench.words.said(step)))
            clock.forward(pauses.steps)
        instance.update_state(all_leave(len(lists)))
        clock.forward(pauses.requests)


#: LB-51: time may pass between two calls.
serves_later = partial(hours.judge, serve=_serve_later)


def _no_matter_of_size(
    trial: Trial, new: Callable[[], Watched], small: list[torch.Tensor]
) -> Reason | None:
    """Return what else rows of a full batch may differ for, or None.

    Where requests that just join and advance go wrong, a crowd of them shows that as well.  And in
    a full batch each request stands beside others that are told the same, which a few may not be.
    """
    faulty = (each for each in trial.stratum(trial.contract.strata.plain) if each.played.faults)
    if broken := sorted({rule for example in faulty for rule in example.rules()}):
        return reasons.waits(trial, broken)
    choices, most = list(trial.bench.parameters), MAX_REQUESTS // 2
    for start in range(0, len(choices), most):
        twice = [*range(len(choices))[start : start + most]] * 2
        with limited():
            rows = _rows(trial.bench, new(), [choices[n] for n in twice], steps=len(small))
        if wrong := _unlike(rows, small, twice):
            return (
                f"the number of requests is not why rows differ: with {len(twice)} of them, each "
                f"beside another with the same parameters{wrong}"
            )
    return None


def _unlike(
    rows: list[torch.Tensor] | PluginRaised, small: list[torch.Tensor], places: Sequence[int]
) -> str | None:
    """Say how a batch goes wrong whose requests have these places in a small one, if it does."""
    if isinstance(rows, PluginRaised):
        return f", {rows}"
    for step, (got, expected) in enumerate(zip(rows, small, strict=True)):
        if apart := _apart(got, expected[list(places)]):
            return f" {apart} as in a batch of {len(expected)} (step {step})"
    return None


def _acting(
    bench: Bench, new: Callable[[], Watched], choices: Sequence[Choice]
) -> list[torch.Tensor] | PluginRaised:
    """Return the rows of each step, of more steps where none was changed, or what was raised."""
    rows = _rows(bench, new(), choices)
    if isinstance(rows, PluginRaised) or _acted(bench, choices, rows):
        return rows
    return _rows(bench, new(), choices, steps=bench.behind(MORE_STEPS, *choices))


def _rows(
    bench: Bench,
    instance: Watched,
    choices: Sequence[Choice],
    layout: Callable[[torch.Tensor], torch.Tensor] = handed_over,
    steps: int | None = None,
) -> list[torch.Tensor] | PluginRaised:
    """Return the rows of each step with one request for each choice, or what was raised."""
    found: list[torch.Tensor] = []
    try:
        lists = _serve(bench, instance, choices)
        for step in range(bench.behind(STEPS, *choices) if steps is None else steps):
            if step:
                instance.update_state(None)
            result = instance.apply(layout(_logits(bench, choices, step)))
            found.append(result.clone())
            for row, outputs in zip(found[-1], lists, strict=True):
                outputs.append(bench.takes(row, bench.words.said(step)))
        instance.update_state(all_leave(len(choices)))
    except PluginRaised as error:
        return error
    return found


def _logits(bench: Bench, choices: Sequence[Choice], step: int) -> torch.Tensor:
    """Return logits ``[rows, vocabulary]``; requests of one choice get the same."""
    places = {choice: place for place, choice in enumerate(bench.parameters)}
    return bench.masking.unmasked(places[choice] + step for choice in choices)


def _acted(bench: Bench, choices: Sequence[Choice], steps: Sequence[torch.Tensor]) -> int:
    """Return in how many steps some row was changed."""
    return sum(
        not torch.equal(rows, _logits(bench, choices, step)) for step, rows in enumerate(steps)
    )


def _apart(got: torch.Tensor, expected: torch.Tensor) -> str | None:
    """Say in which row and token two batches differ, if they do."""
    if same(got, expected):
        return None
    row = next(row for row in range(len(got)) if not same(got[row], expected[row]))
    token, there, here = differing(got[row], expected[row])[0]
    return f"row {row} differs: token {token} is {there:.5g}, expected {here:.5g}"


def _serve(bench: Bench, instance: LogitsProcessor, choices: Sequence[Choice]) -> list[list[int]]:
    """Fill an empty batch with a request for each choice; return their output lists."""
    joined, lists = all_join(bench, choices)
    instance.update_state(joined)
    return lists


def _padded(logits: torch.Tensor) -> torch.Tensor:
    """Return logits as a view of longer rows."""
    longer = torch.full(
        (logits.shape[0], logits.shape[1] + PADDING), -torch.inf, dtype=logits.dtype
    )
    longer[:, : logits.shape[1]] = logits
    return longer[:, : logits.shape[1]]


def _same_memory(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first is second or (
        first.data_ptr() == second.data_ptr()
        and first.shape == second.shape
        and first.stride() == second.stride()
    )
