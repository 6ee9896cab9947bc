# SPDX-License-Identifier: Apache-2.0
"""Rules about time: the event loop, timeouts and cancellation."""

from __future__ import annotations

from conformance.classifier_hook.catalogue.sources import ASYNC, BOUNDED, LOOP, rfc, runtime
from conformance.rules import EVERYWHERE, IN_ENGINES, Rule, section, sentence

RULES = section(
    "Time",
    Rule(
        id="CH-20",
        title="The event loop is never kept waiting",
        statement=(
            "score never waits on the event loop for more than 50 ms at a time: no sleep, no "
            "synchronous network or file access."
        ),
        sources=(
            ASYNC,
            runtime("dispatch.py:_Steps", "steps are timed; the runtime cannot cure them"),
        ),
        hint="Await instead: httpx.AsyncClient, asyncio.sleep, asyncio.to_thread.",
        evidence=IN_ENGINES,
    ),
    Rule(
        id="CH-21",
        title="Little work is done on the event loop",
        statement=(
            "score never computes on the event loop for more than 50 ms at a time, also for texts "
            "of 100,000 characters and long runs of blanks or digits."
        ),
        sources=(ASYNC,),
        hint="While it computes no token of any request goes out: use asyncio.to_thread.",
    ),
    Rule(
        id="CH-22",
        title="Ordinary texts are scored within the hook's own timeout",
        statement="The texts of the profile get their scores before timeout_ms has passed.",
        sources=(sentence(BOUNDED),),
        hint="Raise timeout_ms, or be faster: a blocking hook that is late replaces answers.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="CH-23",
        title="Cancellation ends a call at once",
        statement=(
            "A call that is cancelled, at its timeout or because its request was aborted, ends "
            "within 50 ms with CancelledError."
        ),
        sources=(
            BOUNDED,
            runtime("dispatch.py", "after the margin the answer goes out without the hook"),
        ),
        hint="Catch Exception, not BaseException; do not shield; clean up without waiting.",
        evidence=IN_ENGINES,
    ),
    Rule(
        id="CH-24",
        title="Nothing is left behind",
        statement=(
            "When a call has ended, whether by itself or by cancellation, none of its tasks is "
            "still there; a task that serves all calls, or a batch of them that a callback of the "
            "event loop made, is the hook's own."
        ),
        sources=(BOUNDED,),
        hint="Use asyncio.TaskGroup, or cancel and await what was started.",
        evidence=IN_ENGINES,
    ),
    Rule(
        id="CH-29",
        title="Calls return, and the process lives",
        statement="No call hangs with the event loop in its hands, and none ends the process.",
        sources=(runtime("dispatch.py:HookExited", "SystemExit would end the event loop"), LOOP),
        hint="Look for loops that wait, locks that are not released, and sys.exit.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="CH-37",
        title="No completion ends, stalls or fills the server",
        statement=(
            "Of texts up to a megabyte, in the completion and in the prompt, none ends the "
            "process, none makes the hook ask for more than 2 GiB, and none holds the event loop "
            "for 10 seconds, unless the time grows no faster than the text."
        ),
        sources=(
            rfc("every completion is scored"),
            runtime("dispatch.py:_Call", "score runs on the event loop of all clients"),
            LOOP,
        ),
        hint="Bound a number that a text names before anything uses it; let no pattern repeat what "
        "it repeats already; look words up in a set.",
    ),
)
