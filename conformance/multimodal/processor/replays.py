# SPDX-License-Identifier: Apache-2.0
"""Failures of case files, judged again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from conformance.multimodal.processor import checks, deployment, embeddings
from conformance.multimodal.processor.answers import CannotBuild
from conformance.multimodal.processor.bench import Bench
from conformance.multimodal.processor.checkpoint import folder_of, remove
from conformance.multimodal.processor.host import Exited
from conformance.multimodal.processor.prompts import Prompt
from conformance.multimodal.processor.stock import Item, Stock, item
from conformance.multimodal.processor.trial import SURVIVES
from conformance.settings import Budget
from conformance.suite import Replayed, replayed, unreadable
from conformance.watching.interruption import PluginHung

#: What of a case is the profile's.
_SECTION = ("items", "options", "invalid_options")

#: What may keep a case from being judged at all, and the kind of trouble that it is.
_ENDS: Mapping[type[BaseException], str] = {
    CannotBuild: "loading",
    PluginHung: "hung",
    Exited: "exited",
}


@attrs.frozen
class Saved:
    """What a case file holds."""

    rule: str
    seed: int
    model: str
    checkpoint: Path
    section: Mapping[str, Any]
    stock: Stock
    prompt: Prompt | None  #: None where a check is made again as a whole
    told: Mapping[tuple[Item, int], int] = {}  #: what the author said of items
    told_data: Mapping[tuple[Item, int], Mapping[str, Any]] = {}  #: and of their data, in outline


def again(cls: type, counterexample: Mapping[str, Any]) -> Replayed:
    """Judge a counterexample again."""
    if counterexample.get("objects"):
        return unreadable("its items are Python objects, which no file can hold")
    saved = _read(counterexample)
    try:
        bench = Bench.open(
            cls, saved.checkpoint, saved.model, saved.section, origin="replay", seed=saved.seed
        )
        return _checked(bench, saved) if saved.prompt is None else _judged(bench, saved)
    except tuple(_ENDS) as error:
        return [_ENDS[type(error)]], str(error)
    finally:
        remove(saved.checkpoint)


def _read(found: Mapping[str, Any]) -> Saved:
    """Read what ``cases.written`` wrote.

    Raises:
        LookupError, TypeError, ValueError, UsageError: it is nothing of the kind.

    """
    rule, single = str(found["rule"]), found["kind"] == "prompt"
    if rule not in (checks.JUDGES if single else {*checks.CHECKS, SURVIVES}):
        raise ValueError(f"no check is for the rule {rule}")
    prompt = _prompt(found) if single else None
    stock = Stock({})
    if prompt is not None:
        stock = _stock(prompt, found)
        prompt = attrs.evolve(prompt, options=stock.options.index(found["options"]))
    keys = (deployment.KEY,) if single else (*_SECTION, deployment.KEY)
    section = {key: found[key] for key in keys if key in found}
    model = str(found["model"])
    told, data = {}, {}
    for modality, text, count, *outlines in found.get("told", ()):
        key = item(modality, text, "of the case"), prompt.options if prompt else 0
        told[key], data[key] = int(count), dict(*outlines)
    seed, folder = int(found["seed"]), folder_of(model)
    return Saved(rule, seed, model, folder, section, stock, prompt, told, data)


def _stock(prompt: Prompt, found: Mapping[str, Any]) -> Stock:
    """Return the items and options of a prompt, and of what was processed before it."""
    before = found.get("before", {"items": {}, "options": []})
    items = {name: prompt.of(name) for name in prompt.modalities}
    for name, texts in before["items"].items():
        others = tuple(item(name, text, "of the case") for text in texts)
        items[name] = tuple(dict.fromkeys((*items.get(name, ()), *others)))
    options: list[Mapping[str, Any]] = [{}]
    options += [one for one in (found["options"], *before["options"]) if one not in options]
    return Stock(items, tuple(options))


def _prompt(found: Mapping[str, Any]) -> Prompt:
    parts: list[int | Item] = []
    for part in found["parts"]:
        if type(part) is int and part > 0:
            parts.append(part)
            continue
        modality, text = part
        if not isinstance(text, str):
            raise TypeError(f"{text!r} describes no item")
        parts.append(item(modality, text, "of the case"))
    options = found["options"]
    if not isinstance(options, dict):
        raise TypeError(f"{options!r} are no options")
    prompt = Prompt(tuple(parts), 1 if options else 0, bool(found["backwards"]))
    if not prompt.items:
        raise ValueError("the prompt has no item")
    return prompt


def _checked(bench: Bench, saved: Saved) -> Replayed:
    return replayed(checks.trial(bench, saved.section, Budget.STANDARD).check(saved.rule))


def _judged(bench: Bench, saved: Saved) -> Replayed:
    assert saved.prompt is not None
    bench.prepare({})
    if bench.broken or bench.undeclared:
        return ["loading"], bench.broken or bench.undeclared or ""
    bench.stock = saved.stock
    bench.told |= saved.told
    bench.told_data |= saved.told_data
    judge, _ = checks.JUDGES[saved.rule]
    if trouble := judge(bench, saved.prompt):
        return ["prompt"], trouble.message
    why = _in_the_way(bench, saved.prompt, judge)
    return (["error"], why) if why else ([], "")


def _in_the_way(bench: Bench, prompt: Prompt, judge: object) -> str | None:
    """Say what keeps a prompt from being judged: then nothing was shown to be mended."""
    for one in prompt.items:
        found = bench.alone(one, prompt.options)
        if not found.good:
            return f"an item of the prompt, alone, {found.describe()}"
    found = bench.processed(prompt)
    if not found.good:
        return f"the prompt {found.describe()}"
    if judge.__module__ == embeddings.__name__ and not (rows := bench.encode(prompt)).good:
        return f"encoding the items {rows.describe()}"
    return None
