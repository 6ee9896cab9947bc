# SPDX-License-Identifier: Apache-2.0
"""The source files of plugins: where they are, and which a plugin consists of."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

from conformance.plugin.target import Target

#: What plugins are written against: other files there are not the plugin's.
_LIBRARIES = ("vllm/", "reference_plugins/modality/")


def sources(path: str) -> tuple[str, ...]:
    """Return the file of a plugin, and those of its folder that it imports, directly or not.

    A folder that is no package holds files that have nothing to do with each other.
    """
    found: dict[Path, None] = {}
    pending = deque([Path(path)])
    alone = (import_path(path) or "").startswith(_LIBRARIES)
    package = not alone and (Path(path).parent / "__init__.py").exists()
    while pending:
        file = pending.popleft()
        if file in found or not file.is_file():
            continue
        found[file] = None
        if package:
            pending += _imported(file)
    return tuple(map(str, found))


def _imported(file: Path) -> Iterator[Path]:
    """Yield the modules of the same folder that a file imports, as its source says."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    above = file.parents[1:]
    named: list[tuple[str, Sequence[Path]]]
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=None, level=1, names=names):
                named = [(alias.name, [file.parent]) for alias in names]
            case ast.ImportFrom(module=str(module), level=1):
                named = [(module, [file.parent])]
            case ast.ImportFrom(module=str(module), level=0, names=names):
                inner = [f"{module}.{alias.name}" for alias in names]
                named = [(name, above) for name in (module, *inner)]
            case ast.Import(names=names):
                named = [(alias.name, above) for alias in names]
            case _:
                continue
        for module, roots in named:
            beside = Path(find_file(module, map(str, roots)) or "")
            if beside.parent == file.parent and beside.name != "__init__.py":
                yield beside


def imported_names(path: str | None) -> frozenset[str]:
    """Return the names that a file imports from modules, as its source says."""
    try:
        tree = ast.parse(Path(path).read_bytes()) if path else ast.Module([], [])
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return frozenset(alias.asname or alias.name for each in statements for alias in each.names)


def is_made(cls: type) -> bool:
    """Tell whether a call of ``type`` made a class: its module, the caller's, has it at no name.

    A class statement within a function is in the module that the class names.
    """
    is_at_its_name = at_name(sys.modules.get(cls.__module__), cls.__qualname__) is cls
    return not is_at_its_name and "<locals>" not in cls.__qualname__


def at_name(module: object, qualname: str) -> object:
    """Return what a module has at a dotted name, or None."""
    found = module
    for each in qualname.split("."):
        found = getattr(found, each, None)
    return found


def source_of(cls: type) -> str | None:
    """Return the file that defines a class, which is not always the one that it is named by."""
    return getattr(sys.modules.get(cls.__module__), "__file__", None)


def digest_of(path: str | None) -> str | None:
    """Return ``sha256:...`` of a source file."""
    if path is None or not Path(path).is_file():
        return None
    return "sha256:" + hashlib.sha256(Path(path).read_bytes()).hexdigest()


def import_path(path: str | None) -> str | None:
    """Return the path of a source file from the folder that it is imported from."""
    if path is None:
        return None
    root = Path(path).parent
    while (root / "__init__.py").is_file():
        root = root.parent
    return Path(path).relative_to(root).as_posix()


def find_file(module: str, roots: Iterable[str]) -> str | None:
    """Find the file of a module below folders; imports nothing, not even its package."""
    for root in roots:
        base = Path(root, *module.split("."))
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return str(path)
    return None


def find_source(target: Target) -> str | None:
    """Find the source file of a target without importing it."""
    if target.root and (path := find_file(target.module, [target.root])):
        return path
    try:
        spec = _spec(target.module)
    except Exception:  # noqa: BLE001 - finders of others raise what they want
        spec = None
    return spec.origin if spec else find_file(target.module, sys.path)


def _spec(name: str) -> ModuleSpec | None:
    """Return where a module is, without importing the packages that it is in.

    ``importlib.util.find_spec`` imports them. Where one raises, the modules that it had imported
    by then stay, and the next import of one of these succeeds.
    """
    package, _, _ = name.rpartition(".")
    if name in sys.modules or not package or package in sys.modules:
        return importlib.util.find_spec(name)
    parent = _spec(package)
    folders = parent.submodule_search_locations if parent else None
    if folders is None:
        return None
    found = (finder.find_spec(name, folders, None) for finder in sys.meta_path)
    return next((spec for spec in found if spec is not None), None)
