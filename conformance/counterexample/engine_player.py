# SPDX-License-Identifier: Apache-2.0
"""A request and a neighbour in a real engine: part of the programs about what clients send.

Programs hold the source of :func:`serve`, so it uses nothing of this project.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from vllm import SamplingParams

#: Seconds after which an engine that has not answered hangs: usual are one or two.
PATIENCE = 90


def serve(
    plugin: type[Any],
    request: dict[str, object],
    others: dict[str, object] | None = None,
    runner: str = "V1",
) -> None:
    """Send a request to an engine with a tiny model, among others that it serves."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # what the engine raises is seen here
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = str(int(runner == "V2"))
    try:
        llm = engine(plugin)
    except ValueError as error:
        if "requires Triton" not in str(error):
            raise
        print("run this program on a machine with a GPU: Model Runner V2 requires Triton")
        sys.exit(2)
    usual: dict[str, Any] = {"temperature": 0, "max_tokens": 16}
    usual |= {"ignore_eos": True, "detokenize": False}
    sent = {"max_tokens": 8, "detokenize": False, **request}
    other = usual | (others or {})
    random = {"temperature": 1.0, "seed": 7}
    asked = [usual, sent, usual | random, other, other | random, {**usual, "max_tokens": 1}]
    params = [SamplingParams(**keywords) for keywords in asked]
    prompts = [{"prompt_token_ids": [at, at + 1, at + 2]} for at in range(3, 21, 3)]
    neighbours = [0, 2, 3, 4]
    at_once = [[(first + place) % 5 for place in range(5)] for first in range(5)]
    # The engine has room for five: the request waits for the place of the brief one.
    later = [[5 if place == 1 else place for place in order] + [1] for order in at_once]
    print("sending the request; expected: it is refused, or served as every other one is")
    sys.stdout.flush()
    faulthandler.dump_traceback_later(PATIENCE, exit=True)  # shows where it is: status 1
    admit(plugin, params[1])
    got = []  # by neighbour, when and which tokens
    try:
        for order in at_once + later:  # each time the request has another row
            batch = [prompts[place] for place in order]
            answers = llm.generate(batch, [params[place] for place in order], use_tqdm=False)
            pairs = zip(order, answers, strict=True)
            got += [(place, "beside it", answer) for place, answer in pairs if place in neighbours]
        for place in neighbours:
            (answer,) = llm.generate(prompts[place], params[place], use_tqdm=False)
            got.append((place, "after it", answer))
    except (Exception, SystemExit) as error:
        print(f"FAILS: the engine raised {type(error).__name__}: {error}")
        sys.exit(1)
    faulthandler.cancel_dump_traceback_later()
    fresh = engine(plugin)  # which has never seen the request
    alone = {}
    for place in neighbours:
        (answer,) = fresh.generate(prompts[place], params[place], use_tqdm=False)
        alone[place] = answer.outputs[0].token_ids
    for place, when, answer in got:
        if (tokens := answer.outputs[0].token_ids) != alone[place]:
            print(f"FAILS: {when} a neighbour got the tokens {tokens}")
            print(f"expected: those that it gets alone, {alone[place]}")
            sys.exit(1)
    print("OK: the engine served the request, and its neighbours got what they get alone")
    sys.exit(0)


def admit(plugin: type[Any], params: SamplingParams) -> None:
    """Have a request validated, as the process does that takes requests."""
    try:
        plugin.validate_params(params)
    except Exception as error:
        print(f"OK: the request is refused: {type(error).__name__}: {error}")
        sys.exit(0)
    except SystemExit as error:
        print(f"FAILS: validate_params ends the process that takes requests: SystemExit: {error}")
        sys.exit(1)


def engine(plugin: type[Any]) -> Any:
    """Start an engine with a tiny model, in this process."""
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
        dtype="float32",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=128,
        max_num_seqs=5,
        kv_cache_memory_bytes=32 << 20,
        logits_processors=[plugin],
    )
    # Weights of this kind say nearly the same of each token. Those of `lm_head` may be packed.
    llm.apply_model(lambda model: model.model.norm.weight.data.mul_(2e6))
    return llm
