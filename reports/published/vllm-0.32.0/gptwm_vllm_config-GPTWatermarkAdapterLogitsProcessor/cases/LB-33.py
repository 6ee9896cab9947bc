"""LB-33 Every process that runs the plugin computes the same.

Plugin    gptwm_vllm_config:GPTWatermarkAdapterLogitsProcessor
Did       on[0]: in another process, such as a second rank's, it goes otherwise: __init__ raised
          AssertionError: call set_watermark_config() before building the LLM
Expected  Each tensor-parallel rank has an instance of its own in a process of its own; all get the
          same updates and logits and must return the same rows.
Check     Process ids, the order of sets of strings, hash() of strings and unseeded generators
          differ from rank to rank.

Needs vLLM, torch and the plugin. The exit status is 1 while the fault is there, and 0
when it is gone. Written by vllm-conformance.
"""

import copy
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
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

    def alone(
        self, keywords: Mapping[str, Any], steps: int, masked: list[int] | None = None
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Serve one request by itself; return its logits before and after each step."""
        raise NotImplementedError

    def device(self, requests: list[Any], steps: int) -> Iterator[torch.Tensor]:
        """Serve requests together on a GPU; yield what apply returns."""
        raise NotImplementedError

    def served(self, requests: list[Any], steps: int) -> dict[str, torch.Tensor]:
        """Return the rows that each request gets alone, by step."""
        return {
            f"step {step} of {keywords}": after
            for keywords in requests
            for step, (_, after) in enumerate(self.alone(keywords, steps))
        }

    def outputs(self, count: int, history: int) -> list[list[int]]:
        """Return so many outputs for each of so many requests."""
        return [[self.said(row + place) for place in range(history)] for row in range(count)]


def different(
    got: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], where: str
) -> str | None:
    """Say which row is another one, or return None."""
    for name, row in expected.items():
        close = torch.isclose(got[name], row, rtol=1e-4, atol=1e-4, equal_nan=True)
        wrong = (~close).nonzero().flatten().tolist()
        if wrong:
            lines = [f"{where} gives another row in {name}"]
            mine = got[name]
            lines += [f"  token {t}: got {mine[t]:.6g}, expected {row[t]:.6g}" for t in wrong[:8]]
            return "\n".join([*lines, f"  ({len(wrong)} of {len(row)} tokens differ)"])
    return None


def check_ranks(host: Host, requests: list[Any]) -> str | None:
    """Two ranks compute the same rows."""
    if len(sys.argv) > 1:
        # One rank: what differs from process to process, differs.
        torch.manual_seed(int(os.environ["RANK"]))
        torch.save(host.served(requests, 6), sys.argv[1])
        sys.exit(0)
    folder = tempfile.mkdtemp()
    paths = [Path(folder, f"rank{rank}.pt") for rank in range(2)]
    ranks = []
    for rank, path in enumerate(paths):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONHASHSEED": str(rank + 1)}
        arguments = [sys.executable, __file__, str(path)]
        ranks.append(subprocess.Popen(arguments, env={**os.environ, **own}))
    statuses = [rank.wait() for rank in ranks]
    if any(statuses):
        sys.exit("a rank has failed")
    first, second = (torch.load(path) for path in paths)
    return different(second, first, "the second of two ranks")


class BatchHost(Host):
    """Serves requests as the V1 model runner does."""

    def new(
        self, most: int = 8, vocabulary: int = 0, device: str = "cpu", context: int = 128
    ) -> Any:
        """Make an instance."""
        config = engine_config(most, vocabulary or self.rows.vocabulary, context)
        return self.plugin(config, torch.device(device), device != "cpu")

    def joining(self, requests: list[Any], outputs: list[list[int]]) -> BatchUpdate:
        """Return the update with which requests fill an empty batch."""
        added = [
            (row, self.params(keywords), [*self.prompt], outputs[row])
            for row, keywords in enumerate(requests)
        ]
        return BatchUpdate(batch_size=len(requests), removed=[], added=added, moved=[])

    @torch.inference_mode()
    def alone(
        self, keywords: Mapping[str, Any], steps: int, masked: list[int] | None = None
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Serve one request by itself; return its logits before and after each step."""
        plugin, outputs, found = self.new(), list[int](), []
        joining = self.joining([keywords], [outputs])
        for step in range(steps):
            plugin.update_state(None if step else joining)
            before = self.rows(step)
            before[:, masked or []] = -torch.inf
            found.append((before[0], plugin.apply(before.clone())[0].clone()))
            outputs.append(self.said(step))
        return found

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


fault = check_ranks(
    BatchHost(Plugin, Logits(500, [7, 11, 13, 499], seed=20261121), [7, 13], first=[499]),
    requests=[
        {"extra_args": {"watermark_key": 7}},
        {"extra_args": {"watermark_key": 11}},
        {},
        {"extra_args": {"unrelated": 1}},
    ],
)
print(f"FAILS: {fault}" if fault else f"OK: {check_ranks.__doc__}")
sys.exit(1 if fault else 0)
