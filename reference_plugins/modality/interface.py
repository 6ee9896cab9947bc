# SPDX-License-Identifier: Apache-2.0
"""What a modality is to the pipeline: a plugin, and what a model declares about it.

A plugin knows a kind of data: where its bytes may come from, what they hold, what is too much.
A model knows what it wants of that data: its recipe, such as an image of 336 x 336.
The pipeline brings the two together and knows neither.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from reference_plugins.modality.arrays import Features

#: how models declare limits: `max_image_per_prompt`, and so for modalities nobody has thought of
MAX_PER_PROMPT = re.compile(r"max_(\w+)_per_prompt")


def _read_only(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a copy of a mapping that nobody can change."""
    return MappingProxyType(dict(mapping))


@attrs.frozen(init=False)
class MultiModalConfig:
    """What a model declares about itself, from `get_multimodal_config()`.

        MultiModalConfig(
            modalities=["image", "video"],
            recipes={"image": DynamicResolution(), "video": ...},
            placeholder_tokens={"image": 151655, "video": 151656},
            max_image_per_prompt=5,
            max_video_per_prompt=1,
        )

    A modality without a `max_..._per_prompt` takes one item, one without a recipe has none, and
    one without a placeholder token gets a negative one, which no tokenizer makes.

    Raises:
        TypeError: a keyword of another form.
        ValueError: a declaration about a modality that is not among `modalities`, or two
            modalities with one placeholder token.

    """

    modalities: tuple[str, ...]  #: in the order in which the model lists them
    recipes: Mapping[str, Any]  #: what the model makes of an item, by modality
    placeholder_tokens: Mapping[str, int]  #: the token that stands for an item, by modality
    max_per_prompt: Mapping[str, int]  #: how many items a prompt may have, by modality

    def __init__(
        self,
        modalities: Iterable[str],
        *,
        recipes: Mapping[str, Any] | None = None,
        placeholder_tokens: Mapping[str, int] | None = None,
        **max_per_prompt: int,
    ) -> None:
        modalities = tuple(modalities)
        recipes = dict.fromkeys(modalities) | dict(recipes or {})
        made_up = {name: -number for number, name in enumerate(modalities, 1)}
        placeholder_tokens = made_up | dict(placeholder_tokens or {})
        declared = dict.fromkeys(modalities, 1) | {
            _modality_of(keyword): maximum for keyword, maximum in max_per_prompt.items()
        }
        for name, maximum in declared.items():
            if maximum < 0:
                raise ValueError(f"max_{name}_per_prompt must be 0 or more (got {maximum!r})")
        for about, mapping in (
            ("recipe", recipes),
            ("placeholder token", placeholder_tokens),
            ("maximum per prompt", declared),
        ):
            if strange := [name for name in mapping if name not in modalities]:
                raise ValueError(
                    f"a {about} is declared for {', '.join(strange)}, "
                    f"but the modalities are {', '.join(modalities) or 'none'}"
                )
        if len(set(placeholder_tokens.values())) < len(placeholder_tokens):
            raise ValueError(f"two modalities share a placeholder token: {placeholder_tokens}")
        self.__attrs_init__(
            modalities, _read_only(recipes), _read_only(placeholder_tokens), _read_only(declared)
        )


def _modality_of(keyword: str) -> str:
    """Return the modality in a keyword such as `max_image_per_prompt`."""
    match = MAX_PER_PROMPT.fullmatch(keyword)
    if match is None:
        raise TypeError(f"MultiModalConfig() got an unexpected keyword argument {keyword!r}")
    return match[1]


@attrs.frozen
class ModelConfig:
    """A model as somebody deploys it."""

    name: str
    multimodal: MultiModalConfig  #: what the model declared
    max_model_len: int  #: tokens of a prompt, placeholders included
    #: items per prompt that the deployment allows, by modality, where these are fewer
    limit_mm_per_prompt: Mapping[str, int] = attrs.field(factory=dict, converter=_read_only)
    #: what one item may be, by modality, where this is not what the plugin allows
    limits: Mapping[str, Any] = attrs.field(factory=dict, converter=_read_only)

    def get_max_per_prompt(self, modality: str) -> int:
        """Return how many items a prompt may have: what both model and deployment allow."""
        declared = self.multimodal.max_per_prompt.get(modality, 0)
        return min(declared, self.limit_mm_per_prompt.get(modality, declared))

    def get_recipe(self, modality: str, kind: type[RecipeT]) -> RecipeT:
        """Return what the model makes of an item.

        Raises:
            TypeError: the model declares a recipe of another kind, which is its author's mistake.

        """
        recipe = self.multimodal.recipes[modality]
        if not isinstance(recipe, kind):
            raise TypeError(
                f"model {self.name!r} declares {recipe!r} for {modality}, where a "
                f"{kind.__name__} must be"
            )
        return recipe


class Item(Protocol):
    """One item of a request as its plugin parsed it: what its header says, decoded or not yet."""

    @property
    def content_hash(self) -> str:
        """The hash of all that the client sent and that decides the result."""


ItemT = TypeVar("ItemT", bound=Item)
LimitsT = TypeVar("LimitsT")
RecipeT = TypeVar("RecipeT")


class MultiModalPlugin(Protocol[ItemT, LimitsT]):
    """One modality. A class needs these members and no base class.

    Methods are called in the order in which they stand here. A method about one item is told
    of that item alone, so that no item's result can depend on its neighbours.
    What is wrong with a client's data is said by `InputError`.
    """

    @property
    def modality(self) -> str:
        """The name by which models declare this modality, such as `image`."""

    @property
    def part_types(self) -> Sequence[str]:
        """The types of chat parts that carry it, such as `image_url`."""

    @property
    def limits(self) -> LimitsT:
        """What one item may be, where the deployment says nothing else."""

    def get_max_per_prompt(self, model_config: ModelConfig) -> int:
        """Return how many of this modality a prompt may have; asked before anything is parsed."""

    def parse_input(self, data: object) -> ItemT:
        """Return an item from the form in which an API receives it.

        Fetches what has to be fetched and reads headers; what a header promises is not yet made.
        """

    def validate(self, data: Sequence[ItemT], limits: LimitsT) -> None:
        """Refuse items that are too large, too long, or of a kind not allowed.

        `data` holds all items of this modality in the order of the request.
        """

    def estimate_tokens(self, data: ItemT, model_config: ModelConfig) -> int:
        """Return how many tokens an item will take, from its header; never fewer than it does."""

    def preprocess(self, data: ItemT, model_config: ModelConfig) -> Features:
        """Return an item's arrays by the names of the model's arguments.

        The same item gives the same arrays, whatever came before it and whatever comes with it.
        """

    def count_tokens(self, features: Features, model_config: ModelConfig) -> int:
        """Return how many embeddings the encoder will make of these arrays, from their shapes."""
