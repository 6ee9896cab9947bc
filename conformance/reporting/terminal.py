# SPDX-License-Identifier: Apache-2.0
"""How a terminal shows verdicts, and what is listed under one another."""

from collections.abc import Mapping

from rich.table import Table

from conformance.verdict import Conclusion, Verdict

#: The styles of verdicts on rules, and on plugins and hosts.
STYLES: Mapping[Verdict, str] = {
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.NOT_APPLICABLE: "dim",
    Verdict.NOT_VERIFIED: "yellow",
    Verdict.ERROR: "bold magenta",
}
CONCLUSIONS: Mapping[Conclusion, str] = {
    Conclusion.CONFORMANT: "bold green",
    Conclusion.NON_CONFORMANT: "bold red",
    Conclusion.INCOMPLETE: "bold yellow",
    Conclusion.ERROR: "bold magenta",
}


def open_table() -> Table:
    """Return a table without lines, whose columns are still to be added."""
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
