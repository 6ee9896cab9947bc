# SPDX-License-Identifier: Apache-2.0
"""The workload of one plugin: requests that opt in and out, join late, and are aborted.

A job that runs no engine: to find out what switches a plugin on, it is played with.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from multiprocessing.connection import Connection
from typing import Any

from conformance.configuration import table
from conformance.configuration.asked import Ask, Workload
from conformance.generations import named as generation_named
from conformance.inputs.history import Choice, label
from conformance.logits import errands
from conformance.logits.keywords import admitted
from conformance.logits.requests import Stock
from conformance.logits.workload import RANDOM_SEED, prompt_of
from conformance.plugin.expectation import located
from conformance.plugin.profile import of_plugin
from conformance.plugin.target import Plugin
from conformance.settings import Settings, UsageError
from conformance.worker.jobs import class_of, deployed

#: Lengths of prompts: some fit a small step, others take several.
LENGTHS = (12, 21, 40)

#: Tokens of an answer: as many as make requests outgrow a small cache together.
ANSWER_TOKENS = 24

#: Parameter sets of each side that are asked for, at most: every one is asked six times.
MOST = 2

#: What the tokens of a request with few are preferred by: enough to say nothing else, unless the
#: plugin forbids them all.
PREFERENCE = 50.0


def run(connection: Connection, plugin: Plugin, settings: Settings, model: str) -> None:
    """Answer with the workload, or the ``UsageError`` that its profile is."""
    connection.recv()
    try:
        model = deployed(plugin, settings) or model
        connection.send(_workload(plugin, settings, model))
    except UsageError as error:
        connection.send(error)


def _workload(plugin: Plugin, settings: Settings, model: str) -> Workload:
    generation = generation_named(plugin.generation)
    profile = of_plugin(plugin, settings)
    section: Any = {}
    if profile is not None:
        kept = profile.section(generation.interface)
        section = located(kept, profile.folder, profile.origin)
    unsupported = table.unsupported(section, plugin.generation)
    cls = class_of(plugin)
    origin = profile.origin if profile else None
    found = errands.found_here(
        generation.suite, cls, section, origin=origin, model=model, seed=settings.seed
    )
    stock = Stock(cls, model, found.choices(), settings.seed, found.waits)
    return Workload(asks=tuple(_asks(stock)), unsupported=unsupported)


def _asks(stock: Stock) -> Iterator[Ask]:
    """Return requests of both kinds in turn: greedy and with seeds, some late, some aborted."""
    sides = [[c for c in stock.parameters if c[0] == side][:MOST] for side in ("on", "off")]
    chosen: list[Choice] = [c for row in zip_longest(*sides) for c in row if c]
    number = 0
    for length in LENGTHS:
        for choice in chosen:
            for greedy in (True, False):
                if greedy and not stock.greedy(choice):
                    continue
                number += 1
                prompt = prompt_of(stock, length, number)
                yield _ask(stock, choice, prompt, greedy=greedy, late=number % 3 == 0)
    for choice in chosen[:2]:
        number += 1
        prompt = prompt_of(stock, LENGTHS[0], number)
        greedy = stock.greedy(choice)
        yield _ask(stock, choice, prompt, greedy=greedy, aborted=True)


def _ask(
    stock: Stock,
    choice: Choice,
    prompt: tuple[int, ...],
    *,
    greedy: bool,
    late: bool = False,
    aborted: bool = False,
) -> Ask:
    chance = {"temperature": 0.0} if greedy else {"temperature": 1.0, "seed": RANDOM_SEED}
    keywords = {"max_tokens": ANSWER_TOKENS, "ignore_eos": True, **stock.parameters[choice]}
    if len(prompt) > LENGTHS[1] and choice[0] == "on":
        # What looks for repetitions finds none in short answers of a model of random weights.
        few = {"logit_bias": dict.fromkeys(stock.tokens, PREFERENCE), **keywords}
        keywords = few if admitted(stock.plugin, few) else keywords
    return Ask(label(choice), prompt, {**keywords, **chance}, late, aborted)
