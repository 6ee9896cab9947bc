# SPDX-License-Identifier: Apache-2.0
"""The report directory: one folder for each plugin, with its certificate and its drawings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from conformance.reporting import badge, certificate, summary

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from conformance.target import Plugin


def write(document: Mapping[str, Any], plugin: Plugin, folder: Path) -> Path:
    """Write the certificate of a plugin and everything drawn from it; return its path.

    Cases of earlier runs are removed: what lies in the folder belongs to one certificate.
    """
    path = certificate.write(document, folder)
    badge.write(document, folder)
    certificate.write_whole(folder / "summary.md", summary.markdown(document))
    cases = folder / "cases"
    for old in cases.glob("*.json"):
        old.unlink()
    for rule in document["rules"]:
        if rule["counterexample"]:
            case = {
                "schema": 1,
                "rule": rule["id"],
                "target": plugin.target,
                "generation": plugin.generation,
                "counterexample": rule["counterexample"],
            }
            text = json.dumps(case, indent=2, ensure_ascii=False) + "\n"
            certificate.write_whole(cases / f"{rule['id']}.json", text)
    return path
