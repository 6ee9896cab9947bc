"""LB-11 A resumed request continues as if never interrupted.

Plugin    thinking_budget_processor:ThinkingBudgetLogitsProcessor
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

import atexit
import functools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

import torch

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

sys.path.insert(0, "PLUGIN")

from thinking_budget_processor import ThinkingBudgetLogitsProcessor as Plugin


#: No multiple of 64, to which vLLM pads the output layer: in float32 logits processors are handed
#: a view of the padded rows, as with many real models.
SIZE = 500


SPECIALS = ("<s>", "</s>", "<pad>")


def tokenizer_document() -> dict[str, Any]:
    """Return the ``tokenizer.json`` of tiny models: bytes, and pairs of letters."""
    merges = _merges()
    tokens = [*SPECIALS, *_byte_characters(), *(left + right for left, right in merges)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": index,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for index, token in enumerate(SPECIALS)
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [f"{left} {right}" for left, right in merges],
        },
    }


def _byte_characters() -> list[str]:
    """Return the character that stands for each byte 0 to 255 in a byte-level vocabulary.

    A printable Latin-1 byte stands for itself, each of the others for the next character from 256.
    """
    printable = set(chain(range(0x21, 0x7F), range(0xA1, 0xAD), range(0xAE, 0x100)))
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _merges() -> list[tuple[str, str]]:
    """Return the 241 pairs of characters that fill the vocabulary up to 500 tokens."""
    space = _byte_characters()[ord(" ")]
    letters = "abcdefghijklmnopqrstuvwxyz"
    vowels = "aeiou"
    consonants = [letter for letter in letters if letter not in vowels]
    pairs = chain(
        product(space, letters),
        product(consonants, vowels),
        product(vowels, consonants),
        ("th", "sh", "ch", "ph", "wh", "gh", "ck", "ng", "nd", "nt", "st", "tr", "br"),
        ("ll", "ss", "tt", "ee"),
    )
    room = SIZE - len(SPECIALS) - 256
    return [(pair[0], pair[1]) for pair in islice(pairs, room)]


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
DEPLOYED: dict[str, Any] = {
    "tokenizer": "PUBLISHED/profiles/thinking-tokenizer",
    "config": {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 1},
}


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



VOCABULARY = 502
rows = Logits(VOCABULARY, [3, 12, 7, 11, 13, 500, 501, 15, 19, 23, 27, 31, 35], seed=20261121)

CONFIG = deployed_config(8, VOCABULARY)

# The batch, as vLLM's InputBatch told the plugin about it.
batch = Plugin(CONFIG, torch.device("cpu"), False)

# Step 0: A joins (on[0], 1 tokens), B joins (off[0], 1 tokens); rows: A in 0, B in 1.
params_a = SamplingParams(extra_args={"max_thinking_tokens": 0})
prompt_a = [500]
outputs_a = []
params_b = SamplingParams()
prompt_b = [500]
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
    batch.apply(rows(84, 84))
    outputs_a.append(501)
    outputs_b.append(31)

    # Step 1: advance; rows: A in 0, B in 1.
    batch.update_state(None)
    batch.apply(rows(36, 81))
    outputs_a.append(500)
    outputs_b.append(12)

    # Step 2: advance; rows: A in 0, B in 1.
    batch.update_state(None)
    batch.apply(rows(82, 21))
    outputs_a.append(500)
    outputs_b.append(23)

    # Step 3: advance; rows: A in 0, B in 1.
    batch.update_state(None)
    batch.apply(rows(31, 91))
    outputs_a.append(500)
    outputs_b.append(23)

    # Step 4: advance; rows: A in 0, B in 1.
    batch.update_state(None)
    batch.apply(rows(77, 64))
    outputs_a.append(500)
    outputs_b.append(12)

    # Step 5: advance; rows: A in 0, B in 1.
    batch.update_state(None)
    batch.apply(rows(26, 4))
    outputs_a.append(500)
    outputs_b.append(3)

    # Step 6: advance; rows: A in 0, B in 1.
    batch.update_state(None)
    batch.apply(rows(72, 14))
    outputs_a.append(500)
    outputs_b.append(35)

    # Step 7: advance; rows: A in 0, B in 1.
    batch.update_state(None)
    batch.apply(rows(21, 23))
    outputs_a.append(500)
    outputs_b.append(13)

    # Step 8: advance; rows: A in 0, B in 1.
    batch.update_state(None)
    batch.apply(rows(67, 63))
    outputs_a.append(500)
    outputs_b.append(500)

    # Step 9: advance; rows: A in 0, B in 1.
    batch.update_state(None)
    batch.apply(rows(16, 12))
    outputs_a.append(500)
    outputs_b.append(15)

    # Step 10: A is preempted; rows: B in 0.
    batch.update_state(
        BatchUpdate(
            batch_size=1, removed=[], added=[], moved=[(1, 0, MoveDirectionality.UNIDIRECTIONAL)]
        ),
    )
    batch.apply(rows(58))
    outputs_b.append(500)

    # Step 11: advance; rows: B in 0, A in 1.
    batch.update_state(
        BatchUpdate(batch_size=2, removed=[], added=[(1, params_a, prompt_a, outputs_a)], moved=[])
    )
    result = batch.apply(rows(7, 62))

# The same request alone, in an instance of its own.
alone = Plugin(CONFIG, torch.device("cpu"), False)
params_alone = SamplingParams(extra_args={"max_thinking_tokens": 0})
prompt_alone = [500]
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
    alone.apply(rows(84))
    outputs_alone.append(501)

    alone.update_state(None)
    alone.apply(rows(36))
    outputs_alone.append(500)

    alone.update_state(None)
    alone.apply(rows(82))
    outputs_alone.append(500)

    alone.update_state(None)
    alone.apply(rows(31))
    outputs_alone.append(500)

    alone.update_state(None)
    alone.apply(rows(77))
    outputs_alone.append(500)

    alone.update_state(None)
    alone.apply(rows(26))
    outputs_alone.append(500)

    alone.update_state(None)
    alone.apply(rows(72))
    outputs_alone.append(500)

    alone.update_state(None)
    alone.apply(rows(21))
    outputs_alone.append(500)

    alone.update_state(None)
    alone.apply(rows(67))
    outputs_alone.append(500)

    alone.update_state(None)
    alone.apply(rows(16))
    outputs_alone.append(500)

    alone.update_state(None)
    expected = alone.apply(rows(62))

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
