# SPDX-License-Identifier: Apache-2.0
"""Point clouds: a modality that the core has never heard of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.media import samples
from reference_plugins.modality import InputError, ModelConfig, MultiModalConfig
from reference_plugins.modality.point_clouds import (
    PointCloudLimits,
    PointCloudPlugin,
    PointGroups,
)

PLUGIN = PointCloudPlugin()
POINTS = np.random.default_rng(0).normal(size=(70, 3)).astype(np.float32)
MODEL = ModelConfig(
    "model",
    MultiModalConfig(
        ["point_cloud"],
        recipes={"point_cloud": PointGroups(max_points=64)},
        placeholder_tokens={"point_cloud": 1},
    ),
    max_model_len=100,
)


def test_all_forms_of_a_cloud_give_the_same_points() -> None:
    """An array, and a PLY file of either kind with properties that are not needed."""
    forms = [POINTS, samples.ply(POINTS), samples.ply(POINTS, text=True)]
    made = [PLUGIN.preprocess(PLUGIN.parse_input(form), MODEL)["points"] for form in forms]

    assert made[0].shape == (64, 3)
    np.testing.assert_array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[0], made[2])


def test_big_endian_files_are_read() -> None:
    """As older scanners write them."""
    header = samples.ply(POINTS[:0], declared=70).replace(b"little", b"big")
    table = np.zeros(70, dtype=[("x", ">f4"), ("y", ">f4"), ("i", "u1"), ("z", ">f4")])
    table["x"], table["y"], table["z"] = POINTS.T
    made = PLUGIN.preprocess(PLUGIN.parse_input(header + table.tobytes()), MODEL)

    np.testing.assert_array_equal(
        made["points"], PLUGIN.preprocess(PLUGIN.parse_input(POINTS), MODEL)["points"]
    )


def test_where_and_how_large_a_cloud_is_does_not_count() -> None:
    """It lies around the origin, in the unit sphere."""
    here = PLUGIN.preprocess(PLUGIN.parse_input(POINTS.astype(float)), MODEL)["points"]
    there = PLUGIN.preprocess(PLUGIN.parse_input(POINTS * 1000.0 + 5_000_000.0), MODEL)["points"]

    np.testing.assert_allclose(here, there, atol=2e-2)
    assert np.linalg.norm(here, axis=1).max() <= 1 + 1e-6


@given(st.integers(1, 300))
@settings(max_examples=30, deadline=None)
def test_an_estimate_is_the_result(count: int) -> None:
    """Also of a single point, which has no size to be scaled by."""
    item = PLUGIN.parse_input(np.ones((count, 3)))
    features = PLUGIN.preprocess(item, MODEL)

    assert PLUGIN.count_tokens(features, MODEL) == PLUGIN.estimate_tokens(item, MODEL)
    assert PLUGIN.estimate_tokens(item, MODEL) == -(-min(count, 64) // 32)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (np.zeros((5, 2)), r"points must be \[points, 3\] .got shape \(5, 2\)."),
        (np.zeros(3), "points must be"),
        (np.zeros((0, 3)), "the array is empty"),
        (np.zeros((11, 3)), "33 values, of which 30 may be"),
        (samples.ply(POINTS), "70 points, of which 10 may be"),
        (samples.ply(POINTS).replace(b"intensity", b"x"), "no points with x, y and z"),
        (samples.ply(POINTS).replace(b"vertex", b"corner"), "does not start with its points"),
    ],
)
def test_what_is_no_cloud_is_the_clients_error(data: object, sentence: str) -> None:
    """Known from the header alone."""
    with pytest.raises(InputError, match=sentence):
        PointCloudPlugin(limits=PointCloudLimits(max_points=10)).parse_input(data)


def test_the_deployments_limit_names_the_cloud() -> None:
    """When the items are validated."""
    items = [PLUGIN.parse_input(POINTS[:5]), PLUGIN.parse_input(POINTS)]
    with pytest.raises(InputError, match=r"point_cloud\[1\]: .* 70 points, of which 10 may be"):
        PLUGIN.validate(items, PointCloudLimits(max_points=10))
