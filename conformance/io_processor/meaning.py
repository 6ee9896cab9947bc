# SPDX-License-Identifier: Apache-2.0
"""What the author says that requests are answered: ``expected(data, outputs) -> answer``.

``outputs`` are vLLM's, in the order of the prompts that the plugin made of the data.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from conformance.counterexample.source import decoded, encoded
from conformance.findings import Finding
from conformance.io_processor.bench import Bench
from conformance.oracle import asked
from conformance.plugin.expectation import Expected
from conformance.settings import UsageError
from conformance.watching.comparison import RELATIVE, difference, plain, shortened

#: The key of the profile's ``tolerance``.
RTOL = "rtol"

#: The key of a saved case with the answers that it must get.
TOLD = "told"

#: Why the rule does not apply.
SILENT = "the profile has no `expected`"


@attrs.frozen
class Meaning:
    """The function of a profile, and how near to it numbers must be."""

    expected: Expected | None
    rtol: float = RELATIVE
    told: tuple[tuple[Any, Any], ...] = ()  #: data and answers of a saved case, in its place

    @classmethod
    def of(cls, section: Mapping[str, Any], origin: str | None = None) -> Meaning | None:
        """Return what a section of a profile says, or None.

        Raises:
            UsageError: there is no such function, or ``tolerance`` is not one.

        """
        tolerance = section.get("tolerance", {})
        rtol = tolerance.get(RTOL, RELATIVE)
        number = isinstance(rtol, int | float) and not isinstance(rtol, bool) and rtol >= 0
        if tolerance.keys() - {RTOL} or not number:
            raise UsageError(
                f"profile {origin}: [io-processor] tolerance must be such as {{ rtol = 0.01 }}, "
                f"not {tolerance!r}."
            )
        told = tuple((decoded(data), decoded(answer)) for data, answer in section.get(TOLD, ()))
        expected = section.get("expected")
        if isinstance(expected, Expected):
            expected.load()
        elif tolerance and not told:
            raise UsageError("tolerance is for answers of `expected`, which the profile lacks.")
        elif not told:
            return None
        return cls(expected if isinstance(expected, Expected) else None, float(rtol), told)

    def document(self) -> dict[str, Any]:
        """Return what a certificate says of it."""
        return {"expected": self.expected and str(self.expected), "tolerance": {RTOL: self.rtol}}

    def answer(self, data: object, outputs: Sequence[Any]) -> Any:  # noqa: ANN401 - JSON values
        """Return what a request is to be answered when its prompts have these outputs.

        Raises:
            OracleFailed: the function raised, or said something else when it was asked again.

        """
        if self.expected is None:
            return next(answer for known, answer in self.told if known == data)
        return asked(self.expected, lambda: copy.deepcopy((data, list(outputs))))

    def wrong(self, bench: Bench, got: object, wanted: object) -> str | None:
        """Say in what an answer is another one than is wanted, or return None."""
        hidden = bench.hidden | bench.named()
        if what := difference(plain(got), wanted, hidden, self.rtol):
            return f"{what}; in all {shortened(plain(got))}, expected {shortened(wanted)}"
        return None


def shown(finding: Finding) -> dict[str, Any]:
    """Return what a program is to expect, and what a case must hold to be judged again."""
    case = finding.case or {}
    return {"data": encoded(case["data"]), "wanted": encoded(case["wanted"]), RTOL: case[RTOL]}
