# SPDX-License-Identifier: Apache-2.0
"""Everything that is done to a slot plugin while a failure is shown, as plain events.

A failing history is gone through once more, in a process in which nothing has been done with the
plugin before.  What is written down there is enough for a program that needs neither this harness
nor vLLM's model runner: requests, slots, tokens and logits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch

from conformance.logits.calls import Observer, in_full
from conformance.logits_slot.bench import Bench

Event = dict[str, Any]

_SHOWN = ("new", "join", "begin", "process", "append")


@attrs.define
class Journal(Observer):
    """Sees everything that is done to a plugin."""

    bench: Bench
    events: list[Event] = attrs.field(factory=list)
    #: The row that was looked at last: its request, slot and number within the request.
    judged: Event | None = None
    _names: dict[int, str] = attrs.field(factory=dict)
    _step: int = 0  #: where the events of the current step begin

    def note(self, event: Event) -> None:
        """Take note of what the host did."""
        do = event["do"]
        if do == "new":
            self._names[event["of"]] = f"alone {self._serving}" if self._serving else "batch"
            self._serving = None
        name = self._names[event.pop("of")]
        if do == "step":
            mine = (e for e in self.events[self._step :] if e["name"] == name and e["do"] != "new")
            if (first := next(mine, None)) is not None:
                first |= {"step": event["step"], "note": event["note"]}
            self._step = len(self.events)
        elif do in ("unmeant", "sampled"):
            processed = (e for e in reversed(self.events) if e["do"] == "process")
            last = next(e for e in processed if e["name"] == name)
            last |= {"to": "result"} if do == "unmeant" else {"sampled": True}
        elif do == "judge":
            self.judged = {"name": name, **event}
        elif do in _SHOWN:
            self._step = self._step if do != "append" else len(self.events) + 1
            self.events.append(self._plain(name, event))

    def call(self, function: Any, *arguments: Any) -> Any:  # noqa: ANN401 - a plugin's own values
        """Call a function of the plugin; note whether it came back."""
        if not self.events:
            return function(*arguments)
        # An instance is noted when it has been made.
        last = self.events[-1]
        last["hung"] = True  # until it returns; a hang is ended by another kind of exception
        try:
            result = function(*arguments)
        except (Exception, SystemExit):
            del last["hung"]
            last["raised"] = True
            raise
        del last["hung"]
        return result

    def _plain(self, name: str, event: Event) -> Event:
        event = {"name": name, **event}
        if event["do"] == "join":
            event["keywords"] = self.made_of(event.pop("params"))
        elif event["do"] == "process":
            event["rows"] = [self._row(row) for row in event.pop("logits")]
        return event

    def _row(self, row: torch.Tensor) -> int | dict[str, str]:
        """Return the number of a row in the table of logits, or the row itself."""
        same = (self.bench.table == row).all(dim=1).nonzero().flatten().tolist()
        return int(same[0]) if same else in_full(row)


def parts(journal: Journal, expect: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the events as programs show them, the shorter part first."""
    shown = _until(journal.events)
    request = expect.get("request")
    mine = [e for e in shown if e["name"] in ("batch", f"alone {request}")]
    # One runner after the other; a stable sort keeps the order within each.
    found = []
    for part in (mine, shown):
        order = list(dict.fromkeys(event["name"] for event in part))
        names = {name: name.replace(" ", "_").lower() for name in order}
        if len(order) <= 2:  # noqa: PLR2004 - the batch and one twin
            names = {name: name.partition(" ")[0] for name in order}
        last = next((e["name"] for e in part if "raised" in e or "hung" in e), order[0])
        by_runner = sorted(part, key=lambda event: (event["name"] == last, 0))
        renamed = [{**event, "name": names[event["name"]]} for event in by_runner]
        found.append({"events": renamed, "expect": dict(expect)})
    return found


def _until(events: Sequence[Event]) -> list[Event]:
    """Leave out what each runner did after the last event that matters for it."""
    last: dict[str, int] = {}
    for index, event in enumerate(events):
        if "to" in event or "raised" in event or "hung" in event:
            last[event["name"]] = index
    return [event for index, event in enumerate(events) if index <= last.get(event["name"], -1)]
