# SPDX-License-Identifier: Apache-2.0
"""The source files that a plugin consists of."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.plugin.target import find_file, import_path

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
