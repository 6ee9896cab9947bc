# SPDX-License-Identifier: Apache-2.0
"""A request and a neighbour in a real engine: part of the programs about what clients send.

Programs hold the source of :func:`serve`, so it uses nothing of this project.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from vllm import SamplingParams


def serve(plugin: type, request: dict[str, object]) -> None:
    """Send a request to an engine with a tiny model, while it serves another one."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # what the engine raises is seen here
    from vllm import LLM

    model = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 500,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 512,
    }
    folder = tempfile.mkdtemp()
    Path(folder, "config.json").write_text(json.dumps(model))
    llm = LLM(
        model=folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=128,
        max_num_seqs=8,
        kv_cache_memory_bytes=32 << 20,
        logits_processors=[plugin],
    )
    prompts = [{"prompt_token_ids": [3, 4, 5]}, {"prompt_token_ids": [6, 7, 8]}]
    neighbour = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, detokenize=False)
    sent = SamplingParams(**{"max_tokens": 8, "detokenize": False, **request})
    alone = llm.generate(prompts[:1], [neighbour], use_tqdm=False)
    try:
        both = llm.generate(prompts, [neighbour, sent], use_tqdm=False)
        again = llm.generate(prompts[:1], [neighbour], use_tqdm=False)
    except Exception as error:
        print(f"FAILS: the engine raised {type(error).__name__}: {error}")
        print("expected: it serves the request, and every other one")
        sys.exit(1)
    tokens = [answers[0].outputs[0].token_ids for answers in (alone, both, again)]
    if tokens[0] != tokens[1] or tokens[0] != tokens[2]:
        print(f"FAILS: a neighbour got the tokens {tokens[1]}, and after that {tokens[2]}")
        print(f"expected: those that it gets alone, {tokens[0]}")
        sys.exit(1)
    print("OK: the engine served the request, and its neighbour got what it gets alone")
    sys.exit(0)
