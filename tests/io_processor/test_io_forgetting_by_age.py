# SPDX-License-Identifier: Apache-2.0
"""What is forgotten after a time has an end; what is never forgotten has none."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING

import pytest
from lines_plugin import DATA_SOURCE, specimen_of
from support import certify

from conformance.settings import Budget
from conformance.verdict import Verdict
from conformance.watching.later import ahead

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

IMPORTS = "import time\nfrom datetime import datetime, timedelta\nfrom time import monotonic\n"
INIT, PRE = "        self.names = {}\n", "        return list(prompt)\n"
POST = '        return {"firsts"'

POPS = "        self.names.pop(request_id, None)\n"

#: A clock, the greatest age by it, and in which words it is told.
CLOCKS = {
    "monotonic": ("time.monotonic()", "3000", "an hour"),
    "copied": ("monotonic()", "30", "a minute"),
    "held": ("self.clock()", "50000", "a day"),
    "nanoseconds": ("time.time_ns()", "3000 * 10**9", "an hour"),
    "dates": ("datetime.now()", "timedelta(minutes=50)", "an hour"),
}


def _sweeping(clock: str, age: str) -> str:
    return f"""        now = {clock}
        while self.names and now - next(iter(self.names.values())) > {age}:
            del self.names[next(iter(self.names))]
        self.names[request_id] = now
"""


@pytest.mark.parametrize("name", CLOCKS)
def test_what_is_forgotten_after_a_time_is_advice(
    zygote: Zygote, tmp_path: Path, name: str
) -> None:
    """What failed requests leave is bounded by the requests of a time, by whatever clock."""
    clock, age, words = CLOCKS[name]
    pre = _sweeping(clock, age)
    results = _certified(zygote, tmp_path, {"IO-36", "IO-44"}, pre=pre, post=POPS)

    assert results["IO-36"].verdict is Verdict.PASS, results["IO-36"].message
    assert results["IO-44"].verdict is Verdict.FAIL, results["IO-44"].message
    assert f"they are forgotten within {words}, and not before" in str(results["IO-44"].message)


def test_what_answered_requests_leave_for_a_time_is_advice(zygote: Zygote, tmp_path: Path) -> None:
    """What is kept of answered requests until it is old is bounded, too."""
    pre = _sweeping("time.monotonic()", "3000")
    results = _certified(zygote, tmp_path, {"IO-35", "IO-44"}, pre=pre)

    assert results["IO-35"].verdict is Verdict.PASS, results["IO-35"].message
    assert results["IO-44"].verdict is Verdict.FAIL, results["IO-44"].message


@pytest.mark.parametrize(
    "pre",
    [
        "        self.names[request_id] = time.monotonic()\n",
        "        self.names[request_id] = 1\n",
        _sweeping("time.monotonic()", "3000") + "        self.seen.append((request_id, now))\n",
    ],
    ids=["stamped", "unstamped", "beside-what-is-swept"],
)
def test_what_is_never_forgotten_fails(zygote: Zygote, tmp_path: Path, pre: str) -> None:
    """A time that is kept and never looked at bounds nothing."""
    results = _certified(zygote, tmp_path, {"IO-36", "IO-44"}, pre=pre, post=POPS)

    assert results["IO-36"].verdict is Verdict.FAIL, results["IO-36"].message
    assert results["IO-44"].waits_for == ("IO-36",)


def _certified(
    zygote: Zygote, folder: Path, rules: set[str], *, pre: str, post: str = ""
) -> Mapping[str, RuleResult]:
    """Judge a correct plugin with something more in two of its hooks."""
    source = DATA_SOURCE.replace("import time\n", IMPORTS)
    source = source.replace(INIT, f"{INIT}        self.seen, self.clock = [], time.time\n")
    source = source.replace(PRE, pre + PRE).replace(POST, post + POST)
    plugin = folder / "lines.py"
    plugin.write_text(source, encoding="utf-8")
    specimen = specimen_of(plugin, "IO-36")
    return certify(zygote, specimen, folder, rules=rules, budget=Budget.QUICK)


def test_the_clock_is_back_in_its_place() -> None:
    """After the block every clock is what it was, and in it the standard library's is."""
    before = time.time, time.monotonic, dt.datetime
    with ahead(object()) as clock:
        clock.seconds = 3600
        assert time.time() - before[0]() == pytest.approx(3600, abs=60)
        assert isinstance(dt.datetime.now(dt.UTC), before[2])
        assert isinstance(before[2].now(dt.UTC), dt.datetime)
    assert (time.time, time.monotonic, dt.datetime) == before
    assert clock.asked
