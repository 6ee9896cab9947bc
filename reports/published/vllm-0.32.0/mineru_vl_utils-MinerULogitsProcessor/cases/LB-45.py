"""LB-45 Tokens that never become known are not taken for others.

Plugin    mineru_vl_utils:MinerULogitsProcessor
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

import functools
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

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



VOCABULARY = 500
rows = Logits(VOCABULARY, [3, 7, 11, 13], seed=20261121)

CONFIG = engine_config(8, VOCABULARY)

# The batch, as vLLM's InputBatch told the plugin about it.
batch = Plugin(CONFIG, torch.device("cpu"), False)

# Step 0: A joins (on[0], 1 tokens); rows: A in 0.
params_a = SamplingParams(extra_args={"no_repeat_ngram_size": 2})
prompt_a = [3]
outputs_a = []
with torch.inference_mode():
    batch.update_state(
        BatchUpdate(batch_size=1, removed=[], added=[(0, params_a, prompt_a, outputs_a)], moved=[])
    )
    batch.apply(rows(3))
    outputs_a.append(-1)

    # Step 1: advance; rows: A in 0.
    batch.update_state(None)
    batch.apply(rows(13))
    outputs_a.append(-1)

    # Step 2: advance; rows: A in 0.
    batch.update_state(None)
    result = batch.apply(rows(23))

# The same request alone, in an instance of its own.
alone = Plugin(CONFIG, torch.device("cpu"), False)
params_alone = SamplingParams(extra_args={"no_repeat_ngram_size": 2})
prompt_alone = [3]
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
    taken = alone.apply(rows(23))

got, taken, given = result[0], taken[0], rows(23)[0]
last = len(got) - 1
if torch.equal(got, taken) and got[last] != given[last]:
    print(f"FAILS: row 0 (request A) takes -1 for token {last}, the last one of the vocabulary")
    print(f"  token {last}: got {got[last]:.6g}, as where it is said; given {given[last]:.6g}")
    print("expected: another row; -1 stands for a token that is not known yet")
    sys.exit(1)
print("OK: row 0 (request A) does not take -1 for the last token of the vocabulary")
