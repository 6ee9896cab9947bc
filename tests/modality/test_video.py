# SPDX-License-Identifier: Apache-2.0
"""Videos from animations, films and frames, of which only the wanted frames are kept."""

from __future__ import annotations

import sys

import attrs
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
    InputError,
    MissingLibraryError,
    ModelConfig,
    MultiModalConfig,
    RawVideo,
    SampledFrames,
    TiledResolution,
    VideoLimits,
    VideoPlugin,
)
from reference_plugins.modality.resolutions import ImageRecipe  # Hypothesis reads it

PLUGIN = VideoPlugin()


@pytest.fixture
def _av() -> None:
    """Skip where PyAV is not installed."""
    pytest.importorskip("av", exc_type=ImportError)


def model(recipe: SampledFrames) -> ModelConfig:
    """Return a model that wants its videos by a recipe."""
    config = MultiModalConfig(["video"], recipes={"video": recipe}, placeholder_tokens={"video": 1})
    return ModelConfig("model", config, max_model_len=10_000)


def greys(data: object, *numbers: int) -> list[int]:
    """Return how grey some frames of a video are, in their middle."""
    item = PLUGIN.parse_input(data)
    frames = PLUGIN.decode(item, numbers)
    return [int(np.asarray(frame)[item.header.height // 2, 3, 1]) for frame in frames]


@pytest.mark.parametrize("encoding", ["GIF", "WEBP"])
def test_animations_are_videos(encoding: str) -> None:
    """With as many frames as they have, each as it is shown."""
    file = samples.animation(6, encoding=encoding)
    header = PLUGIN.parse_input(file).header

    assert (header.encoding, header.frames) == (encoding, 6)
    assert (header.height, header.width) == (24, 32)
    assert header.seconds == (0.6 if encoding == "GIF" else None)
    np.testing.assert_allclose(greys(file, 0, 2, 5), [0, 80, 200], atol=2)


@pytest.mark.usefixtures("_av")
@pytest.mark.parametrize(
    ("container", "codec", "encoding"),
    [
        ("mp4", "libx264", "MP4"),
        ("mp4", "mpeg4", "MP4"),
        ("matroska", "libx264", "MATROSKA"),
        ("webm", "libvpx", "MATROSKA"),
        ("avi", "mpeg4", "AVI"),
    ],
)
def test_films_are_videos(container: str, codec: str, encoding: str) -> None:
    """The frames are counted, since not every container says how many there are."""
    file = samples.film(12, container=container, codec=codec)
    header = PLUGIN.parse_input(file).header

    assert (header.encoding, header.frames, header.seconds) == (encoding, 12, 1.2)
    assert (header.height, header.width) == (48, 64)
    np.testing.assert_allclose(greys(file, 0, 5, 11), [0, 100, 220], atol=12)


def test_frames_are_videos() -> None:
    """In one array, or as a list of arrays and images."""
    array = np.stack([samples.pixels(24, 32, seed) for seed in range(3)])
    mixed = [array[0], Image.fromarray(array[1]), array[2].astype(np.float64) / 255]

    assert PLUGIN.parse_input(array) == PLUGIN.parse_input(mixed)
    assert PLUGIN.parse_input(array) == PLUGIN.parse_input(RawVideo(array))
    assert PLUGIN.parse_input(RawVideo(array, 1.0)).header.seconds == 3
    frames = list(PLUGIN.decode(PLUGIN.parse_input(mixed), [0, 2]))
    np.testing.assert_array_equal(np.asarray(frames[1]), array[2])


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (np.zeros((0, 9, 9, 3)), "the array of frames is empty"),
        (np.zeros((9, 9, 3)), r"got shape \(9, 9, 3\)"),
        ([], "the video has no frames"),
        ([np.zeros((9, 9)), np.zeros((9, 8))], "frame 1 is 8 x 9 pixels, and the first is 9 x 9"),
        ([np.zeros((9, 9)), np.full((9, 9), np.nan)], "frame 1 must hold values from 0 to 1"),
        (["a", "b"], "frame 0 must hold integers or floats"),
        (RawVideo([np.zeros((9, 9))], 0.0), "the frame rate must be above 0"),
        (RawVideo([np.zeros((9, 9))], np.nan), "the frame rate must be above 0"),
        (RawVideo([np.zeros((9, 9))], 0.001), "takes 1000.0 seconds, of which 600 may be"),
        (np.broadcast_to(np.uint8(0), (10**5, 10**3, 10**3, 3)), "values, of which"),
        ([np.broadcast_to(np.uint8(0), (2000, 2000))] * 51, "together 204000000, of which 20000"),
        ([np.zeros((9, 9))] * 18_001, "18001 frames, of which 18000 may be"),
    ],
)
def test_raw_frames_are_frames(data: object, sentence: str) -> None:
    """Whatever else is handed over is the client's error."""
    with pytest.raises(InputError, match=sentence):
        PLUGIN.parse_input(data)


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (VideoLimits(max_frames=5), "6 frames, of which 5 may be"),
        (VideoLimits(max_seconds=0.5), "takes 0.6 seconds, of which 0.5 may be"),
        (VideoLimits(max_decoded_pixels=4607), "together 4608, of which 4607 may be"),
        (VideoLimits(picture=ImageLimits(max_pixels=767)), "which is 768, of which 767 may be"),
        (VideoLimits(encodings=frozenset({"MP4"})), "(GIF videos are not|no video that is) read"),
    ],
)
def test_limits_are_held_against_the_header(limits: VideoLimits, sentence: str) -> None:
    """By the plugin when it parses, and by the deployment's when it validates."""
    file = samples.animation(6)
    with pytest.raises(InputError, match=sentence):
        VideoPlugin(limits=limits).parse_input(file)
    with pytest.raises(InputError, match=rf"^video\[0\]: .*{sentence}"):
        PLUGIN.validate([PLUGIN.parse_input(file)], limits)


def test_only_the_sampled_frames_are_made_images() -> None:
    """Evenly spread, each as the recipe treats images, frames first."""
    recipe = SampledFrames(3, FixedResolution(side=28, mean=(0, 0, 0), std=(1, 1, 1)))
    item = PLUGIN.parse_input(samples.animation(5))
    values = PLUGIN.preprocess(item, model(recipe))["video_pixel_values"]

    assert values.shape == (3, 3, 28, 28)
    np.testing.assert_allclose(values[:, 0, 14, 14] * 255, [0, 80, 160], atol=2)


@given(
    frames=st.integers(1, 9),
    height=st.integers(2, 120),
    width=st.integers(2, 120),
    picture=st.sampled_from([FixedResolution(), DynamicResolution(), TiledResolution(tile=56)]),
    wanted=st.integers(1, 6),
    merge=st.integers(1, 3),
)
@settings(max_examples=40, deadline=None)
def test_an_estimate_is_the_result(
    *, frames: int, height: int, width: int, picture: ImageRecipe, wanted: int, merge: int
) -> None:
    """For every number and size of frames, by every recipe."""
    recipe = SampledFrames(wanted, picture, merge)
    item = PLUGIN.parse_input(np.zeros((frames, height, width, 3), dtype=np.uint8))
    features = PLUGIN.preprocess(item, model(recipe))

    assert PLUGIN.count_tokens(features, model(recipe)) == PLUGIN.estimate_tokens(
        item, model(recipe)
    )


def test_without_av_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no error of the client, and says what can be read all the same."""
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingLibraryError) as raised:
        PLUGIN.parse_input(b"\0\0\0\x20ftypisom")

    assert str(raised.value) == (
        "reading MP4 videos needs the library 'av', which is not installed; "
        "without it, animated GIF and WebP files and raw frames can be sent"
    )
    assert PLUGIN.parse_input(samples.animation()).header.frames == 5


@pytest.mark.usefixtures("_av")
def test_a_film_of_fewer_frames_than_were_counted_is_cut_off() -> None:
    """Some packets give no frame; here somebody has miscounted."""
    item = PLUGIN.parse_input(samples.film(6))
    item = attrs.evolve(item, header=attrs.evolve(item.header, frames=7))
    with pytest.raises(InputError, match="the MP4 file is cut off: 6 of 7 frames are there"):
        list(PLUGIN.decode(item, [6]))


@pytest.mark.usefixtures("_av")
def test_a_film_that_grows_is_refused_where_it_does() -> None:
    """The first four frames are as the header says, and the fifth is not."""
    item = PLUGIN.parse_input(samples.growing_film())

    assert len(list(PLUGIN.decode(item, [0, 3]))) == 2
    with pytest.raises(InputError, match="frame 4 of the AVI file is 256 x 192 pixels, and its he"):
        list(PLUGIN.decode(item, [7]))


@pytest.mark.usefixtures("_av")
def test_a_frame_beyond_the_limit_is_not_decoded() -> None:
    """The decoder itself is told the limit: no room is made for what the header does not say."""
    plugin = VideoPlugin(limits=VideoLimits(picture=ImageLimits(max_pixels=4000)))
    item = plugin.parse_input(samples.growing_film())
    with pytest.raises(InputError, match="the AVI file cannot be decoded: Invalid data"):
        list(plugin.decode(item, [7]))


def test_counting_frames_ends_at_the_limit() -> None:
    """A file of a few bytes for each frame can have millions."""
    with pytest.raises(InputError, match="18001 frames, of which 18000 may be"):
        PLUGIN.parse_input(samples.gif_of_many_frames(30_000))


GIF = samples.animation(4, 8, 8)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_whatever_the_bytes_the_answer_is_frames_or_an_input_error(data: st.DataObject) -> None:
    """Animations with bytes changed or cut out raise nothing else."""
    file = bytearray(data.draw(st.sampled_from([GIF, samples.animation(4, 8, 8, "WEBP")])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(file) - 1))
        if data.draw(st.booleans()):
            file[at] = data.draw(st.integers(0, 255))
        else:
            del file[at : at + data.draw(st.integers(1, 20))]
    try:
        item = PLUGIN.parse_input(bytes(file))
        frames = list(PLUGIN.decode(item, range(item.header.frames)))
    except InputError:
        return
    assert len(frames) == item.header.frames
