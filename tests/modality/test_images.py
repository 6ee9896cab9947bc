# SPDX-License-Identifier: Apache-2.0
"""Images in every form, as a viewer would show them, and what models make of them."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fixtures.media import samples
from reference_plugins.modality import (
    DynamicResolution,
    FixedResolution,
    ImageLimits,
    ImagePlugin,
    InputError,
    ModelConfig,
    MultiModalConfig,
    RawImage,
    TiledResolution,
)
from reference_plugins.modality.resolutions import ImageRecipe  # Hypothesis reads it

PLUGIN = ImagePlugin()
RECIPES = [FixedResolution(), DynamicResolution(), TiledResolution()]


def model(recipe: object) -> ModelConfig:
    """Return a model that wants its images by a recipe."""
    config = MultiModalConfig(["image"], recipes={"image": recipe}, placeholder_tokens={"image": 1})
    return ModelConfig("model", config, max_model_len=10_000)


def decoded(data: object) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the pixels of an image, ``[height, width, 3]``."""
    return np.asarray(PLUGIN.decode(PLUGIN.parse_input(data)))


@pytest.mark.parametrize("encoding", ["PNG", "BMP", "WEBP", "JPEG", "GIF"])
def test_every_encoding_is_read(encoding: str) -> None:
    """What is known of an image before it is decoded is what it then is."""
    grey = samples.encoded(Image.new("RGB", (40, 30), (90, 90, 90)), encoding)
    item = PLUGIN.parse_input(grey)

    assert (item.encoding, item.height, item.width) == (encoding, 30, 40)
    np.testing.assert_allclose(decoded(grey), 90, atol=2)


def test_only_the_decoder_that_the_first_bytes_call_for_is_tried() -> None:
    """Pillow would otherwise ask dozens, one after the other, what they make of the file."""
    tried = []
    with pytest.MonkeyPatch.context() as patch:
        opening = Image.open

        def watched(file: object, *, formats: tuple[str, ...]) -> object:
            tried.append(formats)
            return opening(file, formats=formats)

        patch.setattr(Image, "open", watched)
        PLUGIN.parse_input(samples.image(30, 40, "WEBP"))

    assert tried == [("WEBP",)]


def test_all_forms_of_an_image_are_one_image() -> None:
    """Files share a hash however they are sent, and so do pixels."""
    pixels, file = samples.pixels(30, 40), samples.image(30, 40)
    url = f"data:image/png;base64,{base64.b64encode(file).decode()}"
    files = [PLUGIN.parse_input(data) for data in (file, url, {"url": url}, bytearray(file))]
    raws = [
        PLUGIN.parse_input(data)
        for data in (
            pixels,
            Image.fromarray(pixels),
            RawImage(pixels.transpose(2, 0, 1), layout="CHW"),
            RawImage(pixels.astype(np.int64)),
            RawImage(pixels.tolist()),
            RawImage(pixels.astype(np.float64) / 255),
        )
    ]

    assert len({item.content_hash for item in files}) == 1
    assert len({item.content_hash for item in raws}) == 1
    for item in (files[0], raws[0]):
        np.testing.assert_array_equal(np.asarray(PLUGIN.decode(item)), pixels)


def test_whatever_numpy_can_read_is_an_array() -> None:
    """As tensors of torch are, for which nothing has to be imported here."""
    pixels = samples.pixels(30, 40)

    class Tensor:
        shape = pixels.shape

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return pixels

    assert PLUGIN.parse_input(RawImage(Tensor())) == PLUGIN.parse_input(pixels)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photograph_is_upright(orientation: int) -> None:
    """Its height and width are known before it is decoded, also if it lies on its side."""
    upright = np.zeros((30, 40, 3), dtype=np.uint8)
    upright[:15, :20] = 250  # the corner on the upper left
    picture = Image.fromarray(upright)
    if orientation > 1:
        opposite = {
            2: Image.Transpose.FLIP_LEFT_RIGHT,
            3: Image.Transpose.ROTATE_180,
            4: Image.Transpose.FLIP_TOP_BOTTOM,
            5: Image.Transpose.TRANSPOSE,
            6: Image.Transpose.ROTATE_90,
            7: Image.Transpose.TRANSVERSE,
            8: Image.Transpose.ROTATE_270,
        }
        picture = picture.transpose(opposite[orientation])
    exif = Image.Exif()
    exif[0x0112] = orientation
    for encoding in ("JPEG", "PNG", "WEBP"):
        file = samples.encoded(picture, encoding, exif=exif)
        item = PLUGIN.parse_input(file)

        assert (item.height, item.width) == (30, 40)
        np.testing.assert_allclose(decoded(file)[::8, ::8], upright[::8, ::8], atol=60)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # Pillow's, which it does not raise
def test_broken_metadata_are_no_reason_to_refuse() -> None:
    """The pixels are good, and upright is as good a guess as any."""
    file = samples.image(30, 40, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")

    assert decoded(file).shape == (30, 40, 3)


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("1", 1, (255, 255, 255)),
        ("L", 90, (90, 90, 90)),
        ("LA", (90, 0), (255, 255, 255)),
        ("RGBA", (200, 0, 0, 0), (255, 255, 255)),
        ("RGBA", (200, 0, 0, 255), (200, 0, 0)),
        ("RGBA", (0, 0, 0, 128), (127, 127, 127)),
        ("CMYK", (0, 0, 0, 255), (0, 0, 0)),
        ("I;16", 25_700, (100, 100, 100)),
        ("P", 0, (0, 0, 0)),
    ],
)
def test_every_mode_becomes_rgb(
    mode: str, colour: float | tuple[int, ...], expected: tuple[int, int, int]
) -> None:
    """What is transparent becomes white, and sixteen bits become the upper eight."""
    picture = Image.new(mode, (20, 10), colour)

    assert decoded(picture)[5, 5].tolist() == list(expected)
    if mode != "CMYK":
        assert decoded(samples.encoded(picture, "PNG"))[5, 5].tolist() == list(expected)


def test_palettes_count() -> None:
    """The same indices under two palettes are two images, and a transparent index is white."""
    picture = Image.new("P", (20, 10), 1)
    picture.putpalette([0, 0, 0, 10, 20, 30])
    other = picture.copy()
    other.putpalette([0, 0, 0, 30, 20, 10])
    clear = samples.encoded(picture, "PNG", transparency=1)

    assert PLUGIN.parse_input(picture) != PLUGIN.parse_input(other)
    assert decoded(picture)[0, 0].tolist() == [10, 20, 30]
    assert decoded(clear)[0, 0].tolist() == [255, 255, 255]


def test_the_shape_counts() -> None:
    """The same bytes as 30 x 150 and as 150 x 30 pixels are two images."""
    flat = samples.pixels(30, 150)
    wide, high = (PLUGIN.parse_input(flat.reshape(shape)) for shape in ((30, 150, 3), (150, 30, 3)))

    assert wide.content_hash != high.content_hash


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (np.zeros((5, 5, 4), dtype=np.uint8), "1 or 3 channels"),
        (np.zeros((5, 5, 2), dtype=np.uint8), "1 or 3 channels"),
        (np.zeros((1, 5, 5, 3), dtype=np.uint8), r"got shape \(1, 5, 5, 3\)"),
        (np.zeros(5, dtype=np.uint8), r"got shape \(5,\)"),
        (np.zeros((0, 5, 3), dtype=np.uint8), "is empty"),
        (np.full((5, 5), 256), "values from 0 to 255 for dtype int64"),
        (np.full((5, 5), -1), "values from 0 to 255"),
        (np.full((5, 5), 1.5), "values from 0 to 1 for dtype float64"),
        (np.full((5, 5), np.nan), "values from 0 to 1"),
        (np.full((5, 5), "x"), "must hold integers or floats"),
        (np.full((5, 5), None), "must hold integers or floats"),
        (np.zeros((5, 5), dtype=bool), "must hold integers or floats"),
        (np.broadcast_to(np.uint8(0), (10**6, 10**6)), "1000000000000 values, of which"),
        (np.zeros((1, 300), dtype=np.uint8), "longer side may be 200 times the shorter"),
        (Image.new("F", (9, 9)), "mode F has no colours"),
        (Image.new("I", (9, 9)), "mode I has no colours"),
        (RawImage([[1], [1, 2]]), "cannot be read as an array"),
        (RawImage("text"), "must hold integers or floats"),
    ],
)
def test_raw_pixels_are_pixels(data: object, sentence: str) -> None:
    """Whatever else an array holds is the client's error, before it is copied."""
    with pytest.raises(InputError, match=sentence):
        PLUGIN.parse_input(data)


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (ImageLimits(max_pixels=1199), "40 x 30 pixels, which is 1200, of which 1199 may be"),
        (ImageLimits(max_side=39), "a side may have 39"),
        (ImageLimits(max_aspect_ratio=1.3), "1.3 times the shorter"),
        (ImageLimits(encodings=frozenset({"JPEG"})), "PNG images are not read, only JPEG"),
    ],
)
def test_limits_are_held_against_the_header(limits: ImageLimits, sentence: str) -> None:
    """By the plugin when it parses, and by the deployment's when it validates."""
    file = samples.image(30, 40)
    with pytest.raises(InputError, match=sentence):
        ImagePlugin(limits=limits).parse_input(file)
    with pytest.raises(InputError, match=rf"^image\[1\]: .*{sentence}"):
        PLUGIN.validate([PLUGIN.parse_input(np.zeros((30, 30))), PLUGIN.parse_input(file)], limits)


@given(st.integers(2, 400), st.integers(2, 400), st.sampled_from(RECIPES))
@settings(max_examples=60, deadline=None)
def test_an_estimate_is_the_result(height: int, width: int, recipe: ImageRecipe) -> None:
    """For every size that is not refused, by every recipe."""
    item = PLUGIN.parse_input(np.zeros((height, width), dtype=np.uint8))
    features = PLUGIN.preprocess(item, model(recipe))

    assert PLUGIN.count_tokens(features, model(recipe)) == PLUGIN.estimate_tokens(
        item, model(recipe)
    )


def test_a_fixed_recipe_normalizes_a_square() -> None:
    """White is one, less the mean and over the deviation, in each channel."""
    recipe = FixedResolution(mean=(0.5, 0.25, 0.0), std=(0.5, 0.5, 2.0))
    white = PLUGIN.parse_input(np.full((30, 40), 255, dtype=np.uint8))
    values = PLUGIN.preprocess(white, model(recipe))["pixel_values"]

    assert values.shape == (3, 336, 336)
    assert values.dtype == np.float32
    assert values[:, 100, 100].tolist() == [1.0, 1.5, 0.5]


def test_a_dynamic_recipe_keeps_the_size() -> None:
    """To the nearest multiple of 28; the grid counts patches of 14."""
    item = PLUGIN.parse_input(samples.pixels(140, 280))
    features = PLUGIN.preprocess(item, model(DynamicResolution()))

    assert features["pixel_values"].shape == (3, 140, 280)
    assert features["image_grid_thw"].tolist() == [1, 10, 20]


def test_tiles_come_row_by_row_and_the_thumbnail_last() -> None:
    """Each tile has its part of the image, at full resolution."""
    picture = np.zeros((896, 1344, 3), dtype=np.uint8)
    for number in range(6):
        row, column = divmod(number, 3)
        picture[row * 448 : row * 448 + 448, column * 448 : column * 448 + 448] = number * 40
    recipe = TiledResolution(mean=(0, 0, 0), std=(1, 1, 1), max_tiles=6)
    values = PLUGIN.preprocess(PLUGIN.parse_input(picture), model(recipe))["pixel_values"]

    assert values.shape == (7, 3, 448, 448)
    np.testing.assert_allclose(values[:6, 0, 224, 224] * 255, np.arange(6) * 40, atol=0.01)
    assert values[6, 0, 100, 50] < values[6, 0, 400, 400]


def test_a_recipe_of_another_modality_is_the_models_mistake() -> None:
    """The message says which model declared it."""
    with pytest.raises(TypeError, match="model 'model' declares 5 for image, where a ImageRecipe"):
        PLUGIN.estimate_tokens(PLUGIN.parse_input(samples.image()), model(5))


GOOD = [samples.image(24, 24, each) for each in ("PNG", "JPEG", "WEBP", "BMP", "GIF")]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_whatever_the_bytes_the_answer_is_an_image_or_an_input_error(data: st.DataObject) -> None:
    """Files with bytes changed, cut out or repeated raise nothing else."""
    file = bytearray(data.draw(st.sampled_from(GOOD)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(file) - 1))
        match data.draw(st.sampled_from(["changed", "cut", "repeated"])):
            case "changed":
                file[at] = data.draw(st.integers(0, 255))
            case "cut":
                del file[at:]
            case _:
                file[at:at] = file[at : at + data.draw(st.integers(1, 40))]
        if not file:
            break
    try:
        item = PLUGIN.parse_input(bytes(file))
        picture = PLUGIN.decode(item)
    except InputError:
        return
    assert (picture.mode, picture.size) == ("RGB", (item.width, item.height))
