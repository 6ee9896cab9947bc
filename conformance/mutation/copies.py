# SPDX-License-Identifier: Apache-2.0
"""A plugin with a change, beside which everything is as it was.

The changed file stands in a tree of links to what lies around it, so that it is imported by its
own name, finds its siblings, and no byte code of it is left anywhere.
"""

from __future__ import annotations

from pathlib import Path

import attrs

from conformance.plugin.files import digest_of
from conformance.plugin.target import Plugin

_CACHE = "__pycache__"


def root_of(plugin: Plugin) -> Path:
    """Return the folder from which the file of a plugin is imported."""
    assert plugin.path is not None
    path = Path(plugin.path).resolve()
    depth = plugin.module.count(".") + (path.stem == "__init__")
    return path.parents[depth]


def changed(
    plugin: Plugin, file: Path, text: str, folder: Path, number: str, *, first: bool = True
) -> Plugin:
    """Return a plugin as it is with another text in one file.

    Args:
        plugin: as it is.
        file: that is other; below :func:`root_of`.
        text: what is in it then.
        folder: where the tree is made, or is.
        number: tells it from others in names.
        first: whether the tree is to be made.

    """
    there = root_of(plugin)
    place = file.resolve().relative_to(there)
    if first:
        _linked(there, folder, place.parts)
        (folder / place).write_text(text, encoding="utf-8")
    assert plugin.path is not None
    path = folder / Path(plugin.path).resolve().relative_to(there)
    return attrs.evolve(
        plugin,
        target=f"{plugin.target}-{number}",
        root=str(folder),
        path=str(path),
        digest=digest_of(str(path)),
    )


def _linked(there: Path, here: Path, parts: tuple[str, ...]) -> None:
    """Link what is in one folder from another, but for the first part, down to the last one."""
    here.mkdir(parents=True, exist_ok=True)
    for each in there.iterdir():
        if each.name not in (parts[0], _CACHE) and not each.name.startswith("."):
            (here / each.name).symlink_to(each)
    if len(parts) > 1:
        _linked(there / parts[0], here / parts[0], parts[1:])
