# SPDX-License-Identifier: Apache-2.0
"""What came of playing a history, as data."""

from __future__ import annotations

from enum import StrEnum

import attrs

from conformance.inputs.history import Choice


class Kind(StrEnum):
    """What went wrong in a step."""

    ROW = "row"  #: a row differs from the twin's
    OPT_OUT = "opt-out"  #: the row of a request that did not opt in was changed
    RAISED = "raised"  #: a call raised in the batch
    ALONE = "raised-alone"  #: a call raised even for the request alone
    NONE = "raised-on-none"  #: ``update_state(None)`` raised
    SHAPE = "shape"  #: not a tensor, or of another shape, dtype or device
    NAN = "nan"
    INFINITE = "infinite"  #: +inf in the row of a request that is sampled at random
    NO_TOKEN = "no-token"
    PLACEHOLDER = (
        "placeholder"  #: -1, for a token that is not known yet, was taken for the last one
    )
    MUTATED = "mutated"  #: the plugin wrote to what it may only read
    PARAMETERS = "parameters"  #: the plugin wrote to the parameters of a request
    HUNG = "hung"
    CONSTRUCTOR = "constructor"  #: making an instance raised
    ANSWER = "answer"  #: ``add_request`` said something else than was done
    MEANING = "meaning"  #: a row is not what the author says it must be
    ORACLE = "oracle"  #: the author's function did not say what a row must be
    CLAIM = "claim"  #: asking for the claim of argmax invariance raised


#: What is said of a row that another one is expected of.
ROWS = frozenset((Kind.ROW, Kind.OPT_OUT))

#: What keeps a row from being sampled from.
UNSAMPLED = frozenset((Kind.NAN, Kind.INFINITE, Kind.NO_TOKEN))


#: What is noticed of a history that goes on all the same: nothing is hidden by it.
BESIDES = frozenset((Kind.PARAMETERS, Kind.MEANING, Kind.ORACLE))


@attrs.frozen
class Trouble:
    """One thing that went wrong, as data, and the sentence for it."""

    kind: Kind
    step: int  #: index of the engine step, counting repeats
    message: str
    request: str | None = None
    row: int | None = None
    tokens: tuple[tuple[int, float, float], ...] = ()  #: (token, got, expected)
    error: str | None = None  #: name of the type of what was raised
    call: str | None = None  #: the call that hung
    wrote: str | None = None  #: what the plugin wrote to, as ``req_states.total_len``
    place: str | None = None  #: ``file.py:LINE`` of the plugin where it was raised


@attrs.frozen
class Line:
    """One engine step as a person reads it."""

    step: int
    events: str
    update: str  #: what the plugin is told of, see :attr:`conformance.logits.requests.Stock.told`
    rows: tuple[str, ...]  #: request in each row
    quiet: bool = False  #: whether it is like the one before, with the next tokens


@attrs.frozen
class Played:
    """The outcome of one history."""

    troubles: tuple[Trouble, ...]
    acted: frozenset[Choice]  #: parameter sets whose rows were changed at least once
    lines: tuple[Line, ...] = ()
    #: Rows without a token, where these do not end a history.
    tokenless: tuple[Trouble, ...] = ()

    @property
    def faults(self) -> tuple[Trouble, ...]:
        """What went wrong, but for what hides nothing."""
        return tuple(trouble for trouble in self.troubles if trouble.kind not in BESIDES)
