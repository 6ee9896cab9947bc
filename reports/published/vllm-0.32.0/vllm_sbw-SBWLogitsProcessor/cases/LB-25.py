"""LB-25 A request without prompt token ids is served.

Plugin    vllm_sbw:SBWLogitsProcessor
Did       beside a request without prompt token ids another one (on[0]) does not get what it gets
          alone, and beside one with them it does
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

import atexit
import functools
import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

import torch

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.sample.logits_processor import BatchUpdate

sys.path.insert(0, "PLUGIN/vllm_sbw")

from vllm_sbw import SBWLogitsProcessor as Plugin


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
rows = Logits(VOCABULARY, [7, 11, 13, 256], seed=20261121)

CONFIG = tokenizing_config(8, VOCABULARY)

first = Plugin(CONFIG, torch.device("cpu"), False)
params_first = SamplingParams(extra_args={"gamma": 0.25, "delta": 2.0})
prompt_first = [7]
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
    first.apply(rows(0))
    outputs_first.append(256)

    first.update_state(None)
    first.apply(rows(1))
    outputs_first.append(7)

    first.update_state(None)
    first.apply(rows(2))
    outputs_first.append(11)

    first.update_state(None)
    first.apply(rows(3))
    outputs_first.append(13)

    first.update_state(None)
    first.apply(rows(4))
    outputs_first.append(7)

    first.update_state(None)
    first.apply(rows(4))
    outputs_first.append(11)

    first.update_state(None)

second = Plugin(CONFIG, torch.device("cpu"), False)
params_second = SamplingParams(extra_args={"gamma": 0.25, "delta": 2.0})
outputs_second = []
with torch.inference_mode():
    second.update_state(
        BatchUpdate(
            batch_size=1, removed=[], added=[(0, params_second, None, outputs_second)], moved=[]
        ),
    )
    second.apply(rows(0))
    outputs_second.append(256)

    second.update_state(None)
    second.apply(rows(1))
    outputs_second.append(7)

    second.update_state(None)
    second.apply(rows(2))
    outputs_second.append(11)

    second.update_state(None)
    second.apply(rows(3))
    outputs_second.append(13)

    second.update_state(None)
    second.apply(rows(4))
    outputs_second.append(7)

    second.update_state(None)
    second.apply(rows(4))
    outputs_second.append(11)

    second.update_state(None)

third = Plugin(CONFIG, torch.device("cpu"), False)

fourth = Plugin(CONFIG, torch.device("cpu"), False)
params_third = SamplingParams(extra_args={"gamma": 0.25, "delta": 2.0})
prompt_third = [13]
outputs_third = [256]
with torch.inference_mode():
    third.update_state(
        BatchUpdate(
            batch_size=1,
            removed=[],
            added=[(0, params_third, prompt_third, outputs_third)],
            moved=[],
        ),
    )
    third.apply(rows(2))
    params_fourth = SamplingParams(extra_args={"gamma": 0.25, "delta": 2.0})
    prompt_fourth = [7]
    outputs_fourth = [256]
    outputs_fourth = [256]
    outputs_fourth = [256]
    fourth.update_state(
        BatchUpdate(
            batch_size=3,
            removed=[],
            added=[
                (0, params_fourth, prompt_fourth, outputs_fourth),
                (1, params_fourth, prompt_third, outputs_fourth),
                (2, params_fourth, prompt_third, outputs_fourth),
            ],
            moved=[],
        ),
    )
    fourth.apply(rows(0, 1, 2))

plugin_5 = Plugin(CONFIG, torch.device("cpu"), False)

plugin_6 = Plugin(CONFIG, torch.device("cpu"), False)
params_plugin_5 = SamplingParams(extra_args={"gamma": 0.25, "delta": 2.0})
prompt_plugin_5 = [13]
outputs_plugin_5 = [256]
with torch.inference_mode():
    plugin_5.update_state(
        BatchUpdate(
            batch_size=1,
            removed=[],
            added=[(0, params_plugin_5, prompt_plugin_5, outputs_plugin_5)],
            moved=[],
        ),
    )
    plugin_5.apply(rows(2))
    params_plugin_6 = SamplingParams(extra_args={"gamma": 0.25, "delta": 2.0})
    outputs_plugin_6 = [256]
    outputs_plugin_6 = [256]
    outputs_plugin_6 = [256]
    plugin_6.update_state(
        BatchUpdate(
            batch_size=3,
            removed=[],
            added=[
                (0, params_plugin_6, None, outputs_plugin_6),
                (1, params_plugin_6, prompt_plugin_5, outputs_plugin_6),
                (2, params_plugin_6, prompt_plugin_5, outputs_plugin_6),
            ],
            moved=[],
        ),
    )
    try:
        plugin_6.apply(rows(0, 1, 2))
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        print(f"FAILS: apply(logits) raised {type(error).__name__}: {error}")
        print("expected: it raises nothing")
        sys.exit(1)

print("OK: apply(logits) raised nothing")
