# SPDX-License-Identifier: Apache-2.0
"""The pipeline: parse, validate, preprocess, estimate, build.

It knows no modality. What it is sure of is the order: a model is asked whether it takes
a modality before anything is fetched, limits are checked before anything is decoded, and the
tokens are known before anything is encoded.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs

from reference_plugins.modality.arrays import frozen_features
from reference_plugins.modality.errors import EstimateError, InputError
from reference_plugins.modality.fingerprints import fingerprint
from reference_plugins.modality.placeholders import (
    PlaceholderRange,
    check_prompt,
    expand,
    numbered,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reference_plugins.modality.arrays import Features
    from reference_plugins.modality.interface import Item, ModelConfig, MultiModalPlugin
    from reference_plugins.modality.registry import MultiModalRegistry


@attrs.frozen
class Attachment:
    """One item as it came with a request."""

    modality: str
    data: object = attrs.field(repr=False)  #: in a form that the modality's plugin parses


@attrs.frozen
class Request:
    """A prompt with one placeholder token for each of its items, in the same order."""

    token_ids: tuple[int, ...]
    attachments: tuple[Attachment, ...] = ()


@attrs.frozen
class ParsedItem:
    """One item after its plugin parsed it."""

    modality: str
    index: int  #: among the items of its modality, from 0
    item: Item

    def __str__(self) -> str:
        return f"{self.modality}[{self.index}]"


@attrs.frozen
class ParsedRequest:
    """A prompt and its items, of which nothing is decoded yet."""

    token_ids: tuple[int, ...]
    items: tuple[ParsedItem, ...]

    @property
    def modalities(self) -> tuple[str, ...]:
        """The modality of each item."""
        return tuple(parsed.modality for parsed in self.items)


@attrs.frozen
class TokenEstimate:
    """How many tokens a request takes, known before its items are encoded."""

    text: int
    items: tuple[int, ...]  #: of each item, in the order of the prompt

    @property
    def total(self) -> int:
        """The tokens that the scheduler makes room for."""
        return self.text + sum(self.items)


@attrs.frozen
class ModelItem:
    """One item as the model is given it."""

    modality: str
    index: int  #: among the items of its modality, from 0
    features: Features = attrs.field(repr=False, eq=False)  #: arrays, by the model's arguments
    #: of the model, its recipe and what the client sent: the key for embeddings kept for later
    content_hash: str


@attrs.frozen
class ModelInputs:
    """A request that is ready for the model's forward pass."""

    token_ids: tuple[int, ...]  #: with a placeholder for every embedding
    placeholders: tuple[PlaceholderRange, ...]  #: in the order of the prompt
    items: tuple[ModelItem, ...]  #: in the order of the prompt
    estimate: TokenEstimate


@attrs.frozen
class MultiModalProcessor:
    """Turns requests into inputs of one model."""

    registry: MultiModalRegistry
    model_config: ModelConfig

    def process(self, request: Request) -> ModelInputs:
        """Take a request through all five steps.

        Raises:
            InputError: the request is at fault; the message names the item.
            EstimateError: a plugin estimated another number of tokens than an item takes.

        """
        parsed = self.parse(request)
        self.validate(parsed)
        features = self.preprocess(parsed)
        estimate = self.estimate(parsed)
        return self.build(parsed, features, estimate)

    def parse(self, request: Request) -> ParsedRequest:
        """Step 1: ask what the model takes, count, and only then fetch and read headers.

        Raises:
            InputError: a modality that the model does not take, too many items, placeholders
                that do not fit the items, or an item that cannot be had or read.

        """
        counts: dict[str, int] = {}
        for attachment in request.attachments:
            modality = attachment.modality
            plugin = self._plugin(modality)
            counts[modality] = counts.get(modality, 0) + 1
            most = plugin.get_max_per_prompt(self.model_config)
            if counts[modality] > most:
                given = sum(each.modality == modality for each in request.attachments)
                raise InputError(
                    f"the prompt has {given} items of {modality}, of which {most} may be"
                )
        modalities = [attachment.modality for attachment in request.attachments]
        check_prompt(request.token_ids, modalities, self._placeholder_tokens)
        self._check_length(len(request.token_ids), "the prompt has")
        items = []
        for attachment, (modality, index) in zip(
            request.attachments, numbered(modalities), strict=True
        ):
            with _about(f"{modality}[{index}]"):
                item = self._plugin(modality).parse_input(attachment.data)
            items.append(ParsedItem(modality, index, item))
        return ParsedRequest(request.token_ids, tuple(items))

    def validate(self, parsed: ParsedRequest) -> None:
        """Step 2: hold every item against the limits, and all together against the model's length.

        Raises:
            InputError: an item beyond the limits, or more tokens than the model can take.

        """
        for modality in dict.fromkeys(parsed.modalities):
            plugin = self._plugin(modality)
            limits = self.model_config.limits.get(modality, plugin.limits)
            plugin.validate(
                [each.item for each in parsed.items if each.modality == modality], limits
            )
        self._check_length(self.estimate(parsed).total, "with its items the prompt would have")

    def preprocess(self, parsed: ParsedRequest) -> tuple[Features, ...]:
        """Step 3: decode each item by itself, and make of it what the model's recipe says.

        Raises:
            InputError: an item that is broken behind its header.

        """
        features = []
        for each in parsed.items:
            with _about(str(each)):
                made = self._plugin(each.modality).preprocess(each.item, self.model_config)
            features.append(frozen_features(made))
        return tuple(features)

    def estimate(self, parsed: ParsedRequest) -> TokenEstimate:
        """Step 4: return the tokens of text and items, from headers alone."""
        items = tuple(
            self._plugin(each.modality).estimate_tokens(each.item, self.model_config)
            for each in parsed.items
        )
        return TokenEstimate(text=len(parsed.token_ids) - len(items), items=items)

    def build(
        self,
        parsed: ParsedRequest,
        features: tuple[Features, ...],
        estimate: TokenEstimate,
    ) -> ModelInputs:
        """Step 5: put a placeholder into the prompt for every embedding there will be.

        Raises:
            EstimateError: an item takes more tokens than was estimated.

        """
        items, lengths = [], []
        for each, arrays, estimated in zip(parsed.items, features, estimate.items, strict=True):
            actual = self._plugin(each.modality).count_tokens(arrays, self.model_config)
            if actual > estimated:
                raise EstimateError(each.modality, each.index, estimated=estimated, actual=actual)
            lengths.append(actual)
            items.append(ModelItem(each.modality, each.index, arrays, self._hash(each)))
        token_ids, placeholders = expand(
            parsed.token_ids, parsed.modalities, lengths, self._placeholder_tokens
        )
        return ModelInputs(token_ids, placeholders, tuple(items), estimate)

    @property
    def _placeholder_tokens(self) -> dict[str, int]:
        """The placeholder tokens of all modalities that the model takes."""
        return dict(self.model_config.multimodal.placeholder_tokens)

    def _plugin(self, modality: str) -> MultiModalPlugin[Any, Any]:
        """Return the plugin of a modality, if the model takes it."""
        return self.registry.get_plugin(modality, self.model_config.name)

    def _hash(self, parsed: ParsedItem) -> str:
        """Return the hash of all that decides an item's embeddings."""
        recipe = self.model_config.multimodal.recipes[parsed.modality]
        return fingerprint(
            self.model_config.name, parsed.modality, recipe, parsed.item.content_hash
        )

    def _check_length(self, tokens: int, what: str) -> None:
        """Refuse more tokens than the model can take."""
        if tokens > self.model_config.max_model_len:
            raise InputError(
                f"{what} {tokens} tokens, of which {self.model_config.max_model_len} may be"
            )


@contextmanager
def _about(item: str) -> Iterator[None]:
    """Say in an `InputError` which item it is about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{item}: {error}") from error
