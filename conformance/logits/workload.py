# SPDX-License-Identifier: Apache-2.0
"""What real engines are asked: requests that crowd an engine, and questions for every way in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from vllm.sampling_params import SamplingParams

from conformance.inputs.history import Choice, label
from conformance.logits.keywords import admitted, sampling_params
from conformance.logits.requests import Stock

if TYPE_CHECKING:
    from conformance.engine.offline import OfflineEngine

#: Tokens per answer to a question: enough for effects to show, few enough for a tiny model.
ANSWER_TOKENS = 12

#: Prompt lengths of questions: so short that no step is too small for all that are in flight.
QUESTION_LENGTHS = (6, 9)

#: Greedy requests that start alone, by the lengths of their answers: the last takes over the row
#: of the first, two leave the end of the batch together, the longest moves down, and after so many
#: steps it is the only one.
GREEDY_LENGTHS = (2, 30, 6, 6, 8)
GREEDY_STEPS = 14

#: The random requests that join it then: one of each kind, and rows that stay empty.
RANDOM_COUNT = 2
RANDOM_LENGTH = 12

#: Questions begin with the token of this number and those after it, as no other request does.
FIRST_QUESTION = 100

RANDOM_SEED = 7


@attrs.frozen
class Job:
    """One request: no two have the same prompt."""

    prompt: tuple[int, ...]
    choice: Choice
    keywords: Mapping[str, Any]  #: of ``SamplingParams``

    @property
    def greedy(self) -> bool:
        """Whether it always takes the most likely token."""
        return bool(self.keywords.get("temperature", 1.0) == 0)

    @property
    def label(self) -> str:
        """The name of its parameters in a profile, for example ``on[0]``."""
        return label(self.choice)

    def params(self) -> SamplingParams:
        """Return fresh engine parameters."""
        return sampling_params(self.keywords, str(self.choice))


def answers(engine: OfflineEngine, jobs: Sequence[Job]) -> list[tuple[int, ...]]:
    """Have an engine serve requests together, and return the tokens that each got."""
    return engine.generate([job.prompt for job in jobs], [job.params() for job in jobs])


#: Tokens of what outputs are to say, if it is to be in prompts as well: those of few tokens are
#: computed in one step, as many requests need.
LONGEST_PHRASE = 18

#: Tokens of a prompt that has the same at both ends: behind them an answer still has room.
LONGEST_TWICE = 90

#: How many requests end at a token, and that one of so many token ids does it.
ENDING, ENDS = 4, 8


def crowd(bench: Stock, *, invariant: bool) -> list[Job]:
    """Return requests of both kinds and many lengths: they wait, are chunked and are preempted.

    The first end at a token, in a step that no scheduler foresees: with asynchronous scheduling the
    row of any other request is free a step before another can take it over.

    All are greedy, so that tokens can be compared, but those that an argmax-``invariant`` plugin
    is to act on, which the engine never shows an all-greedy batch, and those that may not be.
    """
    choices = bench.choices or (("off", 0),)
    jobs = []
    count = max(16, 2 * len(choices))
    for index in (*range(count, count + ENDING), *range(count)):
        choice = choices[index % len(choices)]
        # Every length meets every choice: who is chunked and preempted depends on lengths.
        length = (6, 40, 17, 60)[(index % len(choices) + index // len(choices)) % 4]
        prompt = prompt_of(bench, length, index)
        defaults: dict[str, Any] = {
            "max_tokens": 20 + 5 * (len(prompt) % 3),
            "ignore_eos": True,
        }
        if not (invariant and choice[0] == "on") and bench.greedy(choice):
            defaults["temperature"] = 0.0
        if index >= count:
            defaults["stop_token_ids"] = list(range(0, bench.vocabulary, ENDS))
        keywords = defaults | _keywords(bench, choice)
        if choice[0] == "on" and index // len(choices) % 2:
            keywords = _saying(bench, keywords, index)
        jobs.append(Job(prompt, choice, keywords))
    return jobs


def _saying(bench: Stock, keywords: dict[str, Any], index: int) -> dict[str, Any]:
    """Return keywords that leave the tokens of what is waited for alone, where there are such.

    No model of random weights says them by itself.
    """
    phrase = bench.words.phrase(index)
    told = {"allowed_token_ids": sorted({*phrase}), **keywords}
    told["temperature"] = keywords.get("temperature") or 1.0
    if not phrase or not admitted(bench.plugin, told):
        return keywords
    return told


def greedy_then_random(bench: Stock, first: int) -> tuple[list[Job], list[Job]]:
    """Return opted-in greedy requests, and random ones of both kinds that are to join them.

    Their prompts begin with the token of number ``first`` and those after it.
    """
    # Where the plugin refuses greedy requests, only those that do not want it are greedy.
    may_be = [choice for choice in bench.choices if bench.greedy(choice)]
    opted_in = [choice for choice in may_be if choice[0] == "on"] or may_be
    jobs = []
    for index in range(len(GREEDY_LENGTHS) + RANDOM_COUNT):
        greedy = index < len(GREEDY_LENGTHS)
        choices = opted_in if greedy else bench.choices
        choice = choices[index % len(choices)]
        length = GREEDY_LENGTHS[index] if greedy else RANDOM_LENGTH
        keywords = {"ignore_eos": True, "max_tokens": length, **_keywords(bench, choice)}
        if greedy:
            keywords["temperature"] = 0.0
        jobs.append(Job(prompt_of(bench, 6, first + index), choice, keywords))
    return jobs[: len(GREEDY_LENGTHS)], jobs[len(GREEDY_LENGTHS) :]


def questions(bench: Stock, *, invariant: bool) -> list[Job]:
    """Return what is asked in every way that there is, with the same answer every time.

    Greedy requests, or, for an argmax-``invariant`` plugin and where it refuses those, random ones
    with a seed of their own.
    """
    defaults = {"max_tokens": ANSWER_TOKENS, "ignore_eos": True}
    pairs = [(choice, length) for choice in bench.parameters for length in QUESTION_LENGTHS]
    return [
        Job(
            prompt_of(bench, length, index),
            choice,
            {
                **defaults,
                **steady(bench, choice, invariant=invariant),
                **_keywords(bench, choice),
            },
        )
        for index, (choice, length) in enumerate(pairs, FIRST_QUESTION)
    ]


def steady(bench: Stock, choice: Choice, *, invariant: bool) -> dict[str, Any]:
    """Return keywords with which a request gets the same tokens whenever it is asked for."""
    own = bench.parameters.get(choice, {})
    if invariant or own.get("temperature") or not bench.greedy(choice):
        return {"temperature": 1.0, "seed": RANDOM_SEED}
    return {"temperature": 0.0}


def _keywords(bench: Stock, choice: Choice) -> dict[str, Any]:
    return dict(bench.parameters.get(choice, {}))


def prompt_of(bench: Stock, length: int, index: int) -> tuple[int, ...]:
    """Return the prompt of a number; those of different numbers differ.

    Prompts that the profile names stand at both ends, if there is room: a plugin may look at
    either. Where it names none, every second prompt has what the plugin may be waiting for.
    """
    prompt = [3 + (index * 7 + position * 5) % (bench.vocabulary - 8) for position in range(length)]
    # History readers meet the tokens they look for in prompts, too.
    tokens = bench.tokens
    prompt[-2:] = [tokens[index % len(tokens)], tokens[(index + 1) % len(tokens)]]
    prompt[0] = 3 + index % (bench.vocabulary - 3)
    every_second = not (index + index // len(bench.parameters or (0,))) % 2
    phrases = [each for each in bench.words.phrases if len(each) <= LONGEST_PHRASE]
    if waited := bench.words.prompts or (phrases if every_second else ()):
        said = waited[index % len(waited)]
        end = said if 2 * len(said) < LONGEST_TWICE else ()
        prompt = [*said, *prompt[: max(1, length - len(said) - len(end))], *end]
    return tuple(prompt)
