# SPDX-License-Identifier: Apache-2.0
"""Point clouds: a modality of its own in one module, which nothing else here knows.

It shows what a new modality takes: limits, an item, a recipe, and a plugin with six methods.

    registry.register_plugin(PointCloudPlugin())

From then on models may declare `point_cloud` and `max_point_cloud_per_prompt`, and chat parts
of type `point_cloud_url` find their way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from reference_plugins.modality.arrays import (
    as_array,
    frozen,
    frozen_features,
    require_finite,
)
from reference_plugins.modality.errors import InputError, decoding
from reference_plugins.modality.estimators import evenly_spread
from reference_plugins.modality.fingerprints import fingerprint
from reference_plugins.modality.sources import MediaAccess

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from reference_plugins.modality.arrays import Features
    from reference_plugins.modality.interface import ModelConfig

    Points = npt.NDArray[np.floating[Any]]

AXES = ("x", "y", "z")
MAX_HEADER = 4096  #: bytes of a PLY file before its points
FORMATS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
SCALARS = {
    **dict.fromkeys(("char", "int8"), "i1"),
    **dict.fromkeys(("uchar", "uint8"), "u1"),
    **dict.fromkeys(("short", "int16"), "i2"),
    **dict.fromkeys(("ushort", "uint16"), "u2"),
    **dict.fromkeys(("int", "int32"), "i4"),
    **dict.fromkeys(("uint", "uint32"), "u4"),
    **dict.fromkeys(("float", "float32"), "f4"),
    **dict.fromkeys(("double", "float64"), "f8"),
}


@attrs.frozen
class PointCloudLimits:
    """What one cloud may be, before any of its points is read."""

    max_points: int = 1_000_000
    max_properties: int = 32  #: of each point, such as its colour and its normal

    def check(self, points: int) -> None:
        """Refuse a cloud by the number of its points.

        Raises:
            InputError: there are none, or too many.

        """
        if points < 1:
            raise InputError("the point cloud has no points")
        if points > self.max_points:
            raise InputError(
                f"the point cloud has {points} points, of which {self.max_points} may be"
            )


@attrs.frozen
class PlyHeader:
    """What a PLY file says about its points."""

    byte_order: str  #: `<` or `>`; empty where the points are text
    points: int
    properties: tuple[tuple[str, str], ...]  #: names and NumPy types, in the order of the file
    length: int  #: bytes of the header


@attrs.frozen
class PointCloudItem:
    """One cloud: a file of which the header is known, or points ``[points, 3]``."""

    points: int
    header: PlyHeader | None  #: None where the points came as an array
    content: bytes | Points = attrs.field(repr=False, eq=False)
    content_hash: str


@attrs.frozen
class PointGroups:
    """Some points of a cloud, evenly spread over it, so many to a token.

    The cloud is moved to the origin and scaled into the unit sphere: where it was recorded, and
    in which unit, says nothing about what it shows.
    """

    max_points: int = 2048
    points_per_token: int = 32

    def estimate_tokens(self, points: int) -> int:
        """Return the tokens of a cloud of so many points."""
        return -(-min(points, self.max_points) // self.points_per_token)

    def preprocess(self, points: Points) -> Features:
        """Return `points`, float32 ``[up to max_points, 3]``, of points ``[points, 3]``."""
        # In double precision: far from the origin, as in maps, floats are metres apart.
        centred = points.astype(np.float64)
        centred -= centred.mean(axis=0)
        reach = np.linalg.norm(centred, axis=1).max()
        if reach > 0:  # a cloud may be a single point
            centred /= reach
        kept = centred[list(evenly_spread(len(centred), self.max_points))]
        return frozen_features({"points": kept.astype(np.float32)})

    def count_tokens(self, features: Features) -> int:
        """Return the tokens of `points`."""
        return -(-len(features["points"]) // self.points_per_token)


@attrs.frozen
class PointCloudPlugin:
    """The modality `point_cloud`; models want it by `PointGroups`."""

    access: MediaAccess = attrs.field(factory=MediaAccess)
    limits: PointCloudLimits = attrs.field(factory=PointCloudLimits)
    modality: str = attrs.field(default="point_cloud", init=False)
    part_types: tuple[str, ...] = attrs.field(default=("point_cloud_url",), init=False)

    def get_max_per_prompt(self, model_config: ModelConfig) -> int:
        """Return how many clouds model and deployment allow."""
        return model_config.get_max_per_prompt(self.modality)

    def parse_input(self, data: object) -> PointCloudItem:
        """Return a cloud from a PLY file or an array ``[points, 3]``.

        Raises:
            InputError: it cannot be had, is no point cloud, or is beyond the limits.

        """
        if isinstance(data, np.ndarray):
            return self._from_array(data)
        content = self.access.load(data)
        with decoding("the header of the PLY file"):
            header = read_ply_header(content, self.limits)
        self.limits.check(header.points)
        return PointCloudItem(
            points=header.points,
            header=header,
            content=content,
            content_hash=fingerprint("point cloud file", content),
        )

    def validate(self, data: Sequence[PointCloudItem], limits: PointCloudLimits) -> None:
        """Refuse a cloud of too many points.

        Raises:
            InputError: the first such cloud, by its place.

        """
        for index, item in enumerate(data):
            try:
                limits.check(item.points)
            except InputError as error:
                raise InputError(f"point_cloud[{index}]: {error}") from error

    def estimate_tokens(self, data: PointCloudItem, model_config: ModelConfig) -> int:
        """Return the tokens of a cloud from the number of its points."""
        return self._recipe(model_config).estimate_tokens(data.points)

    def preprocess(self, data: PointCloudItem, model_config: ModelConfig) -> Features:
        """Read the points, and return what the model's recipe makes of them.

        Raises:
            InputError: the file holds fewer points than it says, or something else than numbers.

        """
        if data.header is None:
            points: Points = np.asarray(data.content)
        else:
            assert isinstance(data.content, bytes)  # a header is read from nothing else
            with decoding("the PLY file"):
                points = read_ply_points(data.content, data.header)
        require_finite(points, "a coordinate")
        return self._recipe(model_config).preprocess(points)

    def count_tokens(self, features: Features, model_config: ModelConfig) -> int:
        """Return the tokens of what `preprocess` returned."""
        return self._recipe(model_config).count_tokens(features)

    def _recipe(self, model_config: ModelConfig) -> PointGroups:
        """Return how the model wants its clouds."""
        return model_config.get_recipe(self.modality, PointGroups)

    def _from_array(self, values: npt.NDArray[Any]) -> PointCloudItem:
        """Return a cloud from an array, which its owner may change later."""
        array = as_array(values, "the array", max_values=len(AXES) * self.limits.max_points)
        if array.ndim != 2 or array.shape[1] != len(AXES):  # noqa: PLR2004  # points, axes
            raise InputError(f"points must be [points, 3] (got shape {array.shape})")
        content = frozen(array)
        return PointCloudItem(
            points=len(content),
            header=None,
            content=content,
            content_hash=fingerprint("points", content),
        )


def read_ply_header(content: bytes, limits: PointCloudLimits) -> PlyHeader:
    """Return what a PLY file says about its points.

    Raises:
        InputError: it is no PLY file, or one whose first element is not points with x, y and z.

    """
    if not content.startswith((b"ply\n", b"ply\r\n")):
        raise InputError("the file is no point cloud that is read here (PLY)")
    end = content.find(b"end_header", 0, MAX_HEADER)
    start = content.find(b"\n", end) + 1 if end >= 0 else 0
    if not start:
        raise InputError(f"the PLY file has no end of its header in {MAX_HEADER} bytes")
    lines = content[:end].decode("ascii").splitlines()[1:]
    formats = [words[1] for words in map(str.split, lines) if words[:1] == ["format"]]
    if len(formats) != 1 or formats[0] not in FORMATS:
        raise InputError(f"the PLY file is in none of the formats {', '.join(FORMATS)}")
    elements = [at for at, line in enumerate(lines) if line.startswith("element ")]
    if not elements or lines[elements[0]].split()[1] != "vertex":
        raise InputError("the PLY file does not start with its points")
    # What follows, such as faces, is not needed.
    last = elements[1] if len(elements) > 1 else len(lines)
    properties = _ply_properties(lines[elements[0] + 1 : last], limits)
    points = int(lines[elements[0]].split()[2])
    return PlyHeader(FORMATS[formats[0]], points, properties, start)


def _ply_properties(lines: Sequence[str], limits: PointCloudLimits) -> tuple[tuple[str, str], ...]:
    """Return the names and NumPy types of the values that a PLY file has for each point."""
    properties = []
    for line in lines:
        match line.split():
            case ["property", kind, name] if kind in SCALARS:
                properties.append((name, SCALARS[kind]))
            case ["property", *_]:
                raise InputError(f"the PLY file has a property that is no number: {line[:80]!r}")
    names = {name for name, _ in properties}
    if not names.issuperset(AXES) or len(names) < len(properties):
        raise InputError("the PLY file has no points with x, y and z")
    if len(properties) > limits.max_properties:
        raise InputError(
            f"the PLY file has {len(properties)} values for each point, of which "
            f"{limits.max_properties} may be"
        )
    return tuple(properties)


def read_ply_points(content: bytes, header: PlyHeader) -> Points:
    """Return the coordinates in a PLY file, float64 ``[points, 3]``.

    Raises:
        InputError: the file holds fewer points than its header says.

    """
    names = [name for name, _ in header.properties]
    body = memoryview(content)[header.length :]
    if header.byte_order:
        kinds = [(name, header.byte_order + kind) for name, kind in header.properties]
        dtype = np.dtype(kinds)
        there = len(body) // dtype.itemsize
        if there >= header.points:
            table = np.frombuffer(body, dtype=dtype, count=header.points)
            columns = [table[axis].astype(np.float64) for axis in AXES]
            return np.stack(columns, axis=1)
    else:
        # Without a count: told one, NumPy makes up what is missing from memory that it finds.
        numbers = np.fromstring(bytes(body), dtype=np.float64, sep=" ")
        there = len(numbers) // len(names)
        if there >= header.points:
            rows = numbers[: header.points * len(names)].reshape(-1, len(names))
            return rows[:, [names.index(axis) for axis in AXES]]
    raise InputError(f"the PLY file is cut off: {there} of {header.points} points are there")
