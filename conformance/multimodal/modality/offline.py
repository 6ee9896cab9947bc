# SPDX-License-Identifier: Apache-2.0
"""Evidence ``offline``: the plugin's items in a real ``vllm.LLM`` engine.

Where the engine puts items, how many tokens they take, and the rows that its model makes of them
must be what a fresh instance of the plugin and the same encoder make of each item alone.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import attrs

from conformance.engine.multimodal_engine import (
    EngineFailed,
    MultiModalEngine,
    Place,
    Request,
    Response,
)
from conformance.multimodal.modality import deployment, live
from conformance.multimodal.modality.deployment import Prompt
from conformance.multimodal.modality.live import ModalityTrial
from conformance.multimodal.modality.stock import Sample
from conformance.multimodal.offline import Asked, attempted, unstarted
from conformance.multimodal.processor.answers import Answer
from conformance.watching.comparison import same_rows
from conformance.watching.interruption import OutOfTime, place_in
from conformance.watching.raised import said


@attrs.define(eq=False)
class Trial(ModalityTrial):
    """The trial of one plugin in an offline engine."""

    host: ClassVar[str] = "LLM.generate"

    _engine: MultiModalEngine = attrs.field(init=False)
    #: What each prompt is answered when nothing is cached either.
    _asked: Asked[Prompt] = attrs.field(init=False)
    _identifiers: dict[str, Sample] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        """Find out what the plugin is tried with."""
        self.prepare()

    def run(self) -> None:
        """Ask an engine for items, alone and among others."""
        self.opening.progress("starting an offline engine")
        folder = self.ends.enter_context(tempfile.TemporaryDirectory(prefix="vllm-conformance-"))
        try:
            deployment.register(self.deployment)
            self._engine = MultiModalEngine.start(
                deployment.checkpoint(Path(folder), self.deployment),
                limits={self.deployment.modality: self.deployment.limit},
                max_model_len=deployment.MAX_MODEL_LEN,
                device=self.device,
            )
        except Exception as error:  # noqa: BLE001 - vLLM and the plugin may raise anything
            unstarted(self.ledger, live.LOADS, "an engine with the plugin", error)
            return
        self.ledger.saw(live.LOADS)
        self._asked = Asked(self.ledger, self.deployment.prompts(), self._ask)
        self.opening.progress(f"asking an offline engine for {len(self._asked.prompts)} prompts")
        again = partial(self._asked.again, live.SAME)
        judges = (self._alone, again, self._kin, self._together, self._too_many)
        for judge in (*judges, self._mistakes):
            judge()
            if self.ledger.over:
                return
        self.ledger.saw(live.SURVIVES)

    def _alone(self) -> None:
        """Each prompt is answered by itself, and its items are what a fresh instance makes."""
        for prompt in self._asked.prompts:
            self._engine.forget()
            found = self._ask([prompt])
            if found is None:
                return
            self._asked.first[prompt] = found[0]
            self._judge(prompt, found[0])
            if self.ledger.over:
                return
            self.ledger.saw(live.TAKEN)

    def _kin(self) -> None:
        """Items that differ by a hair are not served from each other's rows."""
        for sample in self.deployment.kin:
            prompt = Prompt((2, sample, 3))
            found = self._ask([prompt])
            if found is None:
                return
            self._judge(prompt, found[0])
            if self.ledger.over:
                return

    def _judge(self, prompt: Prompt, got: Response) -> None:
        """Hold what the engine made of a prompt's items against fresh instances."""
        rule = live.independence(prompt)
        if len(got.places) != len(prompt.samples):
            self.ledger.fault = f"the engine has {len(got.places)} items in {prompt}"
            return
        encoded = dict(self._engine.encoded)
        self._engine.encoded.clear()
        for index, (sample, place) in enumerate(zip(prompt.samples, got.places, strict=True)):
            expected = self.deployment.expected(sample)
            where = f"in the engine item {index} of {prompt}, {sample},"
            if self._collides(sample, place):
                return
            if place.length != expected.count:
                self.ledger.fail(
                    rule, f"{where} takes {place.length} tokens, and alone {expected.count}"
                )
                return
            if (rows := encoded.get(place.identifier)) is None:
                continue
            if not same_rows(rows, expected.rows):
                self._other_rows(rule, sample, where)
                return
            self.ledger.saw(live.ROWS, int(self.deployment.encodes))
            self.ledger.saw(rule)

    def _other_rows(self, rule: str, sample: Sample, where: str) -> None:
        """Note that an item has other embeddings than a fresh instance and the encoder make."""
        if same_rows(self.deployment.made(sample).rows, self.deployment.expected(sample).rows):
            self.ledger.fail(rule, f"{where} has other embeddings than alone")
        else:
            self.ledger.fail(live.SAME, f"{sample} gives other embeddings each time")

    def _collides(self, sample: Sample, place: Place) -> bool:
        """Note another item that the engine takes for this one, and say whether there is one."""
        other = self._identifiers.setdefault(place.identifier, sample)
        one, two = self.deployment.expected(sample), self.deployment.expected(other)
        if same_rows(one.rows, two.rows):
            self.ledger.saw(live.HASH)
            return False
        self.ledger.fail(
            live.HASH,
            f"the engine takes {sample} for {other}: they have one hash, and the rows of one are "
            "served for the other",
        )
        return True

    def _together(self) -> None:
        """All prompts at the same time are answered as each by itself."""
        self._engine.forget()
        self._asked.together(live.BEFORE)

    def _too_many(self) -> None:
        """One item more than the plugin allows is refused, and harms nobody."""
        limit = self.deployment.limit
        prompt = Prompt((2, *(self.deployment.samples[0],) * (limit + 1)))
        found = self._run([prompt])
        if isinstance(found, EngineFailed | OutOfTime):
            self._blame([prompt], found)
        elif isinstance(found, list) or not Answer(error=found).of_client:
            self.ledger.fault = f"{limit + 1} items, of which {limit} may be, were not refused"
        else:
            self._as_before(f"{limit + 1} items")

    def _mistakes(self) -> None:
        """What is no item is refused as the client's error, and harms nobody."""
        for sample in self.mistakes():
            prompt = Prompt((2, sample, 1))
            found = self._run([prompt])
            if isinstance(found, EngineFailed | OutOfTime):
                self._blame([prompt], found)
                return
            if isinstance(found, list):
                self.ledger.advise(live.REFUSED, f"{sample} was answered by the engine")
            elif not Answer(error=found).of_client:
                self.ledger.advise(
                    live.CLIENT, f"{sample}: LLM.generate raised {said(found)}, no client's error"
                )
            else:
                self.ledger.saw(live.CLIENT)
                self.ledger.saw(live.REFUSED)
        self._as_before("mistakes")

    def _as_before(self, what: str) -> None:
        """After a refusal others are answered as ever."""
        self._engine.forget()
        self._asked.after(what, live.BEFORE)

    def _ask(self, prompts: Sequence[Prompt]) -> list[Response] | None:
        """Run prompts at the same time, and note what went wrong; None for trouble."""
        found = self._run(prompts)
        if isinstance(found, list):
            return found
        self._blame(prompts, found)
        return None

    def _run(self, prompts: Sequence[Prompt]) -> list[Response] | Exception:
        made = self.deployment
        requests = [Request(made.tokens(prompt), made.data(prompt)) for prompt in prompts]
        return attempted(self._engine, requests)

    def _blame(self, prompts: Sequence[Prompt], error: Exception) -> None:
        """Find the rule that an engine's or a plugin's exception is about."""
        what = str(prompts[0]) if len(prompts) == 1 else f"{len(prompts)} prompts at once"
        if isinstance(error, OutOfTime):
            place = place_in(error, inspect.getsourcefile(self.opening.cls))
            if place is not None:
                self.ledger.fail(live.SURVIVES, f"LLM.generate of {what} hangs at {place}")
            else:
                self.ledger.stop(f"LLM.generate of {what}: {error}")
        elif not isinstance(error, EngineFailed):
            self.ledger.fail(live.TAKEN, f"LLM.generate of {what} raised {said(error)}")
        elif error.encoding:
            self.ledger.fail(
                live.ROWS, f"the engine ended while it encoded the items of {what}: {error}"
            )
        else:
            self.ledger.fail(live.SURVIVES, f"the engine ended at {what}: {error}")
