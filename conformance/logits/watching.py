# SPDX-License-Identifier: Apache-2.0
"""A request that notes what a plugin reads of it, and what the plugin's source says of keys."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
from vllm.sampling_params import SamplingParams

from conformance.watching.interruption import in_plugin

Keywords = dict[str, Any]

#: Stands for all keys among those that were read.
WHOLE = "*"

#: Values for fields of ``SamplingParams`` that a plugin may use as its switch.
LIKELY_FIELDS: Mapping[str, tuple[Keywords, ...]] = {
    "min_p": ({"min_p": 0.5}, {"min_p": 0.1}),
    "logit_bias": ({"logit_bias": {5: 30.0}}, {"logit_bias": {67: -30.0, 7: 2.5}}),
    "min_tokens": (
        {"min_tokens": 4, "stop_token_ids": [7]},
        {"min_tokens": 2, "stop_token_ids": [11, 5]},
    ),
    "all_stop_token_ids": ({"min_tokens": 4, "stop_token_ids": [7]},),
    "stop_token_ids": ({"stop_token_ids": [7]},),
    "allowed_token_ids": ({"allowed_token_ids": [5, 7, 67]},),
    "temperature": ({"temperature": 0.5}, {"temperature": 2.0}),
    "top_k": ({"top_k": 3},),
    "top_p": ({"top_p": 0.5},),
    "seed": ({"seed": 5}, {"seed": 67}),
    "presence_penalty": ({"presence_penalty": 1.5},),
    "frequency_penalty": ({"frequency_penalty": 1.5},),
    "repetition_penalty": ({"repetition_penalty": 1.5},),
    "max_tokens": ({"max_tokens": 4},),
    "priority": ({"priority": 1},),
    "thinking_token_budget": ({"thinking_token_budget": 2},),
}


@attrs.frozen
class Read:
    """What a plugin read of a request."""

    keys: tuple[str, ...]  #: ``extra_args`` keys
    fields: tuple[str, ...]  #: fields of ``SamplingParams`` that may switch it on
    whole: bool = False  #: whether it took all of ``extra_args`` at once

    def and_(self, other: Read) -> Read:
        """Return what was read here or there."""
        fields = {*self.fields, *other.fields}
        return Read(
            tuple(sorted({*self.keys, *other.keys})),
            tuple(field for field in LIKELY_FIELDS if field in fields),
            self.whole or other.whole,
        )


@attrs.define
class Watching:
    """A request that notes what is read of it."""

    params: SamplingParams
    _keys: set[str]
    _fields: set[str]

    def read(self) -> Read:
        """Return what was read so far."""
        fields = tuple(field for field in LIKELY_FIELDS if field in self._fields)
        whole = WHOLE in self._keys
        return Read(tuple(sorted(self._keys - {WHOLE})), fields, whole)


@contextmanager
def watching(arguments: Keywords) -> Iterator[Watching]:
    """Make a request that notes, within the block, which of its keys and fields are read."""
    global _fields_read  # noqa: PLW0603 - see where it is defined
    keys: set[str] = set()
    fields: set[str] = set()
    params = _WatchedParams(extra_args=_WatchedArguments(arguments, keys))
    _fields_read = fields
    try:
        yield Watching(params, keys, fields)
    finally:
        _fields_read = None


def noting(values: Keywords, read: set[str]) -> Keywords:
    """Return a table that notes which of its keys are read."""
    return _WatchedArguments(values, read)


class _WatchedArguments(dict[str, Any]):
    """``extra_args`` that note which keys are read."""

    def __init__(self, values: Keywords, read: set[str]) -> None:
        super().__init__(values)
        self._read = read

    def _note(self, key: object) -> None:
        """Note a key that was looked up, unless it is no text: requests name what they set."""
        if isinstance(key, str):
            self._read.add(key)

    def _note_all(self) -> None:
        """Note that all keys were read, and each."""
        self._read.add(WHOLE)
        for key in super().__iter__():
            self._note(key)

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - any value
        self._note(key)
        return super().__getitem__(key)

    def get(self, key: str, default: object = None) -> Any:  # noqa: ANN401 - any value
        self._note(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return super().__contains__(key)

    def pop(self, key: str, *default: object) -> object:
        self._note(key)
        return super().pop(key, *default)

    def setdefault(self, key: str, default: object = None) -> Any:  # noqa: ANN401 - any value
        self._note(key)
        return super().setdefault(key, default)

    # Python's own ways to copy a dictionary or to pass it on ask one of these.
    def __iter__(self) -> Iterator[str]:
        self._note_all()
        return super().__iter__()

    def keys(self) -> Any:  # noqa: ANN401 - a view, whose type has no public name
        self._note_all()
        return super().keys()

    def items(self) -> Any:  # noqa: ANN401 - as above
        self._note_all()
        return super().items()

    def copy(self) -> _WatchedArguments:
        return self

    def __or__(self, other: Any) -> Any:  # noqa: ANN401 - as of dictionaries
        return {**self, **other}

    def __ror__(self, other: Any) -> Any:  # noqa: ANN401 - as of dictionaries
        return {**other, **self}

    def __deepcopy__(self, memo: object) -> _WatchedArguments:
        return self


class _WatchedParams(SamplingParams):
    """Parameters that note which fields the plugin reads; its host reads some, too."""

    def __getattribute__(self, name: str) -> object:
        if _fields_read is not None and in_plugin():
            _fields_read.add(name)
        return super().__getattribute__(name)


#: Where :class:`_WatchedParams` notes reads; a module variable because a struct has no room.
_fields_read: set[str] | None = None


def names(plugin: type) -> Iterator[str]:
    """Yield what may be keys in the source of a plugin's module: fields first, then texts."""
    nodes = _nodes(plugin)
    fields = [node.target for node in nodes if isinstance(node, ast.AnnAssign)]
    named = [field.id for field in fields if isinstance(field, ast.Name)]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant)]
    yield from dict.fromkeys(
        name
        for name in (*named, *texts)
        if isinstance(name, str) and name.isidentifier() and not name.startswith("__")
    )


def attributes(plugin: type) -> set[str]:
    """Return the names of all attributes that the source of a plugin's module speaks of."""
    return {node.attr for node in _nodes(plugin) if isinstance(node, ast.Attribute)}


def _nodes(plugin: type) -> list[ast.AST]:
    try:
        return list(ast.walk(ast.parse(inspect.getsource(sys.modules[plugin.__module__]))))
    except (KeyError, OSError, SyntaxError, TypeError):
        return []
