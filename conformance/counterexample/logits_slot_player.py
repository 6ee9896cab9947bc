# SPDX-License-Identifier: Apache-2.0
"""Plays the failure of a check against a slot logits processor; see ``logits_player``."""

import dataclasses
import random
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from vllm import SamplingParams
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext

from conformance.counterexample.clock_player import Clock
from conformance.counterexample.logits_batch_player import BatchHost
from conformance.counterexample.logits_player import CONTEXT, ROUND, WIDER, Host, different
from conformance.counterexample.logits_runner_player import Runner

#: The slot that vLLM gives away first, of eight.
FIRST = 7


class SlotHost(Host):
    """Serves requests as Model Runner V2 does."""

    def new(self, slots: int = 8) -> Runner:
        """Make an instance, in a runner."""
        return Runner(self.plugin, self.rows.vocabulary, slots)

    def alone(
        self,
        keywords: Mapping[str, Any],
        steps: int,
        masked: list[int] | None = None,
        runner: Runner | None = None,
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Serve one request by itself; return its logits before and after each step."""
        return list(self.serving(keywords, steps, masked, runner))

    def serving(
        self,
        keywords: Mapping[str, Any],
        steps: int,
        masked: list[int] | None = None,
        runner: Runner | None = None,
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Serve one request by itself; yield its logits before and after each step."""
        runner, sequence = runner or self.new(), [*self.prompt]
        accepted = runner.join(FIRST, self.params(keywords), sequence)
        for step in range(steps):
            runner.begin_step()
            before = self.rows(step)
            before[:, masked or []] = -torch.inf
            after = before
            if accepted:  # else apply is not called for this request
                newest, position = sequence[-1:], [len(sequence) - 1]
                given = before.clone()
                after = runner.apply(given, slots=[FIRST], tokens=newest, positions=position)
            yield before[0], after[0].clone()
            sequence.append(self.said(step))
            runner.append(FIRST, sequence[-1])

    def long(
        self, params: SamplingParams, prompt: list[int], outputs: list[int], steps: int
    ) -> None:
        """Serve one request of a model with a long context."""
        runner = Runner(self.plugin, self.rows.vocabulary, context=CONTEXT)
        accepted, sequence = runner.join(FIRST, params, prompt, outputs), [*prompt, *outputs]
        for step in range(steps):
            runner.begin_step()
            after = self.rows(step)
            if accepted:  # else apply is not called for this request
                newest, position = sequence[-1:], [len(sequence) - 1]
                after = runner.apply(after, slots=[FIRST], tokens=newest, positions=position)
            sequence.append(self.taken(after[0], step))
            runner.append(FIRST, sequence[-1])

    def wide(self, keywords: Mapping[str, Any], steps: int) -> None:
        """Serve one request of a model with a larger vocabulary than its tokenizer's."""
        beyond = self.rows.vocabulary + WIDER - 1
        runner, sequence = Runner(self.plugin, beyond + 1), [beyond, *self.prompt]
        accepted = runner.join(FIRST, self.params(keywords), sequence)
        for step in range(steps):
            runner.begin_step()
            logits = torch.nn.functional.pad(self.rows(step), (0, WIDER))
            if accepted:  # else apply is not called for this request
                newest, position = sequence[-1:], [len(sequence) - 1]
                logits = runner.apply(logits, slots=[FIRST], tokens=newest, positions=position)
            last = step == steps - 2 and logits[0, beyond] > -torch.inf
            sequence.append(beyond if last else self.taken(logits[0], step))
            runner.append(FIRST, sequence[-1])

    def later(self, requests: list[Any], clock: Clock, pauses: list[int]) -> None:
        """Serve requests together, twice by one instance, the other way round the second time."""
        runner, (within, between) = self.new(), pauses
        for group in (requests, requests[::-1]):
            for _ in self.together(runner, group, 4):
                clock.forward(within)
            clock.forward(between)

    def started(
        self, requests: list[Any], count: int, vocabulary: int, history: int = 0
    ) -> Callable[[], None]:
        """Return the calls of a step with so many requests, after three others."""
        runner, outputs = Runner(self.plugin, vocabulary, 256), self.outputs(count, history)
        slots = [255 - row for row in range(count)]  # in the order in which vLLM gives them away
        accepted = []
        for row, slot in enumerate(slots):
            params = self.params(requests[row % len(requests)])
            accepted.append(runner.join(slot, params, [self.said(0)], outputs[row]))
        logits = torch.randn(count, vocabulary, generator=torch.Generator().manual_seed(0))

        def context() -> LogitsContext:
            newest = [ids[-1] if ids else self.said(0) for ids in outputs]
            return runner.context(slots, newest, [len(ids) for ids in outputs])

        for step in range(3):
            ctx = context()
            runner.begin_step()
            if any(accepted):  # else apply is not called
                runner.plugin.apply(logits.clone(), ctx)
            for row, ids in enumerate(outputs):
                ids.append(self.said(row + step))
                runner.append(slots[row], ids[-1])
        ctx = context()

        def again() -> None:
            runner.plugin.apply_staged_writes()
            if any(accepted):
                runner.plugin.apply(logits, ctx)

        return again

    def rounds(self, request: Callable[[int], Any]) -> Callable[..., None]:
        """Return what gives each of eight slots one new request after the other."""
        runner, logits, token = self.new(), self.rows(*range(8)), self.said(0)

        def go_through(numbers: Iterator[int], *, applies: bool) -> None:
            for _ in range(ROUND // 8):
                for slot in range(8):
                    number = next(numbers)
                    prompt = [3 + number % 400, 3 + number // 400, token]
                    runner.join(slot, self.params(request(number)), prompt)
                runner.begin_step()
                if applies:
                    places = {"tokens": [token] * 8, "positions": [2] * 8}
                    runner.apply(logits.clone(), slots=list(range(8)), **places)

        return go_through

    def device(self, requests: list[Any], steps: int) -> Iterator[torch.Tensor]:
        """Serve requests together on a GPU; yield what apply returns."""
        runner = Runner(self.plugin, self.rows.vocabulary, device="cuda:0")
        for _, result in self.together(runner, requests, steps):
            yield result

    def together(
        self, runner: Runner, requests: list[Any], steps: int
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Serve requests as one batch; yield each step, and its rows."""
        slots = [FIRST - number for number in range(len(requests))]
        sequences = [[*self.prompt] for _ in requests]
        accepted = [
            runner.join(slot, self.params(keywords), sequence)
            for slot, keywords, sequence in zip(slots, requests, sequences, strict=True)
        ]
        for step in range(steps):
            runner.begin_step()
            logits = self.rows(step).repeat(len(requests), 1).to(runner.device)
            if any(accepted):  # else apply is not called
                newest = [sequence[-1] for sequence in sequences]
                positions = [len(sequence) - 1 for sequence in sequences]
                logits = runner.apply(logits, slots=slots, tokens=newest, positions=positions)
            yield step, logits
            for slot, sequence in zip(slots, sequences, strict=True):
                sequence.append(self.said(step))
                runner.append(slot, sequence[-1])


def check_instances(host: SlotHost, requests: list[Any], steps: int) -> str | None:
    """What one instance serves, another one does not feel."""
    expected = host.served(requests, steps)
    # Two instances beside each other, with a request each, and a step of each in turn.
    served = [host.serving(each, steps) for each in requests]
    for step, rows in enumerate(zip(*served, strict=True)):
        for keywords, (_, row) in zip(requests, rows, strict=True):
            name = f"step {step} of {keywords}"
            wanted = {name: expected[name]}
            if what := different({name: row}, wanted, "an instance beside another one"):
                return what
    return None


def check_acts(host: SlotHost, request: Any, steps: int) -> str | None:
    """Rows were changed."""
    rows = host.alone(request, steps)
    if any(not torch.equal(before, after) for before, after in rows):
        return None
    what = f"none of {len(rows)} rows was changed"
    return f"{what}\nexpected: a request with these parameters gets a changed row"


def check_warm_up(host: SlotHost, request: Any, steps: int, warm: str) -> str | None:
    """Nothing is left of the warm-up."""

    def warmed_up() -> Runner:
        """Return a runner after a warm-up with fake requests, or a dummy run without any."""
        runner = host.new()
        for slot in reversed(range(8)):
            params = SamplingParams.for_sampler_warmup()
            if warm == "fake requests":
                runner.join(slot, params, [0, 1])
            else:
                runner.plugin.add_request(slot, params)
        runner.begin_step()
        zeros, slots = [0] * 8, list(range(8))
        logits = torch.zeros(8, host.rows.vocabulary)
        runner.apply(logits, slots=slots, tokens=zeros, positions=zeros)
        return runner

    def served(runner: Runner) -> dict[str, torch.Tensor]:
        rows = host.alone(request, steps, runner=runner)
        return {f"step {step}": after for step, (_, after) in enumerate(rows)}

    expected = served(host.new())
    try:
        got = served(warmed_up())
    except Exception as error:
        traceback.print_exc()
        what = f"during or after warm-up: {type(error).__name__}: {error}"
        wanted = "it raises nothing, and the rows are those of an instance that is new"
        return f"{what}\nexpected: {wanted}"
    return different(got, expected, "an instance that was warmed up")


def check_steady(host: SlotHost, request: Any, steps: int) -> str | None:
    """The same request gets the same rows again."""
    first = host.served([request], steps)
    for _ in range(2):
        again = host.served([request], steps)
        if what := different(again, first, "the same request, served again,"):
            return what
    return None


def check_draws(host: SlotHost, request: Any, steps: int, draws: str) -> str | None:
    """The global random generator is as it was."""

    def state() -> Any:
        if draws == "numpy.random":
            return str(np.random.get_state())  # noqa: NPY002 - the generator that all share
        return random.getstate() if draws == "random" else torch.get_rng_state().tolist()

    before = state()
    host.alone(request, steps)
    if state() == before:
        return None
    what = f"the plugin drew from the global random generator of {draws}"
    return f"{what}\nexpected: its state is what it was; other requests draw from it, too"


def check_masks(host: SlotHost, request: Any, steps: int, masked: list[int]) -> str | None:
    """What was masked is masked."""
    for step, (before, after) in enumerate(host.alone(request, steps, masked)):
        again = (before.isneginf() & ~after.isneginf()).nonzero().flatten().tolist()
        if again:
            lines = [f"step {step}: {len(again)} tokens that were masked are so no more"]
            lines += [f"  token {each}: got {after[each]:.6g}, expected -inf" for each in again[:8]]
            return "\n".join(lines)
    return None


def check_tokens(host: SlotHost, request: Any, steps: int, masked: list[int]) -> str | None:
    """A token can be sampled."""
    for step, (_, after) in enumerate(host.alone(request, steps, masked)):
        if after.isneginf().all():
            what = f"step {step}: where a grammar masks {masked}, every token is -inf"
            return f"{what}\nexpected: at least one token that can be sampled"
    return None


def check_many(host: SlotHost, requests: list[Any], many: int) -> str | None:
    """The rows of a full batch are those of a small one."""
    begun = len(host.first)
    few = host.served(requests, begun + 1)

    def serve_many() -> str | None:
        """Serve many requests at once; compare their rows with those of requests alone."""
        runner, slots = host.new(many), list(reversed(range(many)))
        mine = [requests[number % len(requests)] for number in range(many)]
        accepted = [
            runner.join(slot, host.params(keywords), host.prompt, host.first)
            for slot, keywords in zip(slots, mine, strict=True)
        ]
        runner.begin_step()
        end, newest = len(host.prompt) + begun - 1, [*host.prompt, *host.first][-1]
        for count in (1, 3):  # rows of each request: with two drafts there are three
            result = runner.apply(
                host.rows(begun).repeat(many * count, 1),
                slots=[slot for slot in slots for _ in range(count)],
                tokens=[newest, *[host.said(begun)] * (count - 1)] * many,
                positions=[*range(end, end + count)] * many,
            )
            for number, keywords in enumerate(mine):
                name = f"step {begun} of {keywords}"
                where = f"request {number} of {many} with {count} rows each"
                got, wanted = {name: result[number * count]}, {name: few[name]}
                if accepted[number] and (what := different(got, wanted, where)):
                    return what
        return None

    try:
        return serve_many()
    except Exception as error:
        traceback.print_exc()
        what = f"with {many} requests: {type(error).__name__}: {error}"
        return f"{what}\nexpected: each gets the row that it gets by itself"


class Waits(TorchFunctionMode):
    """Notes calls of some functions on what is on the device; reading counts where it is by a mask.

    On a CPU nothing tells one from the other: the engine's tensors, and what is computed from
    them, are followed.
    """

    def __init__(self, names: Collection[str], tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.names = names
        self.seen: list[str] = []
        self.device = {id(tensor): tensor for tensor in tensors}

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        leaves = tree_leaves((args, kwargs))
        touched = any(id(leaf) in self.device for leaf in leaves)
        name = getattr(function, "__name__", "")
        if touched and name in self.names:
            masks = [getattr(index, "dtype", None) is torch.bool for index in tree_leaves(args[1:])]
            if name != "__getitem__" or any(masks):  # the size of what that selects is not known
                self.seen.append(name)
        result = function(*args, **(kwargs or {}))
        if touched:
            found = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            self.device |= {id(tensor): tensor for tensor in found}
        return result


def check_waits(host: SlotHost, request: Any, steps: int, waits: str) -> str | None:
    """The host never waits for the device."""
    runner, sequence = host.new(), [*host.prompt]
    runner.join(FIRST, host.params(request), sequence)
    states = (runner.tokens, runner.total, runner.prompt, runner.prefill)
    for step in range(steps):
        runner.begin_step()
        logits = host.rows(step)
        ctx = runner.context([FIRST], sequence[-1:], [len(sequence) - 1])
        tensors = [value for value in vars(ctx).values() if isinstance(value, torch.Tensor)]
        tensors += [logits, *(field.gpu for field in states)]
        with torch.inference_mode(), Waits([waits], tensors) as watch:
            runner.plugin.apply(logits, ctx)
        if watch.seen:
            what = f"step {step}: apply calls {waits}() on what is on the device"
            return f"{what}\nexpected: nothing that the host has to wait for"
        sequence.append(host.said(step))
        runner.append(FIRST, sequence[-1])
    return None


def check_both(host: SlotHost, request: Any, steps: int) -> str | None:
    """Both model runners give the same row."""
    v1 = BatchHost(host.plugin, host.rows, host.prompt, host.make)
    got, expected = host.served([request], steps), v1.served([request], steps)
    name = list(expected)[-1]
    return different({name: got[name]}, {name: expected[name]}, "Model Runner V2")


class Graphs(Runner):
    """Runs a batch of three by a CUDA graph for four, as soon as all of its requests decode."""

    decoding = False

    def context(self, slots: list[int], tokens: list[int], positions: list[int]) -> LogitsContext:
        """Return what the plugin is told about the rows; zeros follow the lengths."""
        ctx = super().context(slots, tokens, positions)
        if not self.decoding:
            return ctx
        lengths = np.append(ctx.seq_lens_upper_bound_np, np.int32(0))
        return dataclasses.replace(ctx, seq_lens_upper_bound_np=lengths)


def check_padded(host: SlotHost, requests: list[Any], steps: int) -> str | None:
    """The rows of a padded batch are those of one that is not."""

    def together(runner: Runner) -> dict[str, torch.Tensor]:
        """Serve the requests as one batch; return their rows."""
        found = {}
        for step, rows in host.together(runner, requests, steps):
            for number, keywords in enumerate(requests):
                found[f"step {step} of request {number}, {keywords},"] = rows[number].clone()
            if isinstance(runner, Graphs):
                runner.decoding = True
        return found

    expected = together(host.new())
    try:
        got = together(Graphs(host.plugin, host.rows.vocabulary))
    except Exception as error:
        traceback.print_exc()
        what = f"in a padded batch: {type(error).__name__}: {error}"
        wanted = "it raises nothing, and the rows are those of a batch that is not padded"
        return f"{what}\nexpected: {wanted}"
    return different(got, expected, "a padded batch")
