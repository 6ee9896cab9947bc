# SPDX-License-Identifier: Apache-2.0
"""What the programs of counterexamples begin with: imports, an engine configuration, logits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from conformance.counterexample.excerpts import excerpt, joined
from conformance.counterexample.source import Named, call, laid_out, literal

Call = dict[str, Any]

#: ``max_num_seqs`` of the configuration that most instances get.
MOST = 8

#: Functions and classes of players that programs call.
_CALLED = (
    *("engine_config", "tokenizing_config", "deployed_config"),
    *("request", "packed", "Logits", "Runner"),
)

#: Modules that players import, by path: one of them imports torch.
_USED = ("inputs/tiny_tokenizer.py", "watching/process_facts.py")

_STANDARD = (
    "atexit",
    "base64",
    "copy",
    "faulthandler",
    "functools",
    "json",
    "os",
    "random",
    "shutil",
    "sys",
    "tempfile",
    "traceback",
    "zlib",
)
_NAMES = (
    ("collections.abc", ("Callable", "Sequence")),
    ("contextlib", ("suppress",)),
    ("itertools", ("chain", "islice", "product")),
    ("pathlib", ("Path",)),
    ("time", ("perf_counter",)),
    ("types", ("SimpleNamespace",)),
    ("typing", ("Any",)),
    ("vllm", ("SamplingParams",)),
    ("vllm.engine.arg_utils", ("EngineArgs",)),
    ("vllm.exceptions", ("VLLMValidationError",)),
    ("vllm.sampling_params", ("StructuredOutputsParams",)),
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


def table(shown: Mapping[str, Any]) -> tuple[int, list[int], int]:
    """Return what the logits of a counterexample are made of: vocabulary, tokens, seed."""
    return shown["logits"]["vocabulary"], shown["logits"]["tokens"], shown["seed"]


def prepared(shown: Mapping[str, Any], body: str) -> tuple[list[str], str]:
    """Return the functions that a program calls, and the program behind what it calls them with.

    Args:
        shown: the counterexample.
        body: what the program does; rows of logits are ``rows(NUMBER, ...)``, and the size of the
            vocabulary is ``VOCABULARY``.

    """
    if shown["logits"] is None:
        return [], body  # nothing but the loader is called
    vocabulary, tokens, seed = table(shown)
    if re.search(r"\brows\(", body):
        body = f"rows = Logits(VOCABULARY, {tokens}, seed={seed})\n\n{body}"
    if "VOCABULARY" in body:
        body = f"VOCABULARY = {vocabulary}\n{body}"
    body = configured(body, shown)
    names = [name for name in _CALLED if re.search(rf"\b{name}\(", body)]
    if not names:
        return [], body
    first, *others = names
    part = excerpt(configured(_host(), shown), first, uses=others, text=body)
    return [f"{part.code}\n\n"], body


def configured(source: str, shown: Mapping[str, Any]) -> str:
    """Return a source in which plugins are made as they are deployed, or with a tokenizer."""
    if deployed := shown["logits"].get("deployed"):
        said = "\n".join(laid_out(literal(deployed), 0, "DEPLOYED: dict[str, Any] = "))
        source = source.replace("DEPLOYED: dict[str, Any] = {}", said)
        return _made_by("deployed_config", source)
    # Plugins that load a tokenizer are made with one.
    return _made_by("tokenizing_config", source) if shown.get("tokenizer") else source


def _made_by(function: str, source: str) -> str:
    return re.sub(r"\bengine_config\((?!max_num_seqs)", f"{function}(", source)


def _host() -> str:
    return player("logits_host", "logits_runner")


@cache
def player(*names: str) -> str:
    """Return players as one module, with those that others use, and with what these use."""
    folder = Path(__file__).parent
    used = (folder.parent / each for each in _USED)
    paths = (*used, *(folder / f"{name}_player.py" for name in ("process", *names)))
    return joined(path.read_text(encoding="utf-8") for path in paths)


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
