# SPDX-License-Identifier: Apache-2.0
"""A parser class as vLLM uses it: composed, made for a request, and given answers."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import deque
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, cast

import attrs

from conformance.parser import tokens
from conformance.parser.composing import composed
from conformance.parser.messages import Call, Client, Message, Stream, quoted
from conformance.parser.roles import REASONING, ROLES, TOOL, base, name_of
from conformance.watching.interruption import (
    CONSTRUCTOR_LIMIT,
    PluginExited,
    PluginHung,
    in_call,
    limited,
    place_in,
    progressed,
)
from conformance.watching.raised import place_of, placed, said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

    from conformance.parser.tokens import Answer

    #: A request's ``tool_choice``.
    Choice = str | Mapping[str, Any]

#: A call that takes this long hangs: one that works for half as long stalls a server already.
HANGS = 10.0

#: How an answer comes that is not streamed.
WHOLE = "whole"


@attrs.frozen
class Wish:
    """What a request says of calls."""

    choice: Choice = "auto"
    parallel: bool = True
    tools: bool = True  #: whether it has any
    earlier: Sequence[dict[str, Any]] = ()  #: messages behind its first one
    request_id: str | None = None  #: its own, where the client gives one


class NotMade(Exception):
    """Making an instance raised; the message says what."""


@attrs.define(eq=False, kw_only=True)
class Bench:
    """One class with a tokenizer, tools and the end of a prompt."""

    cls: type[Any]
    role: str
    tools: tuple[dict[str, Any], ...]
    special: tuple[str, ...]
    prompt: str = "user: x"
    wish: Wish = Wish()  #: what requests say of calls
    responses: bool = False  #: requests are those of ``/v1/responses``
    chat: Mapping[str, Any] = attrs.field(factory=dict)  #: chat_template_kwargs of requests
    pieces: bool = False  #: the tokenizer has pieces of words, see :func:`tokens.tokenizer`
    skipped: tuple[str, ...] = ()  #: special tokens, whose text requests may have skipped
    model: str | None = None  #: the folder of the model, whose tokenizer is taken as it is
    partner: type[Any] | None = None  #: of the other role, that takes the other part of answers
    _parser: type[Any] | None = None

    @property
    def tokenizer(self) -> Any:  # noqa: ANN401 - a transformers tokenizer
        """The tokenizer of the model that the parser is for."""
        if self.model is not None:
            return tokens.of_model(self.model)
        return tokens.tokenizer(self.special, self.skipped, pieces=self.pieces)

    @property
    def calls(self) -> bool:
        """Whether calls are looked for in answers."""
        return self.role == TOOL or self.partner is not None

    @property
    def reasons(self) -> bool:
        """Whether answers are looked at for reasoning."""
        return self.role == REASONING or self.partner is not None

    def wishing(self, wish: Wish) -> Bench:
        """Return the same with requests that say this of calls."""
        return attrs.evolve(self, wish=wish)

    def knowing(self, *texts: str) -> Bench:
        """Return the same with a tokenizer in which each of these texts, too, is one token."""
        return attrs.evolve(self, special=tuple(dict.fromkeys((*self.special, *texts))))

    @property
    def name(self) -> str:
        """What vLLM knows the parser by."""
        return name_of(self.cls, self.role)

    @cached_property
    def _tools_text(self) -> str:
        return json.dumps(self.tools, default=str)

    @cached_property
    def _prompt_ids(self) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(self.prompt, add_special_tokens=False))

    def request(self, *, stream: bool) -> ChatCompletionRequest | ResponsesRequest:
        """Return a request as a client sends it."""
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

        wanted: dict[str, Any] = {}
        wish = self.wish
        if self.calls and wish.tools:
            wanted = {"tools": json.loads(self._tools_text), "tool_choice": wish.choice}
            wanted["parallel_tool_calls"] = wish.parallel
        if self.chat:
            wanted["chat_template_kwargs"] = dict(self.chat)
        if self.responses:
            from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

            if self.calls:
                wanted["tools"] = [{"type": "function", **tool["function"]} for tool in self.tools]
            return ResponsesRequest(model="m", input="x", stream=stream, **wanted)
        if wish.request_id is not None:
            wanted["request_id"] = wish.request_id
        wanted["messages"] = [{"role": "user", "content": "x"}, *wish.earlier]
        return ChatCompletionRequest(model="m", stream=stream, **wanted)

    def make(self, request: Any, chat: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 - vLLM's parser
        """Make the parser of a request, as a server does; the plugin is a part of it.

        What streams is the second that is made of one *chat*, the chat_template_kwargs.

        Raises:
            NotMade: the plugin raised.

        """
        make = self._maker(request, chat)
        found = _made(make)
        return _made(make) if request.stream else found

    def _maker(self, request: Any, chat: dict[str, Any] | None = None) -> Callable[[], Any]:  # noqa: ANN401 - vLLM's parser
        if self._parser is None:
            self._parser = composed(self.cls, self.role, self.partner)
        keywords = {"chat_template_kwargs": deepcopy(dict(self.chat)) if chat is None else chat}
        made: Callable[..., Any] = self._parser
        return partial(made, self.tokenizer, request.tools, model_config=None, **keywords)

    def instance(self) -> None:
        """Make what this release makes of the class: for a request, in the engine, for its budget.

        Raises:
            NotMade: the plugin raised.

        """
        self.make(self.request(stream=True))
        if self.role == REASONING:
            self.engine()
            from vllm.config import reasoning

            if hasattr(reasoning, "ReasoningParserManager"):  # it asks for the markers at the start
                _made(partial(cast("Callable[..., Any]", self.cls), self.tokenizer))

    def engine(self) -> Any:  # noqa: ANN401 - a plugin
        """Make a reasoning parser as the engine does, which asks it where its grammar begins."""
        chat, made = deepcopy(dict(self.chat)), cast("Callable[..., Any]", self.cls)
        self.make(self.request(stream=False), chat)  # the server has made one by then
        return _made(partial(made, tokenizer=self.tokenizer, chat_template_kwargs=chat))

    def answer(self, text: str) -> Answer:
        """Return the tokens of an answer, with the text that requests are given of them."""
        special = bool(self.skipped) or self.model is not None
        skip = special and getattr(self.wishing(Wish()).adjusted(), "skip_special_tokens", True)
        return tokens.answer(self.tokenizer, text, skip=skip)

    def adjusted(self) -> Any:  # noqa: ANN401 - a request
        """Return a request as the parser adjusts it, or what it raised."""
        request = self.request(stream=True)
        return self.adjust(request) or request

    def adjust(self, request: Any) -> Exception | None:  # noqa: ANN401 - a request
        """Have a request adjusted in place; return what was raised, if anything was.

        As in ``OnlineRenderer.preprocess_chat``, an instance of its own does that, which parses
        nothing, and the request that it returns is not the one that vLLM goes on with.
        A tool parser alone is not asked about a request that is to have no calls.
        """
        make = self._maker(request)
        always = getattr(self._parser, "always_adjust_request", False)
        if request.tool_choice == "none" and not (self.reasons or always):
            return None
        adjusting = _made(make)
        found = guarded("adjust_request", partial(adjusting.adjust_request, request))
        return found if isinstance(found, Exception) else None

    def grammar(self) -> Any:  # noqa: ANN401 - a schema, or its text
        """Return the schema of the JSON that vLLM itself has a model write for the choice."""
        request = self.request(stream=True)
        adjusted = base(TOOL).adjust_request(self.make(request).tool_parser, request)
        return getattr(adjusted.structured_outputs, "json", None)

    def prompt_ids(self) -> list[int]:
        """Return the tokens of the prompt."""
        return list(self._prompt_ids)

    def whole(self, answer: Answer, *, alone: bool = False) -> Message:
        """Return what the parser makes of a whole answer.

        *alone*: the instance that parses it adjusts the request, too, as in no server.
        """

        def parse() -> Message:
            request = self.request(stream=False)
            parser = self.make(request)
            if (raised := self.adjust(request)) is not None:
                raise raised
            if alone:
                parser.adjust_request(request)
            reasoning, content, calls = parser.parse(
                answer.text,
                request,
                enable_auto_tools=self.calls,
                model_output_token_ids=list(answer.ids),
            )
            made = tuple(
                Call(str(call.name), str(call.arguments), str(call.id or ""))
                for call in calls or ()
            )
            return Message(reasoning or "", content or "", made)

        with told_of(self.cls, answer):
            found = guarded(ROLES[self.role].whole, parse)
        if isinstance(found, Message):
            return found
        return Message(raised=said(found), place=place_of(found))

    def stream(self, answer: Answer, cuts: Sequence[int], held: int = 0) -> Stream:
        """Return what the parser streams of an answer in parts, cut before these tokens.

        *held*: letters of the text that each part but the last holds back, see :meth:`by_token`.
        """
        return Streaming(self, answer, cuts, held).rest()

    def by_token(self, answer: Answer, held: int = 0) -> Stream:
        """Return what the parser streams of an answer token by token.

        *held*: letters by which the text comes later than its tokens, because they might be the
        beginning of a stop string of the request; at the end all that is left comes at once.
        """
        return self.stream(answer, range(1, len(answer)), held)

    def ways(
        self, answer: Answer, *more: Sequence[int]
    ) -> Iterator[tuple[str, Sequence[int], Message]]:
        """Yield what the parser makes of an answer that comes in three ways, how, and its cuts.

        *more*: cuts of further ways.
        """
        yield WHOLE, (), self.whole(answer)
        yield "token by token", range(1, len(answer)), self.by_token(answer).said
        yield "in 1 delta", (), self.stream(answer, ()).said
        for cuts in more:
            how = f"cut before the tokens {', '.join(map(str, cuts))}"
            yield how, cuts, self.stream(answer, cuts).said

    def scene(
        self, what: str, answer: Answer, cuts: Sequence[int] = (), **more: object
    ) -> dict[str, Any]:
        """Return what a program plays: a function of :mod:`player`, and what it is given."""
        tools = [dict(tool) for tool in self.tools if tool["function"]["name"] in answer.text]
        return {
            "is": what,
            "deltas": [text for text, _ in answer.deltas(cuts)],
            **more,
            "role": self.role,
            "name": self.name,
            "special": list(self.special),
            "tools": (tools or list(self.tools[:1])) if self.role == TOOL else [],
            "prompt": self.prompt,
            "chat": dict(self.chat),
            **({"responses": True} if self.responses else {}),
        }


def _made(make: Callable[[], Any]) -> Any:  # noqa: ANN401 - vLLM's parser, or a plugin
    found = guarded("making an instance", make, CONSTRUCTOR_LIMIT)
    if isinstance(found, Exception):
        raise NotMade(placed(found)) from found
    return found


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return a loop that never runs anything."""
    return asyncio.new_event_loop()


@contextmanager
def _in_a_loop() -> Iterator[None]:
    """Have it found as the loop that runs, for a while."""
    before = asyncio._get_running_loop()  # noqa: SLF001 - documented, for loops of one's own
    asyncio._set_running_loop(_loop())  # noqa: SLF001 - as above
    try:
        yield
    finally:
        asyncio._set_running_loop(before)  # noqa: SLF001 - as above


def guarded(what: str, function: Callable[[], Any], seconds: float = HANGS) -> Any:  # noqa: ANN401 - what it returns
    """Call into a plugin for a limited time; return what is returned, or the exception.

    As in a server, a running event loop is found, so ``asyncio.run`` raises.

    Raises:
        NotMade: an instance could not be made.
        PluginExited: the plugin raised ``SystemExit``.
        PluginHung: it did not return.

    """
    try:
        with limited(seconds), _in_a_loop(), in_call(what):
            return function()
    except SystemExit as error:
        raise PluginExited(f"{what} raised SystemExit({error.code})") from None
    except (NotMade, PluginExited):
        raise
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        return error


@contextmanager
def told_of(cls: type[Any], answer: Answer) -> Iterator[None]:
    """Have told of where a call hangs, and on what."""
    try:
        yield
    except PluginHung as error:
        source = None
        with suppress(TypeError):  # it has none
            source = inspect.getsourcefile(cls)
        place = place_in(error, source)
        where = f", at {place}" if place else ""
        error.args = (f"{error}{where}; the answer was {quoted(answer.text)}",)
        raise


class Streaming:
    """One answer on its way: several may be under way at a time."""

    def __init__(
        self,
        bench: Bench,
        answer: Answer,
        cuts: Sequence[int],
        held: int = 0,
        beside: Streaming | None = None,
    ) -> None:
        """Make the parser; that of a further choice is *beside* another one, of one request."""
        self._cls = bench.cls
        self._what = ROLES[bench.role].streamed
        self._answer = answer
        self._parts = deque(answer.deltas(cuts, held))
        self._client = Client()
        self._request: Any = beside._request if beside else bench.request(stream=True)  # noqa: SLF001
        self._parser = bench.make(self._request)
        self._prompt = bench.prompt_ids()
        self._raised = None if beside else bench.adjust(self._request)

    def step(self) -> bool:
        """Give the parser one more part; return False when there is none, or it has raised."""
        if self._raised is not None or not self._parts:
            return False
        self._call(self._next)
        return True

    def rest(self) -> Stream:
        """Give the parser all parts that are left, and return what the client has got."""
        if self._raised is None:
            self._call(self._every)
        return self.end()

    def end(self) -> Stream:
        """Return what the client has got."""
        if self._raised is None:
            return self._client.stream(None)
        return self._client.stream(said(self._raised), place=place_of(self._raised))

    def _call(self, function: Callable[[], None]) -> None:
        with told_of(self._cls, self._answer):
            found = guarded(self._what, function)
        if isinstance(found, Exception):
            self._raised = found

    def _every(self) -> None:
        while self._parts:
            self._next()
            progressed()  # one limit for each part, at the cost of one for all

    def _next(self) -> None:
        text, ids = self._parts.popleft()
        delta = self._parser.parse_delta(
            delta_text=text,
            delta_token_ids=ids,
            request=self._request,
            prompt_token_ids=list(self._prompt),
            finished=not self._parts,
        )
        self._client.receive(delta)
