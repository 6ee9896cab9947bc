"""LB-27 Finished requests leave nothing behind.

Plugin    gptwm_vllm_config:GPTWatermarkAdapterLogitsProcessor
Did       after 10000 requests the plugin holds 6693660 bytes with no request in it, and it grows by
          521 bytes with every request, with 1 in 4 bringing a value of its own:
          extra_args.watermark_key; a dict (self._mask_cache) has 210 more entries after the next
          200 requests
Expected  After ten thousand requests a plugin holds no more than after a few: no parameters,
          prompts, outputs or logits of finished requests, no file or thread, and no growing state
          of its own, also where update_state is called and apply is not.
Check     Look for dictionaries keyed by something other than the row, for caches without a limit,
          for lists that are only appended to, and for what only close or join ends.

Needs vLLM, torch and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

import copy
import functools
import gc
import itertools
import json
import os
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.sample.logits_processor import BatchUpdate

sys.path.insert(0, "PLUGIN")

from gptwm_vllm_config import GPTWatermarkAdapterLogitsProcessor as Plugin


@functools.cache
def engine_config(max_num_seqs: int, vocab_size: int, max_model_len: int = 128) -> Any:
    """Return the configuration of an engine with a tiny model, as plugins are made with."""
    model = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": max(512, max_model_len),
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
    }
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(model))
        arguments = EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            enforce_eager=True,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            dtype="float32",
        )
        return arguments.create_engine_config()


def request(**keywords: Any) -> SamplingParams:
    """Return parameters as vLLM's front end hands them on: with the end-of-sequence token."""
    params = SamplingParams(**keywords)
    params.update_from_generation_config({}, 1)
    return params


def logits_table(vocabulary: int, tokens: Sequence[int], seed: int) -> torch.Tensor:
    """Return float32 logits [97, vocabulary] such as a model gives, high for some tokens.

    Every eighth row has ties at the top, and every eighth is masked to 16 tokens and these, as
    structured output does.
    """
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn((97, vocabulary), generator=generator, dtype=torch.float32)
    table[:, tokens] += 4.0
    table[3::8, tokens] = table[3::8].amax(dim=-1, keepdim=True)
    kept = torch.randint(0, vocabulary, (16,), generator=generator)
    mask = torch.ones(vocabulary, dtype=torch.bool)
    mask[kept] = False
    mask[list(tokens)] = False
    table[5::8, mask] = -torch.inf
    return table


class Logits:
    """Rows of such logits, by their numbers."""

    def __init__(self, vocabulary: int, tokens: Sequence[int], seed: int) -> None:
        self.vocabulary, self.tokens = vocabulary, list(tokens)
        self.table = logits_table(vocabulary, self.tokens, seed)

    def __call__(self, *numbers: int, padding: int = 0) -> torch.Tensor:
        """Return rows; with padding as a view of longer ones.

        vLLM pads the vocabulary, and cuts the padding off again.
        """
        rows = self.table[[number % len(self.table) for number in numbers]]
        if not padding:
            return rows
        longer = torch.full((len(numbers), self.vocabulary + padding), -torch.inf)
        longer[:, : self.vocabulary] = rows
        return longer[:, : self.vocabulary]


#: How many requests come and go before each measurement.
ROUND = 2000


class Host:
    """Makes a plugin, and serves requests: their prompt, how parameters are made, what is said."""

    def __init__(
        self,
        plugin: Any,
        rows: Logits,
        prompt: list[int],
        make: Callable[..., SamplingParams] = SamplingParams,
        first: Sequence[int] = (),
    ) -> None:
        self.plugin, self.rows, self.prompt, self.make = plugin, rows, prompt, make
        self.first = first

    def params(self, keywords: Mapping[str, Any]) -> SamplingParams:
        """Return the parameters of a new request."""
        return self.make(**copy.deepcopy(dict(keywords)))

    def said(self, step: int) -> int:
        """Return the token that a request gets in a step."""
        if step < len(self.first):
            return self.first[step]
        return self.rows.tokens[(step - len(self.first)) % len(self.rows.tokens)]

    def rounds(self, request: Callable[[int], Any]) -> Callable[..., None]:
        """Return what takes a round of requests through an instance, with apply or without.

        ``request`` returns the keywords of the request with a number.
        No two requests have the same prompt: it is made of the number of each.
        """
        raise NotImplementedError

    def device(self, requests: list[Any], steps: int) -> Iterator[torch.Tensor]:
        """Serve requests together on a GPU; yield what apply returns."""
        raise NotImplementedError

    def outputs(self, count: int, history: int) -> list[list[int]]:
        """Return so many outputs for each of so many requests."""
        return [[self.said(row + place) for place in range(history)] for row in range(count)]


def other(value: Any, number: int) -> Any:
    """Return another value of the same kind, for each number another one."""
    if isinstance(value, float):
        return value * (1 - number / 2**24)
    return f"{value}{number}" if isinstance(value, str) else value + number


def varied(keywords: Mapping[str, Any], places: list[list[Any]], number: int) -> dict[str, Any]:
    """Return keywords with another value wherever there is one at some of these places."""
    found = copy.deepcopy(dict(keywords))
    for *outer, last in places:
        inner: Any = found
        with suppress(LookupError, TypeError):
            for step in outer:
                inner = inner[step]
            inner[last] = other(inner[last], number)
    return found


def check_growth(host: Host, requests: list[Any], places: list[Any] | None = None) -> str | None:
    """No more memory is held, and no file or thread, when requests have come and gone."""

    def request(number: int) -> Any:
        """Return a request; at these places each has another value."""
        return varied(requests[number % len(requests)], places or [], number)

    opened = {"files are open": Path("/proc/self/fd"), "threads run": Path("/proc/self/task")}
    tracemalloc.start()
    # Where every request is greedy, an engine does not call apply of some plugins.
    for applies in (True, False):
        go_through, numbers, held = host.rounds(request), itertools.count(), list[int]()
        before = {of: len(list(folder.iterdir())) for of, folder in opened.items()}
        with torch.inference_mode():
            for _ in range(5):
                go_through(numbers, applies=applies)
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
                for of, folder in opened.items():
                    if (left := len(list(folder.iterdir())) - before[of]) >= ROUND // 8:
                        what = f"{left} more {of} after {ROUND} requests"
                        return f"{what}\nexpected: as before, once the requests have finished"
        growth = [after - before for before, after in itertools.pairwise(held)]
        if min(growth[-3:]) > 0 and sum(growth[-3:]) > 4 * ROUND:
            what = f"more memory is held after each {ROUND} requests, in bytes: {held}"
            return f"{what}\nexpected: as much as before, once the requests have finished"
    return None


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


fault = check_growth(
    BatchHost(Plugin, Logits(500, [7, 11, 13, 499], seed=20261121), [7, 13], first=[499]),
    requests=[
        {"extra_args": {"watermark_key": 7}},
        {"extra_args": {"watermark_key": 11}},
        {},
        {"extra_args": {"unrelated": 1}},
    ],
    places=[["extra_args", "watermark_key"]],
)
print(f"FAILS: {fault}" if fault else f"OK: {check_growth.__doc__}")
sys.exit(1 if fault else 0)
