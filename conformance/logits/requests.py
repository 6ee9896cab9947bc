# SPDX-License-Identifier: Apache-2.0
"""Requests of a profile: their parameters, the tokens of prompts and the logits a model gives."""

from __future__ import annotations

import copy
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

import attrs
import torch
from vllm.sampling_params import SamplingParams

from conformance.logits import calls
from conformance.logits.configuration import vllm_config
from conformance.rules import nearest
from conformance.settings import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from conformance.history import Choice

#: End-of-sequence token of the tiny model, which the front end adds to the stop tokens.
END_OF_SEQUENCE = 1

#: The last of the token ids that stand for no text in the tiny model.
LAST_SPECIAL = 2

#: Different tokens that requests are made of, at most.
MOST_TOKENS = 5

_LOGITS_ROWS = 97  # a prime, so that rows do not repeat in step with anything


@attrs.define
class Stock:
    """A plugin class, and everything that the requests it is tried with are made of."""

    plugin: type[Any]
    model: str  #: folder of the model whose configuration the constructor gets
    parameters: Mapping[Choice, Mapping[str, Any]]  #: ``SamplingParams`` keywords of each choice
    seed: int
    vocabulary: int = attrs.field(init=False)
    tokens: tuple[int, ...] = attrs.field(init=False)  #: token ids that prompts are made of
    table: torch.Tensor = attrs.field(init=False)
    #: Parameters of each choice, as they are and for greedy requests.
    _prototypes: dict[tuple[Choice, bool], SamplingParams] = attrs.field(init=False, factory=dict)
    _containers: dict[tuple[Choice, bool], list[str]] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        """Derive the tokens and the logits from the model, the parameters and the seed."""
        self.vocabulary = vllm_config(self.model).model_config.get_vocab_size()
        # Few different tokens, those of the parameters among them, so that history readers
        # (n-gram bans, stop words) meet what they look for within a few steps; and no more where
        # parameters name many, or nothing would come twice in a short history.
        named = [
            value for value in _integers(self.parameters) if LAST_SPECIAL < value < self.vocabulary
        ]
        different = dict.fromkeys([*named[:3], 7, 11, 13])
        self.tokens = tuple(islice(different, MOST_TOKENS))
        self.table = logits_table(self.vocabulary, self.tokens, self.seed)
        for choice, keywords in self.parameters.items():
            params = sampling_params(keywords, f"{choice[0]}[{choice[1]}]")
            self._keep(choice, greedy=False, params=params)
            # What cannot be greedy (several answers to one prompt) stays as it is.
            with suppress(UsageError):
                params = sampling_params({**keywords, "temperature": 0.0}, "")
            self._keep(choice, greedy=True, params=params)

    def _keep(self, choice: Choice, *, greedy: bool, params: SamplingParams) -> None:
        # As the engine's front end does before a plugin sees them.
        params.update_from_generation_config({}, END_OF_SEQUENCE)
        self._prototypes[choice, greedy] = params
        self._containers[choice, greedy] = [
            field
            for field in SamplingParams.__struct_fields__
            if isinstance(getattr(params, field), dict | list | set)
        ]

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The parameter sets that histories draw from: as often on as off."""
        on = [choice for choice in self.parameters if choice[0] == "on"]
        off = [choice for choice in self.parameters if choice[0] == "off"]
        if not on or not off:
            return tuple(on or off)
        longer = max(len(on), len(off))
        return tuple(side[index % len(side)] for index in range(longer) for side in (on, off))

    def params(self, choice: Choice, *, greedy: bool = False) -> SamplingParams:
        """Return a fresh ``SamplingParams``: no two requests share one, or a container in it."""
        prototype = self._prototypes[choice, greedy]
        params = copy.copy(prototype)
        # Deep copies of whole parameter sets would be a third of the time of an example.
        for field in self._containers[choice, greedy]:
            setattr(params, field, copy.deepcopy(getattr(prototype, field)))
        changes = {"temperature": 0.0} if greedy and not prototype.temperature else {}
        calls.made(params, {**self.parameters[choice], **changes})
        return params

    def unchanged(self, params: SamplingParams, choice: Choice, *, greedy: bool = False) -> bool:
        """Tell whether nobody has written to a request's parameters."""
        return bool(params == self._prototypes[choice, greedy])

    def logits_row(self, prompt: Sequence[int], outputs: Sequence[int]) -> int:
        """Return which row of :attr:`table` the model would give after these tokens."""
        return (sum(prompt) * 31 + len(prompt) * 7 + sum(outputs) * 3 + len(outputs)) % _LOGITS_ROWS


def logits_table(vocabulary: int, tokens: Sequence[int], seed: int) -> torch.Tensor:
    """Return float32 logits ``[97, vocabulary]`` such as a model with a grammar mask gives.

    Every row prefers the given tokens; every eighth has ties at the top,
    every eighth is masked to 16 tokens (``-inf`` elsewhere) as structured output does.
    """
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn((_LOGITS_ROWS, vocabulary), generator=generator)
    favourites = torch.tensor(tokens)
    table[:, favourites] += 4.0
    ties = table[3::8]
    ties[:, favourites] = ties.amax(dim=-1, keepdim=True)
    masked = table[5::8]
    kept = torch.randint(0, vocabulary, (16,), generator=generator)
    mask = torch.ones(vocabulary, dtype=torch.bool)
    mask[kept] = False
    mask[favourites] = False
    masked[:, mask] = -torch.inf
    table[3::8], table[5::8] = ties, masked
    return table


def sampling_params(keywords: Mapping[str, Any], where: str) -> SamplingParams:
    """Build ``SamplingParams`` from the keywords of a profile.

    Raises:
        UsageError: the keywords are not those of ``SamplingParams``, or vLLM refuses them.

    """
    if not hasattr(keywords, "items"):
        raise UsageError(
            f"profile: {where} must be a table of SamplingParams keywords, not {keywords!r}."
        )
    known = SamplingParams.__struct_fields__
    for key in keywords:
        if key not in known:
            raise UsageError(
                f"profile: {where} has {key!r}, which is no field of SamplingParams."
                + nearest(key, known)
            )
    values = dict(keywords)
    if isinstance(bias := values.get("logit_bias"), dict):
        # TOML and JSON keys are strings; vLLM's own front end converts them in the same way.
        values["logit_bias"] = {int(token): float(value) for token, value in bias.items()}
    try:
        params = SamplingParams(**copy.deepcopy(values))
    except Exception as error:  # noqa: BLE001 - any refusal is the profile's
        raise UsageError(f"profile: {where} is refused by SamplingParams: {error}") from None
    calls.made(params, values)
    return params


def admissible(
    invalid: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[str, Mapping[str, Any], SamplingParams]]:
    """Yield the requests that vLLM itself does not refuse before the plugin is asked.

    Each with its name in messages, its keywords and a fresh ``SamplingParams``.
    """
    for index, keywords in enumerate(invalid):
        name = f"invalid[{index}]"
        with suppress(UsageError):
            yield name, keywords, sampling_params(keywords, name)


def _integers(value: object) -> Iterator[int]:
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _integers(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _integers(item)
