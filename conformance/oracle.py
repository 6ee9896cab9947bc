# SPDX-License-Identifier: Apache-2.0
"""Asking the author's function of a profile what a plugin means."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

from conformance.plugin.expectation import Expected, OracleFailed
from conformance.watching.comparison import difference, plain, shortened
from conformance.watching.interruption import place_in
from conformance.watching.raised import said


def asked(
    expected: Expected,
    given: Callable[[], Iterable[Any]],
    *,
    read: Callable[[Any], Any] = plain,
    **more: object,
) -> Any:  # noqa: ANN401 - what it returns
    """Return what the author's function says, which is asked twice.

    Args:
        expected: the function.
        given: makes the arguments, anew each time: a function may change them.
        read: turns what it returned into data that can be compared.
        more: keywords, of which it gets those that it takes.

    Raises:
        OracleFailed: it raised, or said something else when it was asked again.

    """
    function = expected.load()
    takes = inspect.signature(function).parameters.values()
    if all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in takes):
        more = {each.name: more[each.name] for each in takes if each.name in more}
    told = []
    for _ in range(2):
        try:
            told.append(read(function(*given(), **copy.deepcopy(more))))
        except Exception as error:
            raise failure(expected, error) from error
    if difference(*told):
        raise OracleFailed(
            f"{expected} of the profile returned {shortened(told[0])}, "
            f"and {shortened(told[1])} when it was asked again"
        )
    return told[0]


def failure(expected: Expected, error: Exception) -> OracleFailed:
    """Return what is to be said of an exception that the author's function raised."""
    place = place_in(error, sys.modules[expected.module].__file__)
    where = f", at {place}" if place else ""
    return OracleFailed(f"{expected} of the profile raised {said(error)}{where}")
