"""LB-25 A request without prompt token ids is served.

Plugin    nano_v3_logit_processors:ThinkingBudgetLogitsProcessor
Did       for a request without prompt token ids (on[0]): update_state(batch_update) raised
          TypeError: 'NoneType' object is not subscriptable
Expected  The prompt of an added request may be None, where it was given as embeddings: the plugin
          serves it, or leaves it alone, does not raise, and gives the others of its batch what they
          get without it.
Check     Treat None as an empty prompt. Any client may send embeddings where the engine runs with
          --enable-prompt-embeds, and what raises then ends the engine. vLLM's own adapter raises
          for request-level callables of three arguments: override update_state, and hand it an
          empty prompt.

Needs vLLM, torch and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

import functools
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.sample.logits_processor import BatchUpdate

sys.path.insert(0, "PLUGIN")

from nano_v3_logit_processors import ThinkingBudgetLogitsProcessor as Plugin


@functools.cache
def engine_config(max_num_seqs: int, vocab_size: int) -> Any:
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



VOCABULARY = 500
CONFIG = engine_config(8, VOCABULARY)

plugin = Plugin(CONFIG, torch.device("cpu"), False)
params = SamplingParams(
    extra_args={
        "thinking_budget": 4,
        "thinking_budget_grace_period": 2,
        "end_token_ids": "[7, 8, 9]",
    },
)
outputs = []
with torch.inference_mode():
    try:
        plugin.update_state(
            BatchUpdate(batch_size=1, removed=[], added=[(0, params, None, outputs)], moved=[])
        )
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        print(f"FAILS: update_state(batch_update) raised {type(error).__name__}: {error}")
        print("expected: it raises nothing")
        sys.exit(1)

print("OK: update_state(batch_update) raised nothing")
