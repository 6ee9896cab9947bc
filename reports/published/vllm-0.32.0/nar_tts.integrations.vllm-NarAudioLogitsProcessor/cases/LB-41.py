"""LB-41 Whatever else a client asks for, a token is left for its own request.

Plugin    nar_tts.integrations.vllm:NarAudioLogitsProcessor
Did       every token of the row is -inf: none can be sampled (on[0] with allowed_token_ids=[10])
Expected  Where allowed tokens, bad words, min_tokens, a bias or a grammar leave tokens, the plugin
          keeps at least one of them above -inf, and no logit is NaN or +inf.
Check     Where all that the plugin would keep is -inf, leave the row as it is, or refuse the
          combination in validate_params. Only a SHOULD: no other request notices.

Needs vLLM, torch and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

import base64
import functools
import json
import os
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import torch

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.sample.logits_processor import BatchUpdate

sys.path.insert(0, "PLUGIN")

from nar_tts.integrations.vllm import NarAudioLogitsProcessor as Plugin


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


def packed(text: str) -> torch.Tensor:
    """Return logits [1, vocabulary] that were written down number by number."""
    data = bytearray(zlib.decompress(base64.b85decode(text)))
    return torch.frombuffer(data, dtype=torch.float32).unsqueeze(0)



VOCABULARY = 500
CONFIG = engine_config(8, VOCABULARY)

# The batch, as vLLM's InputBatch told the plugin about it.
batch = Plugin(CONFIG, torch.device("cpu"), False)

# Step 0: C joins (with[0], 5 tokens); rows: C in 0.
params_a = SamplingParams(
    allowed_token_ids=[10],
    extra_args={
        "nar_audio_grammar": {
            "base": 10,
            "eot": 3,
            "num_codebooks": 2,
            "codebook_size": 16,
            "min_frames": 1,
            "max_frames": 3,
        },
    },
)
prompt_a = [11, 10, 10, 10, 10]
outputs_a = []
with torch.inference_mode():
    batch.update_state(
        BatchUpdate(batch_size=1, removed=[], added=[(0, params_a, prompt_a, outputs_a)], moved=[])
    )
    result = batch.apply(packed("c-muNX!y@S1m-zn?Z7~!+EF};NAV~g#iMu>(-#8(Ly+tD"))

if result[0].isneginf().all():
    print("FAILS: row 0 (request C) is -inf for every token")
    print("expected: at least one token that can be sampled")
    sys.exit(1)
print("OK: a token can be sampled from row 0 (request C)")
