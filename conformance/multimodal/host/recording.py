# SPDX-License-Identifier: Apache-2.0
"""What a live engine orders, step by step, judged by the rules that orders alone can show.

A real engine serves requests with items, alone and at once, in steps that are shorter than an item,
with prefixes, with too few blocks for two requests, and after one that was aborted; its model
runner is watched where the scheduler's orders arrive.  The command takes the tiny Qwen2-Audio,
which needs nothing beside vLLM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from conformance.engine.multimodal_engine import BLOCK, MultiModalEngine, Request, Response
from conformance.engine.multimodal_models import TINY_QWEN2_AUDIO
from conformance.rules import Evidence
from conformance.verdict import RuleResult, Verdict

#: The rules that are judged.
SHOWN = ("ME-01", "ME-02", "ME-03", "ME-04", "ME-07", "ME-08", "ME-09", "ME-10")

#: Blocks of the KV cache, of which vLLM keeps one, and tokens of a prompt: two of them fill what is
#: left, and have none for their answers.
BLOCKS = 17
FULL = (BLOCKS - 1) // 2 * BLOCK - 2

#: Samples of a second, of which 25 placeholders are made.
_RATE = 16_000


@attrs.define
class Ledger:
    """What the runner holds of items, by the orders that it got."""

    budget: int  #: rows that a step may encode
    room: int  #: rows that may be held
    found: dict[str, str] = attrs.field(factory=dict)  #: by rule, the first that does not hold
    tested: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(SHOWN, 0))
    encoded: list[str] = attrs.field(factory=list)  #: identifiers of items
    began: list[int] = attrs.field(factory=list)  #: positions that a new request need not compute
    resumed: int = 0  #: requests that went on after they were preempted
    _features: dict[str, Any] = attrs.field(factory=dict)
    _held: dict[str, int] = attrs.field(factory=dict)

    def note(self, order: Any) -> None:  # noqa: ANN401 - a SchedulerOutput
        """Judge one order."""
        for name in order.free_encoder_mm_hashes:
            self._held.pop(name, None)
        starts = dict(self._starts(order))
        rows = 0
        for request, indices in order.scheduled_encoder_inputs.items():
            start = starts[request]
            end = start + order.num_scheduled_tokens[request]
            for feature in (self._features[request][index] for index in indices):
                place, name = feature.mm_position, feature.identifier
                self.test("ME-02", name not in self._held, "an item is encoded while it is cached")
                used = start < place.offset + place.length and place.offset < end
                where = f"in a step that computes positions {start} to {end - 1}"
                self.test("ME-03", used, f"an item at {place.offset} is encoded {where}")
                self.encoded.append(name)
                self._held[name] = place.get_num_embeds()
                rows += self._held[name]
        held = sum(self._held.values())
        fits = rows <= self.budget and held <= self.room
        self.test("ME-04", fits, f"a step encodes {rows} rows, and {held} are held")
        for request, count in order.num_scheduled_tokens.items():
            start = starts[request]
            for feature in self._features[request]:
                place = feature.mm_position
                if start < place.offset + place.length and place.offset < start + count:
                    there = feature.identifier in self._held
                    self.test("ME-01", there, f"positions from {start} on need an item")

    def forget(self) -> None:
        """The engine's caches were emptied."""
        self._held.clear()

    def _starts(self, order: Any) -> Iterator[tuple[str, int]]:  # noqa: ANN401 - as above
        for new in order.scheduled_new_reqs:
            self._features[new.req_id] = new.mm_features
            self.began.append(new.num_computed_tokens)
            yield new.req_id, new.num_computed_tokens
        known = order.scheduled_cached_reqs
        self.resumed += len(known.resumed_req_ids)
        yield from zip(known.req_ids, known.num_computed_tokens, strict=True)

    def test(self, rule: str, holds: object, otherwise: str) -> None:
        """Note that something was seen, and what it is where it does not hold."""
        self.tested[rule] += 1
        if not holds:
            self.found.setdefault(rule, f"in a live engine, {otherwise}")


def results() -> list[RuleResult]:
    """Serve requests with sounds, and judge what the scheduler ordered.

    Raises:
        Exception: the engine could not be started, or ended.

    """
    sounds = [_sound(number, seconds) for number, seconds in enumerate((1.0, 3.5, 0.4, 5.0, 3.5))]
    (placeholder,) = TINY_QWEN2_AUDIO.placeholders.values()
    return record(TINY_QWEN2_AUDIO.folder(), "audio", placeholder.text, sounds)


def record(folder: Path, modality: str, text: str, items: Sequence[Any]) -> list[RuleResult]:
    """Serve requests with items, and judge what the scheduler ordered.

    Args:
        folder: of the model.
        modality: of the items.
        text: what a prompt has for each of them.
        items: five, of which the second and the last have the same size.

    Raises:
        Exception: the engine could not be started, or ended.

    """
    served = _Served.start(folder, modality, text, items)
    first, second, third, fourth, other = items
    asked = [
        served.asked(first),
        served.asked(second, third),
        served.asked(second),
        served.asked(fourth, first, fourth),
    ]
    wanted = served.alone(asked)
    served.forget()
    served.compare("ME-01", asked, wanted, "at once")
    served.prefixes(asked[2], served.asked(other))
    served.preempted(served.full(second), served.full(other))
    served.aborted(asked[3], asked[:3], wanted[:3])
    return [_result(served.ledger, rule) for rule in SHOWN]


@attrs.frozen
class _Served:
    """A live engine, and the ledger of what it orders."""

    engine: MultiModalEngine
    ledger: Ledger
    manager: Any  #: of the encoder's cache
    modality: str
    text: str

    @classmethod
    def start(cls, folder: Path, modality: str, text: str, items: Sequence[Any]) -> _Served:
        limits = {modality: len(items)}
        engine = MultiModalEngine.start(
            folder, limits=limits, max_model_len=(BLOCKS - 1) * BLOCK, blocks=BLOCKS
        )
        scheduler = engine.llm.llm_engine.engine_core.engine_core.scheduler
        manager = scheduler.encoder_cache_manager
        ledger = Ledger(scheduler.max_num_encoder_input_tokens, manager.cache_size)
        runner = engine.runner
        obey = runner._update_states  # noqa: SLF001 - no public method is told the same

        def update_states(order: object) -> Any:  # noqa: ANN401 - a SchedulerOutput
            ledger.note(order)
            return obey(order)

        runner._update_states = update_states  # noqa: SLF001 - the one that is watched
        return cls(engine, ledger, manager, modality, text)

    def asked(self, *items: object) -> Request:
        """Return a request with items between words."""
        text = " and then ".join(self.text for _ in items)
        return Request(f"take {text} what is it", {self.modality: list(items)})

    def full(self, item: object) -> Request:
        """Return a request with an item and as much text as half of the blocks have room for."""
        request = self.asked(item)
        tokenizer = self.engine.llm.get_tokenizer()
        tokens = tuple(tokenizer.encode(str(request.prompt)))
        (response,) = self.alone([request])
        more = FULL - len(response.prompt)
        return attrs.evolve(request, prompt=(*tokens, *tokens[-1:] * more))

    def forget(self) -> None:
        """Empty the caches."""
        self.engine.forget()
        self.engine.llm.reset_prefix_cache()
        self.ledger.forget()

    def alone(self, asked: Sequence[Request]) -> list[Response]:
        """Return the answers to requests each of which finds nothing in a cache."""
        found = []
        for request in asked:
            self.forget()
            found += self.engine.run([request])
        return found

    def compare(
        self, rule: str, asked: Sequence[Request], wanted: Sequence[Response], when: str
    ) -> None:
        """Ask at once, and judge the answers by those to each request alone."""
        for got, other in zip(self.engine.run(asked), wanted, strict=True):
            why = got.differs(other)
            self.ledger.test(rule, why is None, f"{when} a request {why}")

    def prefixes(self, request: Request, other: Request) -> None:
        """ME-07 and ME-08: a request twice, and then one with another item of the same size."""
        ledger = self.ledger
        wanted = self.alone([request, other])
        self.forget()
        self.engine.run([request])
        ledger.encoded.clear()
        self.compare("ME-07", [request], wanted[:1], "asked again")
        least = (len(wanted[0].prompt) - 1) // BLOCK * BLOCK
        began = ledger.began[-1]
        ledger.test("ME-07", began == least, f"{began} of {least} positions are used again")
        ledger.test("ME-07", not ledger.encoded, "an item of a known prefix is encoded again")
        self.compare("ME-08", [other], wanted[1:], "after another item of the same size")
        place = wanted[1].places[0]
        began = ledger.began[-1]
        ledger.test(
            "ME-08",
            began <= place.offset,
            f"{began} positions are used again, and another item begins at {place.offset}",
        )

    def preempted(self, *requests: Request) -> None:
        """ME-09: requests that have too few blocks for all their answers."""
        wanted = self.alone(requests)
        self.forget()
        self.ledger.resumed = 0
        self.compare("ME-09", requests, wanted, "preempted and resumed,")
        if not self.ledger.resumed:
            self.ledger.tested["ME-09"] = 0

    def aborted(
        self, request: Request, others: Sequence[Request], wanted: Sequence[Response]
    ) -> None:
        """ME-10: a request that ends in its prefill, and others after it."""
        for steps in range(1, 4):
            self.forget()
            self.engine.abort(request, steps)
            self.compare("ME-10", others, wanted, f"after one that was aborted in step {steps},")
            held = any(self.manager.cached.values())
            self.ledger.test("ME-10", not held, "an item is held for a request that is gone")


def _sound(number: int, seconds: float) -> tuple[Any, int]:
    draw = np.random.RandomState(number)
    return draw.uniform(-1, 1, round(seconds * _RATE)).astype(np.float32), _RATE


def _result(ledger: Ledger, rule: str) -> RuleResult:
    count, message = ledger.tested[rule], ledger.found.get(rule)
    verdict = Verdict.FAIL if message else Verdict.PASS if count else Verdict.NOT_VERIFIED
    return RuleResult(rule, verdict, Evidence.OFFLINE, count, count, message=message)
