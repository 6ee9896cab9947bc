# SPDX-License-Identifier: Apache-2.0
"""From a failure to a counterexample that stands by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.logits.findings import Finding
    from conformance.logits.trial import Trial


def shown(trial: Trial, rule: str, finding: Finding, case: dict[str, Any] | None) -> Any:  # noqa: ANN401
    """Return the counterexample of a failure."""
    del trial, rule, finding
    return case
