# SPDX-License-Identifier: Apache-2.0
"""No modules import one another in a circle, not even for the names of types."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter

from support import ROOT


def _modules(package: str) -> dict[str, ast.Module]:
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def _imported(tree: ast.Module, known: dict[str, ast.Module]) -> set[str]:
    """Return the modules that one imports: at its top, in functions, and for its types."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {each if each in known else node.module for each in members}
    return names & known.keys()


def test_there_are_no_circles() -> None:
    """What a module is made of can be read from the bottom up."""
    modules = {**_modules("conformance"), **_modules("reference_plugins")}
    graph = {name: _imported(tree, modules) - {name} for name, tree in modules.items()}
    circles = []
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1]
            circles.append(circle)
            graph[circle[1]] = graph[circle[1]] - {circle[0]}
        else:
            break

    assert not circles


def _defined(body: list[ast.stmt]) -> set[str]:
    """Return the names that a module has when it runs: what is for its types alone is left out."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            names |= _defined(node.orelse)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        else:
            stored = (each for each in ast.walk(node) if isinstance(each, ast.Name))
            names |= {each.id for each in stored if isinstance(each.ctx, ast.Store)}
    return names


def test_what_is_imported_is_there() -> None:
    """No module imports, when it runs, a name that another one has for its types alone."""
    modules = {**_modules("conformance"), **_modules("reference_plugins")}
    defined = {name: _defined(tree.body) for name, tree in modules.items()}
    missing = [
        f"{name}: {node.module}.{alias.name}"
        for name, tree in modules.items()
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module in modules
        for alias in node.names
        if f"{node.module}.{alias.name}" not in modules and alias.name not in defined[node.module]
    ]

    assert not missing


def test_the_map_is_true() -> None:
    """It draws the layers that the linter holds, and names no module that there is not."""
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each["id"] == "layers")
    drawn = "".join(f"    {re.sub('[()]', '', line)}\n" for line in layers)
    known = [path for folder in ("conformance", "tests") for path in (ROOT / folder).rglob("*")]

    assert drawn in page
    for named in re.findall(r"`([\w/*]+(?:\.py|/))`", page):
        assert any(path.match(named) for path in known), named


def test_who_starts_a_run_does_not_wait_for_torch() -> None:
    """Plugins are tried by other processes, which import it meanwhile: it takes seconds."""
    started = "conformance.pytest_plugin.session, conformance.commands.certify"
    started += ", conformance.commands.port, conformance.porting.writing"
    heavy = "{'torch', 'vllm', 'numpy', 'transformers'}"
    program = f"import sys, {started}; print(sorted({heavy} & sys.modules.keys()))"
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert found.stdout.strip() == "[]"
