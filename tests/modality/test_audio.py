# SPDX-License-Identifier: Apache-2.0
"""Recordings in every form, at another rate, and as spectrograms."""

from __future__ import annotations

import base64
import importlib
import struct
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.media import samples
from reference_plugins.modality import (
    AudioLimits,
    AudioPlugin,
    InputError,
    LogMel,
    MissingLibraryError,
    ModelConfig,
    MultiModalConfig,
    RawAudio,
)
from reference_plugins.modality.estimators import resampled_length
from reference_plugins.modality.spectrograms import mel_bank, resampled

PLUGIN = AudioPlugin()
MODEL = ModelConfig(
    "model",
    MultiModalConfig(["audio"], recipes={"audio": LogMel()}, placeholder_tokens={"audio": 1}),
    max_model_len=10_000,
)


@pytest.fixture
def _soundfile() -> None:
    """Skip where soundfile is not installed."""
    pytest.importorskip("soundfile", exc_type=ImportError)


@pytest.mark.usefixtures("_soundfile")
@pytest.mark.parametrize(
    ("encoding", "subtype", "off_by"),
    [
        ("WAV", "PCM_16", 1e-3),
        ("WAV", "PCM_24", 1e-3),
        ("WAV", "FLOAT", 1e-6),
        ("FLAC", None, 1e-3),
        ("OGG", "VORBIS", 0.05),
        ("OGG", "OPUS", 0.15),
        ("MP3", None, 0.1),
    ],
)
def test_every_encoding_is_read(encoding: str, subtype: str | None, off_by: float) -> None:
    """What the header says is what is decoded, sample for sample."""
    file = samples.sound(encoding, subtype)
    item = PLUGIN.parse_input({"data": base64.b64encode(file).decode(), "format": "x"})
    waveform = PLUGIN.decode(item)

    assert (item.encoding, item.samples, item.rate, item.channels) == (encoding, 24_000, 24_000, 1)
    assert item.seconds == 1
    assert np.abs(waveform - samples.tone(24_000, 24_000))[1000:-1000].max() < off_by


@pytest.mark.usefixtures("_soundfile")
def test_channels_are_averaged() -> None:
    """In a file as in an array."""
    left, right = samples.tone(800), samples.tone(800, hertz=1000)
    expected = (left + right) / 2
    file = samples.wav(np.stack([left, right], axis=1), floats=True)
    array = RawAudio(np.stack([left, right]), 16_000)

    for data in (file, array):
        item = PLUGIN.parse_input(data)
        assert (item.samples, item.channels) == (800, 2)
        np.testing.assert_allclose(PLUGIN.decode(item), expected, atol=1e-6)


@pytest.mark.usefixtures("_soundfile")
@pytest.mark.parametrize("size", [0, 0xFFFF_FFFF])
def test_a_wav_that_was_written_to_a_pipe_is_whole(size: int) -> None:
    """Nobody knew its size when the header was written, and the samples are all there."""
    file = samples.wav()
    piped = file[:4] + struct.pack("<I", size) + file[8:]

    assert PLUGIN.parse_input(piped).samples == 8000


def test_all_forms_of_a_waveform_are_one() -> None:
    """As floats of either size, as integers, as a pair with its rate."""
    integers = np.rint(samples.tone(500) * 32768).astype(np.int16)
    floats = integers.astype(np.float32) / 32768
    forms = [
        (integers, 16_000),
        (floats, 16_000.0),
        RawAudio(floats.astype(np.float64), 16_000),
        RawAudio(floats[np.newaxis], 16_000),
        RawAudio(np.stack([floats, floats]), 16_000),
    ]

    assert len({PLUGIN.parse_input(form).content_hash for form in forms}) == 1


def test_the_rate_counts() -> None:
    """The same samples, played twice as fast, are another recording."""
    waveform = samples.tone(500)

    slow, fast = (PLUGIN.parse_input((waveform, rate)) for rate in (8000, 16_000))

    assert slow.content_hash != fast.content_hash


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (np.zeros(9), "a waveform needs its rate"),
        ((np.zeros(9), 16_000.5), "the rate must be a whole number .got 16000.5."),
        ((np.zeros(9), np.nan), "the rate must be a whole number"),
        ((np.zeros(9), 0), "0 samples a second; 1000 to 192000 may be"),
        ((np.zeros(9), 10**9), "1000000000 samples a second"),
        ((np.zeros(9), -16_000), "-16000 samples a second"),
        ((np.zeros((9, 9)), 16_000), "9 channels, of which 8 may be"),
        ((np.zeros((1, 1, 9)), 16_000), "must be .samples. or .channels, samples."),
        ((np.zeros(0), 16_000), "the waveform is empty"),
        ((np.array([0, np.nan]), 16_000), r"the waveform is nan at \(1,\)"),
        ((np.array([0, -np.inf]), 16_000), r"the waveform is -inf at \(1,\)"),
        ((np.zeros(9, dtype=np.int64), 16_000), "must hold floats or int16 .got dtype int64."),
        ((np.zeros(16_000 * 601), 16_000), "takes 601.0 seconds, of which 600 may be"),
        ((np.broadcast_to(np.float32(0), 10**13), 16_000), "10000000000000 values, of which"),
    ],
)
def test_raw_samples_are_samples(data: object, sentence: str) -> None:
    """Whatever else an array holds is the client's error."""
    with pytest.raises(InputError, match=sentence):
        PLUGIN.parse_input(data)


def test_limits_are_held_against_the_header() -> None:
    """The deployment's when an item is validated, and the message says which item."""
    short, long = (PLUGIN.parse_input((samples.tone(n), 16_000)) for n in (1600, 32_000))
    with pytest.raises(
        InputError, match=r"audio\[1\]: the recording takes 2.0 seconds, of which 1"
    ):
        PLUGIN.validate([short, long], AudioLimits(max_seconds=1))


def test_without_soundfile_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is no error of the client, and arrays are read all the same."""
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(MissingLibraryError, match=r"WAV files needs the library 'soundfile'.*arra"):
        PLUGIN.parse_input(samples.wav())

    assert PLUGIN.parse_input((samples.tone(), 16_000)).samples == 8000


@given(
    st.integers(1, 20_000),
    st.sampled_from([8000, 11_025, 16_000, 22_050, 44_100, 44_101, 48_000, 192_000]),
)
@settings(max_examples=60, deadline=None)
def test_an_estimate_is_the_result(count: int, rate: int) -> None:
    """For every length and rate, also where the two have no common divisor."""
    item = PLUGIN.parse_input((samples.tone(count, rate), rate))
    features = PLUGIN.preprocess(item, MODEL)

    assert len(resampled(samples.tone(count, rate), rate, 16_000)) == resampled_length(
        count, rate, 16_000
    )
    assert PLUGIN.count_tokens(features, MODEL) == PLUGIN.estimate_tokens(item, MODEL)
    assert np.isfinite(features["input_features"]).all()


@pytest.mark.parametrize("rate", [8000, 22_050, 44_100, 44_101, 48_000, 96_000])
def test_a_tone_keeps_its_pitch_at_another_rate(rate: int) -> None:
    """Sample for sample it is the tone that would have been recorded at that rate."""
    at_rate = resampled(samples.tone(rate, rate), rate, 16_000)

    np.testing.assert_allclose(at_rate[500:-500], samples.tone(16_000)[500:-500], atol=2e-5)


@pytest.mark.parametrize("rate", [22_050, 44_100, 48_000, 96_000])
def test_what_the_lower_rate_cannot_hold_is_gone(rate: int) -> None:
    """A tone of 10 kHz would otherwise come back as one of 6 kHz."""
    at_rate = resampled(samples.tone(rate, rate, hertz=10_000), rate, 16_000)

    assert np.abs(at_rate[500:-500]).max() < 1e-4


def test_a_spectrogram_has_its_tone_where_it_belongs() -> None:
    """The loudest of 80 filters is near to the tone, and the others are not lost in the depths."""
    middles = mel_bank(16_000, 400, 80).argmax(axis=1) * 40
    for hertz in (440, 1000, 5000):
        features = LogMel().preprocess(samples.tone(hertz=hertz), 16_000)["input_features"]
        loudest = features[:, 25].argmax()

        assert abs(int(middles[loudest]) - hertz) < 60 + hertz * 0.05
        assert features.max() - features.min() <= 2  # eight powers of ten, over four


def test_a_spectrogram_is_whispers() -> None:
    """Values of the WhisperFeatureExtractor in transformers 5.19 for the same noise."""
    noise = np.random.default_rng(0).normal(0, 0.1, 4800).astype(np.float32)
    features = LogMel().preprocess(noise, 16_000)["input_features"]

    assert features.shape == (80, 30)
    middle = [0.69027, 0.59543, 0.63349, 0.70958, 0.60922]
    np.testing.assert_allclose(features[[0, 11, 12, 40, 79], 10], middle, atol=2e-5)
    edges = [0.53228, 0.76865, 0.62496]
    np.testing.assert_allclose(features[[0, 40, 79], [0, 29, 29]], edges, atol=2e-5)


def test_nothing_is_imported_before_it_is_needed() -> None:
    """The plugin can be made where soundfile is not installed."""
    module = importlib.import_module("reference_plugins.modality.audio")

    assert not hasattr(module, "soundfile")


@pytest.mark.usefixtures("_soundfile")
@given(st.data())
@settings(max_examples=100, deadline=None)
def test_whatever_the_bytes_the_answer_is_a_waveform_or_an_input_error(data: st.DataObject) -> None:
    """Files with bytes changed or cut out raise nothing else, and give as much as they declare."""
    file = bytearray(samples.wav(samples.tone(400), floats=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(file) - 1) | st.integers(0, 44))
        if data.draw(st.booleans()):
            file[at] = data.draw(st.integers(0, 255))
        else:
            del file[at : at + data.draw(st.integers(1, 20))]
    try:
        item = PLUGIN.parse_input(bytes(file))
        waveform = PLUGIN.decode(item)
    except InputError:
        return
    assert waveform.shape == (item.samples,)
    assert np.abs(waveform).max() <= 1
