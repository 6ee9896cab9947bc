# SPDX-License-Identifier: Apache-2.0
"""The strata of ``logits/slot``, and which rule is broken by what goes wrong in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import attrs
import torch
from vllm.sampling_params import SamplingParams

from conformance.inputs.history import Choice, History, Shape
from conformance.logits.calls import PluginMisshapen, PluginRaised
from conformance.logits.classics import minds_resuming
from conformance.logits.combinations import SHAPES
from conformance.logits.played import ROWS, Kind
from conformance.logits.sweeps import Example, Strata
from conformance.logits_slot.bench import Alone, Bench, Watched, together
from conformance.logits_slot.classics import classics
from conformance.logits_slot.parameters import rows_alone
from conformance.logits_slot.play import ordered, play
from conformance.watching.interruption import limited

PLAIN = Shape(name="plain", title="requests join and advance")
RECYCLED = Shape(
    name="recycled", title="requests finish and others take over their slots", finish="replaced"
)
SORTED = Shape(
    name="sorted",
    title="requests finish, and rows are sorted in another order",
    finish="alone",
    chunk=True,
    first=4,
    prompt=4,
)
RESUME = Shape(
    name="resume",
    title="requests are preempted and resumed in other slots",
    pause=True,
    join_later=False,
    first=3,
)
CHUNK = Shape(name="chunk", title="prompts are computed in chunks", chunk=True, prompt=6)
DRAFTS = Shape(
    name="drafts", title="several drafts are verified in a step", draft=True, repeat=False, steps=7
)
PARTS = Shape(name="parts", title="logits are processed in parts", parts=True, first=5, live=7)
SKIPPED = Shape(
    name="skipped",
    title="steps without apply: nobody needs it, or a request is not scheduled",
    finish="free",
    idle=True,
    rest=True,
    steps=9,
    live=4,
)
EVERYTHING = Shape(
    name="everything",
    title="everything at once",
    finish="free",
    idle=True,
    pause=True,
    chunk=True,
    rest=True,
    draft=True,
    parts=True,
    first=4,
    prompt=5,
)

#: The same where all of a prompt is computed in one step.
SORTED_WHOLE = attrs.evolve(SORTED, name="sorted-whole", chunk=False)

#: The rule that each stratum is about.
RULE_OF_SHAPE = {
    PLAIN: "LS-03",
    RECYCLED: "LS-06",
    SORTED: "LS-07",
    RESUME: "LS-08",
    CHUNK: "LS-09",
    DRAFTS: "LS-10",
    PARTS: "LS-11",
    SKIPPED: "LS-12",
    EVERYTHING: "LS-03",
}

#: Strata that must be clean before trouble in another one says anything about its own rule.
BUILT_ON = {
    RECYCLED: (PLAIN,),
    CHUNK: (PLAIN,),
    SORTED: (PLAIN, RECYCLED, CHUNK),
    RESUME: (PLAIN, RECYCLED),
    DRAFTS: (PLAIN,),
    PARTS: (PLAIN,),
    SKIPPED: (PLAIN, RECYCLED),
    SORTED_WHOLE: (PLAIN, RECYCLED),
}

#: Rows of prompts that are computed in part are advice, and no rule that must hold waits for it.
WITHOUT = {SORTED: (RULE_OF_SHAPE[CHUNK], SORTED_WHOLE)}

#: More examples where slots are used again, which few finished requests lead to, and where rows
#: are sorted behind prompts that are computed whole.  Fewer where the first few show each fault
#: that the gallery has, whatever the seed.
TIMES = {RECYCLED: 2, SORTED_WHOLE: 2, RESUME: 0.5, PARTS: 0.5, SKIPPED: 0.5}

#: Rules about single calls, in whatever stratum they go wrong.
RULE_OF_KIND = {
    Kind.SHAPE: "LS-20",
    Kind.NAN: "LS-21",
    Kind.INFINITE: "LS-21",
    Kind.NO_TOKEN: "LS-21",
    Kind.MUTATED: "LS-16",
    Kind.PARAMETERS: "LS-40",
    Kind.MEANING: "LS-43",
    Kind.ORACLE: "LS-43",
    Kind.HUNG: "LS-24",
    Kind.ANSWER: "LS-14",
    Kind.CONSTRUCTOR: "LS-02",
    Kind.ALONE: "LS-22",
    Kind.RAISED: "LS-22",
}

#: Rules about where state is read from: such trouble shows anywhere.
ANYWHERE = frozenset(("LS-07", "LS-17", "LS-18"))

#: Steps for which a request runs alone to find out what its rows depend on.
_STEPS = 8

#: What a slot holds where a request was before.
_STALE = 13


def run(bench: Bench, shape: Shape, drawn: History) -> Example:
    """Play one history, and where rows differ find out what they depend on."""
    with suppress(PluginRaised):  # what that means is said of the history
        drawn, _ = ordered(bench, drawn, shape)
    played = play(bench, drawn, shape)
    if shape == CHUNK and minds_resuming(drawn, played, partial(play, bench, shape=RESUME)):
        return Example(shape, drawn, attrs.evolve(played, troubles=()), ())
    choices = {request.name: request.choice for step in drawn for request in step.join}
    owners = []
    for trouble in played.troubles:
        cause = None
        if trouble.kind in (*ROWS, Kind.ANSWER, Kind.RAISED) and trouble.request is not None:
            choice = choices[trouble.request]
            if choice not in bench.causes:
                bench.causes[choice] = _cause(bench, choice)
            cause = bench.causes[choice]
        owners.append((cause,) if cause else STRATA.broken(shape, trouble.kind))
    return Example(shape, drawn, played, tuple(owners))


def _cause(bench: Bench, choice: Choice) -> str | None:
    """Return the rule about where state is read from that explains why rows differ, if any.

    Only what makes a difference to the request alone counts.  This decides which rule a
    difference that was found in a real history belongs to.
    """
    with suppress(PluginRaised, PluginMisshapen), limited():
        plain = _rows(bench, choice)
        if not _equal(plain, _rows(bench, choice)):
            return None  # random: nothing follows from a comparison
        late, later = (_rows(bench, choice, prepare=partial(_early, n)) for n in (0, 1))
        if not (_equal(plain, _rows(bench, choice, turned=True)) and _equal(late, later)):
            return "LS-17"
        if not _equal(plain, _rows(bench, choice, prepare=_stale)):
            # What is felt as well if it comes later was not read in ``add_request``.
            behind = _in_order(bench, choice, turns=False, behind=True)
            return "LS-18" if _equal(behind, _in_order(bench, choice, turns=False)) else None
        in_order, turning = (_in_order(bench, choice, turns=turns) for turns in (False, True))
        beside = _rows(bench, choice, prepare=_neighbour)
        if not (_equal(plain, beside) and _equal(in_order, turning)):
            return "LS-07"
    return None


def _rows(
    bench: Bench,
    choice: Choice,
    *,
    turned: bool = False,
    prepare: Callable[[Watched], None] = lambda _: None,
) -> list[torch.Tensor]:
    rows = rows_alone(bench, choice, bench.behind(_STEPS, choice), turned=turned, prepare=prepare)
    return [after for _, after in rows]


def _in_order(
    bench: Bench, choice: Choice, *, turns: bool, behind: bool = False
) -> list[torch.Tensor]:
    """Return the rows of a request beside another one.

    Args:
        bench: the plugin.
        choice: the parameter set of the request.
        turns: whether rows change places.
        behind: whether slots hold, behind the tokens, what longer requests have left there.

    """
    instance = bench.new()
    unlike = next((other for other in bench.parameters if other[0] != choice[0]), choice)
    pair = [
        Alone(instance, bench.params(each), bench.prompt, name=name)
        for name, each in (("first", choice), ("second", unlike))
    ]
    for alone in pair:
        alone.begin()
        if behind:
            instance.states.all_token_ids.gpu[alone.slot, alone.length :] = _STALE
    found = []
    for step in range(bench.behind(_STEPS, choice, unlike)):
        order = pair[::-1] if turns and step % 3 else pair
        rows = together(order, bench.given(step).repeat(2, 1))
        found.append(rows[order.index(pair[0])])
        for alone, row in zip(order, rows, strict=True):
            alone.append(bench.takes(row, bench.words.said(step)))
    bench.retire(instance)
    return found


def _equal(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def _stale(instance: Watched) -> None:
    """Leave in the slots what requests leave there that have finished."""
    states = instance.states
    states.all_token_ids.gpu.fill_(_STALE)
    states.total_len.gpu.fill_(_STALE)


def _early(turns: int, instance: Watched) -> None:
    """Serve a request for a step before, and turn the buffers over so many times after it."""
    states = instance.states
    early = Alone(instance, SamplingParams(), [_STALE], name="early", processed=True)
    early.row(torch.zeros(states.vocab_size, dtype=torch.float32))
    states.remove_request("early")
    for _ in range(turns):
        states.apply_staged_writes()


def _neighbour(instance: Watched) -> None:
    """Have a request in the first slot that runs and is not scheduled: rows start at zero."""
    Alone(instance, SamplingParams(), [_STALE], name="neighbour").begin()
    with torch.inference_mode():
        instance.apply_staged_writes()


STRATA = Strata(
    rule_of=RULE_OF_SHAPE,
    rule_of_kind=RULE_OF_KIND,
    built_on=BUILT_ON,
    times=TIMES,
    plain=PLAIN,
    opt_out="LS-04",
    everything=EVERYTHING,
    run=run,
    rows_alone=rows_alone,
    classics=classics,
    besides=SHAPES,
    without=WITHOUT,
)
