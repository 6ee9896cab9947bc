# SPDX-License-Identifier: Apache-2.0
"""What a profile would have to have for a line to run, as far as the source of a plugin says so.

A condition is followed to what it reads of a request, within its function: ``mode = args.get("m")``
and then ``if mode == "x"`` ask for an ``m`` that is "x".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import attrs

from conformance.coverage.gaps import Decided, Want
from conformance.coverage.origins import of_request, written

#: The key of profiles that has what a constructor is given.
_ARGUMENTS = "arguments"

#: Keys of profiles that no request has.
_SHOWN = frozenset({"alike", "likely", "samples"})

#: Functions and methods that hand on what they go through.
_HAND_ON = frozenset(
    {"enumerate", "items", "keys", "list", "reversed", "sorted", "tuple", "values"}
)

#: What clients call their keys: no marker of a model.
_NAME = re.compile(r"[\w.:/-]+")

#: What makes a dictionary.
_MADE = (ast.Dict, ast.DictComp)

#: What stands for the environment of the process, or for the module that has it.
_ENVIRONMENT = frozenset({"os", "environ", "os.environ"})

#: Types that a condition may ask for, as data have them.
_TYPES: Mapping[str, type] = {kind.__name__: kind for kind in (bool, dict, float, int, list, str)}


class Need(StrEnum):
    """What a profile lacks."""

    KEY = "key"  #: the key
    OPTION = "option"  #: an argument of the constructor with that name
    VARIABLE = "variable"  #: the environment variable
    VALUE = "value"  #: the key with that value
    OTHER = "other"  #: the key with another value
    TYPE = "type"  #: the key with a value of that type
    EMPTY = "empty"  #: the key with nothing in it
    FILLED = "filled"  #: the key with something in it
    TRUE = "true"  #: the key with a value that counts as true
    FALSE = "false"  #: the key with one that does not


#: What is said of each, of a key and a value.
_SAYS = {
    Need.KEY: "nothing in the profile has `{key}`",
    Need.OPTION: "no `arguments` in the profile have `{key}`",
    Need.VARIABLE: "no `environment` in the profile sets `{key}`",
    Need.VALUE: "no `{key}` in the profile is {value}",
    Need.OTHER: "every `{key}` in the profile is {value}",
    Need.TYPE: "no `{key}` in the profile is of type {value}",
    Need.EMPTY: "no `{key}` in the profile is empty",
    Need.FILLED: "every `{key}` in the profile is empty",
    Need.TRUE: "no `{key}` in the profile counts as true",
    Need.FALSE: "every `{key}` in the profile counts as true",
}


@attrs.frozen
class Hint:
    """What would reach a line: something that a profile may have, and does not."""

    need: Need
    key: str
    value: str | None = None  #: as Python writes it

    def document(self) -> dict[str, Any]:
        """Return it as a certificate has it."""
        return {"need": self.need.value, "key": self.key, "value": self.value}


def said(hint: Mapping[str, Any]) -> str:
    """Return what a certificate has of a hint as a sentence."""
    return _SAYS[Need(hint["need"])].format(**hint)


@attrs.frozen
class Sent:
    """What a profile has under each key of what it sends, wherever that stands."""

    values: Mapping[str, Sequence[Any]]
    sends: bool = True  #: whether it sends anything that has keys, or may have some
    options: frozenset[str] | None = None  #: arguments of constructors, where there may be any

    @classmethod
    def of(cls, profile: object) -> Sent:
        """Return what a profile has."""
        found: dict[str, list[Any]] = {}
        sections = profile if isinstance(profile, dict) else {}
        # Its own keys say what is sent, and samples what comes of it.
        sent = [value for key, value in sections.items() if key not in _SHOWN]
        for key, value in _within(sent):
            found.setdefault(key, []).append(value)
        given = sections.get(_ARGUMENTS)
        each = given if isinstance(given, list) else []
        options = frozenset(name for arguments in each for name in arguments)
        lists = (value if isinstance(value, list | tuple) else [value] for value in sent)
        sends = any(isinstance(one, dict) for values in lists for one in values)
        return cls(found, sends, None if given is None else options)


def hints(decided: Decided | None, sent: Sent, tree: ast.AST) -> list[Hint]:
    """Return what a profile would have to have for a statement to go another way.

    Args:
        decided: what decides it, if anything is known.
        sent: what the profile has.
        tree: the file, whose constructors may have options.

    """
    if decided is None:
        return []
    within = decided.within
    names = _Names(_origins(within), _tables(tree), sent.values, written(tree), within, tree)
    found = list(_needs(decided.expression, decided.want, names, sent)) if sent.sends else []
    if sent.options is not None and decided.want is Want.TRUE:
        given = sent.options
        options = _options(decided.expression, tree)
        found += [Hint(Need.OPTION, name) for name in options if name not in given]
    return list(dict.fromkeys(found))


def _within(value: object) -> Iterator[tuple[str, Any]]:
    """Yield every key of a profile with what it has there."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield str(key), each
            yield from _within(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _within(each)


@attrs.frozen
class _Names:
    """What the names of a function and of its file stand for."""

    origins: Mapping[str, ast.expr]  #: of a local name, what it was made of
    tables: frozenset[str]  #: what is made in the file itself, so that no request has its keys

    sent: Mapping[str, Sequence[Any]]  #: what the profile has under each key
    written: frozenset[str]  #: keys under which the file itself puts something
    within: ast.AST  #: the function, or the file
    tree: ast.AST

    def made_here(self, container: ast.expr) -> bool:
        return ast.unparse(container) in self.tables

    def asked_for(self, container: ast.expr, key: str) -> bool:
        """Tell whether requests have the key, or may, and not the plugin or its model alone."""
        if key in self.sent:
            return True
        return key not in self.written and of_request(container, self.within, self.tree)


def _tables(tree: ast.AST) -> frozenset[str]:
    """Return the globals, and the attributes for which a dictionary is written down."""
    found = set()
    top = getattr(tree, "body", ())
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {
                ast.unparse(each)
                for each in targets
                if (isinstance(each, ast.Attribute) and isinstance(node.value, _MADE))
                or (isinstance(each, ast.Name) and node in top)
            }
    return frozenset(found)


def _origins(within: ast.AST) -> dict[str, ast.expr]:
    """Return what a name of a function was made of, the last thing that it was."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(within):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = value
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name] = value
    return found


def _needs(node: ast.expr, want: Want, names: _Names, sent: Sent) -> Iterator[Hint]:
    """Yield what an expression lacks to be as it is wanted."""
    match node:
        case ast.BoolOp(values=parts):
            for part in parts:
                yield from _needs(part, want, names, sent)
            return
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield from _needs(inner, _turned(want), names, sent)
            return
        case ast.NamedExpr(value=inner):
            yield from _needs(inner, want, names, sent)
            return
        case ast.Compare(left=ast.Constant(), ops=[ast.In() | ast.NotIn() as how]):
            # What is in no profile and was there all the same is looked for elsewhere.
            if isinstance(how, ast.In) is not (want is Want.TRUE):
                return
    keys = dict(_keys(node, names))
    unsent = [Hint(need, key) for key, need in keys.items() if key not in sent.values]
    if unsent:
        yield from unsent
    elif len(keys) == 1:
        (key,) = keys
        yield from _of_values(node, want, key, sent.values[key], names.origins)


def _of_values(
    node: ast.expr,
    want: Want,
    key: str,
    values: Sequence[Any],
    names: Mapping[str, ast.expr],
) -> Iterator[Hint]:
    """Yield what the values that are sent under a key lack."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=value)]):
            if _key(left, names) == key and isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
                same = (want is Want.TRUE) == isinstance(op, ast.Eq | ast.Is)
                yield from _compared(key, [value], values, same=same)
        case ast.Compare(
            left=left, ops=[op], comparators=[ast.Tuple() | ast.Set() | ast.List() as some]
        ):
            constants = [each.value for each in some.elts if isinstance(each, ast.Constant)]
            if _key(left, names) == key and len(constants) == len(some.elts):
                same = (want is Want.TRUE) == isinstance(op, ast.In)
                yield from _compared(key, constants, values, same=same)
        case ast.Call(func=ast.Name(id="isinstance"), args=[inner, ast.Name(id=kind)]):
            of = _TYPES.get(kind)
            there = of is None or any(isinstance(each, of) for each in values)
            if want is Want.TRUE and not there and _key(inner, names) == key:
                yield Hint(Need.TYPE, key, kind)
        case _ if _key(node, names) == key:
            yield from _as_truth(key, want, values)


def _compared(
    key: str, constants: Sequence[Any], values: Sequence[Any], *, same: bool
) -> Iterator[Hint]:
    """Yield the constants that nothing is, or the one that everything is."""
    if same:
        yield from (Hint(Need.VALUE, key, repr(each)) for each in constants if each not in values)
    elif len(constants) == 1 and all(each == constants[0] for each in values):
        yield Hint(Need.OTHER, key, repr(constants[0]))


def _as_truth(key: str, want: Want, values: Sequence[Any]) -> Iterator[Hint]:
    """Yield what no value is as a condition, or as what a loop goes through."""
    missing = {
        Want.TRUE: (Need.TRUE, any(values)),
        Want.FALSE: (Need.FALSE, not all(values)),
        Want.ITEMS: (Need.FILLED, any(values)),
        Want.EMPTY: (Need.EMPTY, not all(values)),
    }
    need, there = missing[want]
    if not there:
        yield Hint(need, key)


def _turned(want: Want) -> Want:
    return {Want.TRUE: Want.FALSE, Want.FALSE: Want.TRUE}.get(want, want)


def _key(node: ast.expr, names: Mapping[str, ast.expr], depth: int = 3) -> str | None:
    """Return the key of which an expression is the value, itself or handed on."""
    key: str | None = None
    inner: ast.expr | None = None
    match node:
        case ast.Call(
            func=ast.Attribute(attr="get" | "getenv"), args=[ast.Constant(value=str(key)), *_]
        ):
            pass
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            pass
        case ast.Name(id=name):
            inner = names.get(name)
        case ast.Call(func=ast.Name(id=called), args=[inner, *_]) if called in _HAND_ON:
            pass
        case ast.Call(func=ast.Attribute(value=inner, attr=called), args=[]) if called in _HAND_ON:
            pass
        case ast.BoolOp(op=ast.Or(), values=[inner, *_]):
            pass
        case _:
            return None
    return _key(inner, names, depth - 1) if inner is not None and depth else key


def _keys(node: ast.AST, names: _Names, depth: int = 2) -> Iterator[tuple[str, Need]]:
    """Yield the keys that an expression reads of something, directly or by a name."""
    for each in ast.walk(node):
        match each:
            case ast.Call(
                func=ast.Attribute(value=container, attr="get" | "getenv"),
                args=[ast.Constant(value=str(key)), *_],
            ):
                pass
            case ast.Subscript(value=container, slice=ast.Constant(value=str(key))):
                pass
            case ast.Compare(
                left=ast.Constant(value=str(key)),
                ops=[ast.In() | ast.NotIn()],
                comparators=[container],
            ) if key.isidentifier():  # else it is rather looked for in a text
                pass
            case ast.Name(id=name) if depth and name in names.origins:
                yield from _keys(names.origins[name], names, depth - 1)
                continue
            case _:
                continue
        if not names.made_here(container) and _NAME.fullmatch(key):
            if ast.unparse(container) in _ENVIRONMENT:
                yield key, Need.VARIABLE
            elif names.asked_for(container, key):
                yield key, Need.KEY


def _options(node: ast.AST, tree: ast.AST) -> Iterator[str]:
    """Yield arguments of a constructor that an expression reads by the attribute of their name."""
    read = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }
    for made in ast.walk(tree):
        if isinstance(made, ast.FunctionDef) and made.name == "__init__":
            arguments = (*made.args.args, *made.args.kwonlyargs)
            names = {each.arg for each in arguments}
            yield from sorted(name for name in names if {name, f"_{name}"} & read)
