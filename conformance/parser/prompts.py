# SPDX-License-Identifier: Apache-2.0
"""Checks of what the engine asks of prompts, which clients write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, cast

import attrs
from vllm.v1.utils import ConstantList

from conformance.checking import checks
from conformance.findings import Finding, failed, passed
from conformance.parser.bench import Bench, guarded
from conformance.parser.endings import ENDS
from conformance.parser.hostile import brief
from conformance.parser.messages import quoted
from conformance.parser.trial import Trial
from conformance.watching.interruption import PluginHung
from conformance.watching.raised import placed

#: Tokens of a prompt of something again and again: contexts of most models are longer.
LONG = 32_000

#: Markers that are put behind each other, of those that are known.
MOST = 4

#: Tokens behind the tokenizer's last one, as vocabularies of models have them.
UNKNOWN = 3


@attrs.frozen
class Asked:
    """A prompt: a text, how long it is repeated, and tokens that the tokenizer does not know."""

    part: str = ""
    length: int = 0  #: tokens of all that is repeated
    unknown: int = 0

    def tokens(self, tokenizer: Any) -> list[int]:  # noqa: ANN401 - a transformers tokenizer
        """Return the tokens of the prompt."""
        part = list(tokenizer.encode(self.part, add_special_tokens=False)) if self.part else []
        if self.length:
            return (part * (self.length // len(part) + 1))[: self.length]
        return [*part, *range(len(tokenizer), len(tokenizer) + self.unknown)]

    def __str__(self) -> str:
        """Return the prompt as messages name it."""
        if self.unknown:
            return "a prompt with tokens of the model that its tokenizer does not know"
        if not self.part:
            return "a prompt of embeddings, which has no tokens,"
        again = f" again and again, {self.length} tokens," if self.length else ""
        return f"the prompt {quoted(self.part)}{again}"


@checks("RP-23", after=("RP-06",))
def any_prompt(trial: Trial) -> Finding:
    """Ask what the engine asks of prompts that no chat template writes."""
    bench, count = trial.bench, 0
    markers = list(dict.fromkeys((*bench.special, *_markers(trial))))[:MOST]
    answer = trial.first()[0].text
    first = bench.answer(answer).ids[:1]
    each = ((asked, asked.tokens(bench.tokenizer)) for asked in _prompts(markers, answer))
    for (asked, prompt), alone in product(each, (False, True)):
        count += 1
        if wrong := _asked(bench, prompt, first, alone=alone):
            told = ", of an instance made with the tokenizer alone," if alone else ""
            scene = {
                "is": "asked",
                **attrs.asdict(asked),
                "answer": answer,
                "special": list(bench.special),
                "chat": None if alone else dict(bench.chat),
            }
            what = f"{asked}{told} {wrong}"
            return failed(what, count, case={"answer": {"text": asked.part}, "program": scene})
    return passed(count)


def _markers(trial: Trial) -> Sequence[str]:
    return trial.drawing.format.markers if trial.drawing is not None else ()


def _prompts(markers: Sequence[str], answer: str) -> Iterator[Asked]:
    """Yield prompts: of nothing, of markers in every order, and of very many of them."""
    yield from (Asked(), Asked("x"), Asked(unknown=UNKNOWN), Asked("x", unknown=UNKNOWN))
    parts = [*markers, *(f"{one} x {two}" for one, two in product(markers, repeat=2)), answer]
    yield from map(Asked, parts)
    yield from (Asked(part, LONG) for part in ("x", *parts))


def _asked(bench: Bench, prompt: list[int], then: Sequence[int], *, alone: bool) -> str | None:
    """Ask of a prompt, and the token behind it, as the engine does; say what is wrong, or None."""
    made = cast("Any", bench.cls)
    make = partial(made, tokenizer=bench.tokenizer) if alone else bench.engine
    parser = guarded("making an instance", make)
    if isinstance(parser, Exception):
        return None  # RP-01 tells of it
    first, second = (getattr(parser, name) for name in ENDS)
    found: list[Any] = []

    def ask() -> None:
        found.append(guarded(ENDS[0], partial(first, list(prompt))))

    try:
        brief(ENDS[0], ask)
    except PluginHung as hung:
        return f"makes all clients wait: {hung}"
    if isinstance(found[0], Exception):
        return f"ends the engine: {ENDS[0]} raised {placed(found[0])}"
    if found[0]:
        return None
    # As in accept_tokens, where the tokens are already the request's.
    said = guarded(ENDS[1], partial(second, ConstantList([*prompt, *then]), list(then)))
    if isinstance(said, Exception):
        return f"ends the engine: {ENDS[1]}, given a ConstantList, raised {placed(said)}"
    return None
