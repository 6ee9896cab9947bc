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


#: Columns of numbers, and those of sentences, which have the room that is left.
_NUMBERS = frozenset({"acted/run", "tested", "time"})
_SENTENCES = frozenset({"title", "about"})


def open_table(*columns: str) -> Table:
    """Return a table without lines that has these columns; more can be added."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        if name in _SENTENCES:
            table.add_column(name, overflow="fold", ratio=1)
        else:
            table.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=True)
    return table
