# SPDX-License-Identifier: Apache-2.0
"""Checks of ``logits/slot`` that need no history.

Each takes the :class:`~conformance.logits.trial.Trial` of a plugin
and returns a :class:`Finding`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, wraps

import numpy as np
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate
from vllm.v1.sample.logits_processor import LogitsProcessor as BatchLogitsProcessor
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext

from conformance.counterexample.clock_player import Clock
from conformance.counterexample.logits_player import CONTEXT
from conformance.findings import Finding, failed, passed, unjudged
from conformance.inputs.history import MOST_DRAFTS, Choice, label
from conformance.logits import effects, hours, lengths, reasons, widths
from conformance.logits.calls import PluginRaised, call
from conformance.logits.configuration import vllm_config
from conformance.logits.findings import refused, switched_on
from conformance.logits.rows import alike, differing, same
from conformance.logits.trial import Trial
from conformance.logits_slot.bench import Alone, Bench, Watched, all_join, one_row_each, together
from conformance.logits_slot.host import request_states
from conformance.logits_slot.parameters import rows_alone
from conformance.verdict import Verdict
from conformance.watching.interruption import PluginHung, limited

#: Steps for which a request runs alone.
STEPS = 8

#: Requests in a full batch with drafts, and in one without: vLLM's default for large GPUs is 1024.
#: The latter is left out where it takes longer than so many seconds.
MANY_REQUESTS, MOST_REQUESTS = 256, 1_100
FULL_LIMIT = 10.0


def constructs(trial: Trial) -> Finding:
    """LS-02: two positional arguments, more than once, and nothing shared."""
    bench: Bench = trial.bench

    def make() -> object:
        states = request_states(bench.vocabulary)
        return call("__init__(vllm_config, req_states)", bench.construct, states)

    return effects.constructs(trial, make)


def _behind_histories(judge: Callable[[Trial], Finding]) -> Callable[[Trial], Finding]:
    """Have a failure wait where some history has gone wrong, which may be why."""

    @wraps(judge)
    def judged(trial: Trial) -> Finding:
        faulty = (example for example in trial.examples() if example.played.faults)
        broken = sorted({rule for example in faulty for rule in example.rules()})
        if broken and reasons.blocking(trial):
            return unjudged(reasons.waits(trial, broken))
        found = judge(trial)
        wrong = broken and found.verdict is Verdict.FAIL
        return unjudged(reasons.waits(trial, broken)) if wrong else found

    return judged


@_behind_histories
def warms_up(trial: Trial) -> Finding:
    """LS-13: warm-up requests neither raise nor leave anything behind."""
    bench: Bench = trial.bench
    examples = acted = 0
    for choice in bench.parameters:
        with limited():
            steps = bench.behind(STEPS, choice)
            cold = list(rows_alone(bench, choice, steps))
            for name, warm in (("fake requests", _with_requests), ("dummy runs", _without)):
                examples += 1
                try:
                    rows = list(rows_alone(bench, choice, steps, prepare=warm))
                except PluginRaised as error:
                    return failed(
                        f"during or after warm-up with {name}: {error}",
                        examples,
                        case={"choice": choice, "warm": name},
                    )
                acted += any(not torch.equal(before, expected) for before, expected in cold)
                for step, ((_, expected), (_, got)) in enumerate(zip(cold, rows, strict=True)):
                    if not alike(got, expected):
                        token, have, want = differing(got[0], expected[0])[0]
                        return failed(
                            f"after warm-up with {name}, step {step} of {label(choice)} gives "
                            f"token {token} a logit of {have:.5g} instead of {want:.5g}",
                            examples,
                            case={"choice": choice, "warm": name, "steps": step + 1},
                        )
    return passed(examples, acted)


def _with_requests(instance: Watched) -> None:
    """Warm up as ``vllm.v1.worker.gpu.warmup`` does: requests that are really added."""
    states = instance.states
    requests = [
        Alone(instance, SamplingParams.for_sampler_warmup(), [0, 1], name=f"_warmup_{number}_")
        for number in range(states.max_num_reqs)
    ]
    for request in requests:
        request.join()
    with torch.inference_mode():
        states.apply_staged_writes()
    _apply_to_all(instance)
    for request in requests:
        states.remove_request(request.name)
    instance.answers.clear()


def _without(instance: Watched) -> None:
    """Warm up as ``_dummy_sampler_run`` of 0.33 does: slots without an entry in the states."""
    for slot in range(instance.states.max_num_reqs):
        with torch.inference_mode():
            instance.add_request(slot, SamplingParams.for_sampler_warmup())
    _apply_to_all(instance)
    instance.answers.clear()


def _apply_to_all(instance: Watched) -> None:
    count = instance.states.max_num_reqs
    slots = torch.arange(count, dtype=torch.int32)
    with torch.inference_mode():
        instance.apply_staged_writes()
        logits = torch.zeros(count, instance.states.vocab_size, dtype=torch.float32)
        ends, newest = torch.zeros(count, dtype=torch.int64), torch.zeros(count, dtype=torch.int32)
        instance.apply(logits, one_row_each(slots, ends, newest))


def agrees_with_itself(trial: Trial) -> Finding:
    """LS-31: a request alone gets the same rows through the V1 interface of the class."""
    bench: Bench = trial.bench
    if not issubclass(trial.plugin, BatchLogitsProcessor):
        return Finding(Verdict.NOT_APPLICABLE, message="the class serves one model runner only")
    examples = acted = 0
    for choice in bench.parameters:
        with limited():
            rows = list(rows_alone(bench, choice, bench.behind(STEPS, choice)))
            said = [bench.takes(after[0], bench.words.said(n)) for n, (_, after) in enumerate(rows)]
            others = _rows_in_v1(bench, choice, said)
        for step, ((before, after), other) in enumerate(zip(rows, others, strict=True)):
            if torch.isneginf(before).any():
                continue  # what to do where a grammar and the plugin disagree is left to each
            examples += 1
            acted += not torch.equal(before, after)
            if not alike(after, other):
                token, got, expected = differing(after[0], other[0])[0]
                return failed(
                    f"step {step} of {label(choice)} gives token {token} a logit of {got:.5g} in "
                    f"Model Runner V2 and of {expected:.5g} in the V1 model runner",
                    examples,
                    acted,
                    case={"choice": choice, "steps": step + 1},
                )
    return passed(examples, acted)


def _rows_in_v1(bench: Bench, choice: Choice, said: Sequence[int]) -> list[torch.Tensor]:
    """Return what a request alone gets as row 0 of a batch, with these outputs."""
    config = vllm_config(bench.model)
    instance = call("__init__", bench.plugin, config, torch.device("cpu"), False)  # noqa: FBT003 - as vLLM calls it
    outputs: list[int] = []
    prompt = bench.prompt
    update = BatchUpdate(1, [], [(0, bench.params(choice), prompt, outputs)], [])
    found = []
    with torch.inference_mode():
        for step, token in enumerate(said):
            call("update_state(batch_update)", instance.update_state, None if step else update)
            row = bench.given(step).clone()
            found.append(call("apply(logits)", instance.apply, row))
            outputs.append(token)
    return found


def says_no(trial: Trial) -> Finding:
    """LS-29: requests that the plugin leaves alone are declined."""
    bench: Bench = trial.bench
    declined = [choice for choice in bench.parameters if choice[0] == "off"]
    if not declined or not switched_on(bench):
        return Finding(Verdict.NOT_APPLICABLE, message="the plugin acts on every request")
    for choice in declined:
        with limited():
            alone = Alone(bench.new(), bench.params(choice), [bench.tokens[0]])
            alone.begin()
        if alone.slot is not None and alone.instance.answers[alone.slot]:
            return failed(
                f"add_request returned True for {label(choice)}, whose rows it never changes: "
                "every batch with such a request is copied and processed for nothing",
                case={"choice": choice},
            )
    return Finding(Verdict.PASS, len(declined), len(declined))


@_behind_histories
def serves_full_batches(trial: Trial) -> Finding:
    """LS-27: as many requests as the engine may have, each with drafts where it has any."""
    bench: Bench = trial.bench
    case = {"choices": list(bench.choices)}
    try:
        with limited():
            if what := _wrong(bench, MANY_REQUESTS, drafts=bench.speculates):
                return failed(what, 2 * MANY_REQUESTS, case=case)
    except PluginRaised as error:
        return refused(error, MANY_REQUESTS)
    with suppress(PluginHung, PluginRaised), limited(FULL_LIMIT):  # it may refuse so many
        if what := _wrong(bench, MOST_REQUESTS, drafts=False):
            return failed(what, MOST_REQUESTS, case=case)
    return Finding(Verdict.PASS, 2 * MANY_REQUESTS, 2 * MANY_REQUESTS)


def _wrong(bench: Bench, count: int, *, drafts: bool) -> str | None:
    """Say what goes wrong in a batch of so many requests, if anything does.

    Raises:
        PluginRaised: the constructor raised.

    """
    try:
        return _filled(bench, count, drafts=drafts)
    except PluginRaised as error:  # in histories of few requests nothing did
        if error.call == "__init__":
            raise
        return f"with {count} requests {error}"


@_behind_histories
def takes_padded_batches(trial: Trial) -> Finding:
    """LS-34: three requests in a CUDA graph for four get the rows that they get without it."""
    bench: Bench = trial.bench
    examples = acted = 0
    chosen = switched_on(bench) or list(bench.choices)
    for number, choice in enumerate(chosen):
        # One that is left alone among them, where there is one.
        batch = (choice, bench.choices[-1], chosen[(number + 1) % len(chosen)])
        case = {"choices": list(batch)}
        with limited():
            expected = _decoded(bench, batch, spare=0)
            try:
                got = _decoded(bench, batch, spare=1)
            except PluginRaised as error:
                return failed(
                    f"in a batch of 3 that runs as one of 4, {error}", examples + 1, case=case
                )
        for step, ((before, want), (_, have)) in enumerate(zip(expected, got, strict=True)):
            examples += 1
            acted += not torch.equal(before, want)
            if not same(have, want):
                row = next(at for at in range(len(batch)) if not same(have[at], want[at]))
                token, value, other = differing(have[row], want[row])[0]
                return failed(
                    f"in a batch of 3 that runs as one of 4, step {step} gives token {token} of "
                    f"{label(batch[row])} a logit of {value:.5g} instead of {other:.5g}",
                    examples,
                    acted,
                    case={**case, "steps": step + 1},
                )
    return passed(examples, acted)


def _decoded(
    bench: Bench, batch: Sequence[Choice], *, spare: int
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Run requests together; return the logits of each step before and after.

    Only steps in which all of them decode run as a full CUDA graph.
    """
    instance = bench.new()
    requests = all_join(instance, bench, batch)
    rows = []
    for step in range(bench.behind(STEPS, *batch)):
        before = bench.given(step).repeat(len(requests), 1)
        after = together(requests, before, spare=spare if step else 0)
        rows.append((before, after.clone()))
        for request, row in zip(requests, after, strict=True):
            request.append(bench.takes(row, bench.words.said(step)))
    bench.retire(instance)
    return rows


def _with_long_context(bench: Bench) -> Watched:
    return bench.new(trusted=True, length=CONTEXT)


def _serve_long(bench: Bench, instance: Watched, choice: Choice, request: lengths.Long) -> None:
    params, prompt, outputs, ends = request.made(bench, choice)
    alone = Alone(instance, params, prompt, outputs)
    try:
        alone.begin()
        for step in range(request.steps):
            row = together([alone], bench.given(step))[0]
            token = bench.takes(row, bench.words.said(step))
            if token in ends:
                break
            alone.append(token)
    finally:
        instance.states.remove_request(alone.name)


#: LS-46: a request may be as long as ``max_model_len`` says.
serves_long_requests = partial(
    lengths.judge, server=lengths.Server(_with_long_context, _serve_long)
)


def _with_vocabulary(bench: Bench, vocabulary: int) -> Watched:
    return bench.new(trusted=True, vocabulary=vocabulary)


def _serve_wider(bench: Bench, instance: Watched, choice: Choice) -> None:
    alone = Alone(instance, bench.params(choice), [widths.beyond(bench), *bench.prompt])
    alone.begin()
    steps = bench.behind(widths.STEPS, choice)
    for step in range(steps):
        row = together([alone], widths.wider(bench.given(step)))[0]
        alone.append(bench.takes(row, widths.said(bench, step, steps)))
    instance.states.remove_request(alone.name)


#: LS-47: the vocabulary may be larger than the tokenizer's.
serves_wider_logits = partial(widths.judge, new=_with_vocabulary, serve=_serve_wider)


def _serve_later(
    bench: Bench, pair: tuple[Choice, Choice], clock: Clock, pauses: hours.Pauses
) -> None:
    instance = bench.new(trusted=True)
    for choices in (pair, pair[::-1]):
        requests = all_join(instance, bench, choices)
        for step in range(bench.served(hours.STEPS, *pair)):
            rows = together(requests, bench.given(step).repeat(len(requests), 1))
            for request, row in zip(requests, rows, strict=True):
                request.append(bench.takes(row, bench.words.said(step)))
            clock.forward(pauses.steps)
        for request in requests:
            instance.states.remove_request(request.name)
        clock.forward(pauses.requests)


#: LS-48: time may pass between two calls.
serves_later = partial(hours.judge, serve=_serve_later)


def _filled(bench: Bench, count: int, *, drafts: bool) -> str | None:
    """Fill an instance with requests; say which row is not the one that its request gets alone."""
    instance = bench.new(count, speculative=drafts)
    choices = [bench.choices[number % len(bench.choices)] for number in range(count)]
    begun = bench.begun(*bench.choices)  # as of those that are resumed
    requests = all_join(instance, bench, choices, begun)
    with torch.inference_mode():
        instance.apply_staged_writes()
    found = (_full(bench, requests, 1 + more) for more in ((0, MOST_DRAFTS) if drafts else (0,)))
    return next((what for what in found if what), None)


def _full(bench: Bench, requests: Sequence[Alone], rows: int) -> str | None:
    """Process ``rows`` rows of every request; say which first row is not the one it gets alone."""
    instance, begun = requests[0].instance, requests[0].outputs
    slots_np = np.array([request.slot for request in requests], dtype=np.intp)
    slots = torch.from_numpy(slots_np)
    offsets = torch.arange(rows, dtype=torch.int32).repeat(len(requests))
    last = requests[0].length - 1
    fed = torch.full((len(requests), rows), bench.tokens[0], dtype=torch.int32)
    fed[:, 0] = [*bench.prompt, *begun][-1]
    logits = bench.given(len(begun)).repeat(len(requests) * rows, 1)
    with torch.inference_mode():
        result = instance.apply(
            logits.clone(),
            LogitsContext(
                expanded_idx_mapping=slots.repeat_interleave(rows),
                idx_mapping=slots,
                idx_mapping_np=slots_np,
                expanded_local_pos=offsets,
                input_ids=fed.flatten(),
                pos=(last + offsets).to(torch.int64),
                seq_lens_upper_bound_np=np.full(len(requests), last + rows, dtype=np.int32),
            ),
        )
    alone = {
        choice: [after[0] for _, after in rows_alone(bench, choice, 1 + len(begun), begun)][-1]
        for choice in bench.choices
    }
    for number, slot in enumerate(slots_np.tolist()):
        choice = bench.choices[number % len(bench.choices)]
        if instance.answers[slot] and not same(result[number * rows], alone[choice]):
            return (
                f"in a batch of {len(requests)} requests with {rows} rows each, the row of request "
                f"{number} ({label(choice)}) is not the one that it gets alone"
            )
    return None
