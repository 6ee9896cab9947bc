"""LB-18 Rows of unfinished prefills change nothing.

Plugin    prime_rl.inference.vllm.logits_processors.repetition:RepetitionDetectionLogitsProcessor
Did       the row is not the one that the request gets alone (prompts are computed in chunks)
Expected  apply also receives rows of requests whose prefill is not finished, and their samples are
          discarded: later rows of the request do not depend on how often that happened.
Check     Derive progress from len(output_tok_ids); do not count calls of apply.

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
# As it was found: with what the profile sets, and a build for another device chosen.
os.environ.setdefault("PRIME_REPETITION_DETECTION_ENABLED", "1")
os.environ.setdefault("PRIME_REPETITION_DETECTION_WINDOW", "2")
os.environ.setdefault("PRIME_REPETITION_DETECTION_PROB_THRESHOLD", "0.002")
os.environ.setdefault("PRIME_GIBBERISH_DETECTION_ENABLED", "1")
os.environ.setdefault("PRIME_GIBBERISH_DETECTION_TOKEN_ID_THRESHOLD", "100")
os.environ.setdefault("PRIME_GIBBERISH_DETECTION_LOGPROB_OFFSET", "0.1")

from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.sample.logits_processor import BatchUpdate

sys.path.insert(0, "PLUGIN")

from prime_rl.inference.vllm.logits_processors.repetition import RepetitionDetectionLogitsProcessor as Plugin


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
rows = Logits(VOCABULARY, [7, 11, 13], seed=20261121)

CONFIG = engine_config(8, VOCABULARY)

# The batch, as vLLM's InputBatch told the plugin about it.
batch = Plugin(CONFIG, torch.device("cpu"), False)

# Step 0: A joins (on[0], 2 tokens), A computes 1 of its prefill; rows: A in 0.
params_a = SamplingParams()
prompt_a = [7, 11]
outputs_a = []
with torch.inference_mode():
    batch.update_state(
        BatchUpdate(batch_size=1, removed=[], added=[(0, params_a, prompt_a, outputs_a)], moved=[])
    )
    batch.apply(rows(87))

    # Step 1: advance; rows: A in 0.
    batch.update_state(None)
    result = batch.apply(rows(87))

# The same request alone, in an instance of its own.
alone = Plugin(CONFIG, torch.device("cpu"), False)
params_alone = SamplingParams()
prompt_alone = [7, 11]
outputs_alone = []
with torch.inference_mode():
    alone.update_state(
        BatchUpdate(
            batch_size=1,
            removed=[],
            added=[(0, params_alone, prompt_alone, outputs_alone)],
            moved=[],
        ),
    )
    expected = alone.apply(rows(87))

got, expected = result[0], expected[0]
close = torch.isclose(got, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
wrong = (~close).nonzero().flatten().tolist()
if wrong:
    print("FAILS: row 0 (request A) is not what it gets alone")
    for token in wrong[:8]:
        print(f"  token {token}: got {got[token]:.6g}, expected {expected[token]:.6g}")
    print(f"  ({len(wrong)} of {len(got)} tokens differ)")
    sys.exit(1)
print("OK: row 0 (request A) is what it gets alone")
