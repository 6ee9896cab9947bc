# SPDX-License-Identifier: Apache-2.0
"""What a source file plainly is, told without importing it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from conformance.generations import all_generations
from conformance.interface import ClassSource, Generation
from conformance.plugin import files
from conformance.plugin import target as targets
from conformance.plugin.target import Target


def likely(target: Target, source: str | None) -> str:
    """Return the generation that answers for what cannot be loaded, by its source file if any."""
    group = target.text.removeprefix("entry-point:").partition("/")[0]
    if target.module == targets.MODEL_REGISTRY:  # a model's folder
        group = targets.GENERAL_PLUGINS
    of_group = next((each.name for each in all_generations() if each.group == group), None)
    told = _told(source, (target.qualname or "").rpartition(".")[2])
    if targets.registers(target):  # any kind of plugin
        of_group, told = told, of_group
    # The first one answers for a file that tells nothing of itself.
    return target.generation or of_group or told or all_generations()[0].name


def _told(source: str | None, wanted: str, hops: int = 4) -> str | None:
    """Return the generation of the class that is asked for, or what else of its file tells one.

    Where nothing does, the file tells one from which a base of the class comes.
    """
    tree, text = _parsed(source)
    if tree is None:
        return _imported(text)
    if wanted and (handed := _handed_on(tree, wanted, source)) is not None:
        source = handed  # a package may hand on what one of its modules defines
        tree, text = _parsed(source)
        if tree is None:
            return _imported(text)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    # The class that is asked for speaks first.
    classes.sort(key=lambda c: c.name != wanted)
    imports = frozenset(
        node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module
    )
    found = [_generation(_class_source(c, imports)) for c in classes]
    if told := next((name for name in found if name), None) or _imported(text):
        return told
    bases = [_last(base) for each in classes[:1] for base in each.bases] if hops else []
    handed_on = ((base, _handed_on(tree, base, source)) for base in bases)
    return next((_told(file, base, hops - 1) for base, file in handed_on if file), None)


def _parsed(source: str | None) -> tuple[ast.Module | None, str]:
    """Return what a file says, as a tree unless it has a mistake in it, and as text."""
    try:
        text = Path(source).read_text(encoding="utf-8") if source else ""
    except (OSError, ValueError):
        return None, ""
    try:
        return ast.parse(text), text
    except (SyntaxError, ValueError):
        return None, text


def _handed_on(tree: ast.Module, name: str, source: str | None, hops: int = 4) -> str | None:
    """Return the file of the package's module that a name is imported from, at whatever remove."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.module or source is None or not hops:
            continue
        if name in {alias.asname or alias.name for alias in node.names}:
            roots = Path(source).parents[node.level - 1 :] if node.level else Path(source).parents
            found = files.find_file(node.module, map(str, roots[:1] if node.level else roots))
            further, _ = _parsed(found)
            return (further and _handed_on(further, name, found, hops - 1)) or found
    return None


def _imported(text: str) -> str | None:
    """Return the generation of which a file, perhaps with a mistake in it, imports something."""
    return next((g.name for g in _special_first() if g.sign and re.search(g.sign, text)), None)


def _generation(source: ClassSource) -> str | None:
    """Return the generation of a class by its bases, decorators and what it defines."""
    return next((g.name for g in _special_first() if g.likely(source)), None)


def _special_first() -> tuple[Generation, ...]:
    """Return the generations, of each interface the newest first: it has more to be known by."""
    return all_generations()[::-1]


def _class_source(node: ast.ClassDef, imports: frozenset[str]) -> ClassSource:
    inside = list(ast.walk(node))
    methods = (ast.FunctionDef, ast.AsyncFunctionDef)
    sets = {n.id for n in inside if isinstance(n, ast.Name) and _stored(n)}
    sets |= {n.attr for n in inside if isinstance(n, ast.Attribute) and _stored(n)}
    return ClassSource(
        bases=frozenset(map(_last, node.bases)),
        decorators=frozenset(map(_last, node.decorator_list)),
        defines=frozenset(each.name for each in node.body if isinstance(each, methods)),
        sets=frozenset(sets),
        imports=imports,
    )


def _stored(node: ast.Name | ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store)


def _last(node: ast.expr) -> str:
    """Return the last part of a dotted name, whatever it is called or indexed with."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
