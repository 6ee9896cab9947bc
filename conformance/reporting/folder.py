# SPDX-License-Identifier: Apache-2.0
"""The report directory: one folder for each plugin, with its certificate and its cases."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from conformance.counterexample import FIELDS, program
from conformance.plugin.target import Plugin
from conformance.reporting import attestation, badge, certificate, junit, page, performance, summary


def write(
    document: Mapping[str, Any], plugin: Plugin, folder: Path, profile: str | None = None
) -> Path:
    """Write the certificate of a plugin and everything drawn from it; return its path.

    Cases of earlier runs are removed: what lies in the folder belongs to one certificate.
    They name the profile that the run was given, as it can be named from any folder.
    """
    document = performance.noted(document, folder)
    path = certificate.write(without_calls(document), folder)
    cases = folder / "cases"
    for old in [*cases.glob("*.json"), *cases.glob("*.py")]:
        old.unlink()
    for rule in document["rules"]:
        if rule["counterexample"]:
            case = {
                "schema": 1,
                "rule": rule["id"],
                "target": plugin.target,
                "generation": plugin.generation,
                "message": rule["message"],
                **({"profile": profile} if profile else {}),
                "plugin": place(plugin),
                "counterexample": rule["counterexample"],
            }
            write_case(case, cases)
    draw(document, folder)
    return path


def place(plugin: Plugin) -> dict[str, str | None]:
    """Return where a plugin is, as cases have it."""
    found = {
        "module": plugin.module,
        "qualname": plugin.qualname,
        "root": plugin.root or _root(plugin),
    }
    return {**found, "known_as": plugin.known_as} if plugin.known_as else found


def draw(document: Mapping[str, Any], folder: Path) -> None:
    """Write what is drawn from a certificate, beside it: the certificate itself lies there."""
    figures = performance.read(folder, document["plugin"]["digest"])
    badge.write(document, folder)
    _state(document, folder)
    certificate.write_whole(folder / junit.FILE_NAME, junit.render(document))
    certificate.write_whole(folder / "summary.md", summary.markdown(document))
    certificate.write_whole(
        folder / page.FILE_NAME, page.render(document, _programs(folder), figures)
    )


def draw_again(folder: Path) -> None:
    """Take new figures into the certificate in a folder, if there is one, and draw it again."""
    path = folder / certificate.FILE_NAME
    if path.exists():
        document = performance.noted(certificate.read(path), folder)
        certificate.write(document, folder)
        draw(document, folder)


def draw_overview(certificates: Mapping[Path, Mapping[str, Any]], directory: Path) -> Path:
    """Write the page that lists certificates, by their paths under a folder; return its path."""
    pages = {
        quote((path.parent / page.FILE_NAME).relative_to(directory).as_posix()): document
        for path, document in certificates.items()
    }
    path = directory / page.FILE_NAME
    certificate.write_whole(path, page.overview(pages))
    return path


def _state(document: Mapping[str, Any], folder: Path) -> None:
    """Write the in-toto statement of a certificate; where there is none, an earlier one goes."""
    path = folder / attestation.FILE_NAME
    written = (folder / certificate.FILE_NAME).read_bytes()
    statement = attestation.statement(document, hashlib.sha256(written).hexdigest())
    if statement is None:
        path.unlink(missing_ok=True)
    else:
        text = json.dumps(statement, indent=2, ensure_ascii=False)
        certificate.write_whole(path, text + "\n")


def _programs(folder: Path) -> dict[str, str]:
    """Return the programs beside a certificate, by rule."""
    paths = (folder / "cases").glob("*.py")
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(paths)}


def write_case(case: Mapping[str, Any], folder: Path) -> None:
    """Write a case document, and beside it the program that it holds the calls of."""
    path = folder / f"{case['rule']}.json"
    certificate.write_whole(path, json.dumps(case, indent=2, ensure_ascii=False) + "\n")
    if FIELDS & case["counterexample"].keys():
        certificate.write_whole(path.with_suffix(".py"), program(case))


def _root(plugin: Plugin) -> str | None:
    """Return the folder from which the module of an installed plugin is imported."""
    if plugin.path is None:
        return None
    parents = Path(plugin.path).parents
    depth = plugin.module.count(".") + (Path(plugin.path).name == "__init__.py")
    return str(parents[depth])


def without_calls(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a certificate without what only the programs beside it are made of."""
    rules = []
    for rule in document["rules"]:
        found = rule["counterexample"]
        if found is not None:
            found = {key: value for key, value in found.items() if key not in FIELDS}
        rules.append({**rule, "counterexample": found})
    return {**document, "rules": rules}
