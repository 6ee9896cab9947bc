# SPDX-License-Identifier: Apache-2.0
"""The items that prompts carry: what the profile names, or pictures, sounds and films drawn here.

An item is its description: ``84x28#3`` is the third picture of that size, ``0.31s#1`` a sound,
``0.31s#1*4`` the same four times as loud, and ``56x28x4#2`` a film of four frames, which with
``@2`` says that it has two in a second.  So a case file can hold it, and every use gets data of its
own, which a plugin may spoil.
"""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from PIL import Image

from conformance.settings import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Samples of a sound in a second.
RATE = 16_000

#: Frames of a film in a second, where a film says it.
FRAMES = 2

#: What is tried where the profile names no items of a modality.
USUAL: Mapping[str, tuple[str, ...]] = {
    "image": ("28x28#1", "84x28#2", "28x112#3", "120x90#4", "61x33#5", "28x28#6"),
    "audio": ("0.1s#1", "0.31s#2", "0.05s#3", "0.6s#4", "0.1s#5"),
    "video": ("28x28x2#1", "56x28x4#2", "28x56x6#3", "28x28x2#4"),
}

#: Items of unusual sizes.
ODD: Mapping[str, tuple[str, ...]] = {
    "image": ("1x1", "1x150", "400x2", "29x27", "13x15"),
    # Silent, almost silent, and too loud.
    "audio": ("0.0001s", "2.5s", "0.2s#6*0", "0.2s#7*0.001", "0.2s#8*4"),
    "video": ("28x28x1", "29x31x3"),
}

_IMAGE = re.compile(r"(?P<width>\d+)x(?P<height>\d+)(#(?P<draw>\d+))?")
_VIDEO = re.compile(
    r"(?P<width>\d+)x(?P<height>\d+)x(?P<frames>\d+)(@(?P<rate>\d+))?(#(?P<draw>\d+))?"
)
_AUDIO = re.compile(r"(?P<seconds>\d+(\.\d+)?)s(#(?P<draw>\d+))?(\*(?P<loud>\d+(\.\d+)?))?")
_FORMS = {"image": _IMAGE, "video": _VIDEO, "audio": _AUDIO}


@attrs.frozen
class Item:
    """One thing that a prompt carries."""

    modality: str
    text: str  #: the description
    #: What a Python profile gives for it, which no file can hold.
    value: Any = attrs.field(default=None, eq=False, repr=False)

    def make(self) -> Any:  # noqa: ANN401 - whatever vLLM takes for the modality
        """Return its data, new each time."""
        if self.value is not None:
            return copy.deepcopy(self.value)
        found = _FORMS[self.modality].fullmatch(self.text)
        assert found is not None  # :func:`item` has looked
        draw = np.random.RandomState(int(found["draw"] or 0))
        if self.modality == "audio":
            count = max(1, round(float(found["seconds"]) * RATE))
            loud = float(found["loud"] or 1)
            return (draw.uniform(-1.0, 1.0, count) * loud).astype(np.float32), RATE
        size = int(found["height"]), int(found["width"]), 3
        if self.modality == "image":
            return Image.fromarray(draw.randint(0, 256, size, dtype=np.uint8))
        count = int(found["frames"])
        frames = draw.randint(0, 256, (count, *size), dtype=np.uint8)
        return (frames, _about(count, int(found["rate"]))) if found["rate"] else frames

    def dated(self) -> Item:
        """Return the film that also says how many frames it has in a second; others as they are."""
        found = _VIDEO.fullmatch(self.text) if self.modality == "video" else None
        if self.value is not None or found is None or found["rate"]:
            return self
        end = found.end("frames")
        return Item(self.modality, f"{self.text[:end]}@{FRAMES}{self.text[end:]}")


def _about(count: int, rate: int) -> dict[str, Any]:
    """Return what vLLM's loaders say of a film of which they kept all frames."""
    return {
        "total_num_frames": count,
        "fps": float(rate),
        "duration": count / rate,
        "video_backend": "opencv",
        "frames_indices": list(range(count)),
        "do_sample_frames": False,
    }


def item(modality: str, value: Any, origin: str | None, number: int = 0) -> Item:  # noqa: ANN401
    """Return an item that a profile or a case file describes.

    Raises:
        UsageError: it is a text that describes none of its modality.

    """
    if not isinstance(value, str):
        return Item(modality, f"{modality} {number}", value)
    form = _FORMS.get(modality)
    if form is None or not form.fullmatch(value):
        known = {"image": "84x28", "video": "56x28x4", "audio": "0.5s"}
        like = f", such as {known[modality]!r}" if modality in known else ""
        raise UsageError(
            f"profile {origin}: [multimodal] items.{modality} has {value!r}, "
            f"which describes none{like}; a Python profile may hold objects."
        )
    return Item(modality, value)


@attrs.frozen(eq=False)
class Stock:
    """What prompts are made of."""

    items: Mapping[str, tuple[Item, ...]]  #: by modality
    #: ``mm_processor_kwargs``; the first is for prompts that give none.
    options: tuple[Mapping[str, Any], ...] = ({},)

    @property
    def everything(self) -> tuple[Item, ...]:
        """All items."""
        return tuple(one for items in self.items.values() for one in items)


def offered(section: Mapping[str, Any], modalities: Sequence[str], origin: str | None) -> Stock:
    """Return what a profile offers, and the usual items of modalities that it does not name.

    Raises:
        UsageError: the profile's items or options are none.

    """
    named = section.get("items", {})
    items: dict[str, tuple[Item, ...]] = {}
    for modality in dict.fromkeys((*modalities, *named)):
        values = named.get(modality, USUAL.get(modality, ()))
        if not isinstance(values, list | tuple):
            raise UsageError(
                f"profile {origin}: [multimodal] items.{modality} must be a list, not {values!r}."
            )
        items[modality] = tuple(
            item(modality, value, origin, number) for number, value in enumerate(values)
        )
    options = section.get("options", ())
    for one in options:
        if not hasattr(one, "items"):
            raise UsageError(
                f"profile {origin}: [multimodal] options must hold tables, not {one!r}."
            )
    return Stock(items, ({}, *options))


def unusual(modalities: Iterable[str]) -> tuple[Item, ...]:
    """Return items of unusual sizes."""
    return tuple(Item(name, text) for name in modalities for text in ODD.get(name, ()))
