# SPDX-License-Identifier: Apache-2.0
"""What was raised, as part of a sentence: what it says, or where it came up if it says nothing."""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path

from pydantic_core import ValidationError

from conformance.watching.comparison import first_line
from conformance.watching.interruption import OURS, place_in

_PYTHON = tuple(
    Path(path).resolve() for name, path in sysconfig.get_paths().items() if name.endswith("stdlib")
)

#: Whatever else is installed may be the plugin.
_HOSTS = re.compile(r"/site-packages/(vllm|torch|transformers|numpy|PIL|pydantic)/")


def said(error: BaseException, path: str | None = None) -> str:
    """Return the type of an error and what it says, the same every time.

    An error without a text, as of ``assert``, is told by the plugin's line.
    """
    name = type(error).__name__
    text = first_line(re.sub(r" at 0x[0-9a-f]+", "", _text(error)))
    if text:
        return f"{name}: {text}"
    if path is None:
        return name + _place(error)
    place = place_in(error, path)
    return f"{name} at {place}" if place else name


def placed(error: BaseException) -> str:
    """Return the same with the line where it came up: the plugin's, or else the host's."""
    text, place = said(error), _place(error)
    return text if text.endswith(place) else text + place


def place_of(error: BaseException) -> str:
    """Return what :func:`placed` has more than :func:`said`."""
    return placed(error).removeprefix(said(error))


def _text(error: BaseException) -> str:
    try:
        return _of_pydantic(error) or str(error)
    except Exception:  # noqa: BLE001 - an exception of the plugin's own class may do anything
        return ""


def _of_pydantic(error: BaseException) -> str | None:
    """Return the first error of a model's validation, whose own text begins with their number."""
    if not isinstance(error, ValidationError):
        return None
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{error.title}: {f'{place}: ' if place else ''}{first['msg']}"


def _place(error: BaseException) -> str:
    """Return the innermost line that is neither Python's, nor the host's, nor ours."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _foreign(frame.filename)] or list(frames)
    if not own:
        return ""
    line = f", `{own[-1].line}`" if own[-1].line else ""
    return f" at {Path(own[-1].filename).name}:{own[-1].lineno}{line}"


def _foreign(file: str) -> bool:
    path = Path(file).resolve()
    if path.is_relative_to(OURS) or not Path(file).is_absolute() or _HOSTS.search(file):
        return True
    return "site-packages" not in path.parts and any(map(path.is_relative_to, _PYTHON))
