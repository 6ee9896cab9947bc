# SPDX-License-Identifier: Apache-2.0
"""Evidence ``server``: the plugin's own parts in ``POST /v1/chat/completions`` of ``vllm serve``.

The bridge's renderer takes parts of the types that the plugin names, such as ``point_cloud_url``.
A server of our own computes one request at a time, so that answers among many must equal answers
to single requests.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs

from conformance.engine.server import Server
from conformance.generations import named
from conformance.multimodal.modality import deployment, live
from conformance.multimodal.modality.deployment import Prompt
from conformance.multimodal.modality.live import ModalityTrial
from conformance.multimodal.modality.stock import Sample
from conformance.multimodal.processor import clients
from conformance.multimodal.processor.clients import Answer, Client, curl
from conformance.plugin import target as targets

Content = Sequence[Mapping[str, Any]]

ARGUMENTS = (
    "--tokenizer-mode=modality",
    "--max-num-seqs=1",
    "--max-num-batched-tokens=64",
    "--enable-chunked-prefill",
    "--no-enable-prefix-caching",
    f"--max-model-len={deployment.MAX_MODEL_LEN}",
)

NAME = "conformance-modality"

#: Clients that ask at the same time, each for every prompt.
CROWD = 3

BAD_REQUEST, SERVER_ERROR = 400, 500


@attrs.define(eq=False)
class Trial(ModalityTrial):
    """The trial of one plugin in a live server."""

    host: ClassVar[str] = "POST /v1/chat/completions"

    _asked: dict[Prompt, tuple[Content, Answer]] = attrs.field(init=False, factory=dict)
    _parts: dict[Sample, Any] = attrs.field(init=False, factory=dict)  #: what JSON has for an item
    _number: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        """Find out what the plugin is tried with, and start the server."""
        self.prepare()
        if self.opening.settings.server_url:
            self.ledger.stop(
                "plugins of a modality are tried in servers of the harness: a running server has "
                "no part types of theirs"
            )
        if self.ledger.blocked is None:
            self._write_parts()
        if self.ledger.blocked is None:
            self.serve(self._start())

    def _write_parts(self) -> None:
        for sample in (*self.deployment.samples, *self.deployment.kin):
            if (value := self.deployment.sendable(sample)) is not None:
                self._parts[sample] = value
        if not any(sample in self._parts for sample in self.deployment.samples):
            self.ledger.stop(
                self.bench.lacks
                or "no item that is known can be written into a chat, which is JSON; give some in "
                'the profile: [multimodal] valid = [{ file = "sample" }]'
            )

    def _start(self) -> Server:
        folder = Path(self.opening.folder)
        bench, plugin = self.bench, self.opening.plugin
        saved = bench.saved()
        module = deployment.entry_module(
            folder / "entry",
            name=plugin.fqcn,
            section=saved.get("section"),
            origin=bench.origin,
            folders=[str(each) for each in bench.folders],
            seed=bench.seed,
        )
        model = self.ends.enter_context(tempfile.TemporaryDirectory(prefix="vllm-conformance-"))
        ours = Path(__file__).parents[3]
        return Server.start(
            deployment.checkpoint(Path(model), self.deployment),
            log=folder / "server.log",
            python_path=[folder / "entry", *self.opening.python_path(), ours],
            entry_points={targets.GENERAL_PLUGINS: {NAME: f"{module}:register"}},
            device=self.device,
            arguments=ARGUMENTS,
            imported=True,
            fresh=True,
        )

    def run(self) -> None:
        """Ask the server for items, alone and among others."""
        if not self.healthy(loads=live.LOADS, how="a server with the plugin"):
            return
        self.ledger.saw(live.LOADS)
        client = Client(self.server.url, self.server.model_name)
        judges: list[Callable[[Client], None]] = []
        if self.bench.make().part_types:
            judges += [self._alone, self._again, self._kin, self._together]
            judges += [self._too_many, self._mistakes]
        else:
            rules = {rule.id for rule in named(self.opening.plugin.generation).rules}
            why = "a chat has no part for its items: it has no part_types"
            self.ledger.out_of_reach |= dict.fromkeys(rules - {live.LOADS, live.SURVIVES}, why)
        for judge in judges:
            judge(client)
            if self.ledger.over:
                return
        if death := self.death():
            self.ledger.fail(live.SURVIVES, death)
        else:
            self.ledger.saw(live.SURVIVES)

    def _content(self, prompt: Prompt, *, anew: bool = False) -> Content:
        """Return the parts of a message; *anew* has no item found in a cache."""
        kind = next(iter(self.bench.make().part_types))
        content: list[dict[str, Any]] = [{"type": "text", "text": "see"}]  # vLLM wants some text
        for part in prompt.parts:
            if isinstance(part, int):
                content.append({"type": "text", "text": "abcdefgh"[:part]})
                continue
            made: dict[str, Any] = {"type": kind, kind: self._parts[part]}
            if anew:
                self._number += 1
                made["uuid"] = f"anew-{self._number}"
            content.append(made)
        return content

    def _alone(self, client: Client) -> None:
        """Each prompt is answered by itself, with as many tokens as its items take."""
        for prompt in self.deployment.prompts():
            if any(sample not in self._parts for sample in prompt.samples):
                continue
            content = self._content(prompt)
            got = clients.ask(client, content, {})
            if not got.good:
                self._blame(client, prompt, content, got)
                return
            counts = [self.deployment.expected(sample).count for sample in prompt.samples]
            tokens = got.prompt.count(self.deployment.token)
            if tokens != sum(counts):
                self.ledger.fail(
                    live.independence(prompt),
                    f"the items of {prompt} take {tokens} tokens in the server, and alone "
                    f"{sum(counts)}; {self._curl(client, content)}",
                )
                return
            self._asked[prompt] = (content, got)
            self.ledger.saw(live.TAKEN)
            if self.deployment.encodes:
                self.ledger.saw(live.ROWS)  # a row too few, or too many, ends the engine

    def _kin(self, client: Client) -> None:
        """Items that differ by a hair are not served from each other's rows."""
        for sample in list(self._parts):
            prompt = Prompt((2, sample, 3))
            alone = clients.ask(client, self._content(prompt, anew=True), {})
            content = self._content(prompt)
            got = clients.ask(client, content, {})
            asked = (prompt, content, got)
            if alone.good and not self._same(client, asked, alone, live.HASH, "found by its hash,"):
                return

    def _again(self, client: Client) -> None:
        """Prompts are answered as the first time: from the caches, and made ready anew."""
        for anew in (False, True):
            for prompt, (_, first) in reversed(self._asked.items()):
                content = self._content(prompt, anew=anew)
                got = clients.ask(client, content, {})
                rule = live.independence(prompt) if anew else live.SAME
                if not self._same(client, (prompt, content, got), first, rule, "asked again"):
                    return

    def _together(self, client: Client) -> None:
        """Clients that ask at the same time are answered as each by itself."""
        asked = [
            (prompt, self._content(prompt, anew=True), first)
            for _ in range(CROWD)
            for prompt, (_, first) in self._asked.items()
        ]
        answers = asyncio.run(clients.crowd(client, [(content, {}) for _, content, _ in asked]))
        for (prompt, content, first), got in zip(asked, answers, strict=True):
            when = f"among {len(asked)} requests at once"
            rule = live.independence(prompt)
            if not self._same(client, (prompt, content, got), first, rule, when):
                return

    def _same(
        self,
        client: Client,
        asked: tuple[Prompt, Content, Answer],
        first: Answer,
        rule: str,
        when: str,
    ) -> bool:
        """Judge an answer by the first one to the same prompt, and say whether it is that."""
        prompt, content, got = asked
        if not got.good:
            self._blame(client, prompt, content, got)
        elif (got.prompt, got.tokens) != (first.prompt, first.tokens):
            self.ledger.fail(
                rule,
                f"{when} {prompt} is answered {got.tokens} to {len(got.prompt)} tokens instead of "
                f"{first.tokens} to {len(first.prompt)}; {self._curl(client, content)}",
            )
        else:
            self.ledger.saw(rule)
            return True
        return False

    def _too_many(self, client: Client) -> None:
        """One item more than the plugin allows is refused, and the server lives on."""
        limit = self.deployment.limit
        sample = next(each for each in self.deployment.samples if each in self._parts)
        content = self._content(Prompt((sample,) * (limit + 1)))
        got = clients.ask(client, content, {})
        if death := self.death():
            self.ledger.fail(
                live.SURVIVES, f"after {limit + 1} items: {death}; {self._curl(client, content)}"
            )
        elif got.status != BAD_REQUEST:
            self.ledger.fault = f"{limit + 1} items, of which {limit} may be, got {got.status}"

    def _mistakes(self, client: Client) -> None:
        """What is no item is refused with 400, and the server lives on."""
        for sample in self.mistakes():
            if not (forms := deployment.written(sample)):
                continue
            self._parts[sample] = forms[0]
            prompt = Prompt((1, sample))
            content = self._content(prompt)
            got = clients.ask(client, content, {})
            if death := self.death():
                self.ledger.fail(
                    live.SURVIVES, f"after {sample}: {death}; {self._curl(client, content)}"
                )
                return
            if got.good:
                # What is refused as an array may be an item as the lists that JSON has of it.
                if not hasattr(sample.make(), "tolist"):
                    self.ledger.advise(live.REFUSED, f"{sample} got an answer")
            elif got.status >= SERVER_ERROR:
                self.ledger.advise(
                    live.CLIENT,
                    f"{sample} got {got.describe()} instead of HTTP 400; "
                    f"{self._curl(client, content)}",
                )
            elif got.status:
                self.ledger.saw(live.CLIENT)
                self.ledger.saw(live.REFUSED)

    def _blame(self, client: Client, prompt: Prompt, content: Content, got: Answer) -> None:
        """Find the rule that a request without an answer is about."""
        death = self.death()
        then = f"{got.describe()}, and {death}" if death else f"{got.describe()}; the server lives"
        rule = live.SURVIVES if death or not got.status else live.TAKEN
        made = [self.deployment.expected(sample) for sample in prompt.samples]
        if death and any(len(one.rows) != one.count for one in made):
            rule = live.ROWS
        self.ledger.fail(rule, f"{prompt} got {then}; {self._curl(client, content)}")

    def _curl(self, client: Client, content: Content) -> str:
        return curl(client, content, {}, self.opening.folder)
