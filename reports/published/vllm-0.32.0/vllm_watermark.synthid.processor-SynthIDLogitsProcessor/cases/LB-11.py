"""LB-11 A resumed request continues as if never interrupted.

Plugin    vllm_watermark.synthid.processor:SynthIDLogitsProcessor
Did       the row is not the one that the request gets alone (requests are preempted and resumed,
          and computed again where a load failed)
Expected  A preempted request leaves the batch and is added again with the outputs it already has.
          Where keys and values fail to load, it stays in the batch, and its row is computed again
          for the same outputs. Later rows are those of a request that was never interrupted.
Check     Derive all state from (params, prompt, outputs) when a request is added; do not count
          steps.

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
os.environ.setdefault("WATERMARK_KEYS", "default:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff,second:ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100")

from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

sys.path.insert(0, "PLUGIN")

from vllm_watermark.synthid.processor import SynthIDLogitsProcessor as Plugin


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
rows = Logits(VOCABULARY, [7, 11, 13, 5, 30], seed=20261121)

CONFIG = engine_config(8, VOCABULARY)

# The batch, as vLLM's InputBatch told the plugin about it.
batch = Plugin(CONFIG, torch.device("cpu"), False)

# Step 0: A joins (on[0], 2 tokens), B joins (off[0], 2 tokens); rows: A in 0, B in 1.
params_a = SamplingParams(extra_args={"watermark": "on", "watermark_scheme": "synthid"})
prompt_a = [7, 11]
outputs_a = []
params_b = SamplingParams()
prompt_b = [7, 11]
outputs_b = []
with torch.inference_mode():
    batch.update_state(
        BatchUpdate(
            batch_size=2,
            removed=[],
            added=[(0, params_a, prompt_a, outputs_a), (1, params_b, prompt_b, outputs_b)],
            moved=[],
        ),
    )
    batch.apply(rows(87, 87))
    outputs_a.append(5)
    outputs_b.append(30)

    # Step 1: advance; rows: A in 0, B in 1.
    batch.update_state(None)
    batch.apply(rows(6, 81))
    outputs_a.append(5)
    outputs_b.append(30)

    # Step 2: advance; rows: A in 0, B in 1.
    batch.update_state(None)
    batch.apply(rows(22, 75))
    outputs_a.append(5)
    outputs_b.append(30)

    # Step 3: advance; rows: A in 0, B in 1.
    batch.update_state(None)
    batch.apply(rows(38, 69))
    outputs_a.append(5)
    outputs_b.append(30)

    # Step 4: advance; rows: A in 0, B in 1.
    batch.update_state(None)
    batch.apply(rows(54, 63))
    outputs_a.append(5)
    outputs_b.append(30)

    # Step 5: A is preempted; rows: B in 0.
    batch.update_state(
        BatchUpdate(
            batch_size=1, removed=[], added=[], moved=[(1, 0, MoveDirectionality.UNIDIRECTIONAL)]
        ),
    )
    batch.apply(rows(57))
    outputs_b.append(30)

    # Step 6: advance; rows: B in 0, A in 1.
    batch.update_state(
        BatchUpdate(batch_size=2, removed=[], added=[(1, params_a, prompt_a, outputs_a)], moved=[])
    )
    result = batch.apply(rows(51, 70))

# The same request alone, in an instance of its own.
alone = Plugin(CONFIG, torch.device("cpu"), False)
params_alone = SamplingParams(extra_args={"watermark": "on", "watermark_scheme": "synthid"})
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
    alone.apply(rows(87))
    outputs_alone.append(5)

    alone.update_state(None)
    alone.apply(rows(6))
    outputs_alone.append(5)

    alone.update_state(None)
    alone.apply(rows(22))
    outputs_alone.append(5)

    alone.update_state(None)
    alone.apply(rows(38))
    outputs_alone.append(5)

    alone.update_state(None)
    alone.apply(rows(54))
    outputs_alone.append(5)

    alone.update_state(None)
    expected = alone.apply(rows(70))

got, expected = result[1], expected[0]
close = torch.isclose(got, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
wrong = (~close).nonzero().flatten().tolist()
if wrong:
    print("FAILS: row 1 (request A) is not what it gets alone")
    for token in wrong[:8]:
        print(f"  token {token}: got {got[token]:.6g}, expected {expected[token]:.6g}")
    print(f"  ({len(wrong)} of {len(got)} tokens differ)")
    sys.exit(1)
print("OK: row 1 (request A) is what it gets alone")
