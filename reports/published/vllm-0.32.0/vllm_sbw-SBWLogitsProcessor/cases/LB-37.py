"""LB-37 A step needs little memory beside its logits.

Plugin    vllm_sbw:SBWLogitsProcessor
Did       a step of 32 requests with 40 outputs holds 2001024 bytes, 31 times as much as its logits
Expected  A step of a batch holds at most 16 times the memory of its logits at the same time, with
          40 outputs for each request.
Check     Nothing reserves memory for a plugin: what it needs comes out of the margin that
          gpu_memory_utilization leaves. Count tokens with scatter_add_ or a sparse index, never
          with a row of the vocabulary for each output.

Needs vLLM, torch and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

import atexit
import copy
import functools
import json
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
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


class Memory(TorchDispatchMode):
    """Follows the memory of the tensors that are made within a block.

    A view shares its memory with what it is a view of, and holds it as long.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0  #: bytes that were held at the same time, at the most
        self.held: dict[int, list[int]] = {}  #: bytes and holders, by address

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        # What was there before, and is not ours, costs nothing.
        others = {place.data_ptr() for leaf in leaves for place in self.places(leaf)}
        others -= self.held.keys()
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            for place in self.places(leaf) if isinstance(leaf, torch.Tensor) else ():
                address = place.data_ptr()
                if address and address not in others:
                    self.held.setdefault(address, [place.nbytes(), 0])[1] += 1
                    weakref.finalize(leaf, self.release, address)
        self.peak = max(self.peak, sum(size for size, _ in self.held.values()))
        return result

    @staticmethod
    def places(tensor: torch.Tensor) -> list[torch.UntypedStorage]:
        """Return where a tensor has its values: those of a sparse one have no such place."""
        try:
            return [tensor.untyped_storage()]
        except NotImplementedError:
            return []

    def release(self, address: int) -> None:
        """Take note that a tensor is gone."""
        if address in self.held:
            self.held[address][1] -= 1
            if not self.held[address][1]:
                del self.held[address]


class Host:
    """Makes a plugin, and serves requests: their prompt, how parameters are made, what is said."""

    def __init__(
        self,
        plugin: Any,
        rows: Logits,
        prompt: list[int],
        make: Callable[..., SamplingParams] = SamplingParams,
        first: Sequence[int] = (),
    ) -> None:
        self.plugin, self.rows, self.prompt, self.make = plugin, rows, prompt, make
        self.first = first

    def params(self, keywords: Mapping[str, Any]) -> SamplingParams:
        """Return the parameters of a new request."""
        return self.make(**copy.deepcopy(dict(keywords)))

    def said(self, step: int) -> int:
        """Return the token that a request gets in a step."""
        if step < len(self.first):
            return self.first[step]
        return self.rows.tokens[(step - len(self.first)) % len(self.rows.tokens)]

    def started(
        self, requests: list[Any], count: int, vocabulary: int, history: int = 0
    ) -> Callable[[], None]:
        """Return the calls of a step with so many requests, after three others."""
        raise NotImplementedError

    def device(self, requests: list[Any], steps: int) -> Iterator[torch.Tensor]:
        """Serve requests together on a GPU; yield what apply returns."""
        raise NotImplementedError

    def outputs(self, count: int, history: int) -> list[list[int]]:
        """Return so many outputs for each of so many requests."""
        return [[self.said(row + place) for place in range(history)] for row in range(count)]


def check_memory(host: Host, requests: list[Any]) -> str | None:
    """A step holds at most 16 times the memory of its logits."""
    size = 4 * 32 * host.rows.vocabulary  # of float32 logits
    with torch.inference_mode():
        again = host.started(requests, 32, host.rows.vocabulary, history=40)
        with Memory() as memory:
            again()
    if memory.peak > 16 * size:
        what = f"a step holds {memory.peak} bytes, {memory.peak / size:.0f} times its logits"
        return f"{what}\nexpected: at most 16 times"
    return None


class BatchHost(Host):
    """Serves requests as the V1 model runner does."""

    def new(
        self, most: int = 8, vocabulary: int = 0, device: str = "cpu", context: int = 128
    ) -> Any:
        """Make an instance."""
        config = tokenizing_config(most, vocabulary or self.rows.vocabulary, context)
        return self.plugin(config, torch.device(device), device != "cpu")

    def joining(self, requests: list[Any], outputs: list[list[int]]) -> BatchUpdate:
        """Return the update with which requests fill an empty batch."""
        added = [
            (row, self.params(keywords), [*self.prompt], outputs[row])
            for row, keywords in enumerate(requests)
        ]
        return BatchUpdate(batch_size=len(requests), removed=[], added=added, moved=[])

    def started(
        self, requests: list[Any], count: int, vocabulary: int, history: int = 0
    ) -> Callable[[], None]:
        """Return the calls of a step with so many requests, after three others."""
        plugin, outputs = self.new(256, vocabulary), self.outputs(count, history)
        joining = self.joining([requests[row % len(requests)] for row in range(count)], outputs)
        logits = torch.randn(count, vocabulary, generator=torch.Generator().manual_seed(0))
        for step in range(3):
            plugin.update_state(None if step else joining)
            plugin.apply(logits.clone())
            for row, ids in enumerate(outputs):
                ids.append(self.said(row + step))

        def again() -> None:
            plugin.update_state(None)
            plugin.apply(logits)

        return again

    @torch.inference_mode()
    def device(self, requests: list[Any], steps: int) -> Iterator[torch.Tensor]:
        """Serve requests in one batch on a GPU; yield what apply returns."""
        plugin, outputs = self.new(device="cuda:0"), self.outputs(len(requests), 0)
        joining = self.joining(requests, outputs)
        for step in range(steps):
            plugin.update_state(None if step else joining)
            yield plugin.apply(self.rows(*range(step, step + len(requests))).to("cuda:0"))
            for tokens in outputs:
                tokens.append(self.said(step))


fault = check_memory(
    BatchHost(Plugin, Logits(500, [7, 11, 13, 256], seed=20261121), [7, 13], first=[256]),
    requests=[
        {"extra_args": {"gamma": 0.25, "delta": 2.0}},
        {"extra_args": {"gamma": 0.5, "delta": 4.0}},
        {},
    ],
)
print(f"FAILS: {fault}" if fault else f"OK: {check_memory.__doc__}")
sys.exit(1 if fault else 0)
