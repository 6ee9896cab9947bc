# SPDX-License-Identifier: Apache-2.0
"""Plays the failure of a check against a batch logits processor; see ``logits_player``."""

import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

from conformance.counterexample.clock_player import Clock
from conformance.counterexample.logits_host_player import engine_config
from conformance.counterexample.logits_player import CONTEXT, ROUND, WIDER, Host
from conformance.counterexample.work_player import Work


class BatchHost(Host):
    """Serves requests as the V1 model runner does."""

    def new(
        self, most: int = 8, vocabulary: int = 0, device: str = "cpu", context: int = 128
    ) -> Any:
        """Make an instance."""
        config = engine_config(most, vocabulary or self.rows.vocabulary, context)
        return self.plugin(config, torch.device(device), device != "cpu")

    def joining(self, requests: list[Any], outputs: list[list[int]]) -> BatchUpdate:
        """Return the update with which requests fill an empty batch."""
        added = [
            (row, self.params(keywords), [*self.prompt], outputs[row])
            for row, keywords in enumerate(requests)
        ]
        return BatchUpdate(batch_size=len(requests), removed=[], added=added, moved=[])

    @torch.inference_mode()
    def alone(
        self, keywords: Mapping[str, Any], steps: int, masked: list[int] | None = None
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Serve one request by itself; return its logits before and after each step."""
        plugin, outputs, found = self.new(), list[int](), []
        joining = self.joining([keywords], [outputs])
        for step in range(steps):
            plugin.update_state(None if step else joining)
            before = self.rows(step)
            before[:, masked or []] = -torch.inf
            found.append((before[0], plugin.apply(before.clone())[0].clone()))
            outputs.append(self.said(step))
        return found

    @torch.inference_mode()
    def long(self, params: Any, prompt: list[int], outputs: list[int], steps: int) -> None:
        """Serve one request of a model with a long context."""
        plugin = self.new(context=CONTEXT)
        added = [(0, params, prompt, outputs)]
        joining = BatchUpdate(batch_size=1, removed=[], added=added, moved=[])
        for step in range(steps):
            plugin.update_state(None if step else joining)
            outputs.append(self.taken(plugin.apply(self.rows(step))[0], step))

    @torch.inference_mode()
    def wide(self, keywords: Mapping[str, Any], steps: int) -> None:
        """Serve one request of a model with a larger vocabulary than its tokenizer's."""
        beyond, outputs = self.rows.vocabulary + WIDER - 1, list[int]()
        plugin = self.new(vocabulary=beyond + 1)
        added = [(0, self.params(keywords), [beyond, *self.prompt], outputs)]
        joining = BatchUpdate(batch_size=1, removed=[], added=added, moved=[])
        for step in range(steps):
            plugin.update_state(None if step else joining)
            row = plugin.apply(torch.nn.functional.pad(self.rows(step), (0, WIDER)))[0]
            last = step == steps - 2 and row[beyond] > -torch.inf
            outputs.append(beyond if last else self.taken(row, step))

    @torch.inference_mode()
    def later(self, requests: list[Any], clock: Clock, pauses: list[int]) -> None:
        """Serve requests together, twice by one instance; the first one leaves before the last."""
        plugin, count = self.new(), len(requests)
        within, between = pauses
        left = (count - 1, 0, MoveDirectionality.UNIDIRECTIONAL)
        for _ in range(2):
            outputs = [list[int]() for _ in requests]
            for update in (
                self.joining(requests, outputs),
                None,
                BatchUpdate(batch_size=count - 1, removed=[0], added=[], moved=[left]),
                None,
            ):
                plugin.update_state(update)
                if update is not None and update.removed:
                    outputs = [*outputs[-1:], *outputs[1:-1]]
                step = len(outputs[0])
                result = plugin.apply(self.rows(*[step] * len(outputs)))
                for row, tokens in zip(result, outputs, strict=True):
                    tokens.append(self.taken(row, step))
                clock.forward(within)
            removed = list(range(count - 2, -1, -1))
            plugin.update_state(BatchUpdate(batch_size=0, removed=removed, added=[], moved=[]))
            clock.forward(between)

    def started(
        self, requests: list[Any], count: int, vocabulary: int, history: int = 0
    ) -> Callable[[], None]:
        """Return the calls of a step with so many requests, after three others."""
        plugin, outputs = self.new(256, vocabulary), self.outputs(count, history)
        joining = self.joining([requests[row % len(requests)] for row in range(count)], outputs)
        logits = torch.randn(count, vocabulary, generator=torch.Generator().manual_seed(0))
        for step in range(3):
            plugin.update_state(None if step else joining)
            plugin.apply(logits.clone())
            for row, ids in enumerate(outputs):
                ids.append(self.said(row + step))

        def again() -> None:
            plugin.update_state(None)
            plugin.apply(logits)

        return again

    def rounds(self, request: Callable[[int], Any]) -> Callable[..., None]:
        """Return what takes requests through a batch of eight; half of them change in each step."""
        plugin, logits = self.new(), self.rows(*range(8))

        def go_through(numbers: Iterator[int], *, applies: bool) -> None:
            live: list[list[int]] = [[] for _ in range(8)]
            for step in range(ROUND // 4):
                added = []
                for row in range(4 if step else 8):
                    live[row], number = [], next(numbers)
                    params = self.params(request(number))
                    prompt = [self.said(0), 3 + number % 400, 3 + number // 400]
                    added.append((row, params, prompt, live[row]))
                plugin.update_state(BatchUpdate(batch_size=8, removed=[], added=added, moved=[]))
                if applies:
                    plugin.apply(logits.clone())
                for outputs in live:
                    outputs.append(self.said(step))
            removed = [7, 6, 5, 4, 3, 2, 1, 0]
            plugin.update_state(BatchUpdate(batch_size=0, removed=removed, added=[], moved=[]))
            plugin.update_state(None)

        return go_through

    @torch.inference_mode()
    def device(self, requests: list[Any], steps: int) -> Iterator[torch.Tensor]:
        """Serve requests in one batch on a GPU; yield what apply returns."""
        plugin, outputs = self.new(device="cuda:0"), self.outputs(len(requests), 0)
        joining = self.joining(requests, outputs)
        for step in range(steps):
            plugin.update_state(None if step else joining)
            yield plugin.apply(self.rows(*range(step, step + len(requests))).to("cuda:0"))
            for tokens in outputs:
                tokens.append(self.said(step))


@torch.inference_mode()
def check_idle(host: BatchHost, on: Any, off: list[Any]) -> str | None:
    """With no opted-in request, apply returns its argument and does not work on it."""
    plugin = host.new()
    for when in ("from the start", "after one that did has finished"):
        if when != "from the start":
            plugin.update_state(host.joining([on], [[]]))
            plugin.apply(host.rows(0))
            plugin.update_state(BatchUpdate(batch_size=0, removed=[0], added=[], moved=[]))
        plugin.update_state(host.joining(off, [[] for _ in off]))
        logits = host.rows(*range(len(off)))
        with Work(logits) as work:
            result = plugin.apply(logits)
        removed = list(range(len(off) - 1, -1, -1))
        plugin.update_state(BatchUpdate(batch_size=0, removed=removed, added=[], moved=[]))
        where = f"with no opted-in request ({when}), apply"
        if result is not logits and result.data_ptr() != logits.data_ptr():
            return f"{where} returns another tensor\nexpected: the tensor that it was given"
        if work.operations:
            done = ", ".join(dict.fromkeys(work.operations))
            return f"{where} works on all logits:\n  {done}\nexpected: no operation on them"
    return None


def check_full(host: BatchHost, requests: list[Any]) -> str | None:
    """The rows of a batch of 1100 are those of a small one."""

    @torch.inference_mode()
    def last_rows(most: int, count: int) -> torch.Tensor:
        """Return the rows of a batch of this many requests in its second step."""
        plugin, outputs = host.new(most), host.outputs(count, 0)
        logits = host.rows(*(row % len(requests) for row in range(count)))
        mine = [requests[row % len(requests)] for row in range(count)]
        plugin.update_state(host.joining(mine, outputs))
        plugin.apply(logits.clone())
        for tokens in outputs:
            tokens.append(host.said(0))
        plugin.update_state(None)
        rows: torch.Tensor = plugin.apply(logits.clone())
        return rows

    few = last_rows(8, len(requests))
    try:
        full = last_rows(1536, 1100)
    except Exception as error:
        traceback.print_exc()
        what = f"with 1100 requests and max_num_seqs=1536: {type(error).__name__}: {error}"
        return f"{what}\nexpected: the rows of a small batch, again and again"
    for row in range(1100):
        got, expected = full[row], few[row % len(requests)]
        close = torch.isclose(got, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
        if wrong := (~close).nonzero().flatten().tolist():
            lines = [f"row {row} of 1100 is not the one of the same request in a small batch"]
            lines += [
                f"  token {t}: got {got[t]:.6g}, expected {expected[t]:.6g}" for t in wrong[:8]
            ]
            return "\n".join(lines)
    return None
