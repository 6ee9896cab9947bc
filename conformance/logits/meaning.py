# SPDX-License-Identifier: Apache-2.0
"""What the author says a logits processor does to the row of one request.

The function is a request-level one: ``expected(params, prompt, output, logits) -> logits``.  Those
that vLLM's ``AdapterLogitsProcessor`` wraps will do as well, so an old processor says what the
one that takes its place must do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs
import torch
from vllm.sampling_params import SamplingParams

from conformance.counterexample.source import encoded
from conformance.inputs.history import Request
from conformance.ledger import Ledger
from conformance.logits.played import Kind, Trouble
from conformance.logits.rows import TOLERANCE
from conformance.oracle import failure
from conformance.plugin.expectation import Expected, OracleFailed
from conformance.settings import UsageError

#: Keys of the profile's ``tolerance``.
RTOL, TOP_K = "rtol", "top_k"

#: How many of ``(params, prompt, output, logits)`` a function may take; the last ones, if fewer.
_FEWEST, _MOST = 2, 4

#: Tokens that a failure shows.
MOST_SHOWN = 4


@attrs.frozen
class Meaning:
    """The function of a profile, and how near to it a row must be."""

    expected: Expected
    rtol: float = TOLERANCE
    top_k: int | None = None  #: how many of the likeliest tokens count; None for all

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> Meaning | None:
        """Return what a section of a profile says, or None.

        Raises:
            UsageError: there is no such function, or ``tolerance`` is not one.

        """
        tolerance = section.get("tolerance", {})
        expected = section.get("expected")
        if not isinstance(expected, Expected):
            if tolerance:
                raise UsageError("tolerance is for rows of `expected`, which the profile lacks.")
            return None
        _check_tolerance(tolerance, f"profile {expected.origin}: tolerance")
        _check_arguments(expected)
        return cls(expected, float(tolerance.get(RTOL, TOLERANCE)), tolerance.get(TOP_K))

    def document(self) -> dict[str, Any]:
        """Return what a certificate says of it."""
        return {"function": str(self.expected), RTOL: self.rtol, TOP_K: self.top_k}

    def row(
        self,
        params: SamplingParams,
        prompt: Sequence[int],
        outputs: Sequence[int],
        logits: torch.Tensor,
    ) -> torch.Tensor:
        """Return the row ``[vocabulary]`` that a request is to get for logits of that shape.

        Raises:
            OracleFailed: the function raised, or returned no such tensor.

        """
        try:
            row = self._asked(params, list(prompt), list(outputs), logits.clone())
        except Exception as error:
            raise failure(self.expected, error) from error
        if not isinstance(row, torch.Tensor) or row.shape != logits.shape:
            got = list(row.shape) if isinstance(row, torch.Tensor) else type(row).__name__
            raise OracleFailed(
                f"{self.expected} of the profile returned {got}, and not a row of logits "
                f"{list(logits.shape)}"
            )
        return row.to(logits.dtype)

    def _asked(self, *arguments: Any) -> object:  # noqa: ANN401 - what the author's function takes and returns
        """Call the function with ``(params, prompt, output, logits)``, or the last of them."""
        function = self.expected.load()
        if not inspect.isclass(function):
            return function(*arguments[-self._takes :])
        params, *_, logits = arguments
        if not params.extra_args:
            return logits  # nobody has asked for it
        made: Callable[..., Any] = function(**params.extra_args)  # type: ignore[assignment] # has __call__
        return made(*arguments[-_count(made) :])

    @cached_property
    def _takes(self) -> int:
        """How many arguments the function takes: asking for its signature takes as long as it."""
        return _count(self.expected.load())

    def agrees(self, got: torch.Tensor, expected: torch.Tensor) -> bool:
        """Tell whether a row ``[vocabulary]`` is near enough to what is expected."""
        if torch.equal(got, expected):  # most are, and nothing tells it sooner
            return True
        if self.top_k is None:
            near = torch.isclose(got, expected, rtol=self.rtol, atol=self.rtol, equal_nan=True)
            return bool(near.all())
        # Tokens with equal logits may stand in any order.
        best = expected.topk(min(self.top_k, len(expected))).values
        mine = got.topk(len(best))
        return bool(torch.allclose(expected[mine.indices], best, rtol=self.rtol, atol=self.rtol))

    def trouble(
        self,
        params: SamplingParams,
        request: Request,
        outputs: Sequence[int],
        before: torch.Tensor,
        after: torch.Tensor,
    ) -> Trouble | None:
        """Return what is wrong with a row ``[vocabulary]``; the caller says in which step."""
        try:
            tokens = self.differing(params, request.prompt, outputs, before, after)
        except OracleFailed as error:
            return Trouble(Kind.ORACLE, 0, str(error), request.name)
        if not tokens:
            return None
        said = f"the row is not what {self.expected} of the profile returns"
        return Trouble(Kind.MEANING, 0, said, request.name, tokens=tokens)

    def note(
        self,
        ledger: Ledger,
        rule: str,
        params: SamplingParams,
        prompt: Sequence[int],
        outputs: Sequence[int],
        *,
        before: torch.Tensor,
        after: torch.Tensor,
    ) -> None:
        """Note in a ledger whether a row of an engine is what the function returns."""
        try:
            tokens = self.differing(params, prompt, outputs, before, after)
        except OracleFailed as error:
            ledger.remarks[rule] = str(error)
            return
        if tokens:
            token, got, wanted = tokens[0]
            ledger.advise(
                rule,
                f"a row is not what {self.expected} of the profile returns after {len(outputs)} "
                f"outputs: token {token} is {got:.5g}, expected {wanted:.5g}",
            )
        ledger.saw(rule)

    def shown(self, trouble: Trouble) -> dict[str, Any]:
        """Return what a program is to expect of the row that a trouble is about."""
        return {
            "is": "means",
            "request": trouble.request,
            "function": str(self.expected),
            "rtol": self.rtol,
            "tokens": [[token, encoded(wanted)] for token, _, wanted in trouble.tokens],
        }

    def differing(
        self,
        params: SamplingParams,
        prompt: Sequence[int],
        outputs: Sequence[int],
        before: torch.Tensor,
        after: torch.Tensor,
    ) -> tuple[tuple[int, float, float], ...]:
        """Return tokens in which a row is not as expected: (token, got, expected), or none.

        Those come first that the plugin or the function leaves alone, and not both.

        Raises:
            OracleFailed: the function did not say what the row must be.

        """
        expected = self.row(params, prompt, outputs, before)
        if self.agrees(after, expected):
            return ()
        close = torch.isclose(after, expected, rtol=self.rtol, atol=self.rtol, equal_nan=True)
        if self.top_k is not None:
            best = {*after.topk(self.top_k).indices.tolist()}
            close[[t for t in range(len(close)) if t not in best]] = True
        where = (~close).nonzero().flatten().tolist()
        once = [t for t in where if (after[t] == before[t]) != (expected[t] == before[t])]
        chosen = sorted((once or where)[:MOST_SHOWN])
        return tuple((token, after[token].item(), expected[token].item()) for token in chosen)


def _check_tolerance(tolerance: Mapping[str, Any], where: str) -> None:
    """Refuse a tolerance that means nothing."""
    if unknown := tolerance.keys() - {RTOL, TOP_K}:
        raise UsageError(f"{where} has no {min(unknown)!r}; it takes {RTOL} and {TOP_K}.")
    rtol, top_k = tolerance.get(RTOL, TOLERANCE), tolerance.get(TOP_K, 1)
    if isinstance(rtol, bool) or not isinstance(rtol, int | float) or not rtol >= 0:
        raise UsageError(f"{where}.{RTOL} must be a number from 0 on, not {rtol!r}.")
    if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
        raise UsageError(f"{where}.{TOP_K} must be a whole number from 1 on, not {top_k!r}.")


def _check_arguments(expected: Expected) -> None:
    """Refuse a function that takes something else."""
    function = expected.load()
    if inspect.isclass(function):
        return
    if not _FEWEST <= _count(function) <= _MOST:
        raise UsageError(
            f"profile {expected.origin}: {expected} must take (params, prompt, output, logits), "
            f"as a request-level logits processor does, not {inspect.signature(function)}."
        )


def _count(function: Callable[..., Any]) -> int:
    """Return how many arguments a function takes; all, where it takes any number."""
    kinds = [each.kind for each in inspect.signature(function).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return _MOST
    return len(kinds)
