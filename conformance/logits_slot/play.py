# SPDX-License-Identifier: Apache-2.0
"""Playing a history: the plugin in the slots of a runner, and one twin for every request alone.

The twin is a fresh instance that serves one request by itself, uninterrupted, one token a step,
from its first token on.  What a request gets among others must be what its twin gives.
"""

from __future__ import annotations

import math

import attrs
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcessor

from conformance.history import MOST_DRAFTS, SENT, Choice, History, Request, Shape, Step
from conformance.interruption import PluginHung, limited, place_in
from conformance.logits import combinations
from conformance.logits.calls import PluginMisshapen, PluginRaised, note, serving
from conformance.logits.endings import Endings
from conformance.logits.played import Kind, Line, Played, Trouble
from conformance.logits.rows import differing, same
from conformance.logits_slot.bench import Alone, Bench, PluginAnswered, PluginWrote, Watched
from conformance.logits_slot.host import PLACEHOLDER, Host, Joining, Rows
from conformance.words import following

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
        # The sampler goes on to write to the tensor that it gets back.
        self.rows.append((before, after.clone()))
        return after


@attrs.define
class _Play:
    """The state of one playing."""

    bench: Bench
    host: Host
    plugin: Seen
    shape: Shape
    twins: dict[str, Alone] = attrs.field(factory=dict)
    requests: dict[str, Request] = attrs.field(factory=dict)
    #: Requests that were preempted, with the outputs they will come back with.
    paused: dict[str, tuple[int, ...]] = attrs.field(factory=dict)
    params: dict[str, SamplingParams] = attrs.field(factory=dict)
    served: list[Request] = attrs.field(factory=list)  #: those that are over, too
    troubles: list[Trouble] = attrs.field(factory=list)
    tokenless: list[Trouble] = attrs.field(factory=list)
    #: The first row that is not what the author says; it ends no history.
    unmeant: list[Trouble] = attrs.field(factory=list)
    acted: set[Choice] = attrs.field(factory=set)
    lines: list[Line] = attrs.field(factory=list)
    endings: Endings = attrs.field(factory=Endings)
    clock: int = 0

    def trouble(self, kind: Kind, message: str, name: str | None = None) -> None:
        """Take note of what went wrong in this step."""
        self.troubles.append(Trouble(kind, self.clock, message, name))


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
        host = Host(plugin.states, seen, bench.model, drafts)
        run = _Play(bench, host, seen, shape)
        try:
            _steps(run, history)
        except PluginHung as error:
            run.troubles.append(_hung(run, error))
        _finish(run, plugin)
    return Played(tuple(run.troubles), frozenset(run.acted), tuple(run.lines), tuple(run.tokenless))


def _steps(run: _Play, history: History) -> None:
    for step in history:
        for repetition in range(step.repeat):
            each = step if not repetition else attrs.evolve(step, finish=(), join=())
            free = run.shape.finish == "free"
            played = run.endings.step(each, run.host.outputs, free=free)
            if played is None:
                return
            _step(run, played)
            if run.troubles:
                return
            run.clock += 1


def _finish(run: _Play, plugin: Watched) -> None:
    """Look at what a history without a fault has left, and take the instances back."""
    if not run.troubles:
        _check_params(run)
    if not run.troubles:
        for instance in (plugin, *(twin.instance for twin in run.twins.values())):
            run.bench.retire(instance)
    if not Played(tuple(run.troubles), frozenset()).faults:
        run.troubles += run.unmeant


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
    bench, host = run.bench, run.host
    joining = [
        Joining(name, run.requests[name].prompt, outputs, run.params[name])
        for name, outputs in run.paused.items()
        if name not in (*step.pause, *step.finish)
    ]
    for request in step.join:
        run.requests[request.name] = request
        run.params[request.name] = bench.params(request.choice, greedy=request.greedy)
        run.endings.follow(request.name, bench.most(request.choice))
        run.served.append(request)
        joining.append(Joining(request.name, request.prompt, (), run.params[request.name]))
    pause = [name for name in step.pause if name in host.running]
    finish = [name for name in step.finish if name in host.running]
    for name in pause:
        run.paused[name] = tuple(host.outputs[name])
    for name in (*step.finish, *(joined.name for joined in joining)):
        run.paused.pop(name, None)
    for name in step.finish:
        del run.requests[name]
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
    logits = bench.table[index]
    if run.shape.sampled:
        asked = [bench.parameters[run.requests[name].choice] for name in rows.names]
        combinations.put_behind_grammars(logits, asked)
    host.process(logits.clone(), rows, PARTS if run.shape.parts else 1)
    before = after = logits
    if run.plugin.rows:
        before, after = _joined(run, rows, logits)
    sampled: dict[int, list[int]] = {}
    for position, name in enumerate(rows.names):
        if host.samples(name):
            sampled[position] = _verify(run, rows, position, before, after)
            if run.troubles:
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
        _judge_row(run, row, name, before[row], after[row])
        if run.troubles:
            break
        token = _token(run, name, after[row], drafts[number : number + 1])
        tokens.append(token)
        run.twins[name].append(token) if name in run.twins else None
        if drafts[number : number + 1] != (token,):
            break  # rejected: what comes after it was guessed in vain
        if run.endings.left(name, [*host.outputs[name], *tokens]) == 0:
            break  # the scheduler cuts off what a request did not ask for
    return tokens


def _judge_row(run: _Play, row: int, name: str, before: torch.Tensor, after: torch.Tensor) -> None:
    """Judge one row against itself and against the request's twin."""
    choice = run.requests[name].choice
    slot = run.host.slot(name)
    changed = not torch.equal(before, after)
    if changed and choice[0] != "off":
        run.acted.add(choice)
    if choice == SENT:
        return  # what a client asked for is its own business
    kind = message = None
    expected = before
    random = run.params[name].temperature != 0
    tokenless = _tokenless(choice, before, after, random=random) if changed else None
    if tokenless and (run.shape if choice[0] == "with" else run.bench).tolerant:
        differs, (found, what) = differing(after, before), tokenless
        run.tokenless.append(Trouble(found, run.clock, what, name, row, differs))
        tokenless = None
    if changed and choice[0] == "off":
        kind = Kind.OPT_OUT
        message = "the row of a request that did not opt in was changed"
    elif changed and not run.plugin.plugin.answers[slot]:
        kind = Kind.ANSWER
        message = "the row of a request was changed for which add_request had returned False"
    elif tokenless:
        kind, message = tokenless
    else:
        try:
            twin = _twin(run, name)
            twin.processed = bool(run.host.sampler.needs_logits_processing[slot])
            expected = twin.row(before)
        except (PluginRaised, PluginMisshapen) as error:
            run.troubles.append(
                Trouble(_ALONE[type(error)], run.clock, f"{error}, for request {name} alone", name)
            )
            return
        if not same(after, expected):
            kind, message = Kind.ROW, "the row is not the one that the request gets alone"
        else:
            _hold_to_meaning(run, row, name, before, after)
    if kind and message:
        run.troubles.append(
            Trouble(kind, run.clock, message, name, row, differing(after, expected))
        )


def _hold_to_meaning(
    run: _Play, row: int, name: str, before: torch.Tensor, after: torch.Tensor
) -> None:
    """Hold a row that a request gets alone, too, to what the author says of it."""
    meaning = run.bench.meaning
    if meaning is None or run.unmeant or run.shape.sampled:
        return
    twin = run.twins[name]
    if trouble := meaning.trouble(twin.params, run.requests[name], twin.outputs, before, after):
        run.unmeant.append(attrs.evolve(trouble, step=run.clock, row=row))
        note("unmeant", twin.instance.states)


def _hung(run: _Play, error: PluginHung) -> Trouble:
    place = place_in(error, run.bench.path)
    return Trouble(Kind.HUNG, run.clock, str(error), call=error.call, place=place)


def _raised(run: _Play, error: PluginRaised | PluginMisshapen) -> Trouble:
    """Return the trouble of a call that raised in the batch, or gave what it must not."""
    if not isinstance(error, PluginRaised):
        raised = error.error if isinstance(error, PluginAnswered) else None
        wrote = error.where if isinstance(error, PluginWrote) else None
        return Trouble(_ALONE[type(error)], run.clock, str(error), error=raised, wrote=wrote)
    place = place_in(error.error, run.bench.path)
    raised = type(error.error).__name__
    return Trouble(Kind.RAISED, run.clock, str(error), error=raised, place=place)


_ALONE = {
    PluginRaised: Kind.ALONE,
    PluginMisshapen: Kind.SHAPE,
    PluginAnswered: Kind.ANSWER,
    PluginWrote: Kind.MUTATED,
}


def _tokenless(
    choice: Choice, before: torch.Tensor, after: torch.Tensor, *, random: bool
) -> tuple[Kind, str] | None:
    """Say what keeps a changed row from being sampled from, if anything does."""
    if math.isfinite(after.amax()):  # neither NaN, which this hands on, nor +inf, nor all -inf
        return None
    some = torch.isfinite(before).any()
    if torch.isnan(after).any() and (some or choice[0] != "with"):
        return Kind.NAN, "the row holds NaN"
    if random and torch.isposinf(after).any():
        return Kind.INFINITE, "the row holds +inf, beside which no other logit has a probability"
    if some and torch.isneginf(after).all():
        return Kind.NO_TOKEN, "every token of the row is -inf: none can be sampled"
    return None


def _twin(run: _Play, name: str) -> Alone:
    if name not in run.twins:
        request = run.requests[name]
        serving(name)
        run.twins[name] = Alone(
            run.bench.new(trusted=True, speculative=run.shape.speculative),
            run.bench.params(request.choice, greedy=request.greedy),
            request.prompt,
        )
    return run.twins[name]


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
    """Choose the token a request gets: one that the processed row allows, as sampling would.

    Every other draft is accepted, if the row allows it.
    """
    likeliest = int(row.argmax())
    if run.params[name].temperature == 0:
        return likeliest
    words, request = run.bench.words.every, run.requests[name]
    allowed = [
        token
        for token, logit in zip(words, row[list(words)].tolist(), strict=True)
        if logit > -math.inf
    ]
    count = len(run.host.outputs[name])
    if draft and draft[0] in allowed and (count + sum(run.host.prompts[name])) % 2:
        return draft[0]
    token = following(request.outputs, request.prompt, count, allowed)
    return likeliest if token is None else token


def _check_params(run: _Play) -> None:
    """Look at the parameters when all is done: who writes to them changes no other request."""
    for request in run.served:
        if not run.bench.unchanged(run.params[request.name], request.choice, greedy=request.greedy):
            run.trouble(Kind.PARAMETERS, "the plugin wrote to its SamplingParams", request.name)


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
    run.lines.append(
        Line(run.clock, ", ".join(events) or "advance", " ".join(slots), tuple(run.host.running))
    )
