# SPDX-License-Identifier: Apache-2.0
"""Whose mistake it was: the client's, the plugin's, or the deployment's.

    ValueError
      InputError              the client's: an answer of 400, and the sentence may be shown
    RuntimeError
      PluginError             the plugin's or the model's: an answer of 500
        PlaceholderMismatch   embeddings that do not fit the placeholders of the prompt
        EstimateError         an item that takes more tokens than was estimated
      MissingLibraryError     the deployment's: an encoding whose library is not installed

A client can cause nothing but `InputError`. The others mean that somebody has to mend something.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How decoders name the buffer that they were given.
OWN_OBJECT = re.compile(r" ?<_io\.BytesIO object at 0x[0-9a-f]+>")


class InputError(ValueError):
    """A request that no model could serve; its message is a sentence for the client."""


class PluginError(RuntimeError):
    """A plugin or a model that broke the contract; no client can mend it."""


class PlaceholderMismatch(PluginError):
    """Embeddings that do not fit the placeholders of the prompt.

    `modality` and `index` name the item, `expected` is what the placeholders ask for
    and `actual` what the encoder gave.
    """

    def __init__(
        self, message: str, *, modality: str, index: int, expected: object, actual: object
    ) -> None:
        super().__init__(message)
        self.modality = modality
        self.index = index
        self.expected = expected
        self.actual = actual


class EstimateError(PluginError):
    """An item that takes another number of tokens than its plugin estimated."""

    def __init__(self, modality: str, index: int, *, estimated: int, actual: int) -> None:
        super().__init__(
            f"{modality}[{index}] takes {actual} tokens, and its plugin estimated {estimated}: "
            f"the scheduler made room for too few"
        )
        self.modality = modality
        self.index = index
        self.estimated = estimated
        self.actual = actual


class MissingLibraryError(RuntimeError):
    """An encoding that can be read only with a library that is not installed."""

    def __init__(self, encoding: str, library: str, instead: str) -> None:
        super().__init__(
            f"reading {encoding} needs the library {library!r}, which is not installed; "
            f"without it, {instead}"
        )
        self.library = library


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Turn whatever a decoder raises on a broken file into an `InputError` about `what`."""
    try:
        yield
    except (InputError, MissingLibraryError):
        raise
    # Decoders document hardly any of the exceptions that hostile bytes can raise in them:
    # struct.error, IndexError, SyntaxError, EOFError and MemoryError have all been seen.
    except Exception as error:
        raise InputError(f"{what} cannot be decoded: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return what a decoder said, without numbers and objects of this process."""
    said = getattr(error, "strerror", None) or str(error)
    return OWN_OBJECT.sub("", said).strip(" :")[:200] or type(error).__name__
