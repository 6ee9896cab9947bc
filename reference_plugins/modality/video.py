# SPDX-License-Identifier: Apache-2.0
"""Video: files, animations, and frames that somebody has decoded already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import attrs
import numpy as np
from PIL import Image

from reference_plugins.modality.arrays import as_array, frozen, frozen_features
from reference_plugins.modality.errors import InputError, decoding
from reference_plugins.modality.estimators import evenly_spread, video_tokens
from reference_plugins.modality.fingerprints import fingerprint
from reference_plugins.modality.pixels import as_rgb, pixels_from_array
from reference_plugins.modality.resolutions import FixedResolution, ImageRecipe
from reference_plugins.modality.sources import MediaAccess
from reference_plugins.modality.video_files import (
    VideoHeader,
    VideoLimits,
    read_frames,
    read_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from reference_plugins.modality.arrays import Features
    from reference_plugins.modality.interface import ModelConfig


@runtime_checkable
class VideoRecipe(Protocol):
    """How a model wants its videos; a frozen attrs class, since it is part of every hash."""

    def select(self, frames: int) -> tuple[int, ...]:
        """Return the numbers of the frames to decode, of so many, in ascending order."""

    def estimate_tokens(self, frames: int, height: int, width: int) -> int:
        """Return the tokens of so many frames of this size."""

    def preprocess(self, pictures: Iterable[Any]) -> Features:
        """Return the arrays of the selected frames, Pillow images of mode RGB."""

    def count_tokens(self, features: Features) -> int:
        """Return the tokens of these arrays."""


@attrs.frozen
class SampledFrames:
    """A few frames, evenly spread, each treated as an image."""

    frames: int = 8
    picture: ImageRecipe = attrs.field(factory=FixedResolution)
    merge: int = 1  #: frames that become one, such as Qwen2-VL's pairs

    def select(self, frames: int) -> tuple[int, ...]:
        """Return the numbers of the frames to decode."""
        return evenly_spread(frames, self.frames)

    def estimate_tokens(self, frames: int, height: int, width: int) -> int:
        """Return the tokens of so many frames of this size."""
        per_frame = self.picture.estimate_tokens(height, width)
        return video_tokens(len(self.select(frames)), per_frame, merge=self.merge)

    def preprocess(self, pictures: Iterable[Any]) -> Features:
        """Return the arrays of an image with frames as the first axis, `video_` before each name.

        ``video_pixel_values [frames, 3, height, width]`` for an image's ``pixel_values``.
        """
        each = [self.picture.preprocess(picture) for picture in pictures]
        return frozen_features(
            {f"video_{name}": np.stack([frame[name] for frame in each]) for name in each[0]}
        )

    def count_tokens(self, features: Features) -> int:
        """Return the tokens of these arrays."""
        first = {name.removeprefix("video_"): array[0] for name, array in features.items()}
        frames = len(next(iter(features.values())))
        return video_tokens(frames, self.picture.count_tokens(first), merge=self.merge)


@attrs.frozen
class RawVideo:
    """Frames that a client hands over: ``[frames, height, width, channels]``, or a list of images.

    Images of the list are arrays ``[height, width, channels]`` or Pillow images, of one size.
    """

    values: object
    frame_rate: float | None = None  #: frames a second, where known


@attrs.frozen
class VideoItem:
    """One video: a file of which the header is known, or frames."""

    header: VideoHeader
    content: bytes | npt.NDArray[np.uint8] = attrs.field(repr=False, eq=False)
    content_hash: str


@attrs.frozen
class VideoPlugin:
    """The modality `video`; models want it by a `VideoRecipe`."""

    access: MediaAccess = attrs.field(factory=MediaAccess)
    limits: VideoLimits = attrs.field(factory=VideoLimits)
    modality: str = attrs.field(default="video", init=False)
    part_types: tuple[str, ...] = attrs.field(default=("video_url",), init=False)

    def get_max_per_prompt(self, model_config: ModelConfig) -> int:
        """Return how many videos model and deployment allow."""
        return model_config.get_max_per_prompt(self.modality)

    def parse_input(self, data: object) -> VideoItem:
        """Return a video from a file, `RawVideo`, or an array of frames; no file is decoded yet.

        Raises:
            InputError: it cannot be had, is no video, or is beyond the limits of this plugin.
            MissingLibraryError: it is a file of a kind whose library is not installed.

        """
        if isinstance(data, np.ndarray | list | tuple):
            data = RawVideo(data)
        if isinstance(data, RawVideo):
            return self._from_frames(data)
        content = self.access.load(data)
        return VideoItem(
            header=read_header(content, self.limits),
            content=content,
            content_hash=fingerprint("video file", content),
        )

    def validate(self, data: Sequence[VideoItem], limits: VideoLimits) -> None:
        """Refuse a video that is too long, too large, or of an encoding not allowed.

        Raises:
            InputError: the first such video, by its place.

        """
        for index, item in enumerate(data):
            header = item.header
            try:
                limits.check(
                    header.encoding, header.frames, header.height, header.width, header.seconds
                )
            except InputError as error:
                raise InputError(f"video[{index}]: {error}") from error

    def estimate_tokens(self, data: VideoItem, model_config: ModelConfig) -> int:
        """Return the tokens of a video from the number and the size of its frames."""
        header = data.header
        recipe = self._recipe(model_config)
        return recipe.estimate_tokens(header.frames, header.height, header.width)

    def preprocess(self, data: VideoItem, model_config: ModelConfig) -> Features:
        """Decode the frames that the model's recipe selects, and return what it makes of them.

        Raises:
            InputError: the file is broken, or is not what its header says.

        """
        recipe = self._recipe(model_config)
        return recipe.preprocess(self.decode(data, recipe.select(data.header.frames)))

    def count_tokens(self, features: Features, model_config: ModelConfig) -> int:
        """Return the tokens of what `preprocess` returned."""
        return self._recipe(model_config).count_tokens(features)

    def decode(self, item: VideoItem, numbers: Sequence[int]) -> Iterator[Any]:
        """Yield the frames of these numbers, in order, as Pillow images of mode RGB.

        Raises:
            InputError: the file is broken, or is not what its header says.

        """
        if isinstance(item.content, bytes):
            yield from read_frames(item.content, item.header, frozenset(numbers), self.limits)
        else:
            yield from (Image.fromarray(item.content[number]) for number in numbers)

    def _recipe(self, model_config: ModelConfig) -> VideoRecipe:
        """Return how the model wants its videos."""
        # A protocol at run time: mypy takes it for an abstract class, which nobody instantiates.
        return model_config.get_recipe(self.modality, VideoRecipe)  # type: ignore[type-abstract]

    def _from_frames(self, raw: RawVideo) -> VideoItem:
        """Return a video from frames, which their owner may change later."""
        values: Any = raw.values
        if not isinstance(values, Sequence):
            values = as_array(
                values, "the array of frames", max_values=3 * self.limits.max_raw_pixels
            )
            if values.ndim != 4:  # noqa: PLR2004  # frames, height, width, channels
                raise InputError(
                    f"frames must be [frames, height, width, channels] (got shape {values.shape})"
                )
        if len(values) < 1:
            raise InputError("the video has no frames")
        header = self._raw_header(values, raw.frame_rate)
        content = np.empty((header.frames, header.height, header.width, 3), dtype=np.uint8)
        for number, value in enumerate(values):
            pixels = self._pixels(value, f"frame {number}")
            if pixels.shape != content.shape[1:]:
                raise InputError(
                    f"frame {number} is {pixels.shape[1]} x {pixels.shape[0]} pixels, "
                    f"and the first is {header.width} x {header.height}"
                )
            content[number] = pixels
        content = frozen(content)
        return VideoItem(
            header=header,
            content=content,
            # The rate decides nothing yet; a recipe that samples by time would make it matter.
            content_hash=fingerprint("video frames", content, raw.frame_rate),
        )

    def _raw_header(self, values: Sequence[object], frame_rate: float | None) -> VideoHeader:
        """Return the size of frames by the first of them, if so many of it are allowed."""
        if frame_rate is not None and not frame_rate > 0:
            raise InputError(f"the frame rate must be above 0 (got {frame_rate!r})")
        first = self._pixels(values[0], "frame 0")
        seconds = len(values) / frame_rate if frame_rate else None
        header = VideoHeader("raw", len(values), first.shape[0], first.shape[1], seconds)
        self.limits.check("raw", header.frames, header.height, header.width, seconds)
        return header

    def _pixels(self, value: object, what: str) -> npt.NDArray[np.uint8]:
        """Return one frame as pixels ``[height, width, 3]``."""
        picture = self.limits.picture
        if isinstance(value, Image.Image):
            picture.check_size(value.height, value.width)
            with decoding(what):
                return np.asarray(as_rgb(value))
        array = as_array(value, what, max_values=3 * picture.max_pixels)
        return pixels_from_array(array, "HWC", picture, what)
