# SPDX-License-Identifier: Apache-2.0
"""What the second process of a trial finds out for the first one."""

from __future__ import annotations

from operator import attrgetter
from types import SimpleNamespace

from conformance.findings import Finding, failed, passed, unjudged
from conformance.logits.aside import answered


def _raises(_trial: object) -> Finding:
    raise RuntimeError("the plugin's")


def test_only_what_is_clean_is_handed_on() -> None:
    """What goes wrong is looked at where it can be told from what other rules show."""
    answers = {
        "pass": passed(3, 3),
        "fail": failed("no token is left", 3),
        "not-verified": unjudged("it never acted"),
    }
    questions = [attrgetter(key) for key in answers]

    clean = answered(SimpleNamespace(**answers), [*questions, _raises])

    assert clean == {questions[0]: answers["pass"]}
