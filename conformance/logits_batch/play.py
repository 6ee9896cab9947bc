# SPDX-License-Identifier: Apache-2.0
"""Playing a history: the plugin in a batch, and beside it one twin for every request alone.

The twin is a fresh instance that serves one request by itself, uninterrupted, from its first
token on.  What a request gets in the batch must be what its twin gives.
"""

from __future__ import annotations

import math

import attrs
import torch
from vllm.sampling_params import SamplingParams, SamplingType
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor

from conformance.history import SENT, Choice, History, Request, Shape, Step
from conformance.interruption import PluginHung, limited, place_in
from conformance.logits import combinations
from conformance.logits.calls import PluginMisshapen, PluginRaised, note
from conformance.logits.endings import Endings
from conformance.logits.played import Kind, Line, Played, Trouble
from conformance.logits.rows import differing, same
from conformance.logits_batch.bench import Bench, Call, Watched
from conformance.logits_batch.host import Host, Joining
from conformance.logits_batch.twins import PLACEHOLDER, Twin, alone, taken_for_last
from conformance.words import following


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
class _Play:
    """The state of one playing."""

    bench: Bench
    host: Host
    plugin: _Seen
    shape: Shape
    twins: dict[str, Twin] = attrs.field(factory=dict)
    requests: dict[str, Request] = attrs.field(factory=dict)
    params: dict[str, SamplingParams] = attrs.field(factory=dict)
    served: list[Request] = attrs.field(factory=list)  #: those that are over, too
    troubles: list[Trouble] = attrs.field(factory=list)
    tokenless: list[Trouble] = attrs.field(factory=list)
    #: The first row that is not what the author says; it ends no history.
    unmeant: list[Trouble] = attrs.field(factory=list)
    acted: set[Choice] = attrs.field(factory=set)
    lines: list[Line] = attrs.field(factory=list)
    #: Where placeholders stay: the outputs of each request as ``update_state`` found them.
    found: dict[str, list[int]] = attrs.field(factory=dict)
    #: And as ``apply`` does: with a penalty in the batch vLLM has replaced some, and lost others.
    left: dict[str, list[int]] = attrs.field(factory=dict)
    endings: Endings = attrs.field(factory=Endings)
    clock: int = 0

    @property
    def blind(self) -> bool:
        """Whether placeholders stay in ``apply``, and the twins are shown them, too."""
        return self.shape.entry_point


def play(bench: Bench, history: History, shape: Shape) -> Played:
    """Play a history and stop at the first step in which something goes wrong."""
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
                others=bench.others() if shape.sampled else (),
            )
            run = _Play(bench, host, seen, shape)
        except PluginRaised as error:
            kind = Kind.CLAIM if error.call == Call.CLAIM else Kind.CONSTRUCTOR
            return Played((Trouble(kind, 0, str(error)),), frozenset())
        try:
            _steps(run, history)
        except PluginHung as error:
            run.troubles.append(_hung(run, error))
        if not run.troubles:
            _check_params(run)
        if not run.troubles:
            _retire(run, plugin)
        if not Played(tuple(run.troubles), frozenset()).faults:
            run.troubles += run.unmeant
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


def _step(run: _Play, step: Step) -> None:
    bench, host = run.bench, run.host
    joining: list[Joining] = []
    for request in step.join:
        run.requests[request.name] = request
        run.params[request.name] = bench.params(request.choice, greedy=request.greedy)
        run.endings.follow(request.name, bench.most(request.choice))
        run.served.append(request)
        joining.append(Joining(request.name, list(request.prompt), run.params[request.name]))
    for name in step.finish:
        run.requests.pop(name)
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
    logits = _logits(run, names)
    _apply(run, logits)
    if run.troubles:
        return
    result = logits
    if run.plugin.rows is not None:
        before, result = run.plugin.rows
        _judge(run, names, before, result)
        if run.troubles:
            return
    offered = result[:, bench.words.every].tolist()
    likeliest = result.argmax(dim=-1).tolist()
    sampled = host.complete(lambda row: _token(run, names[row], offered[row], likeliest[row]))
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


def _logits(run: _Play, names: list[str]) -> torch.Tensor:
    """Return what the model gives, behind the grammars of requests."""
    bench, outputs = run.bench, run.host.outputs
    index = [bench.logits_row(run.requests[n].prompt, outputs[n]) for n in names]
    logits = bench.table[index]
    if run.shape.sampled:
        asked = [bench.parameters[run.requests[name].choice] for name in names]
        combinations.put_behind_grammars(logits, asked)
    return logits


def _apply(run: _Play, logits: torch.Tensor) -> None:
    """Have ``apply`` called for the batch, where the engine would call it."""
    host = run.host
    try:
        if run.shape.greedy or run.shape.sampled:
            host.sample(logits.clone())
        elif not (host.invariant and host.batch.all_greedy):
            # The sampler around it would take most of the time of an example.
            run.plugin.rows = (logits, run.plugin.plugin.apply(logits.clone()))
    except PluginRaised as error:
        run.troubles.append(_raised(run, error))
    except PluginMisshapen as error:
        run.troubles.append(Trouble(Kind.SHAPE, run.clock, str(error)))
    else:
        _check_mutation(run)


def _judge(run: _Play, names: list[str], before: torch.Tensor, after: torch.Tensor) -> None:
    """Judge the rows that the engine samples from."""
    for row, name in enumerate(names):
        # What an argmax-invariant processor does to a greedy row decides nothing.
        unused = run.host.invariant and run.params[name].sampling_type is SamplingType.GREEDY
        if run.host.keeps(name) and not unused:
            _judge_row(run, row, name, before[row], after[row])


def _judge_row(run: _Play, row: int, name: str, before: torch.Tensor, after: torch.Tensor) -> None:
    """Judge the row of one request against itself and against its twin."""
    choice = run.requests[name].choice
    changed = not torch.equal(before, after)
    # Where placeholders stay, who reads outputs has little to do: being asked is what counts.
    if (changed or (run.blind and PLACEHOLDER in _shown(run, name)[-1])) and choice[0] != "off":
        run.acted.add(choice)
    if choice == SENT:
        return  # what a client asked for is its own business
    kind = message = None
    expected = before
    random = run.params[name].sampling_type is not SamplingType.GREEDY
    tokenless = _tokenless(choice, before, after, random=random) if changed else None
    if tokenless and (run.shape if choice[0] == "with" else run.bench).tolerant:
        differs, (found, what) = differing(after, before), tokenless
        run.tokenless.append(Trouble(found, run.clock, what, name, row, differs))
        tokenless = None
    if changed and choice[0] == "off":
        kind = Kind.OPT_OUT
        message = "the row of a request that did not opt in was changed"
    elif tokenless:
        kind, message = tokenless
    else:
        try:
            expected = _twin(run, name).row(before, _shown(run, name))
        except (PluginRaised, PluginMisshapen) as error:
            said = f"{error}, for request {name} alone"
            run.troubles.append(Trouble(_alone_kind(error), run.clock, said, name, row))
            return
        kind, message, expected = _beside(run, name, before, after, expected)
        if kind is None:
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
    if meaning is None or run.unmeant or run.blind or run.shape.sampled:
        return
    twin = run.twins[name]
    if trouble := meaning.trouble(twin.params, run.requests[name], twin.outputs, before, after):
        run.unmeant.append(attrs.evolve(trouble, step=run.clock, row=row))
        note("unmeant", twin.instance)


def _beside(
    run: _Play, name: str, before: torch.Tensor, after: torch.Tensor, expected: torch.Tensor
) -> tuple[Kind | None, str, torch.Tensor]:
    """Compare a row with that of its twin, and where placeholders stay with others."""
    if not same(after, expected):
        return Kind.ROW, "the row is not the one that the request gets alone", expected
    taken = None
    if run.blind:
        outputs = _shown(run, name)[-1]
        taken = taken_for_last(run.bench, run.requests[name], outputs, before, after)
    return taken or (None, "", expected)


def _alone_kind(error: PluginRaised | PluginMisshapen) -> Kind:
    """Return what went wrong where a twin's call did."""
    if isinstance(error, PluginMisshapen):
        return Kind.SHAPE
    return Kind.NONE if error.call == Call.NO_UPDATE else Kind.ALONE


def _shown(run: _Play, name: str) -> tuple[list[int], ...]:
    """Return what the twin is shown in place of outputs; nothing where it has the real ones.

    As they were in ``update_state``, and as they are: another request in the batch may need
    outputs, and then vLLM replaces placeholders between the two.
    """
    if not run.blind:
        return ()
    return run.found[name], run.left[name]


def _tokenless(
    choice: Choice, before: torch.Tensor, after: torch.Tensor, *, random: bool
) -> tuple[Kind, str] | None:
    """Say what keeps a changed row from being sampled from, if anything does."""
    if math.isfinite(after.amax()):  # neither NaN, which this hands on, nor +inf, nor all -inf
        return None
    some, every = torch.isfinite(before).any(), torch.isfinite(before).all()
    combined = choice[0] == "with"
    if torch.isnan(after).any() and (some or not combined):
        return Kind.NAN, "the row holds NaN"
    if random and torch.isposinf(after).any():
        return Kind.INFINITE, "the row holds +inf, of which the sampler's softmax makes NaN"
    if torch.isneginf(after).all() and (every or (some and combined)):
        return Kind.NO_TOKEN, "every token of the row is -inf: none can be sampled"
    return None


def _twin(run: _Play, name: str) -> Twin:
    if name not in run.twins:
        run.twins[name] = alone(run.bench, run.requests[name])
    return run.twins[name]


def _token(run: _Play, name: str, offered: list[float], likeliest: int) -> int:
    """Choose the token a request gets: one that the processed row allows, as sampling would."""
    if run.params[name].temperature == 0:
        return likeliest
    request, count = run.requests[name], len(run.host.outputs[name])
    every = zip(run.bench.words.every, offered, strict=True)
    allowed = [token for token, logit in every if logit > -math.inf]
    token = following(request.outputs, request.prompt, count, allowed)
    return likeliest if token is None else token


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
            run.troubles.append(
                Trouble(Kind.MUTATED, run.clock, f"the plugin wrote to {what}", name)
            )


def _check_params(run: _Play) -> None:
    """Look at the parameters when all is done: who writes to them changes no other request."""
    for request in run.served:
        if not run.bench.unchanged(run.params[request.name], request.choice, greedy=request.greedy):
            said = "the plugin wrote to its SamplingParams"
            run.troubles.append(Trouble(Kind.PARAMETERS, run.clock, said, request.name))


def _hung(run: _Play, error: PluginHung) -> Trouble:
    place = place_in(error, run.bench.path)
    return Trouble(Kind.HUNG, run.clock, str(error), call=error.call, place=place)


def _raised(run: _Play, error: PluginRaised) -> Trouble:
    kind = Kind.NONE if error.call == Call.NO_UPDATE else Kind.RAISED
    place = place_in(error.error, run.bench.path)
    return Trouble(kind, run.clock, str(error), error=type(error.error).__name__, place=place)


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
