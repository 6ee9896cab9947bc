# SPDX-License-Identifier: Apache-2.0
"""A hook, the contexts that it is given, and calls that are alone."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any

import attrs

from conformance.classifier_hook.calls import Call, many, one, row, run, runtime
from conformance.classifier_hook.traffic import Arrival
from conformance.plugin.expectation import Expected
from conformance.settings import UsageError
from conformance.watching.comparison import Place, difference, shortened, unsteady
from conformance.watching.interruption import CONSTRUCTOR_LIMIT, PluginHung, in_call, limited
from conformance.watching.raised import said
from conformance.worker.limits import explained, out_of_memory

#: What is scored besides the texts of the profile, for checks that ask for no verdict.
TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "Write to jane.doe@example.org or call +1 202 555 0143.",
    "1 2 3 4 5",
)

#: How often the same completion is scored to find what differs from one time to the next, and
#: of how many texts.
TIMES = 3
STEADY = 3

#: Seconds beyond its own timeout for which a call is waited for: only one that never ends is late.
PATIENCE = 5.0

#: Seconds for what a run does besides one call that takes long.
RUN = 3.0

#: The longest timeout that is waited for, and that of a hook that says none.
LONGEST, TIMEOUT = 60.0, 1.0

#: A token that ends an answer, and is not in its text.
END = 2


class ConstructorRaised(Exception):
    """Making an instance raised."""


@attrs.frozen
class Said:
    """The scores that a text must get."""

    text: str
    scores: Mapping[str, Any]
    changes: Mapping[str, Any] = attrs.field(factory=dict)  #: fields of its context


@attrs.define(eq=False)
class Bench:
    """One class, and what it scores."""

    cls: type[Any]
    arguments: Mapping[str, Any]
    allowed: tuple[str, ...]
    blocked: tuple[str, ...]
    origin: str | None  #: of the profile
    seed: int
    said: tuple[Said, ...] = ()  #: scores that texts must get
    expected: Expected | None = None  #: the author's function, which says so of any text
    _alone: dict[tuple[str, str, str], Call] = attrs.field(factory=dict)
    _unsteady: frozenset[Place] | None = None
    _patience: float | None = None

    @classmethod
    def open(
        cls,
        hook: type[Any],
        section: Mapping[str, Any],
        *,
        origin: str | None,
        seed: int,
        arguments: Mapping[str, Any] = {},
    ) -> Bench:
        """Prepare for a class, which is made with some arguments.

        Raises:
            UsageError: the profile's texts are none, or the runtime is not installed.

        """
        runtime("contract")
        for key in ("allowed", "blocked"):
            for text in section.get(key, ()):
                if not isinstance(text, str):
                    raise UsageError(
                        f"profile {origin}: [classifier-hook] {key} must hold texts, not {text!r}."
                    )
        expected = section.get("expected")
        if isinstance(expected, Expected):
            expected.load()
        return cls(
            hook,
            arguments,
            tuple(section.get("allowed", ())),
            tuple(section.get("blocked", ())),
            origin,
            seed,
            tuple(_said(entry, origin) for entry in section.get("scores", ())),
            expected,
        )

    @property
    def texts(self) -> tuple[str, ...]:
        """Everything ordinary that is scored, each once."""
        said = (each.text for each in self.said)
        return tuple(dict.fromkeys((*self.allowed, *self.blocked, *said, *TEXTS)))

    @property
    def patience(self) -> float:
        """Seconds after which a call is said never to end."""
        if self._patience is None:
            timeout: Any = None
            with suppress(Exception):  # a property may raise; a rule of its own is about that
                timeout = self.make().timeout_ms
            usable = isinstance(timeout, int) and timeout > 0
            self._patience = PATIENCE + (min(timeout / 1000, LONGEST) if usable else TIMEOUT)
        return self._patience

    def document(self) -> dict[str, Any]:
        """Return the effective profile, for the certificate."""
        needed = [] if self.arguments else sorted(required(self.cls))
        likely = {"likely": {"arguments": [dict.fromkeys(needed, "...")]}} if needed else {}
        return {
            **likely,
            "origin": self.origin or "none",
            "arguments": [dict(self.arguments)],
            "allowed": list(self.allowed),
            "blocked": list(self.blocked),
            "scores": [{"text": each.text, "scores": dict(each.scores)} for each in self.said],
            "expected": str(self.expected) if self.expected else None,
        }

    def make(self) -> Any:  # noqa: ANN401 - a hook
        """Make an instance, outside any event loop.

        Raises:
            ConstructorRaised: it raised.
            PluginHung: it did not return.

        """
        try:
            with limited(CONSTRUCTOR_LIMIT), in_call("__init__"):
                return self.cls(**copy.deepcopy(dict(self.arguments)))
        except Exception as error:
            what = explained(error) if out_of_memory(error) else said(error)
            given = f"with the arguments {shortened(self.arguments)}"
            how = given if self.arguments else "without arguments"
            if needed := required(self.cls) - self.arguments.keys():
                names = ", ".join(f'{name} = "..."' for name in sorted(needed))
                what += f"; name arguments in [classifier-hook] arguments = [ {{ {names} }} ]"
            raise ConstructorRaised(f"making an instance {how} raised {what}") from error

    def context(self, text: str, *, request_id: str = "id-0", **changes: object) -> Any:  # noqa: ANN401 - any field; a ScoringContext
        """Return the context of a completion."""
        fields = {
            "request_id": request_id,
            "prompt": "Say something.",
            "generated_text": text,
            "finish_reason": "stop",
            "prompt_token_ids": [1, 3, 4],
            "output_token_ids": [*(ord(c) % 500 + END + 1 for c in text[:512]), END],
            **changes,
        }
        return runtime("contract").ScoringContext(**fields)

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - what it returns
        """Run a coroutine, in which one call may take all the time it has, on a loop of its own."""
        return run(main, self.patience + RUN)

    def call(self, text: str, *, slowly: bool = False, **changes: Any) -> Call:  # noqa: ANN401 - any field of a context
        """Score one text with a fresh instance."""
        return self.score(self.make(), self.context(text, **changes), slowly=slowly)

    def score(self, hook: object, context: Any, *, slowly: bool = False) -> Call:  # noqa: ANN401 - a ScoringContext
        """Score one completion on an event loop of its own.

        Raises:
            PluginHung: it did not return; the completion is named.

        """
        try:
            found: Call = self.run(one(hook, context, self.patience, slowly=slowly))
        except PluginHung as hung:
            raise _named(hung, context) from None
        return found

    def row(self, hook: object, texts: Iterable[str], ids: Iterable[str] = ()) -> list[Call]:
        """Score several texts, one after the other, with one instance on one event loop."""
        named = zip_longest(texts, ids, fillvalue="id-0")
        return self.in_turn(hook, [self.context(text, request_id=name) for text, name in named])

    def in_turn(self, hook: object, contexts: Sequence[Any]) -> list[Call]:
        """Score one completion after the other, with one instance on one event loop."""
        seconds = (len(contexts) + 1) * self.patience
        begun: list[Any] = []

        def given() -> Iterator[Any]:
            for context in contexts:
                begun.append(context)
                yield context

        try:
            found: list[Call] = run(row(hook, given(), self.patience), seconds)
        except PluginHung as hung:
            raise _named(hung, begun[-1]) from None
        return found

    def at_once(
        self, hook: object, contexts: Sequence[Any], arrivals: Sequence[Arrival] = ()
    ) -> list[Call]:
        """Score completions with one instance, each beginning and leaving as its arrival says."""
        arrivals = arrivals or [Arrival(0)] * len(contexts)
        found: list[Call] = self.run(many(hook, contexts, arrivals, self.patience))
        return found

    def alone(self, text: str, request_id: str = "id-0", **changes: Any) -> Call:  # noqa: ANN401 - any field of a context
        """Return what a fresh instance says of a completion when it scores nothing else."""
        key = (text, request_id, repr(changes))
        if key not in self._alone:
            self._alone[key] = self.call(text, request_id=request_id, **changes)
        return self._alone[key]

    def apart(self, call: Call, wanted: Call) -> str | None:
        """Say in what a call is other than one of the same completion alone, or return None."""
        if not wanted.good:
            return None
        if not call.good:
            return call.trouble()
        what = difference(plain(call.value), plain(wanted.value), self.unsteady())
        return what and f"got {what}"

    def unsteady(self) -> frozenset[Place]:
        """Return the places of scores that differ from one time to the next.

        One time is slower than the others: how long a call took is no score of its text.
        """
        if self._unsteady is None:
            found: frozenset[Place] = frozenset()
            for text in self.texts[:STEADY]:
                calls = [self.call(text) for _ in range(TIMES)]
                calls.append(self.call(text, slowly=True))
                if all(call.good for call in calls):
                    found |= unsteady(plain(call.value) for call in calls)
            self._unsteady = found
        return self._unsteady


def _named(hung: PluginHung, context: Any) -> PluginHung:  # noqa: ANN401 - a ScoringContext
    """Return the same of a completion, whose text is named."""
    return PluginHung(f"{hung.call} of {shortened(context.generated_text)}", hung.seconds)


def required(hook: type[Any]) -> set[str]:
    """Return the arguments without which a hook cannot be made."""
    try:
        parameters = inspect.signature(hook).parameters.values()
    except (TypeError, ValueError):  # it has none that can be read
        return set()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        each.name for each in parameters if each.default is each.empty and each.kind not in variadic
    }


def _said(entry: object, origin: str | None) -> Said:
    """Return a text of a profile with its scores, or raise ``UsageError``."""
    if isinstance(entry, Said):
        return entry
    if isinstance(entry, dict) and entry.keys() == {"text", "scores"}:
        text, scores = entry["text"], entry["scores"]
        if isinstance(text, str) and isinstance(scores, dict) and scores:
            return Said(text, scores)
    raise UsageError(
        f"profile {origin}: [classifier-hook] scores must hold tables such as "
        f'{{ text = "a text", scores = {{ found = 0 }} }}, not {entry!r}.'
    )


def blocks(value: object) -> bool:
    """Tell whether scores ask the runtime to block."""
    return isinstance(value, dict) and bool(value.get("block"))


def plain(value: object) -> Any:  # noqa: ANN401 - scores
    """Return scores as the runtime copies them, or as they are where it refuses to."""
    scores = runtime("scores")
    try:
        return scores.copied(value)
    except scores.InvalidScores:
        return repr(value)
