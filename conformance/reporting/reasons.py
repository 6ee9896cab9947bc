# SPDX-License-Identifier: Apache-2.0
"""Why rules are not judged: what many of them have in common is said once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from conformance.verdict import Verdict, must_wait

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@attrs.frozen
class Reason:
    """A reason that is nobody's failure, and the rules that are not judged for it."""

    says: str
    rules: tuple[str, ...]


def reasons(rules: Iterable[Mapping[str, Any]]) -> list[Reason]:
    """Return the reasons of a certificate's rules that are not verified, each of them once.

    Rules that wait for the same others have that reason, whatever else is said of those.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for rule in rules:
        if rule["verdict"] == Verdict.NOT_VERIFIED:
            waits = rule.get("waits_for")
            key = str(must_wait(waits)) if waits else (rule["message"] or "no reason was given")
            found.setdefault(key.strip(), []).append(rule)
    return [
        Reason(
            says if len(members) > 1 else (members[0]["message"] or says).strip(),
            tuple(rule["id"] for rule in members),
        )
        for says, members in found.items()
    ]


def shared(rules: Iterable[Mapping[str, Any]]) -> list[Reason]:
    """Return the reasons that several rules have."""
    return [reason for reason in reasons(rules) if len(reason.rules) > 1]
