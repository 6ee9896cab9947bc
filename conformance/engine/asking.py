# SPDX-License-Identifier: Apache-2.0
"""OpenAI's clients of a server whose model says what it is told: chat and responses."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import attrs
import httpx
import openai
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from conformance.engine.models import tiny_llama
from conformance.watching.comparison import first_line

if TYPE_CHECKING:
    import torch
    from vllm.sampling_params import SamplingParams
    from vllm.v1.sample.logits_processor.interface import RequestLogitsProcessor


#: What engines and servers are given as a logits processor.
PROCESSOR = "conformance.engine.asking:Says"

#: The argument of a request that names the tokens.
ARGUMENT = "say"

#: The prompt is what the last message says, and nothing else.
TEMPLATE = "{{ messages[-1]['content'] }}"


class Says(AdapterLogitsProcessor):
    """Leaves, at each step of a request that names tokens, the one whose turn it is."""

    @classmethod
    def validate_params(cls, params: SamplingParams) -> None:
        """Refuse nothing: the only one who asks is this harness."""

    def is_argmax_invariant(self) -> bool:
        """Return False: hardly any token that is told is the likeliest one."""
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        """Return what masks the logits of a request, or None for one that names no tokens."""
        told = (params.extra_args or {}).get(ARGUMENT)
        if not told:
            return None

        def say(output: list[int], logits: torch.Tensor) -> torch.Tensor:
            token = told[min(len(output), len(told) - 1)]
            logits.fill_(float("-inf"))
            logits[token] = 0.0
            return logits

        return say


def saying(tokenizer: Any) -> Path:  # noqa: ANN401 - a transformers tokenizer
    """Return the folder of a tiny model with a tokenizer of one's own, and a plain template."""
    tokenizer.chat_template = TEMPLATE
    with tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder:
        tokenizer.save_pretrained(folder)
        # It says what it is told: one layer is enough.
        return tiny_llama(tokenizer=Path(folder), config={"num_hidden_layers": 1})


#: Seconds without a byte after which a server is asked whether it still answers anybody.
LIMIT = 60.0


@attrs.frozen(kw_only=True)
class Question:
    """One request, and the tokens that the model is to say."""

    text: str  #: what the tokens say
    ids: tuple[int, ...]
    prompt: str
    tools: tuple[dict[str, Any], ...] = ()
    choice: str | Mapping[str, Any] = "auto"
    parallel: bool = True  #: calls, of which there may be several
    template: Mapping[str, Any] = attrs.field(factory=dict)  #: chat_template_kwargs
    stream: bool = True
    interval: int = 1  #: tokens of a delta
    responses: bool = False
    ends: int | None = None  #: tokens after which the answer is cut off
    stop: tuple[str, ...] = ()  #: stop strings of the request
    leaves: int | None = None  #: parts of the answer after which the client disconnects

    @property
    def how(self) -> str:
        """How it is asked, in a few words."""
        streamed = f"in deltas of {self.interval} tokens" if self.interval > 1 else "streamed"
        found = streamed if self.stream else "not streamed"
        cut = f"ended after {self.ends} tokens, " if self.ends else ""
        stop = f", with the stop string {self.stop[0]!r}" if self.stop else ""
        return f"through /v1/responses, {found}" if self.responses else cut + found + stop

    def body(self, model: str) -> dict[str, Any]:
        """Return what OpenAI's client is called with."""
        found: dict[str, Any] = {"model": model, "temperature": 0, "stream": self.stream}
        extra: dict[str, Any] = {"vllm_xargs": {ARGUMENT: list(self.ids)}}
        most = self.ends or len(self.ids) + 1
        if self.responses:
            flat = [{"type": "function", **tool["function"]} for tool in self.tools]
            found |= {"input": self.prompt, "max_output_tokens": most, "tools": flat}
        else:
            found |= {"messages": [{"role": "user", "content": self.prompt}], "max_tokens": most}
            extra |= {"stream_interval": self.interval, "return_token_ids": True}
            found |= {"tools": list(self.tools)} if self.tools else {}
            extra |= {"chat_template_kwargs": dict(self.template)} if self.template else {}
        found |= {"tool_choice": self.choice} if self.tools else {}
        found |= {} if self.parallel else {"parallel_tool_calls": False}
        found |= {"stop": list(self.stop)} if self.stop else {}
        return {**found, "extra_body": extra}


@attrs.frozen
class Heard:
    """What came of a question."""

    #: With ``content``, ``reasoning`` and ``tool_calls``, as deltas have them; one if not streamed.
    deltas: tuple[Any, ...]
    sizes: tuple[int, ...]  #: tokens of each delta, where the server tells
    raised: str | None  #: the error that came instead of the rest
    silent: bool  #: the server has not said a word for too long


async def ask(sdk: openai.AsyncOpenAI, model: str, question: Question) -> Heard:
    """Ask a question."""
    deltas: list[Any] = []
    sizes: list[int] = []
    raised: str | None = None
    silent = False
    endpoint: Any = sdk.responses if question.responses else sdk.chat.completions
    try:
        made = await endpoint.create(**question.body(model))
        if not question.stream:
            deltas.append(_whole(made))
        else:
            async with aclosing(_streamed(made, sizes)) as parts:
                async for part in parts:
                    deltas.append(part)
                    if len(deltas) == question.leaves:
                        break
    except (openai.APITimeoutError, httpx.TimeoutException):
        silent = True
    except (openai.APIError, httpx.HTTPError) as error:
        raised = first_line(str(error)) or type(error).__name__
    return Heard(tuple(deltas), tuple(sizes), raised, silent)


def _said(content: str = "", reasoning: str = "", calls: Sequence[Any] = ()) -> object:
    return SimpleNamespace(content=content, reasoning=reasoning, tool_calls=calls)


def _call(index: int, made: str | None, name: str | None, arguments: str) -> object:
    function = SimpleNamespace(name=name, arguments=arguments)
    return SimpleNamespace(index=index, id=made, function=function)


def _whole(made: Any) -> Any:  # noqa: ANN401 - OpenAI's models
    """Return an answer that came in one piece, as a delta with all of it."""
    if hasattr(made, "choices"):
        message = made.choices[0].message
        calls = [
            _call(index, call.id, call.function.name, call.function.arguments)
            for index, call in enumerate(message.tool_calls or ())
        ]
        return _said(message.content, _reasoning(message), calls)
    texts = {"message": "", "reasoning": ""}
    for item in made.output:
        if item.type in texts:
            texts[item.type] += "".join(part.text for part in item.content or ())
    calls = [
        _call(index, call.call_id, call.name, call.arguments)
        for index, call in enumerate(item for item in made.output if item.type == "function_call")
    ]
    return _said(texts["message"], texts["reasoning"], calls)


def _reasoning(part: object) -> str:
    return getattr(part, "reasoning", None) or ""


async def _streamed(stream: Any, sizes: list[int]) -> AsyncGenerator[Any]:  # noqa: ANN401 - OpenAI's
    """Return deltas as they come; those of responses are made of its events."""
    places: dict[int, int] = {}  # of items that are calls, in the answer and among calls
    async with stream:  # a client that leaves closes it
        async for part in stream:
            if hasattr(part, "choices"):
                for choice in part.choices:
                    if ids := getattr(choice, "token_ids", None):
                        sizes.append(len(ids))
                    delta = choice.delta
                    yield _said(delta.content, _reasoning(delta), delta.tool_calls or ())
            elif part.type == "response.output_text.delta":
                yield _said(part.delta)
            elif part.type == "response.reasoning_text.delta":
                yield _said(reasoning=part.delta)
            elif part.type == "response.function_call_arguments.delta":
                yield _said(calls=[_call(places[part.output_index], None, None, part.delta)])
            elif part.type == "response.output_item.added" and part.item.type == "function_call":
                index = places.setdefault(part.output_index, len(places))
                yield _said(calls=[_call(index, part.item.call_id, part.item.name, "")])
