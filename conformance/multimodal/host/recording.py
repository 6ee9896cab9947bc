# SPDX-License-Identifier: Apache-2.0
"""What a live engine orders, step by step, judged by the rules that orders alone can show.

A real engine of the tiny Qwen2-Audio serves requests with sounds, alone and at once, in steps that
are shorter than a sound; its model runner is watched where the scheduler's orders arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from conformance.engine.multimodal_engine import MultiModalEngine, Request
from conformance.engine.multimodal_models import TINY_QWEN2_AUDIO
from conformance.rules import Evidence
from conformance.verdict import RuleResult, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The rules that are judged.
SHOWN = ("ME-01", "ME-02", "ME-03", "ME-04")

#: Samples of a second, of which 25 placeholders are made.
_RATE = 16_000


@attrs.define
class Ledger:
    """What the runner holds of items, by the orders that it got."""

    budget: int  #: rows that a step may encode
    room: int  #: rows that may be held
    found: dict[str, str] = attrs.field(factory=dict)  #: by rule, the first that does not hold
    tested: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(SHOWN, 0))
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
                self._test("ME-02", name not in self._held, "an item is encoded while it is cached")
                used = start < place.offset + place.length and place.offset < end
                where = f"in a step that computes positions {start} to {end - 1}"
                self._test("ME-03", used, f"an item at {place.offset} is encoded {where}")
                self._held[name] = place.get_num_embeds()
                rows += self._held[name]
        held = sum(self._held.values())
        fits = rows <= self.budget and held <= self.room
        self._test("ME-04", fits, f"a step encodes {rows} rows, and {held} are held")
        for request, count in order.num_scheduled_tokens.items():
            start = starts[request]
            for feature in self._features[request]:
                place = feature.mm_position
                if start < place.offset + place.length and place.offset < start + count:
                    there = feature.identifier in self._held
                    self._test("ME-01", there, f"positions from {start} on need an item")

    def forget(self) -> None:
        """The engine's caches were emptied."""
        self._held.clear()

    def _starts(self, order: Any) -> Iterator[tuple[str, int]]:  # noqa: ANN401 - as above
        for new in order.scheduled_new_reqs:
            self._features[new.req_id] = new.mm_features
            yield new.req_id, new.num_computed_tokens
        known = order.scheduled_cached_reqs
        yield from zip(known.req_ids, known.num_computed_tokens, strict=True)

    def _test(self, rule: str, holds: object, otherwise: str) -> None:
        self.tested[rule] += 1
        if not holds:
            self.found.setdefault(rule, f"in a live engine, {otherwise}")


def results() -> list[RuleResult]:
    """Serve requests, and judge what the scheduler ordered.

    Raises:
        Exception: the engine could not be started, or ended.

    """
    engine = MultiModalEngine.start(TINY_QWEN2_AUDIO.folder(), limits={"audio": 3})
    scheduler = engine.llm.llm_engine.engine_core.engine_core.scheduler
    manager = scheduler.encoder_cache_manager
    ledger = Ledger(scheduler.max_num_encoder_input_tokens, manager.cache_size)
    runner = engine.runner
    obey = runner._update_states  # noqa: SLF001 - no public method is told the same

    def update_states(order: Any) -> Any:  # noqa: ANN401 - as above
        ledger.note(order)
        return obey(order)

    runner._update_states = update_states  # noqa: SLF001
    sounds = [_sound(number, seconds) for number, seconds in enumerate((1.0, 3.5, 0.4, 5.0))]
    requests = [
        _asked(sounds[0]),
        _asked(sounds[1], sounds[2]),
        _asked(sounds[1]),
        _asked(sounds[3], sounds[0], sounds[3]),
    ]
    for request in requests:
        engine.run([request])
    engine.forget()
    ledger.forget()
    engine.run(requests)
    return [_result(ledger, rule) for rule in SHOWN]


def _sound(number: int, seconds: float) -> tuple[Any, int]:
    draw = np.random.RandomState(number)
    return draw.uniform(-1, 1, round(seconds * _RATE)).astype(np.float32), _RATE


def _asked(*sounds: tuple[Any, int]) -> Request:
    (placeholder,) = TINY_QWEN2_AUDIO.placeholders.values()
    text = " and then ".join(placeholder.text for _ in sounds)
    return Request(f"hear {text} what is it", {"audio": list(sounds)})


def _result(ledger: Ledger, rule: str) -> RuleResult:
    count, message = ledger.tested[rule], ledger.found.get(rule)
    verdict = Verdict.FAIL if message else Verdict.PASS
    return RuleResult(rule, verdict, Evidence.OFFLINE, count, count, message=message)
