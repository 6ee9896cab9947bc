"""LB-35 Where nobody opts in, a large batch costs what a small one does.

Plugin    mineru_vl_utils:MinerULogitsProcessor
Did       a step in which no request opts in executes 3247 instructions of Python with 128 requests,
          and 727 with 8
Expected  A step in which no request mentions the plugin executes about as many instructions of
          Python with 128 requests as with 8.
Check     Go through the requests that opted in, not through the rows of the batch: every step of
          every request waits for this, also of those who never heard of the plugin.

Needs vLLM, torch and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

import copy
import functools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import get_ident
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.sample.logits_processor import BatchUpdate

sys.path.insert(0, "PLUGIN/mineru_vl_utils/logits_processor")

from mineru_vl_utils import MinerULogitsProcessor as Plugin


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


def executed(call: Callable[[], object]) -> int:
    """Return how many instructions Python executes in functions that a call calls.

    Loops in C, those of torch among them, count as one, and other threads count for nothing.
    """
    # From 3.12 on, a trace function is told of instructions only where one was asked about them
    # before, and then not in every function.
    return monitored(call) if sys.version_info >= (3, 12) else traced(call)


def monitored(call: Callable[[], object]) -> int:
    """Return how many instructions a call executes."""
    count, ours = 0, get_ident()

    def noted(_code: Any, _offset: int) -> None:
        nonlocal count
        count += get_ident() == ours

    monitoring: Any = sys.monitoring  # type: ignore[attr-defined] # from 3.12 on
    tool, event = 3, monitoring.events.INSTRUCTION  # Python reserves that number for nobody
    monitoring.use_tool_id(tool, "instructions")
    try:
        monitoring.register_callback(tool, event, noted)
        monitoring.set_events(tool, event)
        call()
    finally:
        monitoring.set_events(tool, monitoring.events.NO_EVENTS)
        monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)
    return count


def traced(call: Callable[[], object]) -> int:
    """Return how many instructions a call executes."""
    count = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


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

    def started(
        self, requests: list[Any], count: int, vocabulary: int, history: int = 0
    ) -> Callable[[], None]:
        """Return the calls of a step with so many requests, after three others."""
        raise NotImplementedError

    def device(self, requests: list[Any], steps: int) -> Iterator[torch.Tensor]:
        """Serve requests together on a GPU; yield what apply returns."""
        raise NotImplementedError

    def outputs(self, count: int, history: int) -> list[list[int]]:
        """Return so many outputs for each of so many requests."""
        return [[self.said(row + place) for place in range(history)] for row in range(count)]


def instructions(host: Host, requests: list[Any], count: int, vocabulary: int) -> int:
    """Return how many instructions of Python a step executes in which nobody comes or goes."""
    with torch.inference_mode():
        again = host.started(requests, count, vocabulary)
        return executed(again)


def check_idle_cost(host: Host) -> str | None:
    """A large idle batch costs what a small one does."""
    few, many = (instructions(host, [{}], count, host.rows.vocabulary) for count in (8, 128))
    if many > 1.5 * few + 100:
        what = f"{many} instructions with 128 requests that do not opt in, {few} with 8"
        return f"{what}\nexpected: about as many"
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


fault = check_idle_cost(BatchHost(Plugin, Logits(500, [3, 7, 11, 13], seed=20261121), [3, 13]))
print(f"FAILS: {fault}" if fault else f"OK: {check_idle_cost.__doc__}")
sys.exit(1 if fault else 0)
