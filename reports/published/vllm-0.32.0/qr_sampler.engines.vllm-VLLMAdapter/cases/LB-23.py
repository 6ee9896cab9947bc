"""LB-23 The same history gives the same rows.

Plugin    qr_sampler.engines.vllm:VLLMAdapter
Did       on[0], step 1: token 14 got -inf the first time and 0 again, for the same request
Expected  Rows depend on nothing but the request: no global random state, no clock. Every
          tensor-parallel rank runs the plugin for itself and must get the same.
Check     Use a generator seeded from the request where randomness is wanted.

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

sys.path.insert(0, "PLUGIN/qr_sampler")

from qr_sampler.engines.vllm import VLLMAdapter as Plugin


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
rows = Logits(VOCABULARY, [7, 11, 13, 6, 5, 14, 18, 17, 26, 25, 34, 33, 42, 41], seed=20261121)

CONFIG = engine_config(8, VOCABULARY)

first = Plugin(CONFIG, torch.device("cpu"), False)
params_first = SamplingParams()
prompt_first = [7, 13]
outputs_first = []
with torch.inference_mode():
    first.update_state(
        BatchUpdate(
            batch_size=1,
            removed=[],
            added=[(0, params_first, prompt_first, outputs_first)],
            moved=[],
        ),
    )
    expected = first.apply(rows(0))
    outputs_first.append(218)

    first.update_state(None)
    first.apply(rows(1))
    outputs_first.append(14)

    first.update_state(None)
    first.apply(rows(2))
    outputs_first.append(6)

    first.update_state(None)
    first.apply(rows(3))
    outputs_first.append(41)

    first.update_state(None)
    first.apply(rows(4))
    outputs_first.append(18)

    first.update_state(None)
    first.apply(rows(4))
    outputs_first.append(33)

    first.update_state(None)
    first.apply(rows(6))

second = Plugin(CONFIG, torch.device("cpu"), False)
params_second = SamplingParams()
prompt_second = [7, 13]
outputs_second = []
with torch.inference_mode():
    second.update_state(
        BatchUpdate(
            batch_size=1,
            removed=[],
            added=[(0, params_second, prompt_second, outputs_second)],
            moved=[],
        ),
    )
    result = second.apply(rows(0))

got, expected = result[0], expected[0]
close = torch.isclose(got, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
wrong = (~close).nonzero().flatten().tolist()
if wrong:
    print("FAILS: row 0 is not the same again")
    for token in wrong[:8]:
        print(f"  token {token}: got {got[token]:.6g}, expected {expected[token]:.6g}")
    print(f"  ({len(wrong)} of {len(got)} tokens differ)")
    sys.exit(1)
print("OK: row 0 is the same again")
