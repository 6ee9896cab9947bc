# SPDX-License-Identifier: Apache-2.0
"""Histories: what requests do, step by step.

A history says only what a scheduler decides: who joins, finishes, is paused and resumed,
and how many tokens of a prompt are computed in a step.
What that does to rows and slots is vLLM's business,
so the same histories drive every generation of the logits-processor interface.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from string import ascii_uppercase
from typing import Any, Literal

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from conformance.inputs.words import Words, draw_tokens, upto

#: Tokens that speculative decoding guesses for a request in one step, at most.
MOST_DRAFTS = 2

#: A parameter set: the list of the profile that it is in, and its position there. The harness adds
#: ``near``, which have another number or list than the profile; ``with``, which ask for more than
#: the plugin; and ``sent``, which is what any client may send and whose own row is not judged.
Choice = tuple[Literal["on", "off", "near", "with", "sent"], int]

#: The parameter set of a request that any client may send.
SENT: Choice = ("sent", 0)


def label(choice: tuple[str, int]) -> str:
    """Return a parameter set as messages name it, for example ``on[0]`` or ``invalid[1]``."""
    return f"{choice[0]}[{choice[1]}]"


@attrs.frozen
class Request:
    """A request that joins: its name in messages, its prompt and its parameters."""

    name: str
    prompt: tuple[int, ...]
    choice: Choice
    greedy: bool = False  #: sampled at temperature 0, whatever its parameters say
    #: The tokens that it gets in turn, and again from the first, where its rows allow them.
    outputs: tuple[int, ...] = ()


@attrs.frozen
class Step:
    """One engine step, or ``repeat`` equal ones in which nobody joins, leaves or pauses."""

    finish: tuple[str, ...] = ()
    join: tuple[Request, ...] = ()
    pause: tuple[str, ...] = ()  #: live requests that are not scheduled: preempted
    chunk: tuple[tuple[str, int], ...] = ()  #: tokens computed, where fewer than the whole prefill
    rest: tuple[str, ...] = ()  #: live requests that are not scheduled, and stay where they are
    draft: tuple[tuple[str, int], ...] = ()  #: tokens that were guessed, and are verified
    #: Requests that join or come back with keys and values from elsewhere, which prove to be lost
    #: when the step is over: its token is taken back, and everything is computed again.
    lost: tuple[str, ...] = ()
    repeat: int = 1


History = tuple[Step, ...]


@attrs.frozen(kw_only=True)
class Shape:
    """Which histories a strategy generates; each switch allows one thing a scheduler does."""

    name: str
    title: str
    steps: int = 6
    first: int = 3  #: requests that join in the first step, at most
    live: int = 5  #: requests alive at the same time, at most
    prompt: int = 3  #: prompt length, at most
    shortest: int = 1  #: prompt length, at least
    #: ``stack``: the latest first; ``replaced``: as many join as finish, in the same step;
    #: ``alone``: never in a step in which others join; ``free``: anyhow.
    finish: Literal["never", "stack", "replaced", "alone", "free"] = "never"
    join_later: bool = True
    pause: bool = False
    chunk: bool = False
    repeat: bool = True
    stays: bool = False  #: the first request stays and others come and go in every step
    idle: bool = False  #: in some steps nothing is scheduled, since every request has finished
    greedy: bool = False  #: most requests are greedy, and in many steps all of them
    rest: bool = False  #: in some steps a running request is not scheduled
    draft: bool = False  #: speculative decoding: several tokens are verified in one step
    lost: bool = False  #: keys and values that were to be loaded from elsewhere prove to be lost
    #: How the host plays the history, not what requests do:
    reorder: bool = False  #: the attention backend sorts decodes before prefills (SWAP moves)
    asynchronous: bool = False  #: async scheduling: the newest output is -1 in ``update_state``
    #: The engine found the plugin by its entry point: with async scheduling outputs stay -1.
    entry_point: bool = False
    parts: bool = False  #: a step's logits are processed in several parts
    sampled: bool = False  #: all of vLLM's sampler runs, behind the grammars of requests
    tolerant: bool = False  #: a row without a token is noted, and what follows is judged, too

    @property
    def speculative(self) -> bool:
        """Whether only engines with speculative decoding order what it is about."""
        return self.draft or self.parts


@attrs.define
class _Drawn:
    """What is known of the requests of a history that is being drawn."""

    total: int  #: steps
    index: int = 0  #: of the step
    requests: dict[str, Request] = attrs.field(factory=dict)
    #: Live requests, in joining order, with the tokens that are still to be computed.
    prefill: dict[str, int] = attrs.field(factory=dict)
    outputs: dict[str, int] = attrs.field(factory=dict)
    away: tuple[str, ...] = ()  #: preempted in the step before


@attrs.define
class _Drawing:
    """How the histories of a shape are drawn.

    Its strategies are made once: Hypothesis looks through each new one, which takes longer than
    to draw from it. So they find the history that is being drawn here, and not in an argument.
    """

    shape: Shape
    choices: SearchStrategy[Choice]
    words: Words
    life: int  #: steps that outlive what a request was told
    lengths: SearchStrategy[int] = attrs.field(init=False)
    steps: SearchStrategy[Step] = attrs.field(init=False)
    first: SearchStrategy[int] = attrs.field(init=False)  #: how many join in the first step
    requests: SearchStrategy[Request] = attrs.field(init=False)
    drawn: _Drawn = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        steps = self.shape.steps
        # Mostly long, since little happens in the first steps; the simplest is still the shortest.
        self.lengths = st.sampled_from((*range(1, steps + 1), *(steps - 1, steps) * steps))
        self.first = st.integers(1, self.shape.first)
        self.steps, self.requests = _steps(self), _requests(self)


@st.composite
def histories(draw: DrawFn, drawing: _Drawing) -> History:
    """Generate histories of a shape.

    Draws are few and small integers, each simplest at zero,
    so that generation is fast and a failing history shrinks to a few plain steps.
    """
    total = draw(drawing.lengths)
    drawing.drawn = _Drawn(total)
    return tuple(draw(drawing.steps) for _ in range(total))


@st.composite
def _steps(draw: DrawFn, drawing: _Drawing) -> Step:
    shape, drawn = drawing.shape, drawing.drawn
    requests, prefill, outputs, index = drawn.requests, drawn.prefill, drawn.outputs, drawn.index
    drawn.index += 1
    # In the middle third those that are not greedy leave, and ``apply`` is not called.
    idling = shape.greedy and 3 * index // drawn.total == 1
    random = [name for name in prefill if idling and not requests[name].greedy]
    leaving = _draw_finish(draw, shape, list(prefill)) if index else ()
    finish = tuple(dict.fromkeys([*random, *leaving]))
    for name in finish:
        del prefill[name]
    join: list[Request] = []
    for _ in range(_draw_joins(draw, drawing, index, len(prefill), len(finish))):
        request = draw(drawing.requests)
        if shape.greedy:
            request = attrs.evolve(request, greedy=idling or draw(st.booleans()))
        join.append(request)
        requests[request.name] = request
        prefill[request.name], outputs[request.name] = len(request.prompt), 0
    new = {request.name for request in join}
    pause: tuple[str, ...] = ()
    if shape.pause and index:
        pause = _draw_pause(draw, [name for name in prefill if name not in new], len(prefill))
    for name in pause:
        # Preempted: everything is computed again when it comes back.
        prefill[name] = len(requests[name].prompt) + outputs[name]
    old = [name for name in prefill if name not in (*new, *pause)]
    rest = _draw_pause(draw, old, len(prefill)) if shape.rest and index else ()
    running = [name for name in prefill if name not in (*pause, *rest)]
    chunk = _draw_chunk(draw, {name: prefill[name] for name in running}) if shape.chunk else {}
    entering = [name for name in running if name in (*new, *drawn.away) and name not in chunk]
    lost = _draw_lost(draw, {name: prefill[name] for name in entering}) if shape.lost else ()
    for name in running:
        if name in lost:
            continue
        prefill[name] = prefill[name] - chunk[name] if name in chunk else 1
        outputs[name] += name not in chunk
    drawn.away = pause
    drafts = _draw_drafts(draw, running) if shape.draft else {}
    repeat = 1
    if shape.repeat and not (finish or pause or chunk or lost) and index:
        longest = drawing.words.longest
        repeats = (1, 2, 3, 4) + ((longest + 1, longest + 4) if longest else ())
        # Whoever takes over a row has to outlive what was left there.
        repeats += (drawing.life,) if drawing.life and shape.finish == "replaced" else ()
        repeat = repeats[draw(upto(len(repeats) - 1))]
        for name in running:
            outputs[name] += repeat - 1
    return Step(
        finish, tuple(join), pause, tuple(chunk.items()), rest, tuple(drafts.items()), lost, repeat
    )


@st.composite
def _requests(draw: DrawFn, drawing: _Drawing) -> Request:
    shape, name = drawing.shape, _name(len(drawing.drawn.requests))
    prompt, outputs = draw_tokens(draw, drawing.words, shape.shortest, shape.prompt)
    return Request(name, prompt, draw(drawing.choices), outputs=outputs)


def _draw_finish(draw: DrawFn, shape: Shape, live: list[str]) -> tuple[str, ...]:
    if shape.finish == "never" or not live:
        return ()
    if shape.stays:
        return tuple(live[1:]) if len(live) > 1 and draw(st.booleans()) else ()
    # Unless others take over, the last request stays: nothing would be scheduled without it.
    most = len(live) if shape.idle or shape.finish == "replaced" else len(live) - 1
    count = draw(upto(min(3, most)))
    if shape.finish == "stack":
        return tuple(live[len(live) - count :])
    names = list(live)
    return tuple(names.pop(draw(upto(len(names) - 1))) for _ in range(count))


def _draw_pause(draw: DrawFn, old: list[str], live: int) -> tuple[str, ...]:
    # A scheduler preempts requests to make room for others: one of them stays.
    return _draw_some(draw, old)[: live - 1]


def _draw_some(draw: DrawFn, names: Sequence[str]) -> tuple[str, ...]:
    mask = draw(upto(2 ** len(names) - 1)) if names else 0
    return tuple(name for bit, name in enumerate(names) if mask >> bit & 1)


def _draw_chunk(draw: DrawFn, prefill: Mapping[str, int]) -> dict[str, int]:
    """Draw how many tokens are computed of those prefills that a step does not finish."""
    return {
        name: remaining - left
        for name, remaining in prefill.items()
        if remaining > 1 and (left := draw(upto(remaining - 1)))
    }


def _draw_lost(draw: DrawFn, entering: Mapping[str, int]) -> tuple[str, ...]:
    """Draw whose load fails, of those that enter with more tokens than the one to be computed."""
    return _draw_some(draw, [name for name, remaining in entering.items() if remaining > 1])


def _draw_drafts(draw: DrawFn, running: Sequence[str]) -> dict[str, int]:
    guesses = {name: draw(upto(MOST_DRAFTS)) for name in running}
    return {name: count for name, count in guesses.items() if count}


def _draw_joins(draw: DrawFn, drawing: _Drawing, index: int, live: int, finished: int) -> int:
    shape = drawing.shape
    if index == 0:
        return draw(drawing.first)
    if shape.finish == "replaced":
        return finished
    if not shape.join_later or (finished and shape.finish in ("stack", "alone")):
        return 0
    if shape.stays and live == 1:
        return 1
    return draw(upto(max(0, min(2, shape.live - live))))


def _name(index: int) -> str:
    round_, letter = divmod(index, len(ascii_uppercase))
    return ascii_uppercase[letter] + (str(round_) if round_ else "")


def strategy(
    shape: Shape, choices: Sequence[Choice], words: Words, life: int = 0
) -> SearchStrategy[History]:
    """Return the strategy of a shape, over the parameter sets that a profile offers.

    Args:
        shape: what a scheduler does.
        choices: the parameter sets.
        words: what prompts and outputs are made of.
        life: steps that outlive what a request was told; 0 where it was told nothing.

    """
    return histories(_Drawing(shape, st.sampled_from(tuple(choices)), words, life))


def shows(shape: Shape, history: History) -> bool:
    """Tell whether a history has what its shape is there for."""
    wanted = [each for each in ("pause", "chunk", "rest", "draft", "lost") if getattr(shape, each)]
    found = [any(getattr(step, each) for step in history) for each in wanted]
    found += [any(_idle(history))] if shape.idle else []
    found += [any(r.greedy for step in history for r in step.join)] if shape.greedy else []
    if not found and shape.finish != "never":
        found.append(any(step.finish for step in history))
    return not found or any(found)


def _idle(history: History) -> Iterator[bool]:
    """Tell of each step whether no request is left in it."""
    live = 0
    for step in history:
        live += len(step.join) - len(step.finish)
        yield live == 0


def to_json(history: History) -> list[dict[str, Any]]:
    """Return a history as JSON values, leaving out what is empty."""
    steps = []
    for step in history:
        document = {
            "finish": list(step.finish),
            "join": [
                {"name": r.name, "prompt": list(r.prompt), "params": list(r.choice)}
                | ({"greedy": True} if r.greedy else {})
                | ({"outputs": list(r.outputs)} if r.outputs else {})
                for r in step.join
            ],
            "pause": list(step.pause),
            "chunk": dict(step.chunk),
            "rest": list(step.rest),
            "draft": dict(step.draft),
            "lost": list(step.lost),
            "repeat": step.repeat if step.repeat != 1 else None,
        }
        steps.append({name: value for name, value in document.items() if value})
    return steps


def from_json(steps: Sequence[dict[str, Any]]) -> History:
    """Read a history that :func:`to_json` wrote."""
    return tuple(
        Step(
            finish=tuple(step.get("finish", ())),
            join=tuple(
                Request(
                    r["name"],
                    tuple(r["prompt"]),
                    (r["params"][0], r["params"][1]),
                    r.get("greedy", False),
                    tuple(r.get("outputs", ())),
                )
                for r in step.get("join", ())
            ),
            pause=tuple(step.get("pause", ())),
            chunk=tuple(step.get("chunk", {}).items()),
            rest=tuple(step.get("rest", ())),
            draft=tuple(step.get("draft", {}).items()),
            lost=tuple(step.get("lost", ())),
            repeat=step.get("repeat", 1),
        )
        for step in steps
    )


def size(history: History) -> tuple[int, int, int]:
    """Order histories by how much a person must read: steps, requests, then everything else."""
    requests = sum(len(step.join) for step in history)
    rest = sum(
        step.repeat
        + len(step.pause)
        + len(step.chunk)
        + len(step.rest)
        + len(step.lost)
        + sum(count for _, count in step.draft)
        + sum(len(r.prompt) + len(r.outputs) for r in step.join)
        for step in history
    )
    return len(history), requests, rest
