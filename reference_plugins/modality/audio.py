# SPDX-License-Identifier: Apache-2.0
"""Audio: WAV, FLAC, Ogg and MP3 files through soundfile, and waveforms."""

from __future__ import annotations

import importlib
import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from reference_plugins.modality.arrays import as_array, frozen, require_finite
from reference_plugins.modality.errors import InputError, MissingLibraryError, decoding
from reference_plugins.modality.fingerprints import fingerprint
from reference_plugins.modality.sources import MediaAccess
from reference_plugins.modality.spectrograms import AudioRecipe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from reference_plugins.modality.arrays import Features
    from reference_plugins.modality.interface import ModelConfig

BLOCK = 65_536  #: samples of every channel that are decoded at once

#: In the size field of a WAV that was written to a pipe, where nobody knew how long it would be.
UNKNOWN_SIZES = frozenset({0, 0xFFFF_FFFF})
MP3_FRAMES = tuple(bytes([0xFF, second]) for second in (0xFA, 0xFB, 0xF2, 0xF3, 0xE2, 0xE3))
RIFF_HEADER = 8  #: bytes before those that the size field counts


@attrs.frozen
class AudioLimits:
    """What one recording may be, before anything of it is decoded."""

    max_seconds: float = 600.0
    min_rate: int = 1_000  #: samples a second
    max_rate: int = 192_000
    max_channels: int = 8
    encodings: frozenset[str] = frozenset({"WAV", "FLAC", "OGG", "MP3"})

    def check(self, encoding: str, samples: int, rate: int, channels: int) -> None:
        """Refuse a recording by what its header says.

        Raises:
            InputError: its encoding, length, rate or number of channels is not allowed.

        """
        if encoding not in {"raw", *self.encodings}:
            allowed = ", ".join(sorted(self.encodings))
            raise InputError(f"{encoding} recordings are not read, only {allowed}")
        if samples < 1:
            raise InputError("the recording has no samples")
        if not self.min_rate <= rate <= self.max_rate:
            raise InputError(
                f"the recording has {rate} samples a second; "
                f"{self.min_rate} to {self.max_rate} may be"
            )
        if not 1 <= channels <= self.max_channels:
            raise InputError(
                f"the recording has {channels} channels, of which {self.max_channels} may be"
            )
        if samples > self.max_seconds * rate:
            raise InputError(
                f"the recording takes {samples / rate:.1f} seconds, of which "
                f"{self.max_seconds:g} may be"
            )


@attrs.frozen
class RawAudio:
    """A waveform that a client hands over, ``[samples]`` or ``[channels, samples]``."""

    values: object  #: anything with `__array__`: floats from -1 to 1, or 16-bit integers
    rate: float  #: samples a second, a whole number


@attrs.frozen
class AudioItem:
    """One recording: a file of which the header is known, or samples."""

    encoding: str  #: such as `WAV`, or `raw`
    samples: int  #: of each channel
    rate: int  #: samples a second
    channels: int
    content: bytes | npt.NDArray[np.float32] = attrs.field(repr=False, eq=False)
    content_hash: str

    @property
    def seconds(self) -> float:
        """How long the recording takes."""
        return self.samples / self.rate


@attrs.frozen
class AudioPlugin:
    """The modality `audio`; models want it by an `AudioRecipe`, see `spectrograms.py`.

    Channels are averaged: models listen with one ear.
    """

    access: MediaAccess = attrs.field(factory=MediaAccess)
    limits: AudioLimits = attrs.field(factory=AudioLimits)
    modality: str = attrs.field(default="audio", init=False)
    part_types: tuple[str, ...] = attrs.field(default=("input_audio", "audio_url"), init=False)

    def get_max_per_prompt(self, model_config: ModelConfig) -> int:
        """Return how many recordings model and deployment allow."""
        return model_config.get_max_per_prompt(self.modality)

    def parse_input(self, data: object) -> AudioItem:
        """Return a recording from a file, `RawAudio`, or an array and its rate.

        Raises:
            InputError: it cannot be had, is no recording, or is beyond the limits of this plugin.
            MissingLibraryError: it is a file, and soundfile is not installed.

        """
        match data:
            case RawAudio():
                return self._from_array(data)
            # The form in which vLLM takes waveforms.
            case (np.ndarray() as values, int() | float() as rate):
                return self._from_array(RawAudio(values, rate))
            case np.ndarray():
                raise InputError("a waveform needs its rate: RawAudio(values, rate)")
        return self._from_file(self.access.load(data))

    def validate(self, data: Sequence[AudioItem], limits: AudioLimits) -> None:
        """Refuse a recording that is too long, or of a rate, encoding or number of channels.

        Raises:
            InputError: the first such recording, by its place.

        """
        for index, item in enumerate(data):
            try:
                limits.check(item.encoding, item.samples, item.rate, item.channels)
            except InputError as error:
                raise InputError(f"audio[{index}]: {error}") from error

    def estimate_tokens(self, data: AudioItem, model_config: ModelConfig) -> int:
        """Return the tokens of a recording from its length and rate."""
        return self._recipe(model_config).estimate_tokens(data.samples, data.rate)

    def preprocess(self, data: AudioItem, model_config: ModelConfig) -> Features:
        """Decode a recording, and return what the model's recipe makes of it.

        Raises:
            InputError: the file is broken, or shorter or longer than its header says.

        """
        return self._recipe(model_config).preprocess(self.decode(data), data.rate)

    def count_tokens(self, features: Features, model_config: ModelConfig) -> int:
        """Return the tokens of what `preprocess` returned."""
        return self._recipe(model_config).count_tokens(features)

    def decode(self, item: AudioItem) -> npt.NDArray[np.float32]:
        """Return a recording as one channel, float32 ``[samples]``, from -1 to 1.

        Raises:
            InputError: the file is broken, or shorter or longer than its header says.

        """
        if not isinstance(item.content, bytes):
            return item.content
        waveform = np.empty(item.samples, dtype=np.float32)
        filled = 0
        with _opened(item.content, item.encoding) as file:
            # One block more than there should be, to see whether there is more.
            while len(block := file.read(BLOCK, dtype="float32", always_2d=True)):
                if filled + len(block) > item.samples:
                    raise InputError(
                        f"the {item.encoding} file holds more than the {item.samples} samples "
                        f"that its header declares"
                    )
                waveform[filled : filled + len(block)] = block.mean(axis=1)
                filled += len(block)
        if filled < item.samples:
            raise InputError(
                f"the {item.encoding} file is cut off: {filled} of {item.samples} samples are there"
            )
        require_finite(waveform, f"the {item.encoding} file")
        return np.clip(waveform, -1, 1)

    def _recipe(self, model_config: ModelConfig) -> AudioRecipe:
        """Return how the model wants its recordings."""
        # A protocol at run time: mypy takes it for an abstract class, which nobody instantiates.
        return model_config.get_recipe(self.modality, AudioRecipe)  # type: ignore[type-abstract]

    def _from_file(self, content: bytes) -> AudioItem:
        """Return a recording from the content of a file."""
        encoding = encoding_of(content)
        if encoding is None or encoding not in self.limits.encodings:
            allowed = ", ".join(sorted(self.limits.encodings))
            raise InputError(f"the file is no recording that is read here ({allowed})")
        if encoding == "WAV":
            _require_whole(content)
        with _opened(content, encoding) as file:
            samples, rate, channels = file.frames, file.samplerate, file.channels
        self.limits.check(encoding, samples, rate, channels)
        return AudioItem(
            encoding=encoding,
            samples=samples,
            rate=rate,
            channels=channels,
            content=content,
            content_hash=fingerprint("audio file", content),
        )

    def _from_array(self, raw: RawAudio) -> AudioItem:
        """Return a recording from a waveform, which its owner may change later."""
        limits = self.limits
        most = int(limits.max_seconds * limits.max_rate) * limits.max_channels
        array = as_array(raw.values, "the waveform", max_values=most)
        if array.ndim not in {1, 2}:
            raise InputError(
                f"the waveform must be [samples] or [channels, samples] (got shape {array.shape})"
            )
        if not float(raw.rate).is_integer():
            raise InputError(f"the rate must be a whole number (got {raw.rate!r})")
        rate, channels = int(raw.rate), 1 if array.ndim == 1 else array.shape[0]
        limits.check("raw", array.shape[-1], rate, channels)
        require_finite(array, "the waveform")
        if array.dtype.kind == "f":
            scaled = np.clip(array, -1, 1).astype(np.float32)
        elif array.dtype == np.int16:
            scaled = array.astype(np.float32) / np.float32(2**15)
        else:
            raise InputError(f"the waveform must hold floats or int16 (got dtype {array.dtype})")
        content = frozen(scaled.reshape(channels, -1).mean(axis=0, dtype=np.float32))
        return AudioItem(
            encoding="raw",
            samples=len(content),
            rate=rate,
            channels=channels,
            content=content,
            content_hash=fingerprint("waveform", content, rate),
        )


def encoding_of(content: bytes) -> str | None:
    """Return the encoding that the first bytes of a file announce, or None."""
    if content.startswith(b"RIFF") and content[8:12] == b"WAVE":
        return "WAV"
    if content.startswith(b"fLaC"):
        return "FLAC"
    if content.startswith(b"OggS"):
        return "OGG"
    # Eleven bits set begin a frame of MPEG audio, and of its three layers only the last is MP3.
    if content.startswith((b"ID3", *MP3_FRAMES)):
        return "MP3"
    return None


def _require_whole(content: bytes) -> None:
    """Refuse a WAV file that has lost its end, which decoders would take for a shorter one.

    Raises:
        InputError: the file is shorter than its header says.

    """
    declared = int.from_bytes(content[4:RIFF_HEADER], "little")
    if declared not in UNKNOWN_SIZES and declared + RIFF_HEADER > len(content):
        raise InputError(
            f"the WAV file is cut off: {len(content)} of {declared + RIFF_HEADER} bytes are there"
        )


@contextmanager
def _opened(content: bytes, encoding: str) -> Iterator[Any]:
    """Open a file with soundfile, and blame the file for whatever goes wrong."""
    try:
        soundfile = importlib.import_module("soundfile")
    except ImportError as error:
        raise MissingLibraryError(
            f"{encoding} files", "soundfile", "recordings can be sent as arrays"
        ) from error
    with decoding(f"the {encoding} file"), soundfile.SoundFile(io.BytesIO(content)) as file:
        yield file
