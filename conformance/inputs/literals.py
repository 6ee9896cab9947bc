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
    """Yield the texts in the file of a class, in their order, but for its documentation."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    tree: ast.AST = ast.Module([], [])
    with suppress(OSError, ValueError, SyntaxError):
        tree = ast.parse(Path(file or "").read_text(encoding="utf-8"))
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    told = (node for node in ast.walk(tree) if id(node) not in documents)
    for node in told:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
