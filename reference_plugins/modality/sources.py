# SPDX-License-Identifier: Apache-2.0
"""From what an API receives to the bytes of a file: URLs, local files, base64.

| data | what it is |
|---|---|
| `"https://..."`, `"http://..."` | fetched, see `fetching.py` |
| `"data:image/png;base64,..."` | decoded |
| `"file:///..."`, a `Path` | read, under the allowed folders only |
| `{"url": ...}` | any of the above |
| `{"data": "..."}` | base64, as in OpenAI's `input_audio` |
| `bytes` | a file's content as it is |

Raw arrays are no files and belong to the plugins, each of which knows what its arrays mean.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

import attrs

from reference_plugins.modality.errors import InputError
from reference_plugins.modality.fetching import Fetcher

MEBIBYTE = 2**20
READ_AT_ONCE = MEBIBYTE


def _resolved(folders: tuple[str | Path, ...]) -> tuple[Path, ...]:
    """Return folders without symbolic links, so that paths can be compared with them."""
    return tuple(Path(folder).resolve(strict=True) for folder in folders)


@attrs.frozen
class MediaAccess:
    """What a request may make this process read: by default public URLs, and no local file."""

    max_bytes: int = 32 * MEBIBYTE  #: of one item as it is sent or stored
    local_folders: tuple[Path, ...] = attrs.field(default=(), converter=_resolved)
    fetcher: Fetcher | None = attrs.field(factory=Fetcher)  #: None: no URL is fetched

    def load(self, data: object) -> bytes:
        """Return the content of a file, from any of the forms above.

        Raises:
            InputError: another form; something not allowed, not there, empty or too large.

        """
        content = self._content(data)
        if not content:
            raise InputError("the file is empty")
        if len(content) > self.max_bytes:
            raise InputError(f"the file has {len(content)} bytes, of which {self.max_bytes} may be")
        return content

    def _content(self, data: object) -> bytes:
        """Return the content of a file, which may still be empty or a little too large."""
        match data:
            case str():
                return self._from_url(data)
            case Path():
                return self._from_file(data)
            case bytes() | bytearray() | memoryview():
                if memoryview(data).nbytes > self.max_bytes:
                    raise InputError(f"the file has more than {self.max_bytes} bytes")
                return bytes(data)
            case Mapping() if isinstance(data.get("url"), str):
                return self._from_url(data["url"])
            case Mapping() if isinstance(data.get("data"), str):
                return self._from_base64(data["data"])
        raise InputError(
            f"a URL, a path, base64 data or bytes are needed (got {type(data).__qualname__})"
        )

    def _from_url(self, url: str) -> bytes:
        """Return what a URL names."""
        scheme = url[:8].partition(":")[0].lower()
        if scheme == "data":
            return self._from_data_url(url)
        if scheme == "file":
            return self._from_file_url(url)
        if self.fetcher is None:
            raise InputError("URLs are not fetched here: send the content itself")
        return self.fetcher.fetch(url, max_bytes=self.max_bytes)

    def _from_data_url(self, url: str) -> bytes:
        """Return what a URL holds: `data:[type][;parameters][;base64],content`."""
        header, comma, content = url.partition(",")
        if not comma:
            raise InputError("a data URL needs a comma before its content")
        if header.lower().endswith(";base64"):
            return self._from_base64(content)
        # Three characters for a byte at the worst.
        if len(content) > 3 * self.max_bytes:
            raise InputError(f"the data URL holds more than {self.max_bytes} bytes")
        return unquote_to_bytes(content)

    def _from_base64(self, text: str) -> bytes:
        """Return what base64 text holds, after its length has been looked at."""
        if len(text) // 4 * 3 > self.max_bytes + 2:  # up to two bytes are padding
            raise InputError(f"the base64 data hold more than {self.max_bytes} bytes")
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InputError(f"the data are not base64: {error}") from error

    def _from_file_url(self, url: str) -> bytes:
        """Return the file that a URL names on this machine."""
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise InputError("not a URL of a local file") from error
        if parts.netloc not in {"", "localhost"}:
            raise InputError(f"a file on host {parts.netloc[:100]!r} is not read")
        return self._from_file(Path(os.fsdecode(unquote_to_bytes(parts.path))))

    def _from_file(self, path: Path) -> bytes:
        """Return the content of a regular file under one of the allowed folders."""
        if not self.local_folders:
            raise InputError("local files are not read here")
        # One sentence for all that can be wrong: which files exist is nobody's business.
        refusal = "the file is not among those that may be read"
        try:
            resolved = path.resolve(strict=True)
            folder = next(each for each in self.local_folders if resolved.is_relative_to(each))
            descriptor = _open_beneath(folder, resolved.relative_to(folder))
        except (OSError, ValueError, RuntimeError, StopIteration) as error:
            raise InputError(refusal) from error
        # A folder, a pipe or a device: only the open file tells for certain.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise InputError(refusal)
        with os.fdopen(descriptor, "rb") as file:
            content = bytearray()
            # Not by the size that the file has now: it may grow while it is read.
            while len(content) <= self.max_bytes and (chunk := file.read(READ_AT_ONCE)):
                content += chunk
        return bytes(content)


def _open_beneath(folder: Path, relative: Path) -> int:
    """Open a file below a folder, component by component, following no symbolic link.

    The path was resolved a moment ago; a link on it now was put there since.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for number, part in enumerate(relative.parts, start=1):
        kind = os.O_DIRECTORY if number < len(relative.parts) else 0
        # Without O_NONBLOCK, opening a pipe waits for whoever writes to it.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | kind
        try:
            inner = os.open(part, flags, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor
