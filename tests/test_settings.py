# SPDX-License-Identifier: Apache-2.0
"""The options that pytest and the command line share."""

from __future__ import annotations

import pytest

from conformance.rules import Evidence
from conformance.settings import UsageError, parse_evidence, parse_headers

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


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("Authorization: Bearer key", ("Authorization", "Bearer key")),
        ("x-team:a", ("X-Team", "a")),
        (" AUTHORIZATION:  Basic dTpw ", ("Authorization", "Basic dTpw")),
    ],
)
def test_headers_are_read_as_curl_takes_them(text: str, header: tuple[str, str]) -> None:
    """A name, a colon and a value."""
    assert parse_headers([text]) == (header,)


@pytest.mark.parametrize(
    "text", ["secret", "Authorization", ": secret", "A B: secret", "A: s\nB: t"]
)
def test_what_is_no_header_is_refused_and_not_repeated(text: str) -> None:
    """It may be a key that was put in the wrong place."""
    with pytest.raises(UsageError) as caught:
        parse_headers([text])

    assert "secret" not in str(caught.value)
    assert "NAME: VALUE" in str(caught.value)
