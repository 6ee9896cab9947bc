# SPDX-License-Identifier: Apache-2.0
"""Playing a history: the plugin in the slots of a runner, and one twin for every request.

The twin is served one token a step, whatever drafts are verified in the batch.
"""

from __future__ import annotations

from functools import partial

import attrs
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcessor

from conformance.inputs.history import MOST_DRAFTS, History, Shape, Step
from conformance.inputs.words import following
from conformance.logits.calls import PluginMisshapen, PluginRaised, note, serving
from conformance.logits.played import Kind, Line, Played, Trouble
from conformance.logits.playing import Playing, Wrong
from conformance.logits.rows import handed_over, sampled
from conformance.logits_slot.bench import Alone, Bench, PluginAnswered, PluginWrote, Watched
from conformance.logits_slot.host import PLACEHOLDER, Host, Joining, Rows
from conformance.watching.interruption import limited, place_in

#: Parts that the logits of a step are processed in, where there are several.
PARTS = 3


#: Requests with such a prompt are processed for other reasons than the plugin's.
OTHERS_NEED = 2


class Seen(LogitsProcessor):
    """Stands before the plugin and keeps what each ``apply`` of a step was about."""

    def __init__(self, plugin: Watched) -> None:
        self.plugin = plugin
        self.rows: list[tuple[torch.Tensor, torch.Tensor]] = []  #: before and after

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """Pass a request on."""
        return self.plugin.add_request(req_idx, sampling_params)

    def apply_staged_writes(self) -> None:
        """Begin a step."""
        self.rows = []
        self.plugin.apply_staged_writes()

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        """Pass logits on, and keep them as they were before and after."""
        before = logits.clone()
        after = self.plugin.apply(logits, ctx)
        self.rows.append((before, after.clone()))
        sampled(after, logits, self.plugin.states)
        return after


@attrs.define
class _Play(Playing[Bench, Host, Seen, Alone]):
    """The state of one playing in the slots of Model Runner V2."""

    infinite = "beside which no other logit has a probability"
    masked = True

    #: Requests that were preempted, with the outputs they will come back with.
    paused: dict[str, tuple[int, ...]] = attrs.field(factory=dict)

    def alone(self, name: str, before: torch.Tensor) -> torch.Tensor:
        if name not in self.twins:
            request = self.requests[name]
            serving(name)
            self.twins[name] = Alone(
                self.bench.new(trusted=True, speculative=self.shape.speculative),
                self.bench.params(request.choice, greedy=request.greedy),
                request.prompt,
            )
        twin = self.twins[name]
        twin.processed = bool(self.host.sampler.needs_logits_processing[self.host.slot(name)])
        return twin.row(before)

    def failed_alone(self, error: PluginRaised | PluginMisshapen, name: str, row: int) -> Trouble:  # noqa: ARG002 - the call may have been none of a row
        said = f"{error}, for request {name} alone"
        return Trouble(_ALONE[type(error)], self.clock, said, name)

    def states(self, twin: Alone) -> object:
        return twin.instance.states

    def denied(self, name: str) -> Wrong | None:
        if self.plugin.plugin.answers[self.host.slot(name)]:
            return None
        message = "the row of a request was changed for which add_request had returned False"
        return Kind.ANSWER, message


def play(bench: Bench, history: History, shape: Shape) -> Played:
    """Play a history and stop at the first step in which something goes wrong."""
    with limited():
        try:
            history, shape = ordered(bench, history, shape)
            plugin = bench.new(speculative=shape.speculative)
        except PluginRaised as error:
            return Played((Trouble(Kind.CONSTRUCTOR, 0, str(error)),), frozenset())
        seen = Seen(plugin)
        drafts = MOST_DRAFTS if shape.draft else 0
        run = _Play(bench, Host(plugin.states, seen, bench.model, drafts, early=True), seen, shape)
        run.steps(history, partial(_step, run))
        return run.finish(partial(_retire, run, plugin))


def _retire(run: _Play, plugin: Watched) -> None:
    for instance in (plugin, *(twin.instance for twin in run.twins.values())):
        run.bench.retire(instance)


def ordered(bench: Bench, history: History, shape: Shape) -> tuple[History, Shape]:
    """Return what an engine orders that may have the plugin: no drafts where it refuses them.

    Raises:
        PluginRaised: the constructor raised, with and without speculative decoding.

    """
    if not shape.speculative or bench.speculates:
        return history, shape
    history = tuple(attrs.evolve(step, draft=()) for step in history)
    return history, attrs.evolve(shape, draft=False, parts=False)


def _step(run: _Play, step: Step) -> None:
    host = run.host
    joining = [
        Joining(name, run.requests[name].prompt, outputs, run.params[name])
        for name, outputs in run.paused.items()
        if name not in (*step.pause, *step.finish)
    ]
    joining += [
        Joining(request.name, request.prompt, (), run.join(request)) for request in step.join
    ]
    pause = [name for name in step.pause if name in host.running]
    finish = [name for name in step.finish if name in host.running]
    for name in pause:
        run.paused[name] = tuple(host.outputs[name])
    for name in (*step.finish, *(joined.name for joined in joining)):
        run.paused.pop(name, None)
    for name in step.finish:
        run.leave(name)
    try:
        host.schedule(
            finish=finish, pause=pause, join=joining, rest=step.rest, chunk=dict(step.chunk)
        )
        for joined in joining:
            if len(joined.prompt) % OTHERS_NEED == 0:
                # As where another processor, or a temperature, needs this request's logits.
                host.sampler.needs_logits_processing[host.slot(joined.name)] = True
        _note(run, step, [joined.name for joined in joining])
        note("step", host.states, step=run.clock, note=run.lines[-1].events)
        if host.scheduled:
            _sample(run, dict(step.draft))
    except (PluginRaised, PluginMisshapen) as error:
        if len(run.lines) <= run.clock:
            _note(run, step, [joined.name for joined in joining])
        run.troubles.append(_raised(run, error))


def _sample(run: _Play, guesses: dict[str, int]) -> None:
    """Process and judge the rows of a step, and give each request its tokens."""
    host, bench = run.host, run.bench
    rows = host.prepare({name: _guess(run, name, count) for name, count in guesses.items()})
    index = [
        bench.logits_row(host.prompts[name], [*host.outputs[name], *_before(rows, name, number)])
        for position, name in enumerate(rows.names)
        for number in range(len(rows.of(position)))
    ]
    logits = run.logits(rows.names, index)
    host.process(handed_over(logits), rows, PARTS if run.shape.parts else 1)
    before = after = logits
    if run.plugin.rows:
        before, after = _joined(run, rows, logits)
    sampled: dict[int, list[int]] = {}
    for position, name in enumerate(rows.names):
        if host.samples(name):
            sampled[position] = _verify(run, rows, position, before, after)
            if run.troubles:
                return
    run.over = bench.masking.spoils(index, after)
    if run.over:
        return
    host.complete(rows, lambda position: sampled.get(position, ()))


def _joined(run: _Play, rows: Rows, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Put the parts of a step together; parts that nobody needed were not processed."""
    before, after = logits.clone(), logits.clone()
    size = -(-len(rows.names) // (PARTS if run.shape.parts else 1))
    parts = iter(run.plugin.rows)
    for start in range(0, len(rows.names), size):
        end = min(start + size, len(rows.names))
        if run.host.sampler.needs_logits_processing[rows.slots_np[start:end]].any():
            part = slice(rows.starts[start], rows.starts[end])
            before[part], after[part] = next(parts)
    return before, after


def _verify(
    run: _Play, rows: Rows, position: int, before: torch.Tensor, after: torch.Tensor
) -> list[int]:
    """Judge the rows of one request that tokens are sampled from; return the tokens."""
    host, name = run.host, rows.names[position]
    drafts = rows.drafts.get(name, ())
    tokens: list[int] = []
    for number, row in enumerate(rows.of(position)):
        note("judge", host.states, slot=host.slot(name), number=number, request=name)
        run.judge_row(row, name, before[row], after[row])
        if run.troubles:
            break
        token = _token(run, name, after[row], drafts[number : number + 1])
        tokens.append(token)
        run.twins[name].append(token) if name in run.twins else None
        if drafts[number : number + 1] != (token,):
            break  # rejected: what comes after it was guessed in vain
        if run.endings.ended(name, [*host.outputs[name], *tokens]):
            break  # the scheduler cuts off what a request did not ask for
    return tokens


def _raised(run: _Play, error: PluginRaised | PluginMisshapen) -> Trouble:
    """Return the trouble of a call that raised in the batch, or gave what it must not."""
    if not isinstance(error, PluginRaised):
        raised = error.error if isinstance(error, PluginAnswered) else None
        wrote = error.where if isinstance(error, PluginWrote) else None
        return Trouble(_ALONE[type(error)], run.clock, str(error), error=raised, wrote=wrote)
    place = place_in(error.error, run.bench.path)
    raised = type(error.error).__name__
    return Trouble(Kind.RAISED, run.clock, run.raised(error), error=raised, place=place)


_ALONE = {
    PluginRaised: Kind.ALONE,
    PluginMisshapen: Kind.SHAPE,
    PluginAnswered: Kind.ANSWER,
    PluginWrote: Kind.MUTATED,
}


def _before(rows: Rows, name: str, number: int) -> tuple[int, ...]:
    """Return the drafts that stand before a row of a request; placeholders are nothing."""
    drafts = rows.drafts.get(name, ())[:number]
    return tuple(token for token in drafts if token != PLACEHOLDER)


def _guess(run: _Play, name: str, count: int) -> list[int]:
    """Return tokens that speculative decoding might guess: some will be accepted.

    Every other time it is the newest token again, as a request that is made to repeat one has it.
    """
    if name not in run.host.outputs:
        return []
    request, outputs = run.requests[name], run.host.outputs[name]
    every = list(run.bench.words.every)
    start = sum(run.host.prompts[name]) + 3 * len(outputs)
    if outputs and start % 2:
        return [outputs[-1]] * count
    return [
        token
        for offset in range(len(outputs), len(outputs) + count)
        if (token := following(request.outputs, request.prompt, offset, every)) is not None
    ]


def _token(run: _Play, name: str, row: torch.Tensor, draft: tuple[int, ...]) -> int:
    """Choose the token a request gets; every other draft is accepted, if the row allows it."""
    turn = len(run.host.outputs[name]) + sum(run.host.prompts[name])
    guess = draft[0] if draft and turn % 2 else None
    offered = row[list(run.bench.words.every)].tolist()
    return run.next_token(name, offered, int(row.argmax()), guess)


def _note(run: _Play, step: Step, joined: list[str]) -> None:
    """Write down the step for the table that a person reads."""
    events = [f"{name} finishes" for name in step.finish]
    new = {request.name: request for request in step.join}
    events += [f"{name} is preempted" for name in step.pause]
    for name in joined:
        slot = run.host.states.req_id_to_index.get(name, "-")
        if name in new:
            label = run.bench.label(new[name].choice, greedy=new[name].greedy)
            events.append(f"{name} joins in slot {slot} ({label}, {len(new[name].prompt)} tokens)")
        else:
            outputs = len(run.host.outputs.get(name, ()))
            events.append(f"{name} resumes in slot {slot} with {outputs} outputs")
    events += [f"{name} is not scheduled" for name in step.rest if name in run.host.running]
    events += [f"{name} computes {count} of its prefill" for name, count in step.chunk]
    events += [f"{count} drafts of {name} are verified" for name, count in step.draft]
    slots = [f"{name}={slot}" for name, slot in run.host.states.req_id_to_index.items()]
    update, rows = " ".join(slots), tuple(run.host.running)
    before = run.lines[-1] if run.lines else None
    alike = before is not None and (before.update, before.rows) == (update, rows)
    said = ", ".join(events) or "advance"
    run.lines.append(Line(run.clock, said, update, rows, quiet=alike and not events))
