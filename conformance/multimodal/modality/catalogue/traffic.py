# SPDX-License-Identifier: Apache-2.0
"""Rules about many items: isolation, and what is left of them."""

from __future__ import annotations

from conformance.multimodal.modality.catalogue.sources import (
    ALL,
    ALONE,
    FRONT,
    FRONT_END,
    PARALLEL,
    article,
    library,
)
from conformance.rules import Rule, changes, section

_ONE = library(
    "registry.py:MultiModalRegistry", "one instance serves every model and every request"
)

RULES = section(
    "Many items",
    Rule(
        id="MM-71",
        title="An item does not depend on those before it",
        statement=(
            "Items that are served one after the other, mistakes among them, each come out "
            "as alone."
        ),
        sources=(ALONE, _ONE, changes(FRONT)),
        hint=(
            "Look for attributes that a call changes and no call resets, and for caches whose key "
            "leaves something out."
        ),
        resembles=("vllm-project/vllm#51827",),
        evidence=ALL,
    ),
    Rule(
        id="MM-72",
        title="Items of one request do not mix",
        statement=(
            "Where all items are parsed before the first is preprocessed, in whatever order, each "
            "comes out as alone."
        ),
        sources=(
            ALONE,
            library("processor.py:MultiModalProcessor.process", "all items are parsed first"),
            changes(FRONT),
        ),
        hint="Keep what was parsed in the item that parse_input returns, not in the plugin.",
        evidence=ALL,
    ),
    Rule(
        id="MM-73",
        title="Items on several threads do not mix",
        statement="Items that are served on several threads at a time each come out as alone.",
        sources=(PARALLEL, _ONE, changes(FRONT)),
        hint="Use local variables; a buffer that is shared needs a lock.",
    ),
    Rule(
        id="MM-74",
        title="Arrays belong to their item",
        statement="Arrays that were handed over are not changed by later items.",
        sources=(ALONE, changes(FRONT)),
        hint="Return a new array for every item, or a copy of the buffer.",
    ),
    Rule(
        id="MM-75",
        title="Files and threads are given back",
        statement=(
            "After items, taken or refused, no open file, no temporary file and no thread is left."
        ),
        sources=(_ONE, FRONT_END),
        hint="Open with a with statement, also where what follows may raise.",
    ),
    Rule(
        id="MM-76",
        title="Served items are forgotten",
        statement="After two thousand items, no two alike, the plugin does not grow any more.",
        sources=(_ONE, FRONT_END),
        hint="Look for lists and dictionaries that calls add to; a cache may have 1,000 entries.",
    ),
    Rule(
        id="MM-77",
        title="Items can be sent to another process",
        statement=(
            "An item can be pickled, and what is read back gives the same arrays, counts and hash."
        ),
        sources=(article("1. API Server receives request; 6. ModelRunner.execute_model()"),),
        hint="Keep bytes and numbers in the item, no open files, locks or functions.",
    ),
)
