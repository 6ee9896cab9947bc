# SPDX-License-Identifier: Apache-2.0
"""Checks of prompts that are written as text, as those of chats are."""

from __future__ import annotations

from functools import partial

from conformance.findings import Finding, failed
from conformance.multimodal.processor.answers import answer
from conformance.multimodal.processor.bench import Bench
from conformance.multimodal.processor.placeholders import known_ranges
from conformance.multimodal.processor.processed import ranges_of
from conformance.multimodal.processor.prompts import Prompt
from conformance.multimodal.processor.search import Trouble
from conformance.multimodal.processor.trial import Trial
from conformance.verdict import Verdict
from conformance.watching.comparison import letter, shortened


def in_text(bench: Bench, prompt: Prompt) -> Trouble | None:
    """A prompt that is written as chats are has the same placeholders."""
    ranges = known_ranges(bench, prompt)
    if ranges is None:
        return None
    text = _text(bench, prompt)
    options = bench.stock.chosen(prompt.options)
    processor = bench.processor()
    encode = bench.host.tokenizer().encode
    found = answer(
        lambda: bench.host.process(
            processor,
            encode(text, **processor.info.default_tok_params.get_encode_kwargs()),
            prompt.data(),
            options,
        )
    )
    if not found.good:
        who = (
            "the chat template's text"
            if any(map(bench.texts.templated, prompt.modalities))
            else "the text"
        )
        return Trouble(f"{who} {shortened(text)} {found.describe()}")
    now = ranges_of(prompt, found.value)
    for index, (one, wanted) in enumerate(zip(now, ranges, strict=True)):
        if one.count != wanted.count:
            return Trouble(
                f"in the text {shortened(text)} item {letter(index)} has {one.count} placeholders",
                index,
                str(wanted.count),
                str(one.count),
            )
    return None


def _text(bench: Bench, prompt: Prompt) -> str:
    """Return a prompt as a text, as chats are put together."""
    decode = bench.host.tokenizer().decode
    places = iter(prompt.places())
    found = []
    for place, part in enumerate(prompt.parts):
        if isinstance(part, int):
            found.append(str(decode(bench.texts.text(place, part))))
        else:
            modality, index = next(places)
            found.append(bench.texts.in_chats(modality, index + 1) or "")
    return " ".join(found)


def as_tokens(bench: Bench, prompt: Prompt) -> Trouble | None:
    """The processor makes the same of a text as of its tokens."""
    if not bench.ready(prompt):
        return None
    text, options = _text(bench, prompt), bench.stock.chosen(prompt.options)
    one, other = bench.processor(), bench.processor()
    encode = bench.host.tokenizer().encode
    kwargs = one.info.default_tok_params.get_encode_kwargs()
    tokens = answer(
        lambda: bench.host.process(other, encode(text, **kwargs), prompt.data(), options)
    )
    texts = answer(lambda: bench.host.call(one, text, prompt.data(), options))
    if tokens.good != texts.good:
        bad, good = ("text", "tokens") if tokens.good else ("tokens", "text")
        said = (texts if tokens.good else tokens).describe()
        return Trouble(f"{shortened(text)} as {bad} {said}; as {good} it is processed")
    if tokens.good and tokens.value.tokens != texts.value.tokens:
        return Trouble(
            f"{shortened(text)} becomes {len(texts.value.tokens)} tokens, and as tokens "
            f"{len(tokens.value.tokens)}",
            expected=str(len(tokens.value.tokens)),
            actual=str(len(texts.value.tokens)),
        )
    if tokens.good and tokens.value.ranges != texts.value.ranges:
        return Trouble(f"{shortened(text)} has other ranges than its tokens")
    return None


def written(trial: Trial) -> Finding:
    """``get_placeholder_str`` gives a text for every item that needs one."""
    bench = trial.bench
    count = 0
    for modality in bench.stock.items:
        for number in range(1, bench.limits[modality] + 1):
            found = answer(partial(_placeholder, bench, modality, number))
            if not found.good:
                return failed(
                    f"get_placeholder_str({modality!r}, {number}) {found.describe()}", count + 1
                )
            if not isinstance(found.value, str | None):
                return failed(
                    f"get_placeholder_str({modality!r}, {number}) is {found.value!r}", count + 1
                )
            if bench.texts.in_chats(modality, number) is None and bench.texts.placeholder(
                modality, number
            ):
                bare = _without_text(bench, modality)
                if bare:
                    return failed(
                        f"get_placeholder_str({modality!r}, {number}) is None, and a prompt "
                        f"without a placeholder {bare}",
                        count + 1,
                    )
            count += 1
    return trial.look(in_text) if count else Finding(Verdict.NOT_VERIFIED)


def _placeholder(bench: Bench, modality: str, number: int) -> object:
    return bench.host.cls.get_placeholder_str(modality, number)


def _without_text(bench: Bench, modality: str) -> str | None:
    """Say what comes of a prompt that has no text for its item; None if it is processed."""
    item = bench.stock.items[modality][0]
    found = bench.handed_over(bench.texts.text(0, 3), {modality: [item.make()]})
    return None if found.good else found.describe()
