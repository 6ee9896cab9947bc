# SPDX-License-Identifier: Apache-2.0
"""Requests for one instance by the thousand: answered, only begun, or refused."""

from __future__ import annotations

import copy
import gc
import sys
from contextlib import suppress
from typing import Any

import attrs
import torch

from conformance.inputs.places import Path, changed, places, without
from conformance.io_processor.answers import Kind
from conformance.io_processor.bench import Bench
from conformance.io_processor.direct import prepared
from conformance.io_processor.parameters import asks
from conformance.io_processor.prompts import prompts_of
from conformance.io_processor.trial import Trial
from conformance.io_processor.watched import Watched
from conformance.watching.interruption import limited, progressed
from conformance.watching.leaks import Given, Spent, more_files, names_of_files, open_files, size_of

#: How many requests a serving comes to at the least, however long they take.
FEWEST = 2

#: Of how many answered requests a plugin may still hold something, or have a file open; after how
#: many requests files are counted: a process may have a thousand.
KEPT, COUNTED = 16, 100

#: A number with as many digits as that of the last request.
LAST = 10_000

#: What a key has that the plugin looks for.
TEXT = "a"

#: Texts in data that are changed at once.
Way = tuple[tuple[Path, str], ...]


class Load:
    """Requests for one instance, no two with the same id, unless they are alike.

    Args:
        bench: what requests are made of.
        plugin: the instance.
        answered: whether they are answered, and not only begun.
        unlike: whether each has a text of its own, if the data have any.
        alike: whether all have one id, as a client may give each of its requests.
        optional: data with keys that no profile names, instead of those that are known.

    """

    def __init__(
        self,
        bench: Bench,
        plugin: Watched,
        *,
        answered: bool,
        unlike: bool,
        alike: bool = False,
        optional: Optional | None = None,
    ) -> None:
        self.which = "answered requests" if answered else "abandoned requests"
        self.case = {"answered": answered}
        if alike:
            self.which += " that all had one id"
            self.case["alike"] = True
        if optional is not None:
            self.which += f" with {optional} in their data"
            self.case["optional"] = True
        self.plugin = plugin
        plugin.noting = False
        self.served = self.left_open = 0
        self.open_files: str | None = None
        self.given: list[Given] = []
        self.bench = bench
        self._answered, self._unlike = answered, unlike
        valid = bench.stock.valid[: max(2, bench.stock.given)]
        if optional is not None:
            valid = optional.data
        self._templates = [(data, prepared(bench.make(), bench, data)) for data in valid]
        # A plugin may compare what comes back with what it has sent: where that is never the same,
        # as with a nonce, no output of before will do.
        self._anew = answered and any(
            [each.prompt_token_ids for each in outputs]
            != [each.prompt_token_ids for each in prepared(bench.make(), bench, data)]
            for data, outputs in self._templates
        )
        self._ways = [_telling(bench, data) for data in valid]
        self._open, self._files = open_files(), names_of_files()
        self.blocks_before = self.blocks()

    def serve(self, most: int, seconds: float) -> int:
        """Serve so many requests, or as many as there is time for; return how many."""
        spent = Spent()
        for count in range(1, most + 1):
            with limited():
                self._serve_one()
            progressed()  # many requests take longer than anything else does
            if self.served % COUNTED == 0 and self._left() > KEPT:
                gc.collect()  # what is in cycles is closed when they are
                if (left := self._left()) > KEPT:
                    self.left_open = left
                    self.open_files = more_files(left, self._files)
                    return count
            if count >= FEWEST and spent.beyond(seconds, seconds):
                return count
        return most

    def taken_anew(self) -> bool:
        """Tell whether a new instance takes the last request."""
        kind = (self.served - 1) % len(self._templates)
        try:
            prepared(self.bench.make(), self.bench, self._templates[kind][0])
        except Exception:  # noqa: BLE001 - another rule is about that
            return False
        return True

    def _left(self) -> int:
        return open_files() - self._open

    def size(self) -> int:
        """Return how many bytes the plugin holds."""
        return size_of(self.plugin.plugin)

    def blocks(self) -> int:
        """Return how many objects the process has, without those that the harness keeps."""
        self.given.clear()
        gc.collect()
        return sys.getallocatedblocks()

    def _serve_one(self) -> None:
        bench, plugin = self.bench, self.plugin
        kind = self.served % len(self._templates)
        data, outputs = self._templates[kind]
        request_id = "id-0" if "alike" in self.case else f"id-{self.served}"
        ways = self._ways[kind] if self._unlike else ()
        mine = copy.deepcopy(data)
        if ways:
            way = ways[self.served // len(self._templates) % len(ways)]
            mine = _numbered(mine, way, self.served)
        self.served += 1
        if self._anew or (ways and self._answered):
            fresh = prepared(plugin, bench, mine, request_id)
        else:
            try:
                prompts_of(plugin, bench, mine, request_id)
            except Exception:
                if "alike" in self.case:
                    return  # it refuses an id that is in use
                raise
            asks(plugin, bench)()
            fresh = [copy.copy(output) for output in outputs]
            for index, output in enumerate(fresh):
                output.request_id = f"{request_id}-{index}"
        if self._answered:
            with torch.inference_mode():
                plugin.post_process(fresh, request_id=request_id)
        if isinstance(mine, dict | list):  # a string may be anybody's
            self.given.append((mine, fresh[0]))


@attrs.frozen(eq=False)
class Optional:
    """Data with further keys that the plugin looks for, and takes a text of."""

    keys: tuple[str, ...]
    data: tuple[Any, ...]

    def __str__(self) -> str:
        return " and ".join(map(repr, self.keys))


def optional(trial: Trial) -> Optional | None:
    """Return data with all keys that no known data have, if the plugin answers any."""
    bench = trial.bench
    base = next((data for data in bench.stock.valid if isinstance(data, dict)), None)
    if base is None:
        return None
    known = {key for data in bench.stock.valid if isinstance(data, dict) for key in data}
    absent = [key for key in bench.stock.keys if key not in known]
    taken = [key for key in absent if _answers(bench, {**base, key: TEXT})]
    if not taken:
        return None
    together = {**base, **dict.fromkeys(taken, TEXT)}
    if _answers(bench, together):
        return Optional(tuple(taken), (together,))
    return Optional(tuple(taken[:1]), ({**base, taken[0]: TEXT},))


def _answers(bench: Bench, data: object) -> bool:
    return bench.answer_to(data).kind is Kind.ANSWERED


class Refused(Load):
    """Requests that are refused, none of them the same as another."""

    def __init__(self, bench: Bench, plugin: Watched, refused: list[dict[str, Any]]) -> None:
        super().__init__(bench, plugin, answered=False, unlike=True)
        self.which = "refused requests"
        self._spoilt = refused

    def _serve_one(self) -> None:
        data = self._spoilt[self.served % len(self._spoilt)]
        self.served += 1
        with suppress(Exception):
            prompts_of(self.plugin, self.bench, {**data, "number": f"{self.served}"})


def refused(bench: Bench) -> list[dict[str, Any]]:
    """Return objects that are refused, with something else in them or not."""
    valid = bench.stock.originals
    spoilt = [
        spoil(data, place)
        for data in valid[:1]
        for place, _ in places(data)
        if place and isinstance(place[-1], str)
        for spoil in (without, lambda data, place: changed(data, place, None))
    ]
    found: list[dict[str, Any]] = []
    for data in (*spoilt, *bench.stock.invalid):
        if isinstance(data, dict):
            try:
                prompts_of(bench.make(), bench, {**data, "number": "0"})
            except Exception:  # noqa: BLE001 - as a plugin refuses
                found.append(data)
    return found


def _telling(bench: Bench, data: object) -> tuple[Way, ...]:
    """Return which texts in the data may also end in a number: all at once, or else in turn."""
    each: list[Way] = [((place, text),) for place, text in places(data) if isinstance(text, str)]
    taken = [way for way in each if _takes(bench, data, way)]
    together = tuple(place for way in taken for place in way)
    return (together,) if taken and _takes(bench, data, together) else tuple(taken)


def _takes(bench: Bench, data: object, way: Way) -> bool:
    """Tell whether the data are still taken where texts end in a number of five digits."""
    plugin = bench.make()
    try:
        prompts_of(plugin, bench, _numbered(data, way, LAST))
    except Exception:  # noqa: BLE001 - as a plugin refuses
        return False
    return True


def _numbered(data: Any, way: Way, number: int) -> Any:  # noqa: ANN401 - JSON values
    """Return data in which texts end in a number."""
    for place, text in way:
        data = changed(data, place, f"{text} {number}")
    return data
