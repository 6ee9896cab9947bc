# SPDX-License-Identifier: Apache-2.0
"""The certificates of published plugins that are kept here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import published
import pytest

from conformance.engine.environment import cache_directory
from conformance.reporting import certificate, verification
from docs.registry import PUBLISHED, entries

if TYPE_CHECKING:
    from pathlib import Path

CERTIFICATES = certificate.under(PUBLISHED)


def test_the_table_is_drawn_from_the_certificates() -> None:
    """Nobody edits it: ``python tests/published.py --draw`` draws it again."""
    assert (PUBLISHED / "README.md").read_text(encoding="utf-8") == published.table()


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: f"{entry['target']}-{entry['vllm']}")
def test_each_entry_has_a_certificate(entry: dict[str, str]) -> None:
    """It says of which version it is, and what was asked of which vLLM."""
    document = certificate.read(published.folder(entry) / certificate.FILE_NAME)

    assert document["plugin"]["target"] == entry["target"]
    if "repository" in entry:
        assert re.fullmatch(r"[0-9a-f]{40}|v[\d.]+", entry["commit"])
    else:
        assert document["plugin"]["version"] == entry["requirement"].partition("==")[2]
    assert document["environment"]["vllm"] in (entry["vllm"], None)
    assert document["verdict"] in ("conformant", "non-conformant")


def test_no_certificate_is_left_of_a_plugin_that_is_not_listed() -> None:
    """What is kept is what the list makes, and no two entries have one folder."""
    folders = [published.folder(entry) for entry in entries()]

    assert sorted(folders) == sorted(path.parent for path, _ in CERTIFICATES)


@pytest.mark.parametrize("found", CERTIFICATES, ids=lambda found: found[0].parent.name)
def test_each_certificate_verifies(found: tuple[Path, dict[str, Any]]) -> None:
    """Its verdict is what its rules say, and nothing of this machine is in it."""
    path, document = found

    assert not verification.wrong(verification.of_document(document))
    assert str(PUBLISHED.parents[1]) not in path.read_text(encoding="utf-8")
    for case in path.parent.glob("cases/*"):
        text = case.read_text(encoding="utf-8")
        assert str(PUBLISHED.parents[1]) not in text
        assert str(cache_directory()) not in text
