# SPDX-License-Identifier: Apache-2.0
"""Whether what a plugin reads comes of a request, as far as the source of its file says so."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from conformance.coverage.statements import functions_around

#: Steps from a value to what it was made of, at most.
_STEPS = 12

#: Functions and methods whose value is of what their first argument, or their object, is of.
_HAND_ON = frozenset(
    {"copy", "deepcopy", "dict", "enumerate", "get", "getattr", "items", "iter", "list"}
    | {"loads", "next", "pop", "reversed", "setdefault", "sorted", "tuple", "values", "zip"}
)

#: What a plugin has of itself, or of its own steps before, or by keys that vLLM makes.
_OWN = frozenset({"self", "cls", "hf_data", "hf_inputs", "hf_outputs", "out_mm_kwargs"})

#: Methods of models, whose arguments are what the processor made.
_OF_MODELS = frozenset({"embed_multimodal", "forward", "load_weights"})

#: What of a configuration the profile has.
_GIVEN = "additional_config"


def written(tree: ast.AST) -> frozenset[str]:
    """Return the keys under which a file itself puts something."""
    found = set()
    for node in ast.walk(tree):
        keys: list[ast.expr | None] = []
        match node:
            case ast.Dict(keys=keys):
                pass
            case ast.Subscript(ctx=ast.Store(), slice=key):
                keys = [key]
        found |= {str(key.value) for key in keys if isinstance(key, ast.Constant)}
    return frozenset(found)


def of_request(node: ast.expr, within: ast.AST, tree: ast.AST, steps: int = _STEPS) -> bool:
    """Tell whether a value comes of what a function of the plugin is given of a request.

    Args:
        node: the value.
        within: the function that it stands in, or the file.
        tree: the file.
        steps: how far it is followed.

    """
    if not steps:
        return False
    if isinstance(node, ast.Name):
        return _of_name(node.id, within, tree, steps - 1)
    if isinstance(node, ast.Attribute) and (node.attr == _GIVEN or _configures(node.attr)):
        return node.attr == _GIVEN
    inner = _behind(node)
    return inner is not None and of_request(inner, within, tree, steps - 1)


def _behind(node: ast.expr) -> ast.expr | None:
    """Return what an expression has its value from, or None where that is its own."""
    match node:
        case ast.BoolOp(values=[inner, *_]) | ast.IfExp(body=inner) | ast.BinOp(left=inner):
            return inner
        case ast.Subscript(value=inner) | ast.NamedExpr(value=inner) | ast.Await(value=inner):
            return inner
        case ast.Attribute(value=inner):
            return inner
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=given):
            of_module = isinstance(inner, ast.Name) and inner.id in ("copy", "json")
            handed = [*given, None][0] if of_module else inner
            return handed if name in _HAND_ON else None
        case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name in _HAND_ON:
            return inner
    return None


def _of_name(name: str, within: ast.AST, tree: ast.AST, steps: int) -> bool:
    """Tell whether what a name stands for comes of a request."""
    for function in functions_around(getattr(within, "lineno", 0), tree):
        if name in _parameters(function):
            return _of_parameter(name, function, tree, steps)
        if made := list(_made_of(name, function)):
            return of_request(made[-1], function, tree, steps)
    return False


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the names of what a function is given, in their order."""
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    named += [each for each in (given.vararg, given.kwarg) if each is not None]
    return [each.arg for each in named]


def _made_of(name: str, function: ast.AST) -> Iterator[ast.expr]:
    """Yield what a name of a function was made of."""
    for node in ast.walk(function):
        match node:
            case (
                ast.Assign(targets=[target], value=value)
                | ast.NamedExpr(target=target, value=value)
            ):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                pass
            case (
                ast.For(target=target, iter=value)
                | ast.AsyncFor(target=target, iter=value)
                | ast.comprehension(target=target, iter=value)
            ):
                pass
            case _:
                continue
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        if any(isinstance(part, ast.Name) and part.id == name for part in parts):
            yield value


def _of_parameter(
    name: str, function: ast.FunctionDef | ast.AsyncFunctionDef, tree: ast.AST, steps: int
) -> bool:
    """Tell whether a function is given what is of a request, by the host or by the file."""
    if name in _OWN or _configures(name) or function.name in _OF_MODELS:
        return False
    parameters = _parameters(function)
    place = parameters.index(name)
    calls = list(_calls(function.name, tree))
    for call in calls:
        bound = isinstance(call.func, ast.Attribute) and parameters[0] in ("self", "cls")
        by_name = [each.value for each in call.keywords if each.arg == name]
        for given in by_name or call.args[place - bound : place - bound + 1]:
            if of_request(given, call, tree, steps):
                return True
    return not calls


def _calls(name: str, tree: ast.AST) -> Iterator[ast.Call]:
    """Yield where a file calls a function of its own."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=called)) if called == name:
                yield node
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self" | "cls"), attr=called)) if (
                called == name
            ):
                yield node


def _configures(name: str) -> bool:
    """Tell whether a name is that of a configuration, which is no client's."""
    return "config" in name.lower() and name != _GIVEN
