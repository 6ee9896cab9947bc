# SPDX-License-Identifier: Apache-2.0
"""Waveforms at another rate, and as log-mel spectrograms.

A waveform is treated by itself: it is padded to whole frames and no further, so that what it
becomes does not depend on how long its neighbours are.
"""

from __future__ import annotations

from functools import cache
from math import gcd
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import attrs
import numpy as np

from reference_plugins.modality.arrays import frozen_features
from reference_plugins.modality.estimators import audio_tokens, resampled_length

if TYPE_CHECKING:
    import numpy.typing as npt

    from reference_plugins.modality.arrays import Features

    Samples = npt.NDArray[np.floating[Any]]

#: Zero crossings of the filter on each side, and how sharply its window falls: 80 dB and more.
CROSSINGS = 32
KAISER_BETA = 9.0
#: The share of the lower band that passes; the rest is where the filter falls.
ROLLOFF = 0.95
#: Frames transformed at once, and filters computed at once, which bounds the memory.
BLOCK = 8192
PHASES = 256

#: The mel scale of Slaney's toolbox, which Whisper uses: linear up to 1 kHz, then logarithmic.
HZ_PER_MEL = 200 / 3
LINEAR_UP_TO = 1000.0
MELS_PER_LOG = 27 / np.log(6.4)


@runtime_checkable
class AudioRecipe(Protocol):
    """How a model wants its audio; a frozen attrs class, since it is part of every hash."""

    def estimate_tokens(self, samples: int, rate: int) -> int:
        """Return the tokens of so many samples at a rate."""

    def preprocess(self, waveform: Samples, rate: int) -> Features:
        """Return the arrays of a waveform, ``[samples]``, from -1 to 1."""

    def count_tokens(self, features: Features) -> int:
        """Return the tokens of these arrays."""


@attrs.frozen
class LogMel:
    """Log-mel frames as in Whisper, so many to a token."""

    rate: int = 16_000
    mels: int = 80
    window: int = 400  #: samples of a frame, and of the Fourier transform
    hop: int = 160  #: samples from one frame to the next
    frames_per_token: int = 4

    def estimate_tokens(self, samples: int, rate: int) -> int:
        """Return the tokens of a waveform from its length and rate."""
        return audio_tokens(
            resampled_length(samples, rate, self.rate),
            hop=self.hop,
            frames_per_token=self.frames_per_token,
        )

    def preprocess(self, waveform: Samples, rate: int) -> Features:
        """Return `input_features`, float32 ``[mels, frames]``."""
        at_rate = resampled(waveform, rate, self.rate)
        padded = np.pad(at_rate, (0, -len(at_rate) % self.hop))
        return frozen_features({"input_features": self._log_mel(padded)})

    def count_tokens(self, features: Features) -> int:
        """Return the tokens of `input_features`."""
        frames = features["input_features"].shape[1]
        return audio_tokens(frames * self.hop, hop=self.hop, frames_per_token=self.frames_per_token)

    def _log_mel(self, samples: Samples) -> Samples:
        """Return the spectrogram ``[mels, frames]`` of samples in whole hops."""
        half = self.window // 2
        # Padded by reflection, as Whisper does; a waveform shorter than a window has too little.
        if len(samples) > half:
            padded = np.pad(samples, half, mode="reflect")
        else:
            padded = np.pad(samples, half)
        framed = np.lib.stride_tricks.sliding_window_view(padded, self.window)[:: self.hop]
        framed = framed[: len(samples) // self.hop]
        # The window is periodic: one sample longer, and its last one left out.
        hann = np.hanning(self.window + 1)[:-1].astype(np.float32)
        bank = mel_bank(self.rate, self.window, self.mels)
        mel = np.empty((self.mels, len(framed)), dtype=np.float32)
        for start in range(0, len(framed), BLOCK):
            spectrum = np.fft.rfft(framed[start : start + BLOCK] * hann)
            mel[:, start : start + BLOCK] = bank @ (np.abs(spectrum) ** 2).T
        log = np.log10(np.maximum(mel, 1e-10))
        # Eight powers of ten below the loudest of this item, and of no other.
        quietest = log.max() - np.float32(8)
        return np.asarray((np.maximum(log, quietest) + 4) / 4, dtype=np.float32)


def resampled(waveform: Samples, rate: int, to_rate: int) -> Samples:
    """Return a waveform ``[samples]`` at another rate, its length as `resampled_length` says.

    A windowed sinc, cut off below the lower of the two Nyquist frequencies, so that nothing
    of a high pitch comes back as a low one.
    """
    if rate == to_rate:
        return waveform
    up, down = to_rate // gcd(rate, to_rate), rate // gcd(rate, to_rate)
    cutoff = ROLLOFF * min(1.0, to_rate / rate)
    reach = int(np.ceil(CROSSINGS / cutoff))
    taps = np.arange(-reach, reach + 1)
    result = np.empty(resampled_length(len(waveform), rate, to_rate), dtype=np.float32)
    # One more than the filter reaches: the last output may lie behind the last sample.
    padded = np.pad(waveform, (reach, reach + 1))
    neighbours = np.lib.stride_tricks.sliding_window_view(padded, len(taps))
    # Output n lies at n * down / up. Outputs `up` apart lie equally far behind a sample,
    # so they share their weights; integers, since floats would drift over an hour.
    for start in range(0, min(up, len(result)), PHASES):
        firsts = np.arange(start, min(start + PHASES, up, len(result)))
        samples, behind = np.divmod(firsts * down, up)
        weights = _windowed_sinc(taps - behind[:, np.newaxis] / up, cutoff, reach + 1)
        for first, sample, weight in zip(firsts, samples, weights, strict=True):
            outputs = result[first::up]
            np.matmul(neighbours[sample::down][: len(outputs)], weight, out=outputs)
    return result


def _windowed_sinc(distance: npt.NDArray[np.floating[Any]], cutoff: float, reach: float) -> Samples:
    """Return the weights of samples by their distance from an output."""
    window = np.i0(KAISER_BETA * np.sqrt(1 - (distance / reach) ** 2)) / np.i0(KAISER_BETA)
    return np.asarray(cutoff * np.sinc(cutoff * distance) * window, dtype=np.float32)


@cache
def mel_bank(rate: int, window: int, mels: int) -> Samples:
    """Return triangular filters ``[mels, window // 2 + 1]``, each of the same area."""
    frequencies = np.fft.rfftfreq(window, 1 / rate)
    edges = _hertz(np.linspace(0, _mels(rate / 2), mels + 2))
    rising = (frequencies - edges[:-2, np.newaxis]) / np.diff(edges)[:-1, np.newaxis]
    falling = (edges[2:, np.newaxis] - frequencies) / np.diff(edges)[1:, np.newaxis]
    triangles = np.maximum(0, np.minimum(rising, falling))
    bank = (triangles * (2 / (edges[2:] - edges[:-2]))[:, np.newaxis]).astype(np.float32)
    bank.flags.writeable = False
    return bank


def _mels(hertz: float) -> float:
    """Return where a frequency is on the mel scale."""
    if hertz < LINEAR_UP_TO:
        return hertz / HZ_PER_MEL
    return float(LINEAR_UP_TO / HZ_PER_MEL + np.log(hertz / LINEAR_UP_TO) * MELS_PER_LOG)


def _hertz(mels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the frequencies at places on the mel scale."""
    bend = LINEAR_UP_TO / HZ_PER_MEL
    above: Any = LINEAR_UP_TO * np.exp((mels - bend) / MELS_PER_LOG)
    return np.where(mels < bend, mels * HZ_PER_MEL, above)
