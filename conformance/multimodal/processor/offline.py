# SPDX-License-Identifier: Apache-2.0
"""Evidence ``offline``: the model in a real ``vllm.LLM`` engine.

Where the engine puts items, and how many, must be what the simulator says of the same prompt;
what its model makes of an item among others must be what it makes of the item alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import attrs
import torch
from vllm.model_executor.models.registry import ModelRegistry
from vllm.multimodal.utils import group_and_batch_mm_kwargs

from conformance.engine.multimodal_engine import EngineFailed, MultiModalEngine, Request, Response
from conformance.multimodal.offline import Asked, attempted, unstarted
from conformance.multimodal.processor import checkpoint, forms, live
from conformance.multimodal.processor.answers import Answer
from conformance.multimodal.processor.live import ProcessorTrial
from conformance.multimodal.processor.processed import ranges_of
from conformance.multimodal.processor.prompts import Prompt, alone
from conformance.multimodal.processor.stock import USUAL, Item, item
from conformance.plugin.expectation import OracleFailed
from conformance.watching.comparison import first_line, letter, same_rows
from conformance.watching.interruption import OutOfTime, place_in
from conformance.watching.raised import said

#: Steps in a row without anything to compute, after which an engine is stuck and not slow.
IDLE = 1000


@attrs.define(eq=False)
class Trial(ProcessorTrial):
    """The trial of one class in an offline engine."""

    host: ClassVar[str] = "LLM.generate"

    _engine: MultiModalEngine = attrs.field(init=False)
    _asked: Asked[Prompt] = attrs.field(init=False)
    _rows: dict[tuple[Item, int], torch.Tensor] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        """Find out what the class is tried with."""
        self.ends.callback(checkpoint.remove, Path(self.checkpoint))
        self.prepare()

    @property
    def reached_by(self) -> str:
        """The method that a model of this kind is asked by."""
        return "LLM.encode" if self.pools else self.host

    def run(self) -> None:
        """Ask an engine for prompts, alone and among others."""
        self._asked = Asked(self.ledger, live.workload(self), self._ask, live.shown)
        self.opening.progress("starting an offline engine")
        for name in self.architectures:
            ModelRegistry.register_model(name, self.opening.cls)
        try:
            self._engine = MultiModalEngine.start(
                self.checkpoint,
                limits=self.bench.limits,
                max_model_len=self.max_model_len,
                weights=checkpoint.has_weights(self.checkpoint),
                device=self.device,
                chunked=self.bench.host.config.model_config.is_chunked_prefill_supported,
                arguments=self.bench.engine,
            )
        except Exception as error:  # noqa: BLE001 - vLLM and the plugin may raise anything
            unstarted(self.ledger, live.LOADS, "an engine", error)
            return
        self.ledger.saw(live.LOADS)
        if self.pools and not hasattr(self._engine.llm, "pooling_task"):
            self.ledger.stop("models that pool are asked as vLLM 0.32 and later take requests")
            return
        self.opening.progress(f"asking an offline engine for {len(self._asked.prompts)} prompts")
        again = partial(self._asked.again, live.CACHED)
        for judge in (self._alone, self._text, again, self._together, self._refusals):
            judge()
            if self.ledger.over:
                return
        self.ledger.saw(live.SURVIVES)

    def _alone(self) -> None:
        """Each prompt is answered by itself, and placed as in the simulator."""
        for prompt in self._asked.prompts:
            if len(prompt.items) > 1:
                self._engine.forget()  # they are to be encoded together
            found = self._ask([prompt])
            if found is None:
                return
            self._asked.first[prompt] = found[0]
            if why := self._differs(prompt, found[0]):
                self.ledger.fault = f"for {live.shown(prompt)} {why}"
                return
            self.ledger.saw(live.PROCESSES)
            self._means(prompt, found[0])

    def _differs(self, prompt: Prompt, got: Response) -> str | None:
        """Say in what the engine's prompt differs from the simulator's."""
        wanted = self.bench.processed(prompt).value
        if got.prompt != wanted.tokens:
            return f"the engine got {len(got.prompt)} tokens and the simulator {len(wanted.tokens)}"
        live_ranges = [(one.offset, one.length, one.count) for one in got.places]
        simulated = [(one.offset, one.length, one.count) for one in ranges_of(prompt, wanted)]
        if live_ranges != simulated:
            return f"the engine has items at {live_ranges} and the simulator at {simulated}"
        return None

    def _means(self, prompt: Prompt, got: Response) -> None:
        """Hold the places of items in the engine against what the author says."""
        if self.bench.expected is None:
            self.ledger.beside[live.MEANS] = live.SILENT
            return
        for one, place in zip(prompt.items, got.places, strict=True):
            if not forms.plain(one.modality, one.text):
                continue
            try:
                wanted = self.bench.meant(one, prompt.options)
            except OracleFailed as error:
                self.ledger.remarks[live.MEANS] = str(error)
                return
            if wanted != place.count:
                self.ledger.advise(
                    live.MEANS,
                    f"in the engine {one.modality} {one.text} has {place.count} places for "
                    f"embeddings, and its author says {wanted}",
                )
                return
            self.ledger.saw(live.MEANS)

    def _text(self) -> None:
        """A prompt is the same as text and as tokens; text without items is answered, too."""
        tokenizer = self.bench.host.tokenizer()
        for prompt in self._asked.prompts:
            tokens = self.bench.tokens(prompt)
            text = tokenizer.decode(tokens)
            if tokenizer.encode(text, add_special_tokens=False) != tokens:
                continue
            both = [text, tuple(tokenizer.encode(text))]  # some tokenizers add a first token
            found = attempted(
                self._engine, [Request(one, prompt.data(), self._options(prompt)) for one in both]
            )
            if isinstance(found, Exception):
                self._blame([prompt, prompt], found)
                return
            told, wanted = found
            if (told.prompt, told.places) != (wanted.prompt, wanted.places):
                self.ledger.fail(
                    live.AS_TOKENS,
                    f"{live.shown(prompt)} as a text has {len(told.prompt)} tokens in the "
                    f"engine, and {len(wanted.prompt)} as tokens",
                )
                return
            self.ledger.saw(live.AS_TOKENS)
        if not self.ledger.seen[live.AS_TOKENS]:
            self.ledger.beside[live.AS_TOKENS] = "no prompt of the harness has a text of its own"
        words = tuple(self.bench.texts.text(0, 5))
        found = attempted(self._engine, [Request(words)])
        if isinstance(found, Exception):
            self._blame([], found)
        elif found[0].prompt != words:
            self.ledger.fail(live.TEXT_ALONE, "a text without items is changed in the engine")
        else:
            self.ledger.saw(live.TEXT_ALONE)

    def _together(self) -> None:
        """All prompts at the same time are answered as each by itself."""
        self._engine.forget()
        self._asked.together(live.INDEPENDENT)

    def _refusals(self) -> None:
        """What is not allowed is refused as the client's error, and harms nobody."""
        asked = [
            (live.TOO_MANY, f"{len(prompt.items)} items of {modality}", prompt.data(), prompt)
            for modality, prompt in live.too_many(self.bench)
        ]
        for modality, texts in USUAL.items():
            if modality not in self.bench.supported:
                made = item(modality, texts[0], None).make()
                # With its rate a sound would be resampled first, which some models cannot.
                data = {modality: [made[0] if modality == "audio" else made]}
                asked.append((live.UNSUPPORTED, f"an item of {modality}", data, Prompt((2,))))
        if not any(rule == live.UNSUPPORTED for rule, *_ in asked):
            self.ledger.beside[live.UNSUPPORTED] = live.ALL_SUPPORTED
        bad = live.refused_options(self.bench)
        asked += [(live.OPTIONS, what, prompt.data(), prompt) for what, prompt in bad]
        if not bad:
            self.ledger.beside[live.OPTIONS] = live.ALL_PROCESSED
        for rule, what, data, prompt in asked:
            tokens = tuple(self.bench.tokens(prompt))
            found = attempted(self._engine, [Request(tokens, data, self._options(prompt))])
            if isinstance(found, OutOfTime):
                self._blame([prompt], found)
                return
            if not self._refused(rule, what, found):
                return
        if self._asked.prompts:
            self._asked.after("refusals", live.SURVIVES)

    def _refused(self, rule: str, what: str, found: list[Response] | Exception) -> bool:
        """Judge what became of a request that is not allowed."""
        if isinstance(found, EngineFailed):
            self.ledger.fail(live.SURVIVES, f"with {what} the engine ended: {found}")
        elif not isinstance(found, Exception):
            self.ledger.fail(rule, f"{what} were answered by the engine")
        elif not Answer(error=found).of_client:
            self.ledger.fail(rule, f"{what}: {self.reached_by} {Answer(error=found).describe()}")
        else:
            self.ledger.saw(rule)
            return True
        return False

    def _options(self, prompt: Prompt) -> dict[str, Any]:
        return self.bench.stock.chosen(prompt.options)

    def _ask(self, prompts: Sequence[Prompt]) -> list[Response] | None:
        """Run prompts at the same time, and judge the rows of their items; None for trouble."""
        bench = self.bench
        found = attempted(
            self._engine,
            [
                Request(tuple(bench.tokens(prompt)), prompt.data(), self._options(prompt))
                for prompt in prompts
            ],
        )
        if isinstance(found, Exception):
            self._blame(prompts, found)
            return None
        for prompt, got in zip(prompts, found, strict=True):
            self._judge_rows(prompt, got)
        self._engine.encoded.clear()
        return None if self.ledger.blocked is not None else found

    def _blame(self, prompts: Sequence[Prompt], error: Exception) -> None:
        """Find the rule that an engine's or a processor's exception is about."""
        why = said(error)
        what = f"{len(prompts)} prompts at once" if prompts else "a text without items"
        what = live.shown(prompts[0]) if len(prompts) == 1 else what
        if isinstance(error, OutOfTime):
            place = place_in(error, inspect.getsourcefile(self.opening.cls))
            if place is not None:
                self.ledger.fail(live.SURVIVES, f"{self.reached_by} of {what} hangs at {place}")
            elif self._engine.idle > IDLE:
                self.ledger.fail(
                    live.SURVIVES,
                    f"{self.reached_by} of {what} does not end: "
                    "the engine finds nothing to compute",
                )
            else:
                self.ledger.stop(f"{self.reached_by} of {what}: {error}")
        elif not isinstance(error, EngineFailed):
            self.ledger.fail(live.PROCESSES, f"{self.reached_by} of {what} raised {why}")
        elif error.encoding:
            self.ledger.fail(
                live.ONE_EACH, f"the engine ended while it encoded the items of {what}: {error}"
            )
        else:
            for prompt, places in zip(prompts, error.places, strict=False):
                if self._miscounted(prompt, places, f"the engine ended: {first_line(str(error))}"):
                    return
            self.ledger.fail(live.SURVIVES, f"the engine ended at {what}: {error}")

    def _judge_rows(self, prompt: Prompt, got: Response) -> None:
        """Judge what the engine's model made of the items of a prompt."""
        if self._miscounted(prompt, got.places) or not got.places:
            return
        encoded = dict(self._engine.encoded)
        for index, (one, place) in enumerate(zip(prompt.items, got.places, strict=True)):
            rows = encoded.get(place.identifier)
            if rows is None:  # it was in the encoder's cache
                continue
            for rule in (live.ONE_EACH, *live.COUNTS):
                self.ledger.saw(rule)
            if not same_rows(rows, self._alone_rows(one, prompt.options)):
                self.ledger.fail(
                    live.INDEPENDENT,
                    f"in the engine item {letter(index)} of {live.shown(prompt)}, "
                    f"{one.modality} {one.text}, has other rows than alone",
                )
                return

    def _miscounted(self, prompt: Prompt, places: Sequence[Any], then: str = "") -> bool:
        """Note an item that has not as many rows as placeholders, and say whether there is one."""
        encoded = dict(self._engine.encoded)
        known = [
            (len(encoded[place.identifier]), place.count)
            for place in places
            if place.identifier in encoded
        ]
        found = live.first_miscounted(known)
        if found is None:
            return False
        rule, position = found
        index = [n for n, place in enumerate(places) if place.identifier in encoded][position]
        rows, wanted = known[position]
        one = prompt.items[index]
        self.ledger.fail(
            rule,
            f"in the engine item {letter(index)} of {live.shown(prompt)}, {one.modality} "
            f"{one.text}, has {live.counted(rows, wanted)}: {then or live.COUNTS[rule]}",
        )
        return True

    def _alone_rows(self, one: Item, options: int) -> torch.Tensor:
        """Return what the engine's model makes of an item that the simulator processed alone."""
        key = (one, options)
        if key not in self._rows:
            processed = self.bench.processed(alone(one, options)).value
            runner = self._engine.runner
            (group,) = group_and_batch_mm_kwargs(
                [(one.modality, processed.data[one.modality][0])], device=runner.device
            )
            with torch.inference_mode():
                self._rows[key] = runner.model.embed_multimodal(**group[2])[0].cpu()
        return self._rows[key]
