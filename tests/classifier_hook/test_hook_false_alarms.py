# SPDX-License-Identifier: Apache-2.0
"""Correct hooks pass everything: ours, and unusual ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from specimens import hook_references
from support import GOOD, UNUSUAL_HOOK, Specimen, certify, gallery

from fixtures.classifier_service.service import ClassifierService

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote


#: A hook whose service is named, as an operator would name it.  It has a connection for each call:
#: httpcore 1.0.9 loses those for which calls were queued that are cancelled together.
REMOTE = """\
from reference_plugins.classifier_hook.hooks.remote import RemoteClassifier


class Remote(RemoteClassifier):
    def __init__(self):
        super().__init__({url!r}, blocking=True, timeout_ms=5000, connections=128)
"""


def _passes(zygote: Zygote, specimen: Specimen, folder: Path) -> None:
    results = certify(zygote, specimen, folder)

    broken = {
        rule: (found.verdict.value, found.message)
        for rule, found in results.items()
        if found.verdict not in GOOD
    }
    assert set(broken) == set(specimen.advice), broken
    assert results["CH-30"].acted
    assert results["CH-31"].acted
    assert results["CH-35"].acted


@pytest.mark.parametrize(
    "specimen",
    [*hook_references(), *gallery(UNUSUAL_HOOK)],
    ids=lambda specimen: specimen.label,
)
def test_passes_everything(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A correct hook passes every rule that applies to it."""
    _passes(zygote, specimen, tmp_path)


@pytest.mark.slow
def test_a_hook_with_a_service_passes_everything(zygote: Zygote, tmp_path: Path) -> None:
    """Calls that are cancelled, and calls of thousands, go to a service over real connections."""
    profile = {"allowed": ["The weather is fine today."], "blocked": ["A forbidden word."]}
    with ClassifierService() as service:
        path = tmp_path / "remote.py"
        path.write_text(REMOTE.format(url=service.url), encoding="utf-8")
        _passes(zygote, Specimen(f"{path}:Remote", None, profile, generation="hook/rfc"), tmp_path)

        assert {document["text"] for document in service.received} >= {"A forbidden word."}
