# SPDX-License-Identifier: Apache-2.0
"""Whether rows are served that are wider than the tokenizer has tokens.

Most models have some more rows in their embeddings than their tokenizer has tokens, for alignment.
A mask with ``len(tokenizer)`` columns does not fit their logits: the first step ends the engine.
And clients may send the tokens that these rows are for, and allow no others.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import torch

from conformance.counterexample.logits_player import WIDER
from conformance.findings import Finding, failed, inapplicable
from conformance.inputs.history import Choice, label
from conformance.logits.calls import PluginMisshapen, PluginRaised
from conformance.logits.requests import Stock
from conformance.logits.trial import Trial
from conformance.verdict import Verdict
from conformance.watching.interruption import limited

#: Steps for which a request is served.
STEPS = 6

FAULTS = (PluginRaised, PluginMisshapen)

#: What a tokenizer's file says of a token beside its id and its text.
_PLAIN = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
_NO_WEIGHTS = shutil.ignore_patterns("*.safetensors", "*.bin")

#: Makes an instance for a vocabulary of so many tokens, more than the tokenizer has.
New = Callable[[Any, int], Any]
#: Serves a request with an instance.
Serve = Callable[[Any, Any, Choice], None]


def beyond(bench: Stock) -> int:
    """Return the last token of the larger vocabulary, which has no text."""
    return bench.vocabulary + WIDER - 1


def wider(logits: torch.Tensor) -> torch.Tensor:
    """Return logits ``[rows, vocabulary]`` with columns of zeros for the other tokens."""
    return torch.nn.functional.pad(logits, (0, WIDER))


def said(bench: Stock, step: int, steps: int) -> int:
    """Return the token that a request is to get in a step: one without a text before the last."""
    return beyond(bench) if step >= steps - 2 else bench.words.said(step)


def _has_its_own_width(bench: Stock, new: New, serve: Serve, choice: Choice) -> bool:
    """Tell whether a request is not served either where the tokenizer has as many tokens."""
    size = beyond(bench) + 1
    with _with_tokens(bench.model, size) as model:
        if model is None:
            return False
        try:
            with limited():
                serve(bench, new(attrs.evolve(bench, model=model), size), choice)
        except FAULTS:
            return True
    return False


@contextmanager
def _with_tokens(model: str, size: int) -> Iterator[str | None]:
    """Make a copy of a model whose tokenizer has so many tokens; None where none can be added."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(model, Path(folder) / "model", ignore=_NO_WEIGHTS)
        path = copy / "tokenizer.json"
        document = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        known, added = document.get("model", {}).get("vocab"), document.get("added_tokens") or []
        if not known:
            yield None
            return
        ids = known.values() if isinstance(known, dict) else range(len(known))
        first = max((*ids, *(token["id"] for token in added))) + 1
        more = [{**_PLAIN, "id": each, "content": f"<{each}>"} for each in range(first, size)]
        path.write_text(json.dumps({**document, "added_tokens": [*added, *more]}), "utf-8")
        yield str(copy)


def judge(trial: Trial, new: New, serve: Serve) -> Finding:
    """Judge that requests are served where the vocabulary is larger than the tokenizer's.

    Args:
        trial: of the plugin.
        new: how a generation makes an instance.
        serve: how it serves a request.

    Raises:
        PluginRaised: the plugin raised where the vocabulary is the tokenizer's, too.

    """
    bench: Stock = trial.bench
    try:
        with limited():
            instance = new(bench, bench.vocabulary + WIDER)
    except PluginRaised as error:  # it says so before an engine starts
        why = f"the plugin refuses models with {WIDER} more rows than their tokenizer has tokens"
        return inapplicable(f"{why}: {error}")
    chosen, _ = bench.pair
    count = 0
    for count, choice in enumerate(chosen or bench.choices[:1], 1):
        with limited():
            for _ in trial.contract.rows_alone(bench, choice, bench.behind(STEPS, choice)):
                pass
        try:
            with limited():
                serve(bench, instance, choice)
        except FAULTS as error:
            size, last = bench.vocabulary, beyond(bench)
            if _has_its_own_width(bench, new, serve, choice):
                return inapplicable(
                    f"the plugin serves a vocabulary of {size} tokens alone, whatever the model's "
                    f"and its tokenizer's is: as if configured for one model ({error})"
                )
            why = (
                f"with a vocabulary of {last + 1}, of which the tokenizer has {size}, a request "
                f"({label(choice)}) with the token {last} is not served: {error}"
            )
            return failed(why, count, count, case={"choice": choice, "wider": WIDER})
    return Finding(Verdict.PASS, count, count)
