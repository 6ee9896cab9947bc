# SPDX-License-Identifier: Apache-2.0
"""Everything that is done to a plugin while a failure is shown, as plain calls.

A failing check or history is gone through once more, in a process in which nothing has been done
with the plugin before.  What is written down there is enough for a program that needs neither
this harness nor vLLM's ``InputBatch``: instances, parameters, lists, updates and logits.
"""

from __future__ import annotations

import copy
from typing import Any

import attrs
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate

from conformance.counterexample.source import encoded
from conformance.logits.calls import Observer, in_full
from conformance.logits.configuration import MAX_REQUESTS
from conformance.logits_batch.bench import Bench

Call = dict[str, Any]

_KINDS = {"is_argmax_invariant": "claim", "apply": "apply", "update_state": "update"}

#: Scales and shifts of rows that checks use; others are written out number by number.
_SCALES = ((1.0, 0.0), (0.01, 0.0), (30.0, 0.0), (1.0, -50.0), (1e-3, 0.0))

#: Tokens in which a row may differ from a scaled one and still be told by its difference.
_FEW = 4


@attrs.define
class _List:
    """A prompt or an output list that the plugin has seen."""

    name: str
    instance: str
    value: list[int]
    seen: list[int]  #: as it was when the plugin was last called


@attrs.define
class Recorder(Observer):
    """Sees every call into a plugin."""

    bench: Bench
    calls: list[Call] = attrs.field(factory=list)
    #: What the plugin wrote to: the name of the variable, and how many calls there were by then.
    written: dict[str, int] = attrs.field(factory=dict)
    _instances: dict[int, tuple[str, Any]] = attrs.field(factory=dict)
    _params: dict[int, tuple[str, SamplingParams, SamplingParams]] = attrs.field(factory=dict)
    _lists: dict[int, _List] = attrs.field(factory=dict)
    #: Requests that each instance was given so far.
    _requests: dict[str, int] = attrs.field(factory=dict)

    def note(self, event: dict[str, Any]) -> None:
        """Mark the call whose row is not what the author says, or is written to by the sampler."""
        if event["do"] == "unmeant":
            self.calls[-1]["to"] = "result"
        elif event["do"] == "sampled":
            self.calls[-1]["sampled"] = True

    def call(self, function: Any, *arguments: Any) -> Any:  # noqa: ANN401 - a plugin's own values
        """Call a function of the plugin and write it down."""
        self._catch_up()
        entry = self._described(function, arguments)
        if entry is None:
            return function(*arguments)
        self.calls.append(entry)
        entry["hung"] = True  # until it returns; a hang is ended by another kind of exception
        try:
            result = function(*arguments)
        except (Exception, SystemExit) as error:
            entry["raised"] = f"{type(error).__name__}: {error}"
            del entry["hung"]
            raise
        finally:
            self._look()
        del entry["hung"]
        if entry["do"] == "new":
            self._instances[id(result)] = (entry["name"], result)
        elif entry["do"] == "claim":
            entry["result"] = result if isinstance(result, bool) else repr(result)
        return result

    def _described(self, function: object, arguments: tuple[Any, ...]) -> Call | None:
        owner = getattr(function, "__self__", None)
        name = getattr(function, "__name__", "")
        if owner is self.bench or function is self.bench.plugin:
            most = MAX_REQUESTS
            if arguments:
                most = arguments[0].scheduler_config.max_num_seqs
            name = f"@{len(self._instances) + 1}"
            serving, self._serving = self._serving, None
            return {"do": "new", "name": name, "max_num_seqs": most, "serves": serving}
        if name == "validate_params":
            return {"do": "validate", "params": self._named_params(arguments[0], "params")}
        if id(owner) not in self._instances or name not in _KINDS:
            return None
        instance, _ = self._instances[id(owner)]
        entry: Call = {"do": _KINDS[name], "of": instance}
        if name == "apply":
            entry |= self._logits(arguments[0])
        elif name == "update_state":
            entry["update"] = self._update(instance, arguments[0])
        return entry

    def _update(self, instance: str, update: BatchUpdate | None) -> Call | None:
        if update is None:
            return None
        return {
            "batch_size": update.batch_size,
            "removed": list(update.removed),
            "added": [
                [row, *self._request(instance, params, prompt, outputs)]
                for row, params, prompt, outputs in update.added
            ],
            "moved": [[first, second, way.name] for first, second, way in update.moved],
        }

    def _request(
        self,
        instance: str,
        params: SamplingParams,
        prompt: list[int] | None,
        outputs: list[int],
    ) -> tuple[str, str | None, str]:
        """Write down what a request brings, and return the names of it."""
        if id(params) in self._params:
            letter = self._params[id(params)][0].partition("@")[0].rpartition("_")[2]
        else:
            count = self._requests.get(instance, 0)
            self._requests[instance] = count + 1
            letter = _letter(count)
        named = self._named_params(params, f"params_{letter}", instance)
        return (
            named,
            None if prompt is None else self._named_list(prompt, f"prompt_{letter}", instance),
            self._named_list(outputs, f"outputs_{letter}", instance),
        )

    def _named_params(self, params: SamplingParams, name: str, instance: str = "") -> str:
        if id(params) not in self._params:
            name = f"{name}@{instance}"
            made_of = self.made_of(params)
            self._params[id(params)] = (name, params, copy.deepcopy(params))
            self.calls.append({"do": "params", "name": name, "of": instance, "keywords": made_of})
        return self._params[id(params)][0]

    def _named_list(self, value: list[int], name: str, instance: str) -> str:
        if id(value) not in self._lists:
            name = f"{name}@{instance}"
            self._lists[id(value)] = _List(name, instance, value, list(value))
            self.calls.append({"do": "list", "name": name, "of": instance, "value": list(value)})
        return self._lists[id(value)].name

    def _catch_up(self) -> None:
        """Write down how lists have changed since the plugin last saw them."""
        for entry in self._lists.values():
            before, now = entry.seen, list(entry.value)
            if before == now:
                continue
            about = {"name": entry.name, "of": entry.instance}
            if len(now) < len(before):
                self.calls.append({"do": "replace", **about, "value": now})
                entry.seen = now
                continue
            for index, (old, new) in enumerate(zip(before, now, strict=False)):
                if old != new:
                    self.calls.append({"do": "set", **about, "index": index, "value": new})
            if len(now) > len(before):
                self.calls.append({"do": "append", **about, "values": now[len(before) :]})
            entry.seen = now

    def _look(self) -> None:
        """Notice what the plugin wrote to in the call that has just ended."""
        for entry in self._lists.values():
            if entry.seen != entry.value:
                self.written.setdefault(entry.name, len(self.calls))
                entry.seen = list(entry.value)
        for name, params, kept in self._params.values():
            if params != kept:
                self.written.setdefault(name, len(self.calls))

    def _logits(self, logits: torch.Tensor) -> Call:
        found: Call = {"rows": [self._row(row) for row in logits]}
        if logits.stride(0) > logits.shape[1]:
            found["padding"] = logits.stride(0) - logits.shape[1]
        return found

    def _row(self, row: torch.Tensor) -> int | Call:
        """Return which row of the bench's logits this is, and what was done to it."""
        table = self.bench.table
        temperatures = {params.temperature for _, params, _ in self._params.values()}
        for divisor in (1.0, *sorted(temperatures - {0.0, 1.0})):
            for scale, shift in _SCALES if divisor == 1.0 else ((1.0, 0.0),):
                scaled = table * scale + shift if divisor == 1.0 else table / divisor
                different = (scaled != row).sum(dim=1)
                best = int(different.argmin())
                if different[best] > _FEW:
                    continue
                where = (scaled[best] != row).nonzero().flatten().tolist()
                found: Call = {"row": best}
                found |= {"times": scale} if scale != 1.0 else {}
                found |= {"plus": shift} if shift != 0.0 else {}
                found |= {"over": divisor} if divisor != 1.0 else {}
                found |= {"set": [[t, encoded(row[t].item())] for t in where]} if where else {}
                return found if len(found) > 1 else best
        return in_full(row)


def _letter(index: int) -> str:
    round_, letter = divmod(index, 26)
    return "abcdefghijklmnopqrstuvwxyz"[letter] + (str(round_) if round_ else "")
