# SPDX-License-Identifier: Apache-2.0
"""Finding out which of the known formats a parser reads."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import attrs

from conformance.parser import formats
from conformance.parser.bench import TOOL, Bench, NotMade
from conformance.parser.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from conformance.parser.formats import Format


@attrs.frozen(eq=False)
class Fit:
    """A format that a parser reads, and the bench with its tokens."""

    format: Format
    bench: Bench


def unfit(cls: type[Any], role: str) -> str | None:
    """Say why a class cannot be called as vLLM calls it, or return None."""
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):
        return None
    try:
        if role == TOOL:
            signature.bind(object(), [])
        else:
            signature.bind(object(), model_config=None, chat_template_kwargs={})
            signature.bind(tokenizer=object(), chat_template_kwargs={})
    except TypeError as error:
        call = (
            "(tokenizer, tools)"
            if role == TOOL
            else "(tokenizer, model_config=..., chat_template_kwargs=...) and (tokenizer=..., ...)"
        )
        return f"the class cannot be called as vLLM does, with {call}: {error}"
    return None


def fits(bench: Bench, known: Iterable[Format], *, named: bool) -> tuple[list[Fit], str | None]:
    """Return those of the formats that a parser reads, and what making it raised otherwise.

    Of one that is *named* by the profile, a parser has to read all; of others, one call alone.
    """
    found: list[Fit] = []
    raised = None
    for each in known:
        special = tuple(dict.fromkeys((*bench.special, *each.special)))
        trial = attrs.evolve(bench, special=special, prompt=each.prompt(), chat=each.chat)
        try:
            fitted = each if named else _fitted(trial, each)
        except NotMade as error:
            raised = str(error)
            continue
        if fitted is not None:
            found.append(Fit(fitted, trial))
    return found, raised


def _fitted(bench: Bench, known: Format) -> Format | None:
    """Return a format with what a parser reads of it, or None where it reads nothing."""

    def reads(message: Message) -> bool:
        return bench.whole(bench.answer(known.write(message))).same(message)

    if known.thinks is not None:
        return known if reads(Message("First I think.", "Then I say it.")) else None
    call = formats.PROBE
    if not reads(Message(calls=(call,))):
        return None
    return attrs.evolve(
        known,
        content=reads(Message("", "Let me look. ", (call,))),
        several=reads(Message(calls=(call, call))),
    )
