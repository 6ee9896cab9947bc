# SPDX-License-Identifier: Apache-2.0
"""What the programs of counterexamples begin with: imports, an engine configuration, logits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from conformance.counterexample.source import Named, call, literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Call = dict[str, Any]

#: ``max_num_seqs`` of the configuration that most instances get.
MOST = 8

#: Calls that need every function.
EVERYTHING: tuple[Call, ...] = ({"do": "new"}, {"do": "params"}, {"do": "apply", "rows": [3, 5]})

_STANDARD = (
    "asyncio",
    "atexit",
    "base64",
    "copy",
    "dataclasses",
    "faulthandler",
    "functools",
    "gc",
    "hashlib",
    "importlib",
    "inspect",
    "itertools",
    "json",
    "math",
    "os",
    "pickle",
    "random",
    "re",
    "signal",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "traceback",
    "tracemalloc",
    "weakref",
    "zlib",
)
_NAMES = (
    ("collections.abc", ("Iterator",)),
    ("concurrent.futures", ("ThreadPoolExecutor",)),
    ("contextlib", ("suppress",)),
    ("pathlib", ("Path",)),
    ("time", ("perf_counter", "thread_time")),
    ("types", ("SimpleNamespace",)),
    ("torch.overrides", ("TorchFunctionMode",)),
    ("torch.utils._python_dispatch", ("TorchDispatchMode",)),
    ("torch.utils._pytree", ("tree_leaves",)),
    ("vllm", ("PoolingParams", "SamplingParams")),
    ("vllm.engine.arg_utils", ("EngineArgs",)),
    (
        "vllm.entrypoints.pooling.pooling.protocol",
        ("IOProcessorRequest", "IOProcessorResponse"),
    ),
    (
        "vllm.entrypoints.serve.exception_handling.error_response",
        ("create_error_response",),
    ),
    ("vllm.exceptions", ("VLLMValidationError",)),
    ("vllm.inputs", ("split_enc_dec_input",)),
    ("vllm.outputs", ("PoolingOutput", "PoolingRequestOutput")),
    ("vllm.plugins.io_processors.interface", ("IOProcessor",)),
    ("vllm.renderers", ("renderer_from_config",)),
    ("vllm.renderers.inputs.preprocess", ("parse_model_prompt", "prompt_to_seq")),
    ("vllm.sampling_params", ("StructuredOutputsParams",)),
    ("vllm.tasks", ("POOLING_TASKS",)),
    ("vllm.v1.engine.input_processor", ("InputProcessor",)),
    (
        "vllm.v1.sample.logits_processor",
        ("BatchUpdate", "MoveDirectionality", "_load_logitsprocs_by_fqcns"),
    ),
    (
        "vllm.v1.worker.gpu.sample.logits_processor",
        ("LogitsContext", "LogitsProcRequestState"),
    ),
    (
        "vllm.v1.worker.gpu.sample.logits_processor.loader",
        ("_load_v2_logitsprocs_by_fqcns",),
    ),
)

#: What keeps vLLM from telling what it does.
QUIET = 'os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")'

_CONFIG = '''\
def engine_config(max_num_seqs: int, vocab_size: int = {vocabulary}):
    """Return the configuration of an engine with a tiny model, as plugins are made with."""
    model = {{
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 512,
    }}
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
'''

_REQUEST = '''\
def request(**keywords) -> SamplingParams:
    """Return parameters as vLLM's front end hands them on: with the end-of-sequence token."""
    params = SamplingParams(**keywords)
    params.update_from_generation_config({}, 1)
    return params
'''

_PACKED = '''\
def packed(text: str) -> torch.Tensor:
    """Return logits [1, vocabulary] that were written down number by number."""
    data = bytearray(zlib.decompress(base64.b85decode(text)))
    return torch.frombuffer(data, dtype=torch.float32).unsqueeze(0)
'''

#: The logits of ``logits_batch.bench.logits_table``; parts that no row used comes from are left
#: out, and a test holds both to be the same.
_ROWS = '''\
def rows({signature}) -> torch.Tensor:
    """Return logits [len(numbers), {vocabulary}], float32, such as a model gives."""
    generator = torch.Generator().manual_seed({seed})
    table = torch.randn((97, {vocabulary}), generator=generator)
    table[:, {tokens}] += 4.0
'''
_TIES = """\
    # Every eighth row has ties at the top.
    table[3::8, {tokens}] = table[3::8].amax(dim=-1, keepdim=True)
"""
_MASKED = """\
    # Every eighth row is masked, as structured output does.
    kept = torch.randint(0, {vocabulary}, (16,), generator=generator).tolist()
    masked = [token for token in range({vocabulary}) if token not in {{*kept, {listed}}}]
    table[5::8, masked] = -torch.inf
"""
_PLAIN = """\
    return table[list(numbers)]
"""
_PADDED = """\
    if not padding:
        return table[list(numbers)]
    # A view of longer rows: vLLM pads the vocabulary, and cuts the padding off again.
    longer = torch.full((len(numbers), {vocabulary} + padding), -torch.inf)
    longer[:, :{vocabulary}] = table[list(numbers)]
    return longer[:, :{vocabulary}]
"""


def imports(text: str, before: str = QUIET) -> str:
    """Return the import statements that a program needs, with what goes before those of vLLM."""
    lines = [f"import {name}" for name in _STANDARD if re.search(rf"(?<![\w.]){name}\.", text)]
    names_from: list[list[str]] = [[], [], []]
    for module, names in _NAMES:
        wanted = [name for name in names if re.search(rf"\b{name}\b", text)]
        if wanted:
            group = {"torch": 1, "vllm": 2}.get(module.partition(".")[0], 0)
            names_from[group].append(f"from {module} import {', '.join(wanted)}")
    standard = "\n".join(sorted({*lines, "import os", "import sys"}) + names_from[0])
    torch = ["import numpy as np"] if re.search(r"\bnp\.", text) else []
    torch += ["import torch"] if "torch." in text else []
    parts = [standard, "\n".join(torch + names_from[1]), before, "\n".join(names_from[2])]
    return "\n\n".join(part for part in parts if part)


def used(
    calls: Sequence[Call], *, bare: bool, seed: int, logits: Mapping[str, Any] | None
) -> list[str]:
    """Return the functions that a program needs."""
    if logits is None:
        return []  # nothing but the loader is called
    vocabulary, tokens = logits["vocabulary"], logits["tokens"]
    parts = []
    kinds = {entry["do"] for entry in calls}
    if "new" in kinds:
        parts.append(_CONFIG.format(vocabulary=vocabulary))
    if "params" in kinds and not bare:
        parts.append(_REQUEST)
    shown = [row for entry in calls if entry["do"] == "apply" for row in entry["rows"]]
    numbers = [row if isinstance(row, int) else row.get("row") for row in shown]
    if any(number is not None for number in numbers):
        remainders = {number % 8 for number in numbers if number is not None}
        padding = max(entry.get("padding", 0) for entry in calls)
        function = _ROWS
        function += _TIES if 3 in remainders else ""  # noqa: PLR2004 - see logits_table
        function += _MASKED if 5 in remainders else ""  # noqa: PLR2004 - see logits_table
        function += _PADDED if padding else _PLAIN
        parts.append(
            function.format(
                vocabulary=vocabulary,
                tokens=tokens,
                listed=", ".join(map(str, tokens)),
                seed=seed,
                signature="*numbers: int, padding: int = 0" if padding else "*numbers: int",
            )
        )
    if None in numbers:
        parts.append(_PACKED)
    return parts


def rows(entry: Call) -> str:
    """Return the logits of a call as an expression."""
    parts: list[str] = []
    numbers: list[int] = []
    if entry.get("padding") and all(isinstance(row, int) for row in entry["rows"]):
        return f"rows({', '.join(map(str, entry['rows']))}, padding={entry['padding']})"
    for row in entry["rows"]:
        if isinstance(row, int):
            numbers.append(row)
            continue
        if numbers:
            parts.append(f"rows({', '.join(map(str, numbers))})")
            numbers = []
        parts.append(f'packed("{row["raw"]}")' if "raw" in row else _scaled(row))
    if numbers:
        parts.append(f"rows({', '.join(map(str, numbers))})")
    return parts[0] if len(parts) == 1 else f"torch.cat([{', '.join(parts)}])"


def _scaled(row: Mapping[str, Any]) -> str:
    text = f"rows({row['row']})"
    if "over" in row:
        text += f" / {row['over']}"
    if "times" in row:
        text += f" * {row['times']}"
    if "plus" in row:
        text += f" - {-row['plus']}" if row["plus"] < 0 else f" + {row['plus']}"
    return text


def keywords(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords for ``SamplingParams``, as vLLM's front end makes them of JSON."""
    found = dict(values)
    if isinstance(bias := values.get("logit_bias"), dict):
        found["logit_bias"] = {int(token): float(value) for token, value in bias.items()}
    if isinstance(grammar := values.get("structured_outputs"), dict):
        arguments = [Named(f"{key}=", literal(value)) for key, value in grammar.items()]
        found["structured_outputs"] = call("StructuredOutputsParams", *arguments)
    return found
