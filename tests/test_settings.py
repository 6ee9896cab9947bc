# SPDX-License-Identifier: Apache-2.0
"""The options that pytest and the command line share."""

from __future__ import annotations

import pytest

from conformance.rules import Evidence
from conformance.settings import UsageError, parse_evidence

SIMULATOR, OFFLINE, SERVER = Evidence
KINDS = "it takes any of simulator, offline, server, or all"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("simulator", (SIMULATOR,)),
        ("offline,simulator", (SIMULATOR, OFFLINE)),
        (" server , simulator ", (SIMULATOR, SERVER)),
        ("server,server", (SERVER,)),
        ("all", (SIMULATOR, OFFLINE, SERVER)),
        ("offline,all", (SIMULATOR, OFFLINE, SERVER)),
    ],
)
def test_evidence_is_read_cheapest_first(text: str, expected: tuple[Evidence, ...]) -> None:
    """Kinds of evidence are sorted by their cost, whatever their order on the command line."""
    assert parse_evidence(text) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("simulatr", f"--evidence 'simulatr' is unknown: {KINDS}. Did you mean 'simulator'?"),
        ("x;server", f"--evidence 'x;server' is unknown: {KINDS}. Did you mean 'server'?"),
        ("xyz", f"--evidence 'xyz' is unknown: {KINDS}."),
        (" , ", "--evidence is empty: give any of simulator, offline, server (comma separated)"),
    ],
)
def test_unknown_evidence_is_refused(text: str, sentence: str) -> None:
    """A misspelt kind of evidence is named, with the nearest right one."""
    with pytest.raises(UsageError) as caught:
        parse_evidence(text)

    assert sentence in str(caught.value)
