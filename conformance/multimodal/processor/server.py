# SPDX-License-Identifier: Apache-2.0
"""Evidence ``server``: the model behind ``POST /v1/chat/completions`` of a live ``vllm serve``.

A model that pools is asked by ``POST /pooling``, which takes the same messages.

A server of our own computes one request at a time, so that answers among many must equal answers
to single requests. With ``--server-url`` a running server is used instead, which must serve the
model; what it computes together it may round otherwise, so less is asked of it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import attrs

from conformance.engine import access
from conformance.engine.server import HostTrouble, Server, ServerFailed
from conformance.live_trial import DEATH_SECONDS, START_LIMIT
from conformance.multimodal.processor import checkpoint, clients, deployment, live
from conformance.multimodal.processor.clients import OUTPUT, Answer, Client, NotSendable, curl
from conformance.multimodal.processor.host import LIMIT, MODALITIES
from conformance.multimodal.processor.live import ProcessorTrial
from conformance.multimodal.processor.prompts import Prompt
from conformance.multimodal.processor.stock import USUAL, item
from conformance.plugin import target as targets
from conformance.watching.comparison import letter

Content = Sequence[Mapping[str, Any]]

ARGUMENTS = ("--max-num-seqs=1", "--no-enable-prefix-caching")

#: Prompts are computed in chunks, but for models that pool: some of these cannot.
CHUNKED = ("--max-num-batched-tokens=64", "--enable-chunked-prefill")
WHOLE = (f"--max-num-batched-tokens={live.MOST_TOKENS}", "--no-enable-chunked-prefill")

#: Where the cache is small, answers are as long as requests need to outgrow it together.
SCARCE, LONG = "--num-gpu-blocks-override", 28

#: Seconds in which a server forgets what it keeps.
FORGETS = 30.0


def _distrusts() -> bool:
    """Tell whether servers refuse requests with ``mm_processor_kwargs`` unless told otherwise."""
    try:
        from vllm.renderers.online_renderer import OnlineRenderer
    except ImportError:  # of a release that takes them from everybody
        return False
    return "trust_request_mm_kwargs" in inspect.signature(OnlineRenderer).parameters


@attrs.define(eq=False)
class Trial(ProcessorTrial):
    """The trial of one class in a live server, which starts when the trial is opened."""

    host: ClassVar[str] = f"POST {clients.CHAT}"

    #: A server that encodes what the other one is asked for, where a configuration has one.
    _encoder: Server | None = attrs.field(init=False, default=None)
    _renderer: Any = attrs.field(init=False, default=None)
    #: Prompts that chats can carry, with their contents and what each is answered by itself.
    _asked: dict[Prompt, tuple[Content, Answer]] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        """Start the server, and find out meanwhile what the class is tried with."""
        self.ends.callback(checkpoint.remove, Path(self.checkpoint))
        settings = self.opening.settings
        # Forks of this process, which runs no other threads yet.
        self.serve(self.running() or self._start("server", settings.server_arguments))
        if settings.encoding is not None:
            self._encoder = self._start("encoder", settings.encoding.arguments)
            self.ends.callback(self._encoder.stop)
        self.prepare()

    def _start(self, name: str, arguments: Sequence[str]) -> Server:
        folder = Path(self.opening.folder)
        module = live.entry_module(folder / "entry", self)
        section = self.opening.section
        named = tuple(section.get("items", {}))
        limits = dict.fromkeys((*MODALITIES, *named), LIMIT)
        settings = self.opening.settings
        return Server.start(
            self.checkpoint,
            log=folder / f"{name}.log",
            python_path=[folder / "entry", *self.opening.python_path()],
            entry_points={targets.GENERAL_PLUGINS: {live.NAME: f"{module}:register"}},
            device=self.device,
            arguments=[
                *ARGUMENTS,
                *(WHOLE if getattr(self.opening.cls, "is_pooling_model", False) else CHUNKED),
                f"--max-model-len={self.max_model_len}",
                f"--limit-mm-per-prompt={json.dumps(limits)}",
                *(() if checkpoint.has_weights(self.checkpoint) else ("--load-format=dummy",)),
                *(("--trust-request-mm-kwargs",) if _distrusts() else ()),
                *deployment.options(deployment.arguments(section, self.opening.origin)),
                *arguments,
            ],
            imported=True,
            # So that the server which answers can be told to forget.
            environment={"VLLM_SERVER_DEV_MODE": "1"} if settings.encoding else None,
        )

    @property
    def reached_by(self) -> str:
        """The route that a model of this kind is asked by."""
        return f"POST {clients.POOLING}" if self.pools else self.host

    def run(self) -> None:
        """Ask the server for prompts, alone and among others."""
        prompts = live.workload(self)
        if not self.healthy(loads=live.LOADS, how="a server of the model") or not self._encodes():
            return
        self.ledger.saw(live.LOADS)
        scarce = any(SCARCE in each for each in self.opening.settings.server_arguments)
        output = LONG if scarce else OUTPUT
        client = Client(self.server.url, self.server.model_name, output, pools=self.pools)
        if self._encoder is not None:
            encoder = Client(self._encoder.url, self._encoder.model_name, output=1)
            client = attrs.evolve(client, encoder=encoder)
        self._alone(client, prompts)
        again = partial(self._ask_again, when="asked again")  # from the caches, after all of this
        for judge in (self._refusals, self._together, again, self._encoded_here):
            if self.ledger.over:
                return
            judge(client)
        if self.ledger.blocked is None and (death := self.death()):
            self.ledger.fail(live.SURVIVES, death)
        if self.ledger.blocked is None:
            self.ledger.saw(live.SURVIVES)

    def _encodes(self) -> bool:
        """Wait for the server that encodes, where there is one."""
        if self._encoder is None:
            return True
        try:
            self._encoder.wait_healthy(START_LIMIT)
        except HostTrouble as error:
            self.ledger.stop(str(error))
        except ServerFailed as error:
            self.ledger.did_not_start(live.LOADS, f"a server that encodes: {error}")
        else:
            return True
        return False

    def death(self) -> str | None:
        """Return how one of the servers died, or None."""
        if (died := super().death()) is not None:
            return died
        if self._encoder is None or self._encoder.healthy():
            return None
        return self._encoder.failure(within=DEATH_SECONDS)

    def _options(self, prompt: Prompt) -> Mapping[str, Any]:
        return self.bench.stock.chosen(prompt.options)

    def _alone(self, client: Client, prompts: Sequence[Prompt]) -> None:
        """Each prompt is answered by itself, with the placeholders that the simulator gives it."""
        why = None
        for prompt in prompts:
            if prompt.options and not self.own:
                continue  # whether the server trusts a request with these is its own affair
            try:
                content = self._content(prompt)
            except NotSendable as error:
                why = str(error)
                continue
            wanted = self._simulated(content, prompt)
            if wanted is None:  # the simulator's affair
                continue
            got = clients.ask(client, content, self._options(prompt))
            if not got.good:
                self._blame(prompt, got, self._curl(client, content, prompt))
                return
            # What is pooled comes with no tokens of its prompt, but their number.
            told, simulated = (len(got.prompt), len(wanted)) if self.pools else (got.prompt, wanted)
            if self.own and told != simulated:
                self.ledger.fault = (
                    f"for {live.shown(prompt)} the server has {len(got.prompt)} tokens "
                    f"and the simulator {len(wanted)}"
                )
                return
            self._asked[prompt] = (content, got)
            # A row too few would have ended the engine.
            for rule in (live.PROCESSES, live.IN_TEXT, live.MISSING):
                self.ledger.saw(rule)
        if not self._asked:
            self.ledger.blocked = why or "no prompt of the simulator can be written as a chat"
            return
        words = [{"type": "text", "text": "what is this?"}]
        text = Prompt((3,))
        got = clients.ask(client, words, {})
        if got.good:
            self.ledger.saw(live.TEXT_ALONE)
        else:
            self._blame(text, got, self._curl(client, words, text))

    def _curl(self, client: Client, content: Content, prompt: Prompt) -> str:
        return curl(client, content, self._options(prompt), self.opening.folder)

    def _content(self, prompt: Prompt) -> Content:
        """Return the parts of a message: texts and items in their order.

        Raises:
            NotSendable: a chat cannot carry one of the items.

        """
        bench = self.bench
        content: list[dict[str, Any]] = []
        for place, one in enumerate(prompt.parts):
            if isinstance(one, int):
                text = bench.host.tokenizer().decode(bench.texts.text(place, one))
                content.append({"type": "text", "text": text})
            else:
                content.append(clients.part(one.modality, one.make()))
        return content

    def _simulated(self, content: Content, prompt: Prompt) -> tuple[int, ...] | None:
        """Return the tokens that vLLM's own front end makes of a chat; None where it refuses."""
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.renderers.registry import renderer_from_config

        config = self.bench.host.config
        requested: Any = ChatCompletionRequest
        if self.pools:
            from vllm.entrypoints.pooling.pooling.protocol import PoolingChatRequest

            requested = PoolingChatRequest
        if self._renderer is None:
            self._renderer = renderer_from_config(config)
        options = dict(self._options(prompt))
        request = requested(
            messages=[{"role": "user", "content": content}], mm_processor_kwargs=options or None
        )
        chat = request.build_chat_params(None, "auto").with_defaults(
            None, default_mm_processor_kwargs=options or None
        )
        try:
            _, (rendered,) = self._renderer.render_chat(
                [request.messages],
                chat,
                request.build_tok_params(config.model_config),
                prompt_extras={"mm_processor_kwargs": options} if options else None,
                skip_mm_cache=True,
            )
        except Exception:  # noqa: BLE001 - the plugin may raise anything
            return None
        return tuple(rendered["prompt_token_ids"])

    def _blame(self, prompt: Prompt, got: Answer, command: str) -> None:
        """Find the rule that a request without an answer is about."""
        death = self.death()
        then = f"{got.describe()}, and {death}" if death else f"{got.describe()}; the server lives"
        if death or not got.status:
            bench = self.bench
            rows = bench.encode(prompt) if prompt.items else None
            if rows is not None and rows.good:
                counts = list(zip(map(len, rows.value), bench.counts(prompt), strict=True))
                found = live.first_miscounted(counts)
                if found is not None and found[0] == live.MISSING:
                    self.ledger.fail(
                        live.MISSING,
                        f"{live.shown(prompt)} got {then}. Item {letter(found[1])} has "
                        f"{live.counted(*counts[found[1]])}; {command}",
                    )
                    return
            self.ledger.fail(live.SURVIVES, f"{live.shown(prompt)} got {then}; {command}")
            return
        rule = live.PROCESSES if prompt.items else live.TEXT_ALONE
        self.ledger.fail(rule, f"{live.shown(prompt)} got {then}; {command}")

    def _unallowed(self) -> list[tuple[str, str, Content, Prompt]]:
        """Return what is to be refused: by which rule, what it is, and the request."""
        asked: list[tuple[str, str, Content, Prompt]] = []
        without = Prompt(())
        for modality, prompt in live.too_many(self.bench):
            try:
                content = self._content(prompt)
            except NotSendable:
                continue
            what = f"{len(prompt.items)} items of {modality}"
            asked.append((live.TOO_MANY, what, content, without))
        for modality, texts in USUAL.items():
            if modality not in self.bench.supported:
                part = clients.part(modality, item(modality, texts[0], None).make())
                asked.append((live.UNSUPPORTED, f"an item of {modality}", [part], without))
        if not any(rule == live.UNSUPPORTED for rule, *_ in asked):
            self.ledger.beside[live.UNSUPPORTED] = live.ALL_SUPPORTED
        for what, prompt in live.refused_options(self.bench):
            with suppress(NotSendable):
                asked.append((live.OPTIONS, what, self._content(prompt), prompt))
        if not any(rule == live.OPTIONS for rule, *_ in asked):
            self.ledger.beside[live.OPTIONS] = live.ALL_PROCESSED
        return asked

    def _refusals(self, client: Client) -> None:
        """What is not allowed is refused with 400, and the server lives on."""
        if not self.own:
            why = "the limits of a running server are its own"
            self.ledger.beside |= dict.fromkeys(
                (live.TOO_MANY, live.UNSUPPORTED, live.OPTIONS), why
            )
            return
        for rule, what, content, prompt in self._unallowed():
            got = clients.ask(client, content, self._options(prompt))
            if death := self.death():
                self.ledger.fail(live.SURVIVES, f"after {what}: {death}")
                return
            if got.status != 400:  # noqa: PLR2004 - bad request
                said = "an answer" if got.good else got.describe()
                command = self._curl(client, content, prompt)
                self.ledger.fail(rule, f"{what} got {said} instead of HTTP 400; {command}")
                return
            self.ledger.saw(rule)

    def _together(self, client: Client) -> None:
        """All prompts at the same time are answered as each by itself."""
        asked = [(content, self._options(prompt)) for prompt, (content, _) in self._asked.items()]
        together = asyncio.run(clients.crowd(client, asked))
        self._compare(client, together, live.INDEPENDENT, f"among {len(asked)} requests at once")

    def _encoded_here(self, client: Client) -> None:
        """What another server encoded was answered as what the one that answers encodes."""
        if (encoding := self.opening.settings.encoding) is None:
            return
        shutil.rmtree(encoding.folder)
        with access.rest(self.server.url, FORGETS) as rest:
            for path in ("reset_mm_cache", "reset_encoder_cache"):
                rest.post(f"{self.server.url}/{path}").raise_for_status()
        alone = attrs.evolve(client, encoder=None)
        self._ask_again(alone, when="encoded by the server that answers,")

    def _ask_again(self, client: Client, *, when: str) -> None:
        """Each prompt is answered as the first time."""
        again = [
            clients.ask(client, content, self._options(prompt))
            for prompt, (content, _) in self._asked.items()
        ]
        self._compare(client, again, live.CACHED, when)

    def _compare(self, client: Client, answers: Sequence[Answer], rule: str, when: str) -> None:
        if self.ledger.blocked is not None:
            return
        for (prompt, (content, first)), got in zip(self._asked.items(), answers, strict=True):
            if not got.good:
                self._blame(prompt, got, self._curl(client, content, prompt))
                return
            if got.prompt != first.prompt or (self.own and not got.same(first)):
                command = self._curl(client, content, prompt)
                self.ledger.fail(
                    rule,
                    f"{when} {live.shown(prompt)} is answered {got.says()} to {len(got.prompt)} "
                    f"tokens instead of {first.says()} to {len(first.prompt)}; {command}",
                )
                return
            self.ledger.saw(rule)
