# SPDX-License-Identifier: Apache-2.0
"""Requests of a profile: their parameters, the tokens of prompts and the logits a model gives."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, ClassVar, Self

import attrs
import torch
from vllm.sampling_params import SamplingParams

from conformance.counterexample.logits_host_player import logits_table
from conformance.engine.models import end_of_sequence
from conformance.inputs.history import SENT, Choice, label
from conformance.inputs.words import Words
from conformance.logits import calls
from conformance.logits.configuration import MAX_MODEL_LEN, vllm_config
from conformance.logits.keywords import admitted, sampling_params
from conformance.logits.masks import Masking
from conformance.logits.meaning import Meaning
from conformance.logits.waiting import NOTHING, Found
from conformance.logits.watching import attributes
from conformance.plugin.files import source_of

#: Parameter sets that histories which are written by hand are played with.
MOST_CHOICES = 4

#: The last of the token ids that stand for no text in the tiny model.
LAST_SPECIAL = 2

#: Different tokens that requests are made of, at most.
MOST_TOKENS = 5

#: Steps that a request lives at least, and at most, to outlive what it was told.
LEAST_LIFE, MOST_LIFE = 6, 34

#: Lists of parameter sets that switch the plugin on.
SWITCHING = ("on", "near")

#: What is its own copy.
_PLAIN = frozenset((bool, bytes, float, int, str, type(None)))

_LOGITS_ROWS = 97  # a prime, so that rows do not repeat in step with anything


#: Parameters by which a client has all tokens masked but a few.
MASKS: tuple[Mapping[str, Any], ...] = (
    {"allowed_token_ids": [LAST_SPECIAL + 1]},
    {"structured_outputs": {"choice": ["7"]}},
)

#: Why nothing is said of masks.
REFUSES_MASKS = "the plugin refuses requests with tokens masked"

#: Parameters for which vLLM itself needs the outputs of every request in the batch.
PENALISED: Mapping[str, Any] = {"presence_penalty": 0.5}


@attrs.define
class Stock:
    """A plugin class, and everything that the requests it is tried with are made of."""

    #: What tables of histories show of what the plugin is told in a step.
    told: ClassVar[str] = "BatchUpdate"

    plugin: type[Any]
    model: str  #: folder of the model whose configuration the constructor gets
    parameters: Mapping[Choice, Mapping[str, Any]]  #: ``SamplingParams`` keywords of each choice
    seed: int
    waits: Found = NOTHING  #: tokens that the plugin may be waiting for
    #: Whether histories go on after rows without a token, which harm their own request alone.
    tolerant: bool = attrs.field(init=False, default=False)
    #: What the author says that rows must be, where histories are held to that, too.
    meaning: Meaning | None = attrs.field(init=False, default=None)
    vocabulary: int = attrs.field(init=False)
    words: Words = attrs.field(init=False)  #: what prompts and outputs are made of
    table: torch.Tensor = attrs.field(init=False)
    #: Parameters of each choice, as they are and for greedy requests.
    _prototypes: dict[tuple[Choice, bool], SamplingParams] = attrs.field(init=False, factory=dict)
    _containers: dict[tuple[Choice, bool], list[str]] = attrs.field(init=False, factory=dict)
    _combined: bool = attrs.field(init=False)
    #: Whether requests that switch the plugin on may have tokens masked, too.
    maskable: bool = attrs.field(init=False)
    #: One for all copies of a stock.
    masking: Masking = attrs.field(init=False)
    #: Whether the plugin's source speaks of how many outputs requests get.
    _counts_outputs: bool = attrs.field(init=False)
    _end: int = attrs.field(init=False)  #: the front end adds it to the stop tokens

    def __attrs_post_init__(self) -> None:
        """Derive the tokens and the logits from the model, the parameters and the seed."""
        self.vocabulary = vllm_config(self.model).model_config.get_vocab_size()
        self._end = end_of_sequence(self.model)
        self._counts_outputs = "max_tokens" in attributes(self.plugin)
        # Few different tokens, those of the parameters among them, so that history readers
        # (n-gram bans, stop words) meet what they look for within a few steps; and no more where
        # parameters name many, or nothing would come twice in a short history.
        profile = ("on", "off")
        own = [named for choice, named in self.parameters.items() if choice[0] in profile]
        named = [value for value in integers(own) if LAST_SPECIAL < value < self.vocabulary]
        different = dict.fromkeys([*named[:3], 7, 11, 13])
        few = tuple(islice(different, MOST_TOKENS))
        rare = (self.vocabulary - 1, LAST_SPECIAL + 1, self.vocabulary // 2)
        # A token that is waited for is a phrase of one.
        within = {*few, *chain.from_iterable(self.waits.phrases)}
        alone = [(token,) for token in self.waits.tokens if token not in within]
        self.words = Words(few, rare, (*self.waits.phrases, *alone), self.waits.prompts)
        self.table = logits_table(self.vocabulary, self.favourites, self.seed)
        self.masking = Masking(self.table)
        self._combined = any(choice[0] == "with" for choice in self.parameters)
        switching = [named for choice, named in self.parameters.items() if choice[0] == "on"]
        masking = ({**keywords, **mask} for keywords in switching for mask in MASKS)
        self.maskable = not switching or any(admitted(self.plugin, each) for each in masking)
        if not self.maskable:
            self.masking.drop()
        for choice, keywords in self.parameters.items():
            params = sampling_params(keywords, label(choice))
            self._keep(choice, greedy=False, params=params)

    def _greedy(self, keywords: Mapping[str, Any]) -> SamplingParams | None:
        """Return a request at temperature 0; None where vLLM or the plugin refuses it."""
        keywords = {**keywords, "temperature": 0.0}
        return sampling_params(keywords, "") if admitted(self.plugin, keywords) else None

    def _keep(self, choice: Choice, *, greedy: bool, params: SamplingParams) -> None:
        # As the engine's front end does before a plugin sees them.
        params.update_from_generation_config({}, self._end)
        if params.max_tokens is None:
            params.max_tokens = MAX_MODEL_LEN - len(self.prompt)
        self._prototypes[choice, greedy] = params
        self._containers[choice, greedy] = [
            field
            for field in SamplingParams.__struct_fields__
            if isinstance(getattr(params, field), dict | list | set)
        ]

    @property
    def tokens(self) -> tuple[int, ...]:
        """The token ids that prompts and outputs are made of, but for rare ones."""
        return self.words.tokens

    @property
    def prompt(self) -> list[int]:
        """The prompt of a request where no history says it: one that is waited for, if any is."""
        first = self.words.prompts[:1]
        return [*first[0]] if first else [self.tokens[0], self.tokens[-1]]

    @property
    def favourites(self) -> tuple[int, ...]:
        """The token ids that the model prefers."""
        return tuple(dict.fromkeys((*self.tokens, *self.waits.tokens)))

    def new(self) -> Any:  # noqa: ANN401 - an instance as the generation calls it
        """Return an instance that serves no request."""
        raise NotImplementedError

    @property
    def path(self) -> str | None:
        """The file of the plugin's class, if it has one."""
        return source_of(self.plugin)

    def sending(self, params: SamplingParams, keywords: Mapping[str, Any]) -> Self:
        """Return the same stock with a request of a client, which has the choice ``SENT``.

        Args:
            params: the request's parameters, as they reach the engine.
            keywords: what they were made of.

        """
        stock = copy.copy(self)
        stock.parameters = {**self.parameters, SENT: keywords}
        stock._prototypes = dict(self._prototypes)  # noqa: SLF001 - of the same class
        stock._containers = dict(self._containers)  # noqa: SLF001 - as above
        for greedy in (False, True):
            stock._keep(SENT, greedy=greedy, params=params)  # noqa: SLF001 - as above
            # Copies of a megabyte would take most of the time, and copies of deep lists fail.
            stock._containers[SENT, greedy].clear()  # noqa: SLF001 - as above
        return stock

    def penalising(self) -> Self | None:
        """Return the same stock with a request for which vLLM needs outputs, as ``SENT``.

        None where the plugin refuses it.
        """
        if not admitted(self.plugin, PENALISED):
            return None
        return self.sending(sampling_params(PENALISED, ""), PENALISED)

    def going_on(self) -> Self:
        """Return this stock for histories that go on after rows without a token."""
        other = copy.copy(self)
        other.tolerant = True
        return other

    def beside(self, sets: Mapping[Choice, Mapping[str, Any]]) -> Self:
        """Return this stock with combined parameter sets; tokens and logits stay as they are."""
        more = copy.copy(self)
        more.combine(sets)
        return more

    def combine(self, sets: Mapping[Choice, Mapping[str, Any]]) -> None:
        """Put combined parameter sets in the place of those that there are."""
        own = {choice: kept for choice, kept in self.parameters.items() if choice[0] != "with"}
        self.parameters = {**own, **sets}
        self._combined = True
        self._prototypes, self._containers = dict(self._prototypes), dict(self._containers)
        for choice, keywords in sets.items():
            params = sampling_params(keywords, label(choice))
            self._keep(choice, greedy=False, params=params)

    @property
    def life(self) -> int:
        """Steps after which no number or list that switches the plugin on says anything new.

        Large numbers do not count outputs. Parameter sets that leave the plugin off are left out.
        """
        on = [named for choice, named in self.parameters.items() if choice[0] in SWITCHING]
        told = chain.from_iterable(map(extents, on))
        return max((LEAST_LIFE, *(each + 2 for each in told if each + 2 <= MOST_LIFE)))

    def most(self, choice: Choice) -> int | None:
        """Return how many outputs a request gets; None where nothing depends on it.

        A parameter set that does not say it leaves the number to whoever sends it, which is as
        many as a history takes, unless the plugin's source speaks of it.
        """
        if "max_tokens" not in self.parameters[choice] and not self._counts_outputs:
            return None
        most: int | None = self._prototype(choice, greedy=False).max_tokens
        return most

    def lasting(self, steps: int, *choices: Choice) -> int:
        """Return for how many of so many steps all requests of these sets are served."""
        return min([steps, *(most for each in choices if (most := self.most(each)) is not None)])

    def served(self, steps: int, *choices: Choice, prompt: Sequence[int] = ()) -> int:
        """Return for how many of so many steps an engine serves requests of these sets.

        They end with what they ask for, and where their context does.

        Args:
            steps: no more than these.
            choices: the parameter sets.
            prompt: of each request; default: :attr:`prompt`.

        """
        room = MAX_MODEL_LEN - len(prompt or self.prompt)
        return min(room, self.lasting(steps, *choices))

    def behind(self, steps: int, *choices: Choice) -> int:
        """Return for how many steps requests are served of which *steps* come behind a phrase.

        That is what they say first where no history says it: a check of a few steps would end
        before it is said.
        """
        return self.served(len(self.words.phrase(0)) + steps, *choices)

    def short(self, steps: int, *choices: Choice) -> bool:
        """Tell whether requests of these sets end before so many steps behind a phrase are over."""
        return self.behind(steps, *choices) < len(self.words.phrase(0)) + steps

    def begun(self, *choices: Choice) -> list[int]:
        """Return a phrase as the outputs with which requests come back, if they last so long."""
        return [] if self.short(1, *choices) else [*self.words.phrase(0)]

    def given(self, step: int) -> torch.Tensor:
        """Return the logits ``[1, vocabulary]`` of a step where no history says which."""
        return self.masking.unmasked([step])

    def takes(self, row: torch.Tensor, wanted: int) -> int:
        """Return the token a request gets behind a row ``[vocabulary]``, as sampling would.

        It is the wanted one, or another one of the bench where the plugin ruled that out: plugins
        may fail for outputs that they made impossible.  Where they left none, it is the wanted one.
        """
        if float(row[wanted]) != -math.inf:
            return wanted
        logits = row.tolist()  # to ask a tensor for one number takes as long
        left = (token for token in self.words.every if logits[token] != -math.inf)
        token = next(left, int(row.argmax()))
        return wanted if logits[token] == -math.inf else token

    def goes_on(self, choice: Choice, outputs: Sequence[int]) -> bool:
        """Tell whether a request with these outputs is served again after the next one."""
        most = self.most(choice)
        return most is None or len(outputs) + 1 < most

    @property
    def pair(self) -> tuple[list[Choice], Choice | None]:
        """The first parameter sets that switch on, and one that does not if there is one.

        Histories that are written by hand are played with each of the first.
        """
        on = dict.fromkeys(choice for choice in self.choices if choice[0] == "on")
        off = next((choice for choice in self.choices if choice[0] == "off"), None)
        return list(islice(on, MOST_CHOICES)), off

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The parameter sets that histories draw from: as often on as off."""
        on = [choice for choice in self.parameters if choice[0] in SWITCHING]
        off = [choice for choice in self.parameters if choice[0] == "off"]
        if not on or not off:
            return tuple(on or off)
        longer = max(len(on), len(off))
        return tuple(side[index % len(side)] for index in range(longer) for side in (on, off))

    def greedy(self, choice: Choice) -> bool:
        """Tell whether a parameter set may be asked for at temperature 0."""
        return not self._prototype(choice, greedy=True).temperature

    def _prototype(self, choice: Choice, *, greedy: bool) -> SamplingParams:
        if (choice, greedy) not in self._prototypes:
            # Only now: whoever is asked before an engine's process is, may remember it.
            keywords = self.parameters[choice]
            params = self._greedy(keywords) or sampling_params(keywords, "")
            self._keep(choice, greedy=True, params=params)
        return self._prototypes[choice, greedy]

    def label(self, choice: Choice, *, greedy: bool = False) -> str:
        """Return a parameter set as the table of a history names it."""
        changed = greedy and self.greedy(choice)
        return label(choice) + ", temperature=0" * changed

    def params(
        self, choice: Choice, *, greedy: bool = False, reused: SamplingParams | None = None
    ) -> SamplingParams:
        """Return a fresh ``SamplingParams``: no two requests share one, or a container in it.

        Args:
            choice: the parameter set.
            greedy: whether it is asked for at temperature 0.
            reused: an object without other references, which is overwritten and returned.

        """
        prototype = self._prototype(choice, greedy=greedy)
        params = copy.copy(prototype) if reused is None else _overwritten(reused, prototype)
        # Deep copies of whole parameter sets would be a third of the time of an example.
        for field in self._containers[choice, greedy]:
            setattr(params, field, _copied(getattr(prototype, field)))
        if choice == SENT and params.extra_args is not None:
            params.extra_args = dict(params.extra_args)
        changes = {"temperature": 0.0} if greedy and not prototype.temperature else {}
        calls.made(params, {**self.parameters[choice], **changes})
        return params

    def unchanged(self, params: SamplingParams, choice: Choice, *, greedy: bool = False) -> bool:
        """Tell whether nobody has written to a request's parameters."""
        return bool(params == self._prototype(choice, greedy=greedy))

    def logits_row(self, prompt: Sequence[int], outputs: Sequence[int]) -> int:
        """Return which row of :attr:`table` the model would give after these tokens."""
        row = (sum(prompt) * 31 + len(prompt) * 7 + sum(outputs) * 3 + len(outputs)) % _LOGITS_ROWS
        # Combined requests say themselves which tokens are left: a mask that they did not ask for
        # would leave none of those, and blame the plugin.  Where the table has none, programs are
        # told of the row that the masked one is a copy of.
        plain = self._combined or not self.masking.wanted
        return self.masking.plain(row) if plain else row


def _overwritten(params: SamplingParams, prototype: SamplingParams) -> SamplingParams:
    """Return parameters that are now a shallow copy of the prototype, at the address they had."""
    vars(params).clear()
    for field in params.__struct_fields__:
        setattr(params, field, getattr(prototype, field))
    return params


def _copied(value: object) -> object:
    """Return a deep copy: of what JSON has, in a fraction of the time."""
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) is list:
        return [_copied(item) for item in value]
    return value if type(value) in _PLAIN else copy.deepcopy(value)


def extents(value: object) -> Iterator[int]:
    """Yield the integers within a value of a profile, and how long its lists are."""
    yield from integers(value)
    yield from (len(each) for each in _parts(value) if isinstance(each, list | tuple))


def integers(value: object) -> Iterator[int]:
    """Yield the integers within a value of a profile."""
    whole = (each for each in _parts(value) if isinstance(each, int))
    return (each for each in whole if not isinstance(each, bool))


def _parts(value: object) -> Iterator[object]:
    """Yield a value of a profile, and all that its tables and lists hold."""
    yield value
    if isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _parts(each)
