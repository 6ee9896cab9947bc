# SPDX-License-Identifier: Apache-2.0
"""What is left of very many answers: in the parser's class, its module and its caches."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from functools import partial

from conformance.checking import checks
from conformance.findings import Finding, failed, passed, unjudged
from conformance.parser.trial import Trial
from conformance.watching.endless import ends, taking
from conformance.watching.interruption import progressed
from conformance.watching.leaks import LONGEST, STRAIGHT, Spent, flat, growing, size_of

#: Answers between two measurements, token by token; and in few parts, of a parser that grew: a
#: cache that has an end, of 5,000 entries, is full before the last two, in one of which its table
#: may be made larger.
FEW, MEASUREMENTS = 10, 5
ROUNDS = (200, 200, 1_600, 3_000, 1_000, 1_000)

#: How many parts of an answer come one by one then.
PARTS = 2


@checks("TP-20", after=("TP-09", "TP-03"))
@checks("RP-21", after=("RP-09", "RP-03"))
def forgets(trial: Trial) -> Finding:
    """Give answers of which each is unlike the others, very many of them where something grew."""
    numbers = itertools.count(1)
    serve = partial(_serve, trial, _parted(trial), numbers)
    empty = object.__new__(trial.cls)  # its class and its module can be reached from it
    sizes = []
    for _ in range(MEASUREMENTS):
        serve(FEW)
        sizes.append(size_of(empty))
    if flat(sizes):
        return passed(FEW * MEASUREMENTS)
    sizes, spent, count, what = sizes[-1:], Spent(), 0, None
    for more in ROUNDS:
        if count and spent.beyond(LONGEST, LONGEST):
            break
        serve(more, PARTS)
        gc.collect()
        sizes.append(size_of(empty))
        count += more
        if not (what := growing(sizes[-2:], more, "answer")):
            return passed(count)
    if count < STRAIGHT:
        why = f"{STRAIGHT} answers did not fit into the time there is, and after {count} {what}"
        return unjudged(why, count)

    def few() -> int:
        serve(FEW, PARTS)
        return FEW

    if ends(empty, few):
        return passed(count)
    what = f"after {count} answers {what}{taking(empty, few, FEW)}"
    return failed(what, count)


def _parted(trial: Trial) -> tuple[str, str]:
    """Return an answer in two parts, between which another number makes it another one."""
    sample = trial.first()[0]
    says = sample.says or trial.bench.whole(trial.bench.answer(sample.text))
    values = [call.value for call in says.calls if isinstance(call.value, dict)]
    texts = [each for of in values for each in of.values() if isinstance(each, str)]
    for part in (*texts, says.reasoning.strip(), says.content.strip()):
        if part and sample.text.count(part) == 1:
            begins, _, ends = sample.text.partition(part)
            return f"{begins}{part} ", ends
    return "", f" {sample.text}"


def _serve(
    trial: Trial, text: tuple[str, str], numbers: Iterator[int], count: int, parts: int = 0
) -> None:
    """Give so many more answers, whole and streamed, in so many parts, or token by token."""
    for number in itertools.islice(numbers, count):
        answer = trial.bench.answer(str(number).join(text))
        trial.bench.whole(answer)
        trial.bench.stream(answer, range(1, parts or len(answer)))
        progressed()
