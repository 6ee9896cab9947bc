# SPDX-License-Identifier: Apache-2.0
"""What live evidence of both kinds needs: the class, its prompts, and how engines learn of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from conformance.engine.environment import chosen_device
from conformance.interruption import PluginHung
from conformance.multimodal.processor.bench import Bench, CannotBuild
from conformance.multimodal.processor.host import Exited
from conformance.multimodal.processor.prompts import Prompt, alone
from conformance.multimodal.processor.stock import item
from conformance.verdict import must_wait

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from conformance.ledger import Ledger
    from conformance.multimodal.processor.stock import Item
    from conformance.rules import Evidence
    from conformance.settings import Settings
    from conformance.target import Plugin

(
    LOADS, SURVIVES, PROCESSES, IN_TEXT, AS_TOKENS, TEXT_ALONE, ONE_EACH, MISSING, SURPLUS, SINGLE,
    INDEPENDENT, CACHED, TOO_MANY, UNSUPPORTED,
) = (
    "MM-01", "MM-09", "MM-10", "MM-16", "MM-17", "MM-18", "MM-20", "MM-21", "MM-22", "MM-23",
    "MM-26", "MM-34", "MM-04", "MM-06",
)  # fmt: skip

#: Rules about the number of rows; what the engine makes of a wrong one.
COUNTS: Mapping[str, str] = {
    MISSING: "the engine ends",
    SURPLUS: "the engine drops the rest without a word",
    SINGLE: "the engine repeats the row without a word",
}

#: Why there is nothing to refuse.
ALL_SUPPORTED = "the model supports images, videos and sounds, and vLLM knows nothing else"

#: The group of plugins that every process of vLLM runs when it starts.
GENERAL_PLUGINS = "vllm.general_plugins"
NAME = "conformance-model"
_MODULE = "vllm_conformance_multimodal_entry"

#: Items of sizes that the usual ones do not have.
SIZES: Mapping[str, tuple[str, ...]] = {
    "image": ("1x1", "1x150", "400x2", "29x27", "333x500", "640x480#1"),
    "audio": ("0.7s#1", "1.3s#2"),
    "video": ("29x31x3", "56x84x6#1"),
}

#: Tokens that an answer and a chat's template may take beside a prompt.
ROOM = 32

#: Tokens of a prompt, at most: a tiny model with a long context would take too much memory.
MOST_TOKENS = 2048


@attrs.define(eq=False)
class Subject:
    """A model class, and what a live trial of it needs."""

    cls: type
    plugin: Plugin
    section: Mapping[str, Any]
    origin: str | None
    name: str  #: of the checkpoint, as the profile or the class has it
    checkpoint: str  #: its folder
    settings: Settings
    folder: str
    #: Made when it is known that an engine makes sense.
    bench: Bench = attrs.field(init=False)

    @property
    def device(self) -> str:
        """Where engines run."""
        return chosen_device(self.settings.device)

    @property
    def weights(self) -> bool:
        """Whether the checkpoint has weights; one for processors alone need not."""
        return any(Path(self.checkpoint).glob("*.safetensors"))

    @property
    def architectures(self) -> list[str]:
        """What the checkpoint calls the class."""
        return list(self._document.get("architectures") or [self.cls.__name__])

    @property
    def max_model_len(self) -> int:
        """Tokens that a prompt and its answer may have; known before anything else is.

        Where config.json does not say for how many the model has room, vLLM is to find out.
        """
        text = self._document.get("text_config") or self._document
        room = text.get("max_position_embeddings")
        return min(int(room), MOST_TOKENS) if room else -1

    @property
    def _document(self) -> Mapping[str, Any]:
        path = Path(self.checkpoint, "config.json")
        document: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return document

    def python_path(self) -> list[str]:
        """Return the folders that the class is imported from."""
        root = self.plugin.root or str(self.settings.directory)
        return [root, *self.settings.python_path]


def entry_module(folder: Path, subject: Subject) -> str:
    """Write a module whose function ``register`` makes vLLM know the class.

    Returns:
        The name of the module.

    """
    folder.mkdir(parents=True, exist_ok=True)
    source = f"""\
from functools import reduce
from importlib import import_module

MODULE = {subject.plugin.module!r}
NAMES = {subject.plugin.qualname.split(".")!r}
ARCHITECTURES = {subject.architectures!r}


def register():
    from vllm import ModelRegistry

    cls = reduce(getattr, NAMES, import_module(MODULE))
    for name in ARCHITECTURES:
        ModelRegistry.register_model(name, cls)
"""
    (folder / f"{_MODULE}.py").write_text(source, encoding="utf-8")
    return _MODULE


def prepare(subject: Subject, ledger: Ledger) -> None:
    """Find out what the class is tried with, or note why it cannot be tried."""
    try:
        bench = Bench.open(
            subject.cls,
            Path(subject.checkpoint),
            subject.name,
            subject.section,
            origin=subject.origin,
            seed=subject.settings.seed,
        )
    except CannotBuild as error:
        ledger.blocked = must_wait([LOADS], str(error))
        return
    subject.bench = bench
    try:
        bench.prepare(subject.section)
    except (PluginHung, Exited) as error:
        ledger.fail(SURVIVES, str(error))
        return
    if why := bench.broken or bench.undeclared:
        ledger.blocked = must_wait([LOADS], why)
        return
    if bench.host.config.model_config.runner_type != "generate":
        ledger.blocked = "engines are tried with models that generate, and this one does not"
        return
    if not bench.stock.everything:
        ledger.blocked = "nobody knows of an item that the processor takes: see MM-11"


def workload(subject: Subject) -> list[Prompt]:
    """Return prompts that the simulator takes: many sizes, several items, orders and mixtures."""
    bench = subject.bench
    stock = bench.stock
    sizes = [
        item(modality, text, None) for modality in stock.items for text in SIZES.get(modality, ())
    ]
    prompts = [alone(one) for one in (*stock.everything, *sizes)]
    for number in range(1, len(stock.options)):
        prompts += [alone(items[0], number) for items in stock.items.values()]
    for modality, items in stock.items.items():
        several = items[: bench.limits[modality]]
        if len(several) > 1:
            prompts += [
                Prompt((1, *several)),
                Prompt((*several[::-1], 3)),
                Prompt((2, several[0], 1, several[1], 3)),
                Prompt((2, several[1], 1, several[0], 3)),
                Prompt((several[0], 2, several[0])),
            ]
    firsts = [items[0] for items in stock.items.values()]
    if len(firsts) > 1:
        prompts += [Prompt((1, *firsts)), Prompt((*firsts[::-1], 2)), Prompt((*firsts, 1), 0, True)]  # noqa: FBT003 - as attrs has it
    return [prompt for prompt in dict.fromkeys(prompts) if _fits(subject, prompt)]


def _fits(subject: Subject, prompt: Prompt) -> bool:
    found = subject.bench.processed(prompt)
    room = subject.max_model_len if subject.max_model_len > 0 else MOST_TOKENS
    return found.good and len(found.value.tokens) < room - ROOM


def too_many(subject: Subject) -> list[tuple[str, Prompt]]:
    """Return for each modality a prompt with one item more than is allowed."""
    found = []
    for modality, items in subject.bench.stock.items.items():
        count = subject.bench.limits[modality] + 1
        parts: tuple[int | Item, ...] = (
            2,
            *(items[index % len(items)] for index in range(count)),
            1,
        )
        found.append((modality, Prompt(parts)))
    return found


def miscounted(counts: Sequence[tuple[int, int]]) -> tuple[str, int] | None:
    """Return the rule that numbers of rows break, and which item it is.

    *counts* has rows and placeholders of each item.
    """
    for index, (rows, wanted) in enumerate(counts):
        if rows > wanted:
            return SURPLUS, index
        if rows == 1 < wanted:
            return SINGLE, index
        if rows < wanted:
            return MISSING, index
    return None


def counted(rows: int, placeholders: int) -> str:
    """Return two numbers that should be one in words."""
    return (
        f"{placeholders} placeholder{'' if placeholders == 1 else 's'} "
        f"and {rows} row{'' if rows == 1 else 's'}"
    )


def shown(prompt: Prompt) -> str:
    """Return a prompt in few words."""
    parts = [
        f"{part} token{'' if part == 1 else 's'}"
        if isinstance(part, int)
        else f"{part.modality} {part.text}"
        for part in prompt.parts
    ]
    return f"[{', '.join(parts)}]"


def context(subject: Subject, evidence: Evidence, host: str) -> dict[str, Any]:
    """Return what a certificate says about a live trial."""
    return {
        "profile": subject.bench.document() if hasattr(subject, "bench") else None,
        "device": subject.device,
        "model": subject.name,
        f"host_{evidence.value}": host,
    }
