# SPDX-License-Identifier: Apache-2.0
"""Which files are a plugin's own, and whether they look at the machine that it is on."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from conformance.plugin.files import source_of

#: What source files name that look at the machine: there is none here that they could find.
_LOOKS = (
    "cuda",
    "gpu",
    "is_available",
    "platform",
    "accelerator",
    "device_config",
    "device_type",
    "uva",
    "view_from_cpu",
)

#: Where slot plugins read what is on the device.
_READS = "gpu"


def own_files(plugin: type) -> Iterator[str]:
    """Yield files, and folders of packages, that hold the classes of a plugin."""
    host = plugin.__module__.partition(".")[0] == "vllm"
    for base in plugin.__mro__:
        package = base.__module__.partition(".")[0]
        if package in ("builtins", "abc", "typing", "torch") or (package == "vllm" and not host):
            continue
        file = getattr(sys.modules.get(package), "__file__", None)
        own = source_of(base)
        if file and Path(file).name == "__init__.py":
            yield str(Path(file).parent) + os.sep
        elif own:
            yield own


def looks(path: str) -> bool:
    """Tell whether a source file names what tells machines apart, but for its docstrings."""
    try:
        tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return True  # without a source nothing rules it out
    said = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Name):
            names = [node.id]
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in said:
            names = [node.value]
        if any(word in name.lower() for name in names for word in _LOOKS if name != _READS):
            return True
    return False
