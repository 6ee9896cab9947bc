# SPDX-License-Identifier: Apache-2.0
"""Whether an error comes of a tokenizer that was made up: its vocabulary is not the model's."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any

#: What is raised for a token that is not there, or is another one.  Anything else, such as a name
#: or an attribute that does not exist, is so with any tokenizer.
_OF_TOKENS = (LookupError, ValueError, AssertionError, RuntimeError)

#: What every tokenizer has, whose library it may be of.
_METHODS = ("encode", "decode", "get_vocab")

_NAME = re.compile(r"\b[A-Za-z_]\w*\b")


def depends_on_it(error: BaseException | None) -> bool:
    """Tell whether a function raised that was handed a tokenizer, or a line that asks one.

    A name that is looked up in vain is of a token only where a vocabulary is asked for it.
    """
    # NotImplementedError is a RuntimeError, and says nothing of tokens.
    if not isinstance(error, _OF_TOKENS) or isinstance(error, NotImplementedError):
        return False
    steps = list(_steps(error))
    named = isinstance(error, KeyError) and error.args and str(error.args[0]).isidentifier()
    handed = any(_is_tokenizer(each) for at in steps for each in _handed(at.tb_frame))
    return (handed and not named) or any(map(_asks, steps))


def _steps(error: BaseException) -> Iterator[TracebackType]:
    at = error.__traceback__
    while at is not None:
        yield at
        at = at.tb_next


def _handed(frame: FrameType) -> list[Any]:
    """Return what a function was called with, as far as it still has that name."""
    names = inspect.getargs(frame.f_code).args
    return [frame.f_locals[name] for name in names if name in frame.f_locals]


def _asks(at: TracebackType) -> bool:
    """Tell whether the line that raised names a tokenizer, or the vocabulary of one."""
    if at.tb_next is not None:
        return False
    frame = at.tb_frame
    line = linecache.getline(frame.f_code.co_filename, at.tb_lineno)
    own = getattr(frame.f_locals.get("self"), "__dict__", {})
    known = [*frame.f_locals.values(), *own.values()]
    sizes = [len(each.get_vocab()) for each in known if _is_tokenizer(each)]
    named = [
        space[name]
        for name in _NAME.findall(line)
        for space in (frame.f_locals, own)
        if name in space
    ]
    return any(
        _is_tokenizer(each) or (isinstance(each, Mapping) and len(each) in sizes) for each in named
    )


def _is_tokenizer(value: object) -> bool:
    return all(callable(getattr(type(value), name, None)) for name in _METHODS)
