# SPDX-License-Identifier: Apache-2.0
"""The smallest history as a table, for terminals and pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return a table as data: the names of its columns, the first of which holds numbers."""
    return {"columns": list(columns), "rows": [list(row) for row in rows]}
