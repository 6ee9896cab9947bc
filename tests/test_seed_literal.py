# SPDX-License-Identifier: Apache-2.0
"""Plugins that are written to the letter of the documents they come from are conformant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import GOOD, ROOT, Specimen, certify

from conformance.generations import named
from conformance.rules import Evidence, Level
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

FOLDER = ROOT.parent / "shared" / "seed_literal"

HOOKS = (
    "subclassed.py:Limited",
    "decorated.py:Traced",
    "rfc_lists.py:EosHook",
    "rfc_literal.py:AuditHook",
)
ARTICLE = "article_plugin.py:PointCloudPlugin"


pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"needs {FOLDER}, which lies beside the checkout"
)


def _refused(
    zygote: Zygote, file: str, generation: str, evidence: Evidence, folder: Path
) -> dict[str, str | None]:
    """Return what a plugin is refused for: the MUSTs that do not hold, with their messages."""
    specimen = Specimen(f"{FOLDER / file}", None, {}, generation=generation)
    results = certify(zygote, specimen, folder, evidence=(evidence,))
    levels = {rule.id: rule.level for rule in named(generation).rules}
    assert results
    return {
        rule: f"{result.verdict}: {result.message}"
        for rule, result in results.items()
        if result.verdict not in GOOD
        and (levels[rule] is Level.MUST or result.verdict is Verdict.ERROR)
    }


@pytest.mark.parametrize("file", HOOKS)
def test_a_hook_to_the_letter_is_conformant(zygote: Zygote, file: str, tmp_path: Path) -> None:
    """What the document calls a dict is a dict, its list is a list, and an awaitable will do."""
    assert not _refused(zygote, file, "hook/rfc", Evidence.SIMULATOR, tmp_path)


def test_the_article_to_the_letter_is_conformant(zygote: Zygote, tmp_path: Path) -> None:
    """The methods that the article names are enough."""
    assert not _refused(zygote, ARTICLE, "mm/modality", Evidence.SIMULATOR, tmp_path)


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize("file", HOOKS)
def test_a_hook_to_the_letter_is_conformant_live(zygote: Zygote, file: str, tmp_path: Path) -> None:
    """A server that asks the hook shows nothing else."""
    assert not _refused(zygote, file, "hook/rfc", Evidence.SERVER, tmp_path)


@pytest.mark.engine
@pytest.mark.slow
def test_the_article_to_the_letter_is_conformant_live(zygote: Zygote, tmp_path: Path) -> None:
    """An engine that serves the plugin through the bridge shows nothing else."""
    assert not _refused(zygote, ARTICLE, "mm/modality", Evidence.OFFLINE, tmp_path)
