# SPDX-License-Identifier: Apache-2.0
"""Formats in which models write calls and reasoning, and finding out which of them a parser reads.

They are in ``formats.toml``, each with the source that it was checked against.
"""

import inspect
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs

from conformance.parser.bench import Bench, NotMade
from conformance.parser.composing import composed
from conformance.parser.messages import Call, Message, apart, quoted
from conformance.parser.roles import REASONING, ROLES, TOOL, base
from conformance.watching.comparison import in_common

#: How JSON calls the types of values.
_TYPES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}

_TAG = re.compile(r"</?[^<>\s=]+>?")

#: Values that a string is taken for, where it stands bare.
BARE = ("42", "null")


class Unsaid(Exception):
    """A model never says a message."""


@attrs.frozen(eq=False, kw_only=True)
class Format:
    """How a family of models writes a message; ``formats.toml`` says what each field is."""

    name: str
    source: str = ""
    parsers: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    special: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    before: str = ""
    each: str = ""
    between: str = ""
    after: str = ""
    python: bool = False
    tagged: tuple[str, ...] | None = None
    nested: bool = False
    quote: str = ""
    thinks: tuple[str, str, str] | None = None
    opened: bool = False
    handover: str | None = None
    turn: str = "user: x"
    chat: Mapping[str, Any] = attrs.field(factory=dict)
    #: What was found of a parser: it takes text before calls, and more calls than one.
    content: bool = True
    several: bool = True
    drops: bool = False  #: it finds calls behind text, of which it says nothing
    #: What a profile names instead: of (content, calls), or (content, reasoning), it makes a text.
    serialise: Callable[..., str | None] | None = None
    #: Returns the prompts of turns that may follow an answer which says this.
    behind: Callable[[Message], tuple[str, ...]] | None = None

    @cached_property
    def letters(self) -> bool:
        """Whether a string stands bare in an argument, where its ends and its type are unmarked."""
        if self.serialise is None or self.thinks is not None:
            return self.tagged is not None
        return any(
            self._writes(json.dumps(text)) == self._writes(text) is not None for text in BARE
        )

    def _writes(self, value: str) -> str | None:
        """Return what is written of a call with one argument, which is JSON, if it can be."""
        try:
            return self.write(Message(calls=(Call(PROBE.name, f'{{"city": {value}}}'),)))
        except Exception:  # noqa: BLE001 - an author's function may know strings alone
            return None

    @property
    def opens(self) -> bool:
        """Whether a prompt may hold what stands before reasoning: it is no plain text."""
        return any(token in self.thinks[0] for token in self.special) if self.thinks else False

    @cached_property
    def markers(self) -> tuple[str, ...]:
        """Texts that mean something in the format: tags up to their names, and special tokens."""
        around = self.thinks or (self.before, self.each, self.after)
        tags = [tag for text in around for tag in _TAG.findall(text)]
        plain = [text.strip() for text in self.thinks or (self.before,) if not _TAG.search(text)]
        found = (*self.special, *tags, *plain)
        return tuple(dict.fromkeys(text for text in found if len(text) > 1))

    @cached_property
    def marked(self) -> bool:
        """Whether a call is told from text by more than a bracket."""
        return any(len(marker) > 3 for marker in self.markers)  # noqa: PLR2004 - "[{" and the like

    @cached_property
    def quotes(self) -> bool:
        """Whether names stand between quotes, where they may be any that clients can give."""
        for arguments in ("{}", PROBE.arguments):  # a model may write no call without any
            with suppress(Unsaid):
                return '"get-time"' in self.write(Message(calls=(Call("get-time", arguments),)))
        return False

    def write(self, message: Message) -> str:
        """Return an answer that says a message.

        Raises:
            Unsaid: the profile's function says that its model never says it.

        """
        if self.serialise is not None:
            second: object = message.reasoning if self.thinks is not None else named(message.calls)
            if (text := self.serialise(message.content, second)) is None:
                raise Unsaid
            return str(text)
        if self.thinks is not None:
            start, middle, end = self.thinks
            start = "" if self.opened else start
            return f"{start}{message.reasoning}{middle}{message.content}{end}"
        if not message.calls:
            return message.content
        calls = self.between.join(
            self.each.replace("INDEX", str(index))
            .replace("NAME", call.name)
            .replace("ARGUMENTS", self._arguments(json.loads(call.arguments)))
            for index, call in enumerate(message.calls)
        )
        return f"{message.content}{self.before}{calls}{self.after}"

    def _arguments(self, arguments: Mapping[str, Any]) -> str:
        if self.python:
            return ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        if self.tagged is None:
            return json.dumps(arguments, ensure_ascii=False)
        opening, closing, *between = self.tagged
        return "".join(between).join(
            opening.replace("KEY", key)
            .replace("TYPE", _TYPES[type(value)])
            .replace("STRING", json.dumps(isinstance(value, str)))
            + self._value(value)
            + closing.replace("KEY", key)
            for key, value in arguments.items()
        )

    def _value(self, value: object) -> str:
        if isinstance(value, str):
            return f"{self.quote}{value}{self.quote}"
        if self.nested and isinstance(value, dict):
            return self._arguments(value)
        if self.nested and isinstance(value, list):
            return "".join(self._arguments({"item": each}) for each in value)
        if self.quote and isinstance(value, dict):
            return "{" + ",".join(f"{key}:{self._value(of)}" for key, of in value.items()) + "}"
        if self.quote and isinstance(value, list):
            return f"[{','.join(map(self._value, value))}]"
        return json.dumps(value, ensure_ascii=False)

    @property
    def probe(self) -> Message:
        """The message by which the format is recognised."""
        return THINKING if self.thinks is not None else Message(calls=(PROBE,))

    def prompt(self) -> str:
        """Return the end of the prompt that the model continues."""
        return self.thinks[0] if self.thinks is not None and self.opened else self.turn


_TABLES = tomllib.loads(Path(__file__).with_name("formats.toml").read_text(encoding="utf-8"))

#: The known formats, by what a parser is for.
KNOWN: Mapping[str, tuple[Format, ...]] = {
    role: tuple(Format(name=name, **table) for name, table in _TABLES[role].items())
    for role in (TOOL, REASONING)
}
TOOL_FORMATS, REASONING_FORMATS = KNOWN[TOOL], KNOWN[REASONING]

#: A call by which a format is recognised, another one, text before calls, and what is thought.
PROBE = Call("get_weather", '{"city": "Paris"}')
SECOND = Call("get_time", '{"city": "Rome"}')
LEAD = "Let me look. "
THINKING = Message("First I think.", "Then I say it.")

#: Numbers with a sign, which is an operator to a parser of Python.
SIGNED = Call("get_weather", json.dumps({"days": -3, "height": -0.5}))


def named(calls: Iterable[Call]) -> list[dict[str, Any]]:
    """Return calls as the functions of profiles take them."""
    return [{"name": call.name, "arguments": call.value} for call in calls]


def own(serialise: Callable[..., str | None], section: Mapping[str, Any], role: str) -> Format:
    """Return the format that a profile's own function writes.

    It returns None for what the model never says: text before calls, or more calls than one.
    """

    def says(content: str, *calls: Call) -> bool:
        return role != TOOL or serialise(content, named(calls)) is not None

    return Format(
        name="serialise",
        special=section.get("special_tokens", ()),
        thinks=None if role == TOOL else ("", "", ""),
        content=says(LEAD, PROBE),
        several=says("", PROBE, SECOND),
        serialise=serialise,
    )


@attrs.frozen(eq=False)
class Fit:
    """A format that a parser reads, and the bench with its tokens."""

    format: Format
    bench: Bench


def _delegates(cls: type[Any], role: str, *methods: str) -> bool:
    """Tell whether vLLM composes a class as any other, and these methods call its own.

    Some of vLLM's own are put together in other ways, by their names.
    """
    from vllm.parser.abstract_parser import DelegatingParser

    whole = composed(cls, role)
    return all(getattr(whole, each) is getattr(DelegatingParser, each) for each in methods)


#: What vLLM calls the two methods of a parser with, and how a sentence writes that.
_DELTA = "previous_text, current_text, delta_text, and the token ids of each"
_CALLED: Mapping[str, tuple[tuple[tuple[object, ...], Mapping[str, object], str], ...]] = {
    TOOL: (
        (("",), {"request": None}, "model_output, request=..."),
        (("", "", "", [], [], [], None), {}, f"{_DELTA}, request"),
    ),
    REASONING: (
        (("", None), {}, "model_output, request"),
        (("", "", "", [], [], []), {}, _DELTA),
    ),
}


def _unbound(cls: type[Any], role: str) -> str | None:
    """Say which method does not take what vLLM calls it with, or return None."""
    names = (ROLES[role].whole, ROLES[role].streamed)
    if not _delegates(cls, role, "parse", "parse_delta", *names):
        return None
    for name, (arguments, keywords, written) in zip(names, _CALLED[role], strict=True):
        method = inspect.getattr_static(cls, name)
        try:
            if inspect.isfunction(method):  # nothing else shows what an instance makes of it
                inspect.signature(method).bind(cls, *arguments, **keywords)
        except TypeError as error:
            return f"{name} cannot be called as vLLM does, with ({written}): {error}"
    return None


def unfit(cls: type[Any], role: str) -> str | None:
    """Say why a class cannot be called as vLLM calls it, or return None."""
    whole = ROLES[role].whole
    missing = getattr(cls, whole) is getattr(base(role), whole)
    if missing and _delegates(cls, role, "parse", whole):
        earlier = f"{whole}_content"  # of reasoning parsers
        had = f"; it has {earlier}, as older releases called it" if hasattr(cls, earlier) else ""
        return f"the class has no {whole}, which vLLM calls{had}"
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
            signature.bind(object())
    except TypeError as error:
        call = (
            "(tokenizer, tools)"
            if role == TOOL
            else "(tokenizer, model_config=..., chat_template_kwargs=...), (tokenizer=..., ...) "
            "and (tokenizer)"
        )
        return f"the class cannot be called as vLLM does, with {call}: {error}"
    return _unbound(cls, role)


def fits(bench: Bench, known: Iterable[Format], *, named: bool) -> tuple[list[Fit], str | None]:
    """Return those of the formats that a parser reads, and what making it raised otherwise.

    Of one that is *named* by the profile, a parser has to read all; of others, one call alone.
    """
    found: list[Fit] = []
    raised = None
    for each in known:
        trial = _within(bench, each)
        try:
            fitted = each if named else _fitted(trial, each)
        except NotMade as error:
            raised = str(error)
            continue
        if fitted is not None:
            found.append(Fit(fitted, trial))
    return found, raised


def misread(bench: Bench, known: Iterable[Format]) -> str | None:
    """Say what a parser makes of an answer in a format, if that is what it is there for.

    Of several it is what is most like what the answer says.
    """
    found: list[tuple[int, str]] = []
    for each in known:
        with suppress(NotMade):
            answer = (trial := _within(bench, each)).answer(each.write(each.probe))
            message = trial.whole(answer)
            if message.calls if bench.role == TOOL else message.reasoning:
                made, meant = apart(message, each.probe)
                told = f"of {quoted(answer.text)}, as {each.name!r} has it, the parser made {made}"
                alike = in_common(message.whole, each.probe.whole)
                found.append((alike, f"{told}; expected {meant}"))
    return max(found, key=lambda each: each[0])[1] if found else None


def _within(bench: Bench, known: Format) -> Bench:
    """Return a bench with what a format needs."""
    chat = {**known.chat, **bench.chat}
    return attrs.evolve(bench.knowing(*known.special), prompt=known.prompt(), chat=chat)


def _fitted(bench: Bench, known: Format) -> Format | None:
    """Return a format with what a parser reads of it, or None where it reads nothing."""

    def read(message: Message) -> Message:
        return bench.whole(bench.answer(known.write(message)))

    if not read(known.probe).same(known.probe):
        return None
    if known.thinks is not None:
        return known
    led, several = Message("", LEAD, (PROBE,)), Message(calls=(PROBE, SECOND))
    found = read(led)
    content, drops = found.same(led), found.same(known.probe)
    return attrs.evolve(known, content=content, drops=drops, several=read(several).same(several))
