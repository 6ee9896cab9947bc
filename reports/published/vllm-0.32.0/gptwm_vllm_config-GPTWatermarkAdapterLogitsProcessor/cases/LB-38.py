"""LB-38 No request that a client can send ends the engine.

Plugin    gptwm_vllm_config:GPTWatermarkAdapterLogitsProcessor
Did       a request with extra_args={"watermark_key": -1} (by REST, the OpenAI SDK, LLM and
          AsyncLLM) is not refused, and then update_state(batch_update) raised ValueError: expected
          non-negative integer (at gptwm.py:36); the engine ends for every request
Expected  A request with any value under the keys that the plugin reads, or with arguments of
          another plugin alone, is refused by validate_params, or it is served: alone and among
          others nothing raises, nothing hangs, memory stays bounded, and other requests do not
          notice.
Check     Check in validate_params the type, the sign, the upper bound and the members of every
          value; what depends on the model, such as the size of the vocabulary, check again where it
          is used, and leave such a row as it came.

Needs vLLM, torch and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

import faulthandler
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

from gptwm_vllm_config import GPTWatermarkAdapterLogitsProcessor as Plugin


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



REQUEST = dict(extra_args={"watermark_key": -1})

# With --engine a real engine serves the request; without, these are the calls that it makes.
if "--engine" in sys.argv:
    serve(Plugin, REQUEST)

try:
    Plugin.validate_params(SamplingParams(**REQUEST))
except Exception as error:
    print(f"OK: the request is refused: {type(error).__name__}: {error}")
    sys.exit(0)

VOCABULARY = 500
CONFIG = engine_config(8, VOCABULARY)

# The batch, as vLLM's InputBatch told the plugin about it.
batch = Plugin(CONFIG, torch.device("cpu"), False)

# Step 0: A joins (sent[0], 4 tokens); rows: A in 0.
params_a = SamplingParams(extra_args={"watermark_key": -1})
prompt_a = [7, 11, 7, 11]
outputs_a = []
with torch.inference_mode():
    try:
        batch.update_state(
            BatchUpdate(
                batch_size=1, removed=[], added=[(0, params_a, prompt_a, outputs_a)], moved=[]
            ),
        )
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        print(f"FAILS: update_state(batch_update) raised {type(error).__name__}: {error}")
        print("expected: it raises nothing")
        sys.exit(1)

print("OK: update_state(batch_update) raised nothing")
