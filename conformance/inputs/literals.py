# SPDX-License-Identifier: Apache-2.0
"""Texts in the source of a plugin: it may look for them, and chance would not draw them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any


def texts(cls: type[Any]) -> Iterator[str]:
    """Return the texts in the file of a class, but for its documentation."""
    return of_file(Path(getattr(sys.modules.get(cls.__module__), "__file__", None) or ""))


def of_file(path: Path) -> Iterator[str]:
    """Yield the texts in a source file, but for its documentation; none if it cannot be read."""
    tree: ast.AST = ast.Module([], [])
    with suppress(OSError, ValueError, SyntaxError):
        tree = ast.parse(path.read_text(encoding="utf-8"))
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in documents:
                yield text
