# SPDX-License-Identifier: Apache-2.0
"""Token ids that a plugin waits for: found in what it holds, and in what it compares tokens with.

A thinking budget waits for the end of thinking, a phrase for its last token. Requests that are
made of a few tokens by chance never get there, and a plugin that never acts shows nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any, Self

import attrs
import numpy as np
import torch

from conformance.logits.branches import constants
from conformance.logits.configuration import LONGEST_SAID, MAX_MODEL_LEN
from conformance.plugin.files import source_of
from conformance.settings import UsageError

#: As many are found; more would keep each other from coming twice.
MOST_TOKENS, MOST_PHRASES = 8, 4

#: Tokens of a phrase; a longer list is a table of something else.
LONGEST_PHRASE = 16

#: Elements of a container that may be a set of tokens; a longer one is a table.
LARGEST = 64

_NAMED_SO = re.compile(r"token|(^|_)(id|eos|bos|start|end|stop)($|_)", re.IGNORECASE)

#: Vocabularies have fewer tokens; larger numbers are something else.
LARGEST_VOCABULARY = 1 << 20

#: How far is looked into what an instance holds.
_DEPTH = 4


@attrs.frozen
class Found:
    """What a plugin may be waiting for, the likeliest first."""

    tokens: tuple[int, ...] = ()
    phrases: tuple[tuple[int, ...], ...] = ()
    prompts: tuple[tuple[int, ...], ...] = ()  #: whole ones, which a profile names
    declared: bool = False  #: whether the author said so, or the harness found them
    reads: bool = False  #: whether the plugin looks at the tokens of requests at all
    beyond: tuple[int, ...] = ()  #: what may be tokens of a larger vocabulary

    def and_(self, other: Found) -> Found:
        """Return what was found here and there."""
        return Found(
            tuple(dict.fromkeys((*self.tokens, *other.tokens))),
            tuple(dict.fromkeys((*self.phrases, *other.phrases))),
            tuple(dict.fromkeys((*self.prompts, *other.prompts))),
            self.declared or other.declared,
            self.reads or other.reads,
            tuple(dict.fromkeys((*self.beyond, *other.beyond))),
        )

    def turned(self, number: int) -> Found:
        """Return the same with another phrase, and another prompt, first."""

        def turn(every: tuple[Any, ...]) -> tuple[Any, ...]:
            first = number % len(every) if every else 0
            return every[first:] + every[:first]

        return attrs.evolve(
            self, tokens=turn(self.tokens), phrases=turn(self.phrases), prompts=turn(self.prompts)
        )

    def document(self) -> dict[str, Any]:
        """Return the tokens as JSON values."""
        kept = {"tokens": self.tokens, "phrases": self.phrases, "prompts": self.prompts}
        return {name: [*values] for name, values in kept.items() if values}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Read what :meth:`document` wrote."""
        phrases, prompts = (tuple(map(tuple, document.get(k, ()))) for k in ("phrases", "prompts"))
        return cls(tuple(document.get("tokens", ())), phrases, prompts)


#: What is known of a plugin that nobody has looked at.
NOTHING = Found()


@attrs.frozen
class Observed:
    """An instance that has served a request, and what it did meanwhile."""

    plugin: object
    compared: list[int]  #: what it compared tokens with
    given: tuple[object, ...]  #: what the request handed over
    reads: bool  #: whether it looked at tokens


def declared(section: Mapping[str, Any], ids: range, encode: Callable[[str], list[int]]) -> Found:
    """Return the tokens that a profile names, as ids or as texts.

    Args:
        section: the plugin's part of its profile.
        ids: all token ids of the model.
        encode: turns a text into token ids.

    Raises:
        UsageError: an entry is neither, names a token that the model does not have, or is too
            long for a request.

    """

    def read(key: str, index: int, value: object) -> tuple[int, ...]:
        where = f"profile: {key}[{index}]"
        if isinstance(value, str):
            tokens: Sequence[Any] = encode(value)
        else:
            tokens = value if isinstance(value, list | tuple) else [value]
        if len(tokens) > LONGEST_SAID:
            raise UsageError(
                f"{where} has {len(tokens)} tokens; a simulated request has {MAX_MODEL_LEN}, and "
                f"an entry may have {LONGEST_SAID} of them."
            )
        for token in tokens:
            if isinstance(token, bool) or not isinstance(token, int):
                raise UsageError(f"{where} must be a text or token ids, not {value!r}.")
            if token not in ids:
                raise UsageError(
                    f"{where}: the model has {len(ids)} tokens, and no token {token}; name the "
                    'folder of the model that the plugin is for: tokenizer = "path/to/model".'
                )
        return tuple(tokens)

    tokens, outputs, prompts = (
        [read(key, index, value) for index, value in enumerate(section.get(key, ()))]
        for key in ("tokens", "outputs", "prompts")
    )
    alone = dict.fromkeys(token for entry in (*tokens, *outputs) for token in entry)
    return Found(
        tuple(islice(alone, MOST_TOKENS)),
        tuple(entry for entry in (*tokens, *outputs) if len(entry) > 1),
        tuple(filter(None, prompts)),
        declared=bool(tokens or outputs or prompts),
    )


class Token(int):
    """A token id that notes what it is compared with."""

    noted: list[int]

    def __new__(cls, value: int, noted: list[int]) -> Self:
        """Make the token; ``noted`` gets the other sides of comparisons."""
        token = super().__new__(cls, value)
        token.noted = noted
        return token

    def __eq__(self, other: object) -> bool:
        self._note(other)
        return int(self) == other

    def __ne__(self, other: object) -> bool:
        self._note(other)
        return int(self) != other

    __hash__ = int.__hash__

    def _note(self, other: object) -> None:
        if isinstance(other, int) and not isinstance(other, Token | bool):
            self.noted.append(other)


class TokenList(list[int]):
    """A list of tokens that notes when somebody looks into it."""

    def __init__(self, values: Iterable[int], name: str, read: set[str]) -> None:
        super().__init__(values)
        self._name = name
        self._read = read

    def __radd__(self, other: list[int]) -> list[int]:
        """Return another list with this one behind it; lists have no such method."""
        self._read.add(self._name)
        return [*other, *self]


#: What looks into a list.
_LOOKS = (
    *("__contains__", "__eq__", "__getitem__", "__iter__", "__len__", "__ne__", "__reversed__"),
    *("__add__", "__mul__", "__rmul__", "copy", "count", "index"),
    *("__lt__", "__le__", "__gt__", "__ge__", "__repr__"),
)


def _noted(name: str) -> Callable[..., Any]:
    """Return a method of lists that notes that it is called."""
    method = getattr(list, name)

    def noted(self: TokenList, *arguments: object) -> Any:  # noqa: ANN401 - as a list's
        for each in (self, *arguments):
            if isinstance(each, TokenList):  # the other one of two that are joined or compared
                each._read.add(each._name)  # noqa: SLF001 - of this class
        return method(self, *arguments)

    return noted


for _name in _LOOKS:
    setattr(TokenList, _name, _noted(_name))


def found_in(observed: Observed, ids: Container[int], vocabulary: int) -> Found:
    """Return what an instance may be waiting for; ``ids`` are those that stand for text."""
    plugin = observed.plugin
    known = {id(each) for each in observed.given}
    tokens: list[int] = [token for token in observed.compared if token in ids]
    named = list(observed.compared)
    phrases: list[tuple[int, ...]] = []
    path = source_of(type(plugin))
    for value in _values(plugin, Path(path).parent if path else None, known):
        if isinstance(value, int):
            tokens += [value] if value in ids else []
        elif 1 < len(value) <= LONGEST_PHRASE:
            named += value
            phrases += [tuple(value)] if all(token in ids for token in value) else []
    if path is not None and observed.reads:
        literal = (each for each in constants(type(plugin), path) if isinstance(each, frozenset))
        sets = [token for each in islice(literal, LARGEST) for token in each]
        tokens += [token for token in sets if token in ids]
        named += sets
    different = dict.fromkeys(phrases)
    alone = dict.fromkeys([*tokens, *(token for phrase in different for token in phrase)])
    larger = range(vocabulary, LARGEST_VOCABULARY)
    beyond = dict.fromkeys(token for token in named if observed.reads and token in larger)
    return Found(
        tuple(islice(alone, MOST_TOKENS)),
        tuple(islice(different, MOST_PHRASES)),
        reads=observed.reads,
        beyond=tuple(islice(beyond, MOST_TOKENS)),
    )


def _values(plugin: object, folder: Path | None, known: set[int]) -> Iterator[int | list[int]]:
    """Yield the integers, and the lists of integers, that a plugin holds: its own first."""
    cls = type(plugin)
    yield from _within(plugin, folder, known, _DEPTH)
    for base in cls.__mro__:
        if _beside(base.__module__, folder):
            yield from _each(list(vars(base).values()), folder, known, _DEPTH - 1)
    module = sys.modules.get(cls.__module__)
    # Most numbers of a module are limits; containers of numbers, and what is called so, are tokens.
    for name, value in list(vars(module).items()) if module is not None else ():
        if not isinstance(value, int) or _NAMED_SO.search(name):
            yield from _within(value, folder, known, _DEPTH - 1)


def _within(
    value: object, folder: Path | None, known: set[int], depth: int
) -> Iterator[int | list[int]]:
    if isinstance(value, bool | type | ModuleType | FunctionType | str):
        return
    if isinstance(value, int):
        yield int(value)
        return
    if id(value) in known or not depth:
        return
    known.add(id(value))
    if isinstance(value, torch.Tensor | np.ndarray):
        yield from _of_array(value)
    elif isinstance(value, dict):
        yield from islice((path for path in _paths(value) if len(path) > 1), MOST_PHRASES)
        yield from _each(
            [*islice(value, LARGEST), *islice(value.values(), LARGEST)], folder, known, depth
        )
    elif isinstance(value, list | tuple):
        if value and all(type(each) is int for each in islice(value, LARGEST)):
            yield list(islice(value, LARGEST))
        else:
            yield from _each(islice(value, LARGEST), folder, known, depth - 1)
    elif isinstance(value, set | frozenset):
        yield from _each(islice(value, LARGEST), folder, known, depth - 1)
    else:
        yield from _each(_held(value, folder), folder, known, depth - 1)


def _paths(table: dict[Any, Any], length: int = LONGEST_PHRASE) -> Iterator[list[int]]:
    """Yield the tokens by which one gets to the ends of a table of tables, as a trie is."""
    for key, value in islice(table.items(), LARGEST):
        if type(key) is int:
            inner = value if isinstance(value, dict) and length > 1 else {}
            further = list(islice(_paths(inner, length - 1), MOST_PHRASES))
            yield from ([key, *path] for path in further or [[]])


def _held(value: object, folder: Path | None) -> list[object]:
    """Return what an object of the plugin's holds, or a function that is bound to such."""
    if isinstance(value, partial):  # as vLLM's adapter keeps what serves a request
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, MethodType):
        return [value.__self__]
    if not _beside(type(value).__module__, folder):
        return []
    fields = [getattr(value, name, None) for name in _slots(type(value))]
    return [*getattr(value, "__dict__", {}).values(), *fields]


def _each(
    values: Iterable[object], folder: Path | None, known: set[int], depth: int
) -> Iterator[int | list[int]]:
    for value in values:
        yield from _within(value, folder, known, depth)


def _of_array(value: torch.Tensor | np.ndarray[Any, Any]) -> Iterator[list[int]]:
    with suppress(TypeError, RuntimeError):
        small = value.ndim == 1 and 0 < len(value) <= LONGEST_PHRASE
        whole = isinstance(first := value.reshape(-1)[0].item(), int) if small else False
        if whole and not isinstance(first, bool):
            yield value.tolist()


def _slots(cls: type) -> Iterator[str]:
    for base in cls.__mro__:
        slots = vars(base).get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def _beside(module: str, folder: Path | None) -> bool:
    """Tell whether a module is the plugin's, or lies in the same folder as its file."""
    path = getattr(sys.modules.get(module), "__file__", None)
    return bool(path and folder and Path(path).is_relative_to(folder))
