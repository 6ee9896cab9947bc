# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: what the reference plugins mean, which no certificate can know."""

from __future__ import annotations

import importlib
import math
import random
import traceback
from typing import TYPE_CHECKING, Any

import attrs
import torch
from reference_histories import asked, made
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import (
    BatchUpdate,
    LogitBiasLogitsProcessor,
    LogitsProcessor,
    MinPLogitsProcessor,
)

from conformance.logits_batch.host import Host, Joining
from reference_plugins.logits_batch.no_repeat_ngram import NoRepeatNgramLogitsProcessor
from reference_plugins.logits_batch.probability_floor import ProbabilityFloorLogitsProcessor
from reference_plugins.logits_batch.thinking_budget import ThinkingBudgetLogitsProcessor
from reference_plugins.logits_batch.token_bias import TokenBiasLogitsProcessor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection


#: Which plugin of two is nearer to the floor is a matter of rounding for logits this close to it.
ROUNDING = 1e-4

VOCABULARY = 40


def run(connection: Connection, case: str) -> None:
    """Run one ``module:function`` and answer with the lines of what went wrong, if any."""
    connection.recv()
    module, _, function = case.partition(":")
    try:
        with torch.inference_mode():
            getattr(importlib.import_module(module), function)()
    except Exception:  # noqa: BLE001 - the test that asked shows it
        connection.send(traceback.format_exc().splitlines())
    else:
        connection.send([])


def repeats(tokens: Sequence[int], size: int) -> int:
    """Count the runs of ``size`` tokens that occurred before."""
    runs = [tuple(tokens[start : start + size]) for start in range(len(tokens) - size + 1)]
    return len(runs) - len(set(runs))


def generates_200_tokens_without_a_trigram_twice() -> None:
    """Sample from random logits: no trigram twice, where a request that is not served has many."""
    plugin = made(NoRepeatNgramLogitsProcessor)
    prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
    outputs: list[list[int]] = [[], [], []]
    parameters = (
        asked(no_repeat_ngram=3),
        asked(no_repeat_ngram=3, no_repeat_ngram_history="all"),
        asked(),
    )
    added = [(row, params, prompt, outputs[row]) for row, params in enumerate(parameters)]
    generator = torch.Generator().manual_seed(20)
    update = BatchUpdate(3, [], added, [])
    for _ in range(200):
        plugin.update_state(update)
        update = None
        logits = torch.randn(3, 10, generator=generator) * 2
        sampled = plugin.apply(logits).softmax(-1).multinomial(1, generator=generator)
        for row, token in enumerate(sampled.flatten().tolist()):
            outputs[row].append(token)

    assert repeats(outputs[0], 3) == 0
    assert repeats(prompt + outputs[1], 3) == 0
    assert repeats(prompt + outputs[0], 3) > 0  # the prompt does not count unless it is asked for
    assert repeats(outputs[2], 3) > 5


def floor_equals_min_p_row_for_row() -> None:
    """The rows are those of vLLM's own min-p, whatever the batch went through."""

    def parameters(choose: random.Random) -> SamplingParams:
        floor = choose.choice((0.0, 0.0, 0.01, 0.1, 0.5, 1.0))
        return SamplingParams(min_p=floor, extra_args={"probability_floor": floor})

    def rounded(row: torch.Tensor, params: SamplingParams) -> torch.Tensor:
        floor = math.log(params.min_p) if params.min_p else -math.inf
        return (row - row.max() - floor).abs() < ROUNDING

    plugins = ProbabilityFloorLogitsProcessor, MinPLogitsProcessor
    assert sum(_compare(*plugins, parameters, seed, rounded) for seed in range(12)) > 500


def biases_equal_logit_bias_row_for_row() -> None:
    """The rows are those of vLLM's own logit bias, whatever the batch went through."""

    def parameters(choose: random.Random) -> SamplingParams:
        tokens = choose.sample(range(VOCABULARY), choose.choice((0, 1, 3)))
        bias = choose.choice((-100.0, -1.5, 0.0, 3.0))
        if not tokens:
            return SamplingParams()
        return SamplingParams(
            logit_bias=dict.fromkeys(tokens, bias),
            # One token more than once, and one that the model does not have.
            extra_args={"biased_tokens": [*tokens, tokens[0], 5000], "token_bias": bias},
        )

    plugins = TokenBiasLogitsProcessor, LogitBiasLogitsProcessor
    assert sum(_compare(*plugins, parameters, seed) for seed in range(12)) > 500


@attrs.define
class Pair(LogitsProcessor):
    """Two processors that get the same updates."""

    first: Any
    second: Any

    def is_argmax_invariant(self) -> bool:
        """Claim what both do."""
        return bool(self.first.is_argmax_invariant())

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Tell both."""
        self.first.update_state(batch_update)
        self.second.update_state(batch_update)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Leave the logits: the test asks both."""
        return logits


def _nowhere(row: torch.Tensor, _: SamplingParams) -> torch.Tensor:
    return torch.zeros_like(row, dtype=torch.bool)


def _compare(
    ours: type[LogitsProcessor],
    theirs: type[LogitsProcessor],
    parameters: Callable[[random.Random], SamplingParams],
    seed: int,
    rounded: Callable[[torch.Tensor, SamplingParams], torch.Tensor] = _nowhere,
) -> int:
    """Compare row by row but for logits that are ``rounded``; return how many rows changed."""
    choose = random.Random(seed)
    pair = Pair(made(ours), made(theirs))
    host = Host(pair, VOCABULARY, reorder=True, invariant=pair.is_argmax_invariant())
    asked_for: dict[str, SamplingParams] = {}
    changed = 0
    for step in range(40):
        live = list(host.requests)
        finish = [name for name in live if choose.random() < 0.15]
        join = []
        for number in range(choose.randint(0, min(3, 8 - len(live) + len(finish)))):
            name = f"{step}.{number}"
            asked_for[name] = parameters(choose)
            join.append(Joining(name, [1, 2, 3], asked_for[name]))
        pause = [name for name in live if name not in finish and choose.random() < 0.1]
        host.schedule(finish=finish, join=join, pause=pause)
        names = list(host.batch.req_ids)
        if names and choose.random() < 0.7:  # else: every request is greedy, or nothing runs
            generator = torch.Generator().manual_seed(step)
            logits = torch.randn(len(names), VOCABULARY, generator=generator) * 3
            logits[torch.rand(logits.shape, generator=generator) < 0.2] = -torch.inf
            first, second = pair.first.apply(logits.clone()), pair.second.apply(logits.clone())
            for row, name in enumerate(names):
                sure = ~rounded(logits[row], asked_for[name])
                assert torch.equal(first[row][sure], second[row][sure]), (step, name)
            changed += int((first != logits).any(dim=-1).sum())
        host.complete(lambda _: 1)
    return changed


def thinking_ends_after_its_budget_across_preemption() -> None:
    """The end marker begins after exactly the budget, however often a request is preempted."""
    start, end, budget = [20], [30, 31, 32], 5
    arguments = {"thinking_budget": budget, "thinking_start": start, "thinking_end": end}
    for asynchronous in (False, True):
        for preempted in range(-1, 10):
            plugin = made(ThinkingBudgetLogitsProcessor)
            host = Host(plugin, 40, asynchronous=asynchronous)
            join = [
                Joining("other", [1], SamplingParams()),
                # The chat template opens the section, or the model does with its first token.
                Joining("in prompt", [1, *start], asked(**arguments)),
                Joining("by itself", [1], asked(**arguments)),
            ]
            for step in range(12):
                pause = ["in prompt", "by itself"] if step == preempted else []
                host.schedule(join=join if step == 0 else [], pause=pause)
                host.batch.update_async_output_token_ids()
                names = list(host.batch.req_ids)
                logits = torch.zeros(len(names), 40)
                logits[:, 3] = 1.0
                logits[:, 30:] = -50.0
                if step == 0:
                    logits[names.index("by itself"), start] = 2.0
                chosen = plugin.apply(logits).argmax(dim=-1).tolist()
                host.complete(chosen.__getitem__)
            thought = [3] * budget + end
            rest = 12 - (preempted > 0)
            assert host.outputs["in prompt"] == (thought + [3] * 12)[:rest], preempted
            assert host.outputs["by itself"] == (start + thought + [3] * 12)[:rest], preempted
            assert host.outputs["other"] == [3] * 12


class Counting(list[int]):
    """A list that counts how many of its items are read."""

    read = 0

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - an item or a list
        """Return an item or a slice."""
        found = super().__getitem__(index)
        self.read += len(found) if isinstance(index, slice) else 1
        return found

    def __iter__(self) -> Any:  # noqa: ANN401 - an iterator
        """Read everything."""
        self.read += len(self)
        return super().__iter__()


def steps_do_not_read_the_outputs_again() -> None:
    """A thousand steps read each token a few times, at most as many at once as the budget is."""
    for plugin, params, most in (
        (NoRepeatNgramLogitsProcessor, asked(no_repeat_ngram=3), 4),
        (
            ThinkingBudgetLogitsProcessor,
            asked(thinking_budget=100, thinking_start=5, thinking_end=3),
            104,
        ),
    ):
        instance, outputs = made(plugin), Counting([5])
        update = BatchUpdate(1, [], [(0, params, [1], outputs)], [])
        reads = []
        for step in range(1000):
            outputs.read = 0
            instance.update_state(update)
            update = None
            instance.apply(torch.zeros(1, 40))
            reads.append(outputs.read)
            outputs.append(step * step % 37)
        assert max(reads) <= most, reads
        assert sum(reads) <= 4 * len(reads), reads


def refuses_what_json_cannot_say() -> None:
    """NaN, infinities and huge numbers are refused with a sentence, in every argument."""
    thinking: dict[str, object] = {"thinking_budget": 1, "thinking_start": 1, "thinking_end": 2}
    biases: dict[str, object] = {"biased_tokens": [5], "token_bias": 1.0}
    arguments: list[tuple[type[LogitsProcessor], dict[str, object], str]] = [
        (ProbabilityFloorLogitsProcessor, {"probability_floor": 0.5}, "probability_floor"),
        (NoRepeatNgramLogitsProcessor, {"no_repeat_ngram": 2}, "no_repeat_ngram"),
        *((ThinkingBudgetLogitsProcessor, thinking, key) for key in thinking),
        *((TokenBiasLogitsProcessor, biases, key) for key in biases),
    ]
    values: tuple[object, ...] = (math.nan, math.inf, -math.inf, -(2**62), [math.nan], {}, False)
    for plugin, good, key in arguments:
        plugin.validate_params(asked(**good))
        for value in values:
            message = ""
            try:
                plugin.validate_params(asked(**{**good, key: value}))
            except ValueError as error:
                message = str(error)
            assert message.startswith(f"{key} must be "), (value, message)
            assert repr(value) in message
