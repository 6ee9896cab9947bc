# SPDX-License-Identifier: Apache-2.0
"""Checks of whatever a model, or the client who asks it, may write.

Texts that patterns backtrack over, numbers in them, structures that do not close, and texts that
get as long as a megabyte stand in the completion and in the prompt of contexts; each is scored in a
process that it may end, stall or fill.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from conformance.checking import checks
from conformance.classifier_hook.bench import Bench
from conformance.classifier_hook.trial import Trial
from conformance.findings import Finding, failed, passed
from conformance.inputs import oddities
from conformance.settings import Budget
from conformance.watching import endurance
from conformance.watching.comparison import shortened
from conformance.watching.endurance import Growth, Guard, Sent, Stalled, Trouble
from conformance.watching.interruption import OutOfTime, PluginExited, PluginHung
from conformance.watching.raised import said

#: Seconds after which no more is scored by a hook that waits for something each time.
SECONDS = {Budget.QUICK: 5.0, Budget.STANDARD: 10.0, Budget.DEEP: 60.0}

#: What a message shows of a text.
SHOWN = 60

#: How numbers stand in a text.
_SENTENCES = ("{}", "Call +{} on page {}.", '{{"count": {}}}')

#: What opens and never closes, or does so very often.
_OPEN = ("[", "{", "(", "<a>", '{"a":', "**", "```\n")


@attrs.frozen
class Asked:
    """What the other process needs to send everything."""

    arguments: Mapping[str, Any]
    allowed: tuple[str, ...]
    blocked: tuple[str, ...]
    seed: int
    seconds: float


@checks("CH-37")
def survives(trial: Trial) -> Finding:
    """No completion ends, stalls or fills the server."""
    bench = trial.bench
    assert trial.untouched is not None
    seconds = SECONDS[trial.budget]
    asked = Asked(dict(bench.arguments), bench.allowed, bench.blocked, bench.seed, seconds)
    path = getattr(sys.modules.get(bench.cls.__module__), "__file__", None)
    found = endurance.endured(trial.untouched, f"{__name__}:send", asked, path=path)
    if isinstance(found, Trouble):
        what = found.sent.name or shortened(found.sent.value, SHOWN)
        case = {} if found.sent.name else {"text": found.sent.value}
        return failed(f"score of {what} {found.what}", found.sent.number, case=case)
    return passed(found)


def send(hook: type[Any], errand: endurance.Errand) -> int | Trouble | Stalled:
    """Have everything scored; this is the other process. Return how many texts there were."""
    asked: Asked = errand.asked
    section = {"allowed": asked.allowed, "blocked": asked.blocked}
    bench = Bench.open(hook, section, origin=None, seed=asked.seed, arguments=asked.arguments)
    bench.call(bench.texts[0])  # whatever is made or compiled only once
    until = time.monotonic() + asked.seconds
    growth = Growth()
    with Guard.open(errand) as guard:
        for name, text, form in _texts(bench.texts):
            goes_on = growth.goes_on(form)
            with guard.sending(text, name, seconds=growth.limit) as sent:
                if sent.number < errand.first or not goes_on:
                    continue
                with growth.measured():
                    trouble = _trouble(bench, sent, text, growth.limit)
                if trouble is not None:
                    return trouble
            if time.monotonic() > until:
                break
        return guard.number


def _trouble(bench: Bench, sent: Sent, text: str, seconds: float) -> Trouble | Stalled | None:
    """Return what scoring a text, as a completion and as a prompt, did to this process."""
    try:
        calls = [bench.call(text, prompt=text)]
        if not calls[0].good:  # it may have stopped at one before it came to the other
            calls += [bench.call(text), bench.call(bench.texts[0], prompt=text)]
    except OutOfTime:
        return None  # it waits, and gives way: whoever calls it has a timeout for that
    except PluginExited as error:
        return Trouble(sent, f"ends the process: {error}")
    except PluginHung:
        what = f"stalls the server: it holds the event loop for more than {seconds:.0f} s"
        return Stalled(Trouble(sent, what))
    for call in calls:
        if call.error is not None and endurance.no_memory(said(call.error)):
            asks = f"fills the server: it asks for more than {endurance.FILL >> 30} GiB"
            return Trouble(sent, f"{asks} ({said(call.error)})")
    return None


def _texts(ordinary: tuple[str, ...]) -> Iterator[tuple[str, str, object]]:
    """Yield texts, the small ones first, with their names and what they are longer forms of."""
    small = [sentence.format(number, number) for sentence in _SENTENCES for number in _numbers()]
    small += [text for value in ("", ordinary[0]) for text in oddities.runs(value)]
    small += [opening * count for opening in _OPEN for count in (40, 2_000)]
    for text in dict.fromkeys(small):
        yield "", text, None
    for text in ordinary[:1]:
        for form in oddities.texts(text):
            for size in oddities.SIZES:
                yield f"{size:,} characters {form.name}", form.make(size), (text, form.name)


def _numbers() -> list[int]:
    return [int(number) for number in oddities.NUMBERS if isinstance(number, int)]
