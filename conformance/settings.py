# SPDX-License-Identifier: Apache-2.0
"""What a run is asked to do: the options that pytest and the command line share."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import attrs

from conformance.rules import Evidence, nearest

DEFAULT_SEED = 20_261_121


class UsageError(Exception):
    """The user asked for something that cannot be: one sentence, with the way out."""


class Budget(StrEnum):
    """How many examples each rule gets; pinned here and never inherited from a CI profile."""

    QUICK = "quick"
    STANDARD = "standard"
    DEEP = "deep"


class Device(StrEnum):
    """Where offline engines and servers run."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


#: Requests that a server of somebody else's is sent at the same time, at most.
SERVER_LOAD = 8

#: A header as RFC 9110 has it: a token, a colon, and visible characters of ASCII.
_HEADER = re.compile(r"([!#$%&'*+.^_`|~\w-]+):[ \t]*([!-~](?:[\t -~]*[!-~])?)", re.ASCII)


@attrs.frozen
class Encoding:
    """A server that encodes items for another one."""

    arguments: tuple[str, ...]
    folder: Path  #: where it leaves for the other what it makes of them


@attrs.frozen(kw_only=True)
class Settings:
    """The options of one run."""

    targets: tuple[str, ...]
    profile: str | None = None
    evidence: tuple[Evidence, ...] = (Evidence.SIMULATOR,)
    budget: Budget = Budget.STANDARD
    device: Device = Device.AUTO
    server_url: str | None = None
    #: Sent with each request to the server at that address; they may be secrets, so nothing
    #: that is written or printed holds them.
    server_headers: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)
    server_load: int = SERVER_LOAD  #: requests to it that are under way at the same time, at most
    server_arguments: tuple[str, ...] = ()  #: of servers that the harness starts
    encoding: Encoding | None = None  #: done for such a server by another one
    ranks: int = 1  #: workers of such a server
    front_ends: int = 1  #: its processes that must have been asked, where it has several
    crowd: int | None = None  #: clients at the same time, where a configuration says how many
    server_hostile: bool = False  #: send it what no profile names, too
    report: Path = Path("reports/local")
    seed: int = DEFAULT_SEED
    baseline: Path | None = None  #: file of known failures
    configurations: tuple[str, ...] = ()  #: names of engines' configurations, in their own order
    lines: bool = False  #: watch which lines of plugins run in engines and servers, too
    directory: Path = attrs.field(factory=Path.cwd)  #: relative targets start here
    python_path: tuple[str, ...] = ()  #: ``sys.path`` of the caller, for the workers

    def import_path(self, root: str | None = None) -> list[str]:
        """Return ``sys.path`` for workers: the caller's, and the folder it was started in.

        Before these comes the folder that a plugin is imported from, if it has one.
        """
        paths = [root, str(self.directory), *self.python_path]
        return list(dict.fromkeys(path for path in paths if path))


def require_writable(folder: Path, shown: Path) -> None:
    """Make sure that a report can be written, before anybody waits for it.

    Args:
        folder: where it goes; what lies below it belongs to earlier reports.
        shown: the folder as the user named it.

    Raises:
        UsageError: it cannot.

    """
    there = folder
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        # Permissions alone tell little: of file systems that are read-only, full, or of the kernel.
        with tempfile.NamedTemporaryFile(dir=there, prefix=".vllm-conformance-") as file:
            file.write(bytes(1024))
    except OSError as error:
        no_folder = isinstance(error, NotADirectoryError)
        why = "is no folder" if no_folder else f"cannot be written to ({error.strerror})"
        raise UsageError(
            f"--conformance-report {str(shown)!r}: {there} {why}; name another folder."
        ) from None


def choose(option: str, text: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return those of *names* that a comma-separated list has, in their own order.

    Raises:
        UsageError: a word is none of them, or there is no word.

    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if "all" in words:
        return tuple(names)
    if not words:
        raise UsageError(
            f"{option} is empty: give any of {', '.join(names)} (comma separated), or all."
        )
    for word in words:
        if word not in names:
            raise UsageError(
                f"{option} {word!r} is unknown: it takes any of {', '.join(names)}, or all."
                + nearest(word, [*names, "all"])
            )
    return tuple(name for name in names if name in words)


def parse_headers(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Parse what ``--server-header`` was given, as often as it was.

    Raises:
        UsageError: one is no header; it is not repeated, since it may hold a secret.

    """
    found = []
    for text in texts:
        match = _HEADER.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                "--server-header takes NAME: VALUE, for example "
                "--server-header 'Authorization: Bearer '\"$KEY\"; one of those given has not "
                "both."
            )
        name, value = match.groups()
        found.append((name.title(), value))
    return tuple(found)


def parse_evidence(text: str) -> tuple[Evidence, ...]:
    """Parse ``--evidence``.

    Raises:
        UsageError: a word is no kind of evidence.

    """
    names = [evidence.value for evidence in Evidence]
    return tuple(Evidence(name) for name in choose("--evidence", text, names))


def folder_name(target: str) -> str:
    """Return the name of a plugin's folder under the report directory; `ls` shows it."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "-" for c in target)
    visible = name.lstrip(".")
    return "_" * (len(name) - len(visible)) + visible


def shorter(path: Path) -> str:
    """Return a path relative to the current folder where that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
