# SPDX-License-Identifier: Apache-2.0
"""Placeholders in a prompt, and the embeddings that take their places.

Each item has one placeholder token in the prompt of a request. `expand` repeats it once for each
embedding that the item will have; `replace` puts the embeddings there. In between lie
the scheduler, the encoder and a cache, and any of them may hand over the wrong thing:

- too few embeddings end vLLM's engine, one alone is spread over all placeholders by NumPy's and
  torch's rules, and surplus ones are cut off where a range is sliced;
- counts that are right in total may be wrong for each of two items;
- two items of one size may have changed places, which no count shows.

So embeddings say whose they are, and every count is checked for every item before anything is
written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from reference_plugins.modality.errors import InputError, PlaceholderMismatch, PluginError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    Embeddings = npt.NDArray[np.floating[Any]]


@attrs.frozen
class PlaceholderRange:
    """Where in a prompt the embeddings of one item go."""

    modality: str
    index: int  #: of the item among those of its modality, from 0
    offset: int  #: of the first placeholder
    length: int

    @property
    def end(self) -> int:
        """The position behind the last placeholder."""
        return self.offset + self.length

    def __str__(self) -> str:
        return f"{self.modality}[{self.index}]"


@attrs.frozen
class ItemEmbeddings:
    """What the encoder made of one item."""

    modality: str
    index: int  #: of the item among those of its modality, from 0
    rows: Embeddings = attrs.field(repr=False, eq=False)  #: ``[embeddings, hidden_size]``

    def __str__(self) -> str:
        return f"{self.modality}[{self.index}]"


def numbered(modalities: Sequence[str]) -> list[tuple[str, int]]:
    """Return each modality with how many of its kind came before it."""
    counts: dict[str, int] = {}
    result = []
    for modality in modalities:
        result.append((modality, counts.setdefault(modality, 0)))
        counts[modality] += 1
    return result


def check_prompt(
    token_ids: Sequence[int], modalities: Sequence[str], placeholder_tokens: Mapping[str, int]
) -> None:
    """Refuse a prompt that has not one placeholder token for each item, in the items' order.

    A user who types a placeholder would otherwise move every item that follows by one place.

    Raises:
        InputError: the first item or placeholder without its counterpart.

    """
    modality_of = {token: modality for modality, token in placeholder_tokens.items()}
    places = [
        (position, modality_of[token])
        for position, token in enumerate(token_ids)
        if token in modality_of
    ]
    for (position, placed), (modality, index) in zip(places, numbered(modalities), strict=False):
        if placed != modality:
            raise InputError(
                f"token {position} of the prompt is a placeholder of {placed}, "
                f"where that of {modality}[{index}] must be"
            )
    if len(places) > len(modalities):
        position, placed = places[len(modalities)]
        raise InputError(
            f"token {position} of the prompt is a placeholder of {placed}, for which there is no "
            f"item: the prompt has {len(places)} placeholders, and the request "
            f"{len(modalities)} items"
        )
    if len(places) < len(modalities):
        modality, index = numbered(modalities)[len(places)]
        raise InputError(
            f"{modality}[{index}] has no placeholder: the prompt has {len(places)}, and the "
            f"request {len(modalities)} items"
        )


def expand(
    token_ids: Sequence[int],
    modalities: Sequence[str],
    lengths: Sequence[int],
    placeholder_tokens: Mapping[str, int],
) -> tuple[tuple[int, ...], tuple[PlaceholderRange, ...]]:
    """Return a prompt with every placeholder token repeated, and where the items now are.

    Raises:
        InputError: the prompt and the items do not fit, as in `check_prompt`.
        ValueError: there is not one length for each item.
        PluginError: an item would take no token.

    """
    check_prompt(token_ids, modalities, placeholder_tokens)
    items = iter(list(zip(numbered(modalities), lengths, strict=True)))
    placeholders = frozenset(placeholder_tokens.values())
    expanded: list[int] = []
    ranges = []
    for token in token_ids:
        if token not in placeholders:
            expanded.append(token)
            continue
        (modality, index), length = next(items)
        if length < 1:
            raise PluginError(f"{modality}[{index}] must take a token or more (got {length})")
        ranges.append(PlaceholderRange(modality, index, len(expanded), length))
        expanded += [token] * length
    return tuple(expanded), tuple(ranges)


def replace(
    text_embeddings: Embeddings,
    placeholders: Sequence[PlaceholderRange],
    embeddings: Sequence[ItemEmbeddings],
) -> Embeddings:
    """Return text embeddings ``[tokens, hidden_size]`` with those of the items in their places.

    The argument is left as it is, and nothing is written unless everything fits.

    Raises:
        PlaceholderMismatch: an item that is missing, is not in its place, or has not exactly
            one embedding of the right size for each of its placeholders.

    """
    check_embeddings(placeholders, embeddings, text_embeddings.shape[1])
    replaced = text_embeddings.copy()
    behind = 0
    for place, item in zip(placeholders, embeddings, strict=True):
        if not behind <= place.offset < place.end <= len(replaced):
            raise PlaceholderMismatch(
                f"{place}: its placeholders {place.offset} to {place.end - 1} are not in the "
                f"{len(replaced)} tokens of the prompt, behind those of the item before it",
                modality=place.modality,
                index=place.index,
                expected=(behind, len(replaced)),
                actual=(place.offset, place.end),
            )
        replaced[place.offset : place.end] = item.rows
        behind = place.end
    return replaced


def check_embeddings(
    placeholders: Sequence[PlaceholderRange],
    embeddings: Sequence[ItemEmbeddings],
    hidden_size: int,
) -> None:
    """Refuse embeddings that do not fit the placeholders exactly, item for item and in order.

    Raises:
        PlaceholderMismatch: the first item that does not fit; the message names it, what its
            placeholders expect and what the encoder gave.

    """
    for number, place in enumerate(placeholders):
        if number == len(embeddings):
            raise _mismatch(place, "embeddings", "none", f"{len(embeddings)} items in all")
        given = embeddings[number]
        if (given.modality, given.index) != (place.modality, place.index):
            raise _mismatch(place, f"the embeddings of {place}", f"those of {given}")
        shape = np.shape(given.rows)
        if len(shape) != 2:  # noqa: PLR2004  # embeddings, hidden_size
            raise _mismatch(place, f"shape ({place.length}, {hidden_size})", f"shape {shape}")
        if shape[0] != place.length:
            raise _mismatch(place, place.length, shape[0], "embeddings, one for each placeholder")
        if shape[1] != hidden_size:
            raise _mismatch(place, hidden_size, shape[1], "values in each embedding")
    if len(embeddings) > len(placeholders):
        surplus = embeddings[len(placeholders)]
        raise PlaceholderMismatch(
            f"{surplus}: expected no embeddings, as it has no placeholders in the prompt, "
            f"got {len(surplus.rows)}",
            modality=surplus.modality,
            index=surplus.index,
            expected=0,
            actual=len(surplus.rows),
        )


def _mismatch(
    place: PlaceholderRange, expected: object, actual: object, unit: str = ""
) -> PlaceholderMismatch:
    """Return the error about an item, which says where in the prompt it is."""
    return PlaceholderMismatch(
        f"{place}, placeholders {place.offset} to {place.end - 1}: expected {expected}, "
        f"got {actual}{f' {unit}' if unit else ''}",
        modality=place.modality,
        index=place.index,
        expected=expected,
        actual=actual,
    )
