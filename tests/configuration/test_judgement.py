# SPDX-License-Identifier: Apache-2.0
"""The oracle of configurations, with answers that no engine gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from conformance.configuration.asked import Answers, Ask, Workload
from conformance.configuration.judgement import Controls, judge
from conformance.configuration.table import named
from conformance.logits.ways import Reply
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.configuration.judgement import Row

GREEDY = {"temperature": 0.0, "max_tokens": 2}
WORKLOAD = Workload(asks=(Ask("on[0]", (1, 2), GREEDY), Ask("off[0]", (3, 4), GREEDY)))
PLAIN = Answers(replies={0: Reply((5, 6), 2), 1: Reply((7, 8), 2)}, started=True)
WITHOUT = attrs.evolve(PLAIN, replies={0: Reply((9, 9), 2), 1: Reply((7, 8), 2)})
SAME = Answers(passes=({0: (5, 6), 1: (7, 8)},), started=True)
BARE = Answers(passes=({0: (9, 9), 1: (7, 8)},), started=True)
REFUSED = Answers(problem="ValueError: two ranks are not supported")


def _judged(answers: Answers, *, bare: Answers = BARE, idle: Answers = BARE) -> Row:
    controls = Controls(bare=lambda: bare, idle=lambda: idle)
    return judge(named("tensor-parallel-2"), WORKLOAD, (PLAIN, WITHOUT), answers, controls)


def test_the_same_tokens_pass() -> None:
    """Requests of both kinds have the tokens of the plain engine, and the plugin acted on one."""
    row = _judged(SAME)

    assert (row.verdict, row.requests, row.acted) == (Verdict.PASS, 2, 1)


@pytest.mark.parametrize("tokens", [{0: (5, 5), 1: (7, 8)}, {0: (5, 6), 1: (7, 7)}])
def test_other_tokens_fail(tokens: dict[int, tuple[int, ...]]) -> None:
    """One token that is another one is enough, of those that opt out, too."""
    assert _judged(attrs.evolve(SAME, passes=(tokens,))).verdict is Verdict.FAIL


def test_the_second_time_counts() -> None:
    """A prompt that is sent again has the same tokens again."""
    row = _judged(attrs.evolve(SAME, passes=(*SAME.passes, {0: (5, 5), 1: (7, 8)})))

    assert row.verdict is Verdict.FAIL


def test_tokens_in_doubt_are_not_compared() -> None:
    """Where rounding decides, a configuration may decide otherwise."""
    plain = attrs.evolve(PLAIN, replies={**PLAIN.replies, 0: Reply((5, 6), 1)})
    answers = attrs.evolve(SAME, passes=({0: (5, 5), 1: (7, 8)},))
    controls = Controls(bare=lambda: BARE, idle=lambda: BARE)

    row = judge(named("preemption"), WORKLOAD, (plain, WITHOUT), answers, controls)

    assert row.verdict is Verdict.PASS


def test_a_release_that_is_not_equal_blames_nobody() -> None:
    """An engine without the plugin that has other tokens, too, takes the blame."""
    answers = attrs.evolve(SAME, passes=({0: (5, 5), 1: (7, 7)},))
    bare = attrs.evolve(BARE, passes=({0: (9, 9), 1: (7, 7)},))

    assert _judged(answers, bare=bare).verdict is Verdict.NOT_APPLICABLE


def test_a_configuration_that_is_not_to_be_had_is_not_applicable() -> None:
    """What a platform switches off shows nothing."""
    assert _judged(Answers(absent="no ray")).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("bare", "idle", "verdict"),
    [
        (BARE, BARE, Verdict.FAIL),
        (REFUSED, REFUSED, Verdict.NOT_APPLICABLE),
        (BARE, REFUSED, Verdict.NOT_APPLICABLE),
    ],
)
def test_whoever_does_not_start_is_blamed(bare: Answers, idle: Answers, verdict: Verdict) -> None:
    """Without the plugin, and with one that does nothing, the engine has to start."""
    assert _judged(REFUSED, bare=bare, idle=idle).verdict is verdict


def test_a_declared_configuration_has_to_be_refused() -> None:
    """What a profile says is not supported must not start, and is a pass where it does not."""
    workload = attrs.evolve(WORKLOAD, unsupported=("tensor-parallel-2",))
    controls = Controls(bare=lambda: BARE, idle=lambda: BARE)
    configuration = named("tensor-parallel-2")

    started = judge(configuration, workload, (PLAIN, WITHOUT), SAME, controls)
    refused = judge(configuration, workload, (PLAIN, WITHOUT), REFUSED, controls)

    assert (started.verdict, refused.verdict) == (Verdict.FAIL, Verdict.PASS)


def test_a_plugin_that_does_nothing_is_not_verified() -> None:
    """Tokens that would be the same without the plugin show nothing of it."""
    controls = Controls(bare=lambda: BARE, idle=lambda: BARE)

    row = judge(named("preemption"), WORKLOAD, (PLAIN, PLAIN), SAME, controls)

    assert row.verdict is Verdict.NOT_VERIFIED
