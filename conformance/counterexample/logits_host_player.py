# SPDX-License-Identifier: Apache-2.0
"""What logits processors are made with, and logits: part of the programs of counterexamples.

The simulator has the same table of logits.
"""

import atexit
import base64
import functools
import json
import shutil
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs

from conformance.inputs.tiny_tokenizer import tokenizer_document


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


def as_engine(vocab_size: int) -> Callable[[Any], Any]:
    """Return what makes an instance of a plugin as an engine does."""
    config = engine_config(8, vocab_size)
    return lambda plugin: plugin(config, torch.device("cpu"), False)  # noqa: FBT003 - as engines do


@functools.cache
def tokenizing_config(max_num_seqs: int, vocab_size: int, max_model_len: int = 128) -> Any:
    """Return the same with a tokenizer in the model's folder, for plugins that load it."""
    config = engine_config(max_num_seqs, vocab_size, max_model_len)
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    Path(folder, "tokenizer.json").write_text(json.dumps(tokenizer_document()))
    Path(folder, "tokenizer_config.json").write_text(json.dumps(kind))
    config.model_config.hf_config.save_pretrained(folder)
    config.model_config.model = config.model_config.tokenizer = folder
    config.model_config.skip_tokenizer_init = False
    return config


#: What a plugin is deployed with: the program of one says it.
DEPLOYED: dict[str, Any] = {}


@functools.cache
def deployed_config(max_num_seqs: int, vocab_size: int) -> Any:
    """Return the same with what ``DEPLOYED`` says, and the tokenizer of the model that it names."""
    config = tokenizing_config(max_num_seqs, vocab_size)
    config.additional_config = DEPLOYED.get("additional_config", {})
    model = config.model_config
    for name, value in DEPLOYED.get("config", {}).items():
        setattr(model.hf_config, name, value)
    for path in Path(DEPLOYED["tokenizer"]).iterdir() if "tokenizer" in DEPLOYED else ():
        if path.suffix in (".json", ".jinja", ".model", ".txt"):
            shutil.copy(path, model.model)
    model.hf_config.save_pretrained(model.model)
    return config


def request(**keywords: Any) -> SamplingParams:
    """Return parameters as vLLM's front end hands them on: with the end-of-sequence token."""
    params = SamplingParams(**keywords)
    params.update_from_generation_config({}, 1)
    return params


def packed(text: str) -> torch.Tensor:
    """Return logits [1, vocabulary] that were written down number by number."""
    data = bytearray(zlib.decompress(base64.b85decode(text)))
    return torch.frombuffer(data, dtype=torch.float32).unsqueeze(0)


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
