# SPDX-License-Identifier: Apache-2.0
"""What live evidence of both kinds needs: the class, its prompts, and how engines learn of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from conformance.live_trial import LiveTrial
from conformance.multimodal.processor.answers import CannotBuild
from conformance.multimodal.processor.bench import Bench
from conformance.multimodal.processor.embeddings import miscounted
from conformance.multimodal.processor.host import Exited
from conformance.multimodal.processor.processing import unlike_the_first
from conformance.multimodal.processor.prompts import Prompt, alone, crowded
from conformance.multimodal.processor.stock import item
from conformance.plugin.target import GENERAL_PLUGINS, registering_entry
from conformance.verdict import must_wait
from conformance.watching.interruption import PluginHung
from conformance.watching.untouched import Untouched

(
    LOADS, SURVIVES, PROCESSES, IN_TEXT, AS_TOKENS, TEXT_ALONE, ONE_EACH, MISSING, SURPLUS, SINGLE,
    INDEPENDENT, CACHED, TOO_MANY, UNSUPPORTED, OPTIONS,
) = (
    "MM-01", "MM-09", "MM-10", "MM-16", "MM-17", "MM-18", "MM-20", "MM-21", "MM-22", "MM-23",
    "MM-26", "MM-34", "MM-04", "MM-06", "MM-83",
)  # fmt: skip

#: The rule about what the author says, and why it does not apply.
MEANS, SILENT = "MM-81", "the profile has no `expected`"

#: The rule about what a processor keeps from one prompt to the next.
STATE = "MM-36"

#: Rules about the number of rows; what the engine makes of a wrong one.
COUNTS: Mapping[str, str] = {
    MISSING: "the engine ends",
    SURPLUS: "the engine drops the rest without a word",
    SINGLE: "the engine repeats the row without a word",
}

#: Why there is nothing to refuse.
ALL_SUPPORTED = "the model supports images, videos and sounds, and vLLM knows nothing else"

#: Why there are no options to refuse.
ALL_PROCESSED = "the processor takes whatever options it is given"

#: Requests with bad options, at most.
MOST_OPTIONS = 8

NAME = "conformance-model"
_MODULE = "vllm_conformance_multimodal_entry"

#: What makes vLLM know a class.
_IMPORTED = """\
from pkgutil import resolve_name


def register():
    from vllm import ModelRegistry

    cls = resolve_name(NAME)
    for name in ARCHITECTURES:
        ModelRegistry.register_model(name, cls)
"""

#: The same of one that an entry point makes: vLLM calls that as well, before this or behind it.
_MADE = """\
from importlib.metadata import entry_points


def register():
    from vllm import ModelRegistry

    for entry in entry_points(group=GROUP, name=ENTRY):
        entry.load()()
    if KNOWN_AS not in ModelRegistry.models:
        return  # it was asked for by the name that is in config.json
    for name in ARCHITECTURES:
        ModelRegistry.models[name] = ModelRegistry.models[KNOWN_AS]
"""

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
class ProcessorTrial(LiveTrial):
    """The trial of one model class on live evidence of either kind."""

    name: str  #: of the checkpoint, as the profile or the class has it
    checkpoint: str  #: its folder
    #: Made when it is known that an engine makes sense.
    bench: Bench = attrs.field(init=False)
    _opened: bool = attrs.field(init=False, default=False)  #: whether there is a bench

    @property
    def model_name(self) -> str:
        """What certificates call the model."""
        return self.name

    @property
    def pools(self) -> bool:
        """Whether the model pools, and generates nothing; false until that is known."""
        return self._opened and self.bench.host.config.model_config.runner_type == "pooling"

    @property
    def architectures(self) -> list[str]:
        """What the checkpoint calls the class."""
        return list(self._config.get("architectures") or [self.opening.cls.__name__])

    @property
    def max_model_len(self) -> int:
        """Tokens that a prompt and its answer may have; known before anything else is.

        Where config.json does not say for how many the model has room, vLLM is to find out.
        """
        flag = "--max-model-len="
        for each in self.opening.settings.server_arguments:  # that of a configuration counts
            if each.startswith(flag):
                return int(each.removeprefix(flag))
        text = self._config.get("text_config") or self._config
        room = text.get("max_position_embeddings")
        return min(int(room), MOST_TOKENS) if room else -1

    @property
    def _config(self) -> Mapping[str, Any]:
        path = Path(self.checkpoint, "config.json")
        document: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return document

    def document(self) -> Mapping[str, Any] | None:
        """Return what the class is tried with, once that is known."""
        return self.bench.document() if self._opened else None

    def prepare(self) -> None:
        """Find out what the class is tried with, or note why it cannot be tried."""
        try:
            bench = Bench.open(
                self.opening.cls,
                Path(self.checkpoint),
                self.name,
                self.opening.section,
                origin=self.opening.origin,
                seed=self.opening.settings.seed,
            )
        except CannotBuild as error:
            self.ledger.blocked = must_wait([LOADS], str(error))
            return
        self.bench, self._opened = bench, True
        untouched = Untouched.fork(bench)
        self.ends.callback(untouched.close)
        try:
            bench.prepare(self.opening.section)
        except (PluginHung, Exited) as error:
            self.ledger.fail(SURVIVES, str(error))
            return
        if why := bench.broken or bench.undeclared:
            self.ledger.blocked = must_wait([LOADS], why)
            return
        # An engine has not processed what was here, and would be told from it by that alone.
        if why := unlike_the_first(bench, untouched):
            self.ledger.blocked = must_wait([STATE], why)
            return
        if not bench.stock.everything:
            self.ledger.blocked = "no item is known that the processor takes: see MM-11"


def entry_module(folder: Path, trial: ProcessorTrial) -> str:
    """Write a module whose function ``register`` makes vLLM know the class.

    Returns:
        The name of the module.

    """
    folder.mkdir(parents=True, exist_ok=True)
    plugin = trial.opening.plugin
    given: dict[str, Any] = {"ARCHITECTURES": trial.architectures}
    if plugin.known_as is None:
        given["NAME"] = plugin.fqcn
        body = _IMPORTED
    else:
        entry = registering_entry(plugin.target)
        given |= {"GROUP": GENERAL_PLUGINS, "ENTRY": entry, "KNOWN_AS": plugin.known_as}
        body = _MADE
    lines = [f"{name} = {value!r}" for name, value in given.items()]
    source = "\n".join((*lines, body))
    (folder / f"{_MODULE}.py").write_text(source, encoding="utf-8")
    return _MODULE


def workload(trial: ProcessorTrial) -> list[Prompt]:
    """Return prompts that the simulator takes: many sizes, several items, orders and mixtures."""
    bench = trial.bench
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
    return [prompt for prompt in dict.fromkeys(prompts) if _fits(trial, prompt)]


def _fits(trial: ProcessorTrial, prompt: Prompt) -> bool:
    found = trial.bench.processed(prompt)
    room = trial.max_model_len if trial.max_model_len > 0 else MOST_TOKENS
    return found.good and len(found.value.tokens) < room - ROOM


def too_many(bench: Bench) -> list[tuple[str, Prompt]]:
    """Return for each modality a prompt with one item more than is allowed."""
    stock = bench.stock.items
    return [(name, crowded(items, bench.limits[name] + 1)) for name, items in stock.items()]


def refused_options(bench: Bench) -> list[tuple[str, Prompt]]:
    """Return prompts with options that the simulator refuses, and what to call them."""
    prompts = [
        alone(items[0], number)
        for number in bench.stock.bad
        for items in bench.stock.items.values()
    ]
    refused = [prompt for prompt in prompts if not bench.processed(prompt).good]
    return [
        (f"items with the options {bench.stock.chosen(prompt.options)}", prompt)
        for prompt in refused[:MOST_OPTIONS]
    ]


def first_miscounted(counts: Sequence[tuple[int, int]]) -> tuple[str, int] | None:
    """Return the rule that numbers of rows break, and which item it is.

    *counts* has rows and placeholders of each item.
    """
    for index, (rows, wanted) in enumerate(counts):
        if (rule := miscounted(rows, wanted)) is not None:
            return rule, index
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
