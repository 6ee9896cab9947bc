# SPDX-License-Identifier: Apache-2.0
"""Playing a history: the plugin in vLLM's batch, and beside it one twin for every request."""

from __future__ import annotations

from functools import partial

import attrs
import torch
from vllm.sampling_params import SamplingType
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor

from conformance.inputs.history import History, Shape, Step
from conformance.logits.calls import PluginMisshapen, PluginRaised
from conformance.logits.played import Kind, Line, Played, Trouble
from conformance.logits.playing import Playing, Wrong
from conformance.logits.rows import handed_over, sampled
from conformance.logits_batch.bench import Bench, Call, Watched
from conformance.logits_batch.host import Host, Joining
from conformance.logits_batch.twins import PLACEHOLDER, Twin, alone, taken_for_last
from conformance.watching.interruption import limited, place_in


class _Seen(LogitsProcessor):
    """Stands before the plugin in the batch and keeps what the last ``apply`` was about."""

    def __init__(self, plugin: Watched) -> None:
        self.plugin = plugin
        self.rows: tuple[torch.Tensor, torch.Tensor] | None = None  #: before and after

    def is_argmax_invariant(self) -> bool:
        return self.plugin.is_argmax_invariant()

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        self.rows = None
        self.plugin.update_state(batch_update)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        before = logits.clone()
        after = self.plugin.apply(logits)
        # The sampler goes on to write to the tensor that it gets back.
        self.rows = (before, after.clone())
        return after


@attrs.define
class _Play(Playing[Bench, Host, _Seen, Twin]):
    """The state of one playing in vLLM's persistent batch."""

    infinite = "of which the sampler's softmax makes NaN"
    masked = False

    #: Where placeholders stay: the outputs of each request as ``update_state`` found them.
    found: dict[str, list[int]] = attrs.field(factory=dict)
    #: And as ``apply`` does: with a penalty in the batch vLLM has replaced some, and lost others.
    left: dict[str, list[int]] = attrs.field(factory=dict)

    @property
    def blind(self) -> bool:
        """Whether placeholders stay in ``apply``, and the twins are shown them, too."""
        return self.shape.entry_point

    def shown(self, name: str) -> tuple[list[int], ...]:
        """Return what the twin is shown in place of outputs; nothing where it has the real ones.

        As they were in ``update_state``, and as they are: another request in the batch may need
        outputs, and then vLLM replaces placeholders between the two.
        """
        return (self.found[name], self.left[name]) if self.blind else ()

    def asked(self, name: str) -> bool:
        # Where placeholders stay, who reads outputs has little to do: being asked is what counts.
        return self.blind and PLACEHOLDER in self.left[name]

    def alone(self, name: str, before: torch.Tensor) -> torch.Tensor:
        if name not in self.twins:
            self.twins[name] = alone(self.bench, self.requests[name])
        return self.twins[name].row(before, self.shown(name))

    def failed_alone(self, error: PluginRaised | PluginMisshapen, name: str, row: int) -> Trouble:
        kind = Kind.SHAPE
        if isinstance(error, PluginRaised):
            kind = Kind.NONE if error.call == Call.NO_UPDATE else Kind.ALONE
        return Trouble(kind, self.clock, f"{error}, for request {name} alone", name, row)

    def states(self, twin: Twin) -> object:
        return twin.instance

    def beside(
        self, name: str, before: torch.Tensor, after: torch.Tensor, expected: torch.Tensor
    ) -> tuple[Wrong | None, torch.Tensor]:
        """Compare a row with that of its twin, and where placeholders stay with others."""
        wrong, expected = super().beside(name, before, after, expected)
        if wrong is None and self.blind:
            outputs = self.left[name]
            taken = taken_for_last(self.bench, self.requests[name], outputs, before, after)
            if taken:
                kind, message, expected = taken
                return (kind, message), expected
        return wrong, expected


def play(bench: Bench, history: History, shape: Shape, *, reuses: bool = True) -> Played:
    """Play a history and stop at the first step in which something goes wrong.

    Args:
        bench: the plugin with what it is tried on.
        history: what happens to which requests.
        shape: what the history is about.
        reuses: whether new requests get the lists and parameters of those that are gone.

    """
    with limited():
        try:
            plugin = bench.new()
            seen = _Seen(plugin)
            host = Host(
                seen,
                bench.vocabulary,
                reorder=shape.reorder,
                asynchronous=shape.asynchronous,
                entry_point=shape.entry_point,
                invariant=bool(plugin.is_argmax_invariant()),
                reuses=reuses,
                others=bench.others() if shape.sampled else (),
            )
        except PluginRaised as error:
            kind = Kind.CLAIM if error.call == Call.CLAIM else Kind.CONSTRUCTOR
            return Played((Trouble(kind, 0, str(error)),), frozenset())
        run = _Play(bench, host, seen, shape, reuses=reuses)
        run.steps(history, partial(_step, run))
        return run.finish(partial(_retire, run, plugin))


def _step(run: _Play, step: Step) -> None:
    bench, host = run.bench, run.host
    joining = [
        Joining(request.name, list(request.prompt), run.join(request)) for request in step.join
    ]
    for name in step.finish:
        run.leave(name)
    try:
        host.schedule(
            finish=step.finish,
            join=joining,
            pause=step.pause,
            chunk=dict(step.chunk),
            lost=step.lost,
        )
    except PluginRaised as error:
        _note(run, step)
        run.troubles.append(_raised(run, error))
        return
    _note(run, step)
    if not host.scheduled:
        _check_mutation(run)
        return
    names = list(host.batch.req_ids)
    _replace_placeholders(run, names)
    index = [bench.logits_row(run.requests[n].prompt, host.outputs[n]) for n in names]
    logits = run.logits(names, index)
    _apply(run, logits)
    if run.troubles:
        return
    result = logits
    if run.plugin.rows is not None:
        before, result = run.plugin.rows
        _judge(run, names, before, result)
        if run.troubles:
            return
    run.over = bench.masking.spoils(index, result)
    if run.over:
        return
    offered = result[:, bench.words.every].tolist()
    likeliest = result.argmax(dim=-1).tolist()
    sampled = host.complete(lambda row: run.next_token(names[row], offered[row], likeliest[row]))
    for name in sampled:
        if name in run.twins:
            run.twins[name].outputs.append(host.outputs[name][-1])


def _replace_placeholders(run: _Play, names: list[str]) -> None:
    """Have placeholders replaced, where vLLM does."""
    live = {name: run.host.requests[name].output_token_ids for name in names}
    if run.blind:
        run.found = {name: list(outputs) for name, outputs in live.items()}
    run.host.batch.update_async_output_token_ids()
    if run.blind:
        run.left = {name: list(outputs) for name, outputs in live.items()}


def _apply(run: _Play, logits: torch.Tensor) -> None:
    """Have ``apply`` called for the batch, where the engine would call it."""
    host = run.host
    try:
        if run.shape.greedy or run.shape.sampled:
            host.sample(handed_over(logits))
        elif not (host.invariant and host.batch.all_greedy):
            # The sampler around it would take most of the time of an example.
            given, plugin = handed_over(logits), run.plugin.plugin
            result = plugin.apply(given)
            run.plugin.rows = (logits, result.clone())
            sampled(result, given, plugin)
    except PluginRaised as error:
        run.troubles.append(_raised(run, error))
    except PluginMisshapen as error:
        run.trouble(Kind.SHAPE, str(error))
    else:
        _check_mutation(run)


def _judge(run: _Play, names: list[str], before: torch.Tensor, after: torch.Tensor) -> None:
    """Judge the rows that the engine samples from."""
    for row, name in enumerate(names):
        # What an argmax-invariant processor does to a greedy row decides nothing.
        unused = run.host.invariant and run.params[name].sampling_type is SamplingType.GREEDY
        if run.host.keeps(name) and not unused:
            run.judge_row(row, name, before[row], after[row])


def _check_mutation(run: _Play) -> None:
    for name, request in run.requests.items():
        state = run.host.requests[name]
        outputs = run.left.get(name, []) if run.blind else run.host.outputs[name]
        pending = len(outputs) - 1
        live = state.output_token_ids
        if name not in run.host.batch.req_id_to_index:
            live = live[: len(outputs)]  # what is to be taken back is so when it returns
        seen = [
            token if seen != PLACEHOLDER or index != pending else PLACEHOLDER
            for index, (token, seen) in enumerate(zip(outputs, live, strict=False))
        ]
        what = None
        if tuple(state.prompt_token_ids or ()) != request.prompt:
            what = "its prompt token ids"
        elif seen != live:
            what = "its output token ids"
        if what:
            run.trouble(Kind.MUTATED, f"the plugin wrote to {what}", name)


def _raised(run: _Play, error: PluginRaised) -> Trouble:
    kind = Kind.NONE if error.call == Call.NO_UPDATE else Kind.RAISED
    place = place_in(error.error, run.bench.path)
    return Trouble(
        kind, run.clock, run.raised(error), error=type(error.error).__name__, place=place
    )


def _retire(run: _Play, plugin: Watched) -> None:
    try:
        run.bench.retire(plugin, run.host.batch.num_reqs)
        for twin in run.twins.values():
            run.bench.retire(twin.instance, 1)
    except PluginRaised as error:
        run.troubles.append(_raised(run, error))


def _note(run: _Play, step: Step) -> None:
    """Write down the step for the table that a person reads."""
    events = [f"{name} finishes" for name in step.finish]
    for request in step.join:
        label = run.bench.label(request.choice, greedy=request.greedy)
        events.append(f"{request.name} joins ({label}, {len(request.prompt)} tokens)")
    events += [f"{name} is preempted" for name in step.pause]
    events += [f"{name} computes {count} of its prefill" for name, count in step.chunk]
    events += [f"{name}'s keys and values fail to load" for name in step.lost]
    run.lines.append(
        Line(
            run.clock,
            ", ".join(events) or "advance",
            describe_update(run.host.update),
            tuple(name or "-" for name in run.host.batch.req_ids),
            quiet=not events and run.host.update is None,
        )
    )


def describe_update(update: BatchUpdate | None) -> str:
    """Return a ``BatchUpdate`` in one line, as a person writes it."""
    if update is None:
        return "None"
    parts = []
    if update.removed:
        parts.append(f"removed={list(update.removed)}")
    if update.added:
        parts.append(f"added={[index for index, *_ in update.added]}")
    if update.moved:
        moves = ", ".join(
            f"{a}{'<->' if way.name == 'SWAP' else '->'}{b}" for a, b, way in update.moved
        )
        parts.append(f"moved=[{moves}]")
    return " ".join(parts)
