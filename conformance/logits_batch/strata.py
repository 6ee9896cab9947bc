# SPDX-License-Identifier: Apache-2.0
"""The strata of ``logits/batch``, and which rule is broken by what goes wrong in them."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import attrs
import torch
from vllm.v1.sample.logits_processor import BatchUpdate

from conformance.inputs.history import SENT, Choice, History, Shape
from conformance.logits.calls import PluginMisshapen, PluginRaised
from conformance.logits.classics import minds_resuming
from conformance.logits.combinations import SHAPES
from conformance.logits.played import ROWS, Kind, Played
from conformance.logits.sweeps import Example, Strata
from conformance.logits_batch.bench import Bench
from conformance.logits_batch.classics import classics
from conformance.logits_batch.parameters import rows_alone
from conformance.logits_batch.play import play
from conformance.watching.interruption import limited

PLAIN = Shape(name="plain", title="requests join and advance")
REPLACED = Shape(
    name="replaced", title="requests finish and others take over their rows", finish="replaced"
)
ONE_WAY = Shape(
    name="one-way", title="requests finish and the last rows move down", finish="alone", first=4
)
SWAP = Shape(
    name="swap",
    title="chunked prefills are sorted behind decodes",
    chunk=True,
    reorder=True,
    first=4,
    prompt=4,
)
CHURN = Shape(
    name="churn", title="one request stays, others come and go", finish="stack", stays=True
)
RESUME = Shape(
    name="resume",
    title="requests are preempted and resumed, and computed again where a load failed",
    pause=True,
    lost=True,
    join_later=False,
    first=2,
)
ASYNC = Shape(
    name="async", title="requests join and advance, scheduled asynchronously", asynchronous=True
)
ENTRY_POINT = Shape(
    name="entry-point",
    title="requests join and advance, scheduled asynchronously, and outputs stay -1",
    asynchronous=True,
    entry_point=True,
)
CHUNK = Shape(name="chunk", title="prompts are computed in chunks", chunk=True, prompt=6)
SKIPPED = Shape(
    name="skipped",
    title="steps without apply: nothing is scheduled, or every request is greedy",
    finish="free",
    idle=True,
    greedy=True,
    steps=9,
    live=4,
)
REMOVED = Shape(name="removed", title="the latest requests finish", finish="stack")
ORDER = Shape(
    name="order",
    title="joins, moves and swaps in the same step",
    finish="free",
    chunk=True,
    reorder=True,
    first=5,
    live=7,
    shortest=3,
    prompt=6,
)
EVERYTHING = Shape(
    name="everything",
    title="everything at once",
    finish="free",
    idle=True,
    pause=True,
    chunk=True,
    reorder=True,
    asynchronous=True,
    first=4,
    prompt=5,
)

#: The same where all of a prompt is computed in one step.
SWAP_WHOLE = attrs.evolve(
    SWAP,
    name="swap-whole",
    title="prompts in the rows of finished requests are sorted behind decodes",
    chunk=False,
    finish="free",
    shortest=2,
)
ORDER_WHOLE = attrs.evolve(ORDER, name="order-whole", chunk=False)

#: The rule that each stratum is about.
RULE_OF_SHAPE = {
    PLAIN: "LB-03",
    REPLACED: "LB-06",
    ONE_WAY: "LB-07",
    SWAP: "LB-08",
    CHURN: "LB-09",
    RESUME: "LB-11",
    ASYNC: "LB-17",
    CHUNK: "LB-18",
    REMOVED: "LB-19",
    ORDER: "LB-20",
    SKIPPED: "LB-26",
    ENTRY_POINT: "LB-45",
    EVERYTHING: "LB-03",
}

#: Strata that must be clean before trouble in another one says anything about its own rule.
#: The churning stratum depends on none: what is wrong with ``update_state(None)`` shows anywhere.
#: The mixed one depends on the plain one only; what else it hints at is said in its message.
BUILT_ON = {
    REPLACED: (PLAIN,),
    REMOVED: (PLAIN,),
    CHUNK: (PLAIN,),
    ASYNC: (PLAIN,),
    ENTRY_POINT: (PLAIN, ASYNC),
    ONE_WAY: (PLAIN, REMOVED),
    SWAP: (PLAIN, CHUNK),
    RESUME: (PLAIN, REPLACED, REMOVED, ONE_WAY),
    ORDER: (PLAIN, REPLACED, REMOVED, ONE_WAY, CHUNK, SWAP),
    SKIPPED: (PLAIN, REPLACED, REMOVED, ONE_WAY),
    SWAP_WHOLE: (PLAIN, REPLACED, REMOVED, ONE_WAY),
    ORDER_WHOLE: (PLAIN, REPLACED, REMOVED, ONE_WAY, SWAP_WHOLE),
}

#: Rows of prompts that are computed in part are advice, and no rule that must hold waits for it.
WITHOUT = {
    shape: (RULE_OF_SHAPE[CHUNK], whole)
    for shape, whole in ((SWAP, SWAP_WHOLE), (ORDER, ORDER_WHOLE))
}

#: Rules about single calls, in whatever stratum they go wrong.
RULE_OF_KIND = {
    Kind.SHAPE: "LB-14",
    Kind.NAN: "LB-22",
    Kind.INFINITE: "LB-22",
    Kind.NO_TOKEN: "LB-22",
    Kind.MUTATED: "LB-21",
    Kind.PARAMETERS: "LB-43",
    Kind.MEANING: "LB-46",
    Kind.ORACLE: "LB-46",
    Kind.HUNG: "LB-24",
    Kind.NONE: "LB-09",
    Kind.CONSTRUCTOR: "LB-02",
    Kind.CLAIM: "LB-13",
    Kind.ALONE: "LB-16",
    Kind.RAISED: "LB-16",
}

#: Steps for which a request runs alone to find out what its rows depend on.
_STEPS = 8

#: How often a history is played in either way before a difference is blamed on it.
_AGAIN = 2

#: More examples where the thing that a stratum is about is rare: chains of moves, what steps
#: without ``apply`` leave, and swaps where prompts are computed whole.  Fewer where a plugin acts
#: in any of them, and where the first few show each fault that the gallery has, whatever the seed.
TIMES = {
    ORDER: 3,
    ORDER_WHOLE: 3,
    SKIPPED: 2,
    SWAP_WHOLE: 2,
    ENTRY_POINT: 0.5,
    ONE_WAY: 0.5,
    ASYNC: 0.5,
}

#: That an entry point sees no tokens is said nowhere: what comes of it is advice.
APART = frozenset((ENTRY_POINT,))

#: What is wrong with a row that depends on what :func:`play` reuses.
_KNOWN_BY_ID = (
    "the request gets the state of a finished one: the plugin identifies requests by the id() of "
    "their lists or parameters, and Python reuses the addresses of freed objects; keep state by row"
)


def run(bench: Bench, shape: Shape, drawn: History) -> Example:
    """Play one history, and where rows differ find out what they depend on."""
    if shape.entry_point:
        bench, drawn = _in_company(bench, drawn)
    played = play(bench, drawn, shape)
    if shape == CHUNK and minds_resuming(drawn, played, partial(play, bench, shape=RESUME)):
        return Example(shape, drawn, attrs.evolve(played, troubles=()), ())
    if _minds_addresses(bench, drawn, shape, played):
        said = attrs.evolve(played.troubles[0], message=_KNOWN_BY_ID)
        return Example(shape, drawn, attrs.evolve(played, troubles=(said,)), (("LB-06",),))
    choices = {request.name: request.choice for step in drawn for request in step.join}
    about_none = any(
        trouble.kind in ROWS
        and trouble.request is not None
        and _minds_none(bench, choices[trouble.request])
        for trouble in played.troubles
    )
    owners = tuple(
        _broken_by(shape, trouble.kind, about_none=about_none) for trouble in played.troubles
    )
    return Example(shape, drawn, played, owners)


def _in_company(bench: Bench, drawn: History) -> tuple[Bench, History]:
    """Return a bench that has the request with a penalty, or the history without that request."""
    if company := bench.penalising():
        return company, drawn
    plain = bench.choices[-1]
    return bench, tuple(
        attrs.evolve(
            step,
            join=tuple(
                attrs.evolve(request, choice=plain) if request.choice == SENT else request
                for request in step.join
            ),
        )
        for step in drawn
    )


def _broken_by(shape: Shape, kind: Kind, *, about_none: bool) -> tuple[str, ...]:
    """Return the rules that trouble of a kind breaks in a stratum."""
    if kind in ROWS and shape in (PLAIN, CHURN):
        # Neighbours that come and go are what the plain stratum is about, too.
        return ("LB-09",) if about_none else STRATA.broken(PLAIN, kind)
    if kind is Kind.RAISED and shape == CHURN:
        return (RULE_OF_KIND[kind],)
    return STRATA.broken(shape, kind)


def _minds_addresses(bench: Bench, drawn: History, shape: Shape, played: Played) -> bool:
    """Tell whether a row differs only where a request gets the objects of one that is gone.

    What differs now and then, as what a thread does, is no sign of that.
    """
    if not played.troubles or played.troubles[0].kind not in ROWS:
        return False
    return all(
        not play(bench, drawn, shape, reuses=False).faults and play(bench, drawn, shape).faults
        for _ in range(_AGAIN)
    )


def _minds_none(bench: Bench, choice: Choice) -> bool:
    """Tell whether a request alone gets other rows when None is replaced by an empty update.

    No engine sends empty updates.  This decides only which rule a difference that was found in
    a real history belongs to.
    """
    with suppress(PluginRaised, PluginMisshapen), limited():
        steps = bench.behind(_STEPS, choice)
        rows = [
            [after for _, after in rows_alone(bench, choice, steps, quiet=quiet)]
            for quiet in (None, None, BatchUpdate(1, [], [], []))
        ]
        again, other = (
            all(torch.equal(row, first) for row, first in zip(run, rows[0], strict=True))
            for run in rows[1:]
        )
        return again and not other
    return False  # alone it raises; what that means is said of the history


STRATA = Strata(
    rule_of=RULE_OF_SHAPE,
    rule_of_kind=RULE_OF_KIND,
    built_on=BUILT_ON,
    times=TIMES,
    plain=PLAIN,
    opt_out="LB-04",
    everything=EVERYTHING,
    run=run,
    rows_alone=rows_alone,
    classics=classics,
    besides=SHAPES,
    apart=APART,
    without=WITHOUT,
)
