# SPDX-License-Identifier: Apache-2.0
"""What a step costs of a long answer: counted in lines of Python that are executed."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from conformance.checking import checks
from conformance.findings import Finding, failed, passed
from conformance.parser.bench import Bench, Streaming
from conformance.parser.formats import PROBE
from conformance.parser.hostile import brief
from conformance.parser.messages import Call, Message
from conformance.parser.roles import REASONING
from conformance.parser.samples import Sample
from conformance.parser.tokens import Answer
from conformance.parser.trial import Trial

#: How often a part of an answer is there: so that one is twice as long as another.
LENGTHS = (64, 128, 256)

#: Steps at the end of an answer of which the middle one counts: a call that ends may cost more.
STEPS = 16

#: Lines of a step that no answer is too short for, and how many times as many are no growth.
LINES, TIMES = 100, 2

#: Of which a part is made long.
WORDS = "word " * 4

#: Tokens of the longest answer, and of each delta of it.
LONGEST, WIDE = 32_000, 1_000


def lines_of(function: Callable[[], object]) -> int:
    """Return how many lines of Python a call executes, those of what it calls among them."""
    count = 0

    def trace(_frame: object, event: str, _argument: object) -> Any:  # noqa: ANN401 - of sys.settrace
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def near_end(bench: Bench, answer: Answer) -> Streaming:
    """Return a long answer on its way, of which some tokens are left that come one by one."""
    last = len(answer) - 1 - STEPS
    streaming = Streaming(bench, answer, [*range(WIDE, last, WIDE), *range(last, len(answer))])
    for _ in range(-(-last // WIDE)):
        streaming.step()
    return streaming


def within(what: str, answer: Answer) -> Answer:
    """Return an answer at whose end a step is measured: one that is long in reasoning ends there.

    Behind the end of reasoning a parser has little to do.
    """
    return answer.first(len(answer) * 3 // 4) if what == REASONING else answer


def growing(trial: Trial) -> Iterator[tuple[str, Callable[[int], str]]]:
    """Return what may be long in an answer, and an answer with so many parts."""
    drawing = trial.drawing
    if drawing is None:
        for sample in trial.first():
            yield "an answer", sample.text.__mul__
            for what, part in _parts(trial, sample):
                if part and sample.text.count(part) == 1:
                    yield what, partial(_longer, sample.text, part)
        return
    write = drawing.format.write
    if drawing.format.thinks is not None:
        yield REASONING, lambda count: write(Message(WORDS * count, "I say it."))
        yield "content", lambda count: write(Message("I think.", f"{WORDS * count}."))
        return
    yield "content", lambda count: f"I say {WORDS * count}."
    names = {tool["function"]["name"] for tool in trial.wanted.tools}
    if PROBE.name in names:
        text = '{"city": "x%sy"}'
        yield (
            "an argument",
            lambda count: write(Message(calls=(Call(PROBE.name, text % (WORDS * count)),))),
        )
        if drawing.format.several:
            yield "a list of calls", lambda count: write(Message(calls=(PROBE,) * count))


def _parts(trial: Trial, sample: Sample) -> Iterator[tuple[str, str]]:
    """Yield what may be longer in a sample of the profile, and its text there."""
    says = sample.says or trial.bench.whole(trial.bench.answer(sample.text))
    yield REASONING, says.reasoning.strip()
    yield "content", says.content.strip()
    for call in says.calls:
        if isinstance(call.value, dict):
            texts = (each for each in call.value.values() if isinstance(each, str))
            yield from (("an argument", each) for each in texts)


def _longer(text: str, part: str, count: int) -> str:
    return text.replace(part, f"{part} {WORDS * count}{part}")


@checks("TP-16", after=("TP-08", "TP-04"))
@checks("RP-13", after=("RP-04",))
def growth(trial: Trial) -> Finding:
    """Count what a step costs behind answers of which one is twice as long as another.

    An answer as long as they come is given before, in which nothing may hang.
    """
    bench = trial.bench
    count = 0
    for what, text in growing(trial):
        _survives(bench, text)
        answers = [within(what, bench.answer(text(length))) for length in LENGTHS]
        ready = (near_end(bench, answer) for answer in answers)
        found = [statistics.median(lines_of(each.step) for _ in range(STEPS)) for each in ready]
        count += len(found)
        if found[-1] > TIMES * found[0] + LINES:
            told = ", ".join(f"{lines:.0f}" for lines in found)
            lengths = ", ".join(str(len(answer)) for answer in answers)
            return failed(
                f"{what} being long, one more token costs {told} lines of Python behind answers "
                f"of {lengths} tokens",
                count,
                count,
            )
    return passed(count)


def _survives(bench: Bench, text: Callable[[int], str]) -> None:
    """Give a very long answer, whole where it is broken off, and in wide deltas.

    Raises:
        PluginHung: one call took so long that a server stalls.

    """
    parts = LONGEST * LENGTHS[0] // len(bench.answer(text(LENGTHS[0])))
    answer = bench.answer(text(parts))
    broken_off = answer.first(len(answer) * 3 // 4)
    brief(
        f"the parser, given a whole answer, of {LONGEST} tokens,", partial(bench.whole, broken_off)
    )
    streaming = Streaming(bench, answer, range(WIDE, len(answer), WIDE))
    for _ in range(-(-len(answer) // WIDE)):
        brief(f"the parser, given a delta of an answer, of {LONGEST} tokens,", streaming.step)
