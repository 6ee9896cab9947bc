# SPDX-License-Identifier: Apache-2.0
"""Which tests a run takes.

All of them are too long to wait for, so ``./run test`` takes a sample:

* what is marked ``smoke``: the shortest way through each of the main paths;
* of the galleries the cheapest killer of each rule, and every reference plugin once;
* of other tests what takes less than :data:`LONG` seconds, and what nobody has measured yet;
* one of :data:`PARTS` parts of the rest, which take about the same time, another one each day.  The
  date of the commit says which, so a commit always has the same tests.

``./run all`` runs them all and ``./run gallery`` the galleries alone; with ``--tests 2/5`` they run
the second of five parts.  Where tests are named, those run.

As a program this module keeps what each test took: ``tests/sampling.py JUNIT_XML``.
The parts are then others: run the tests once more before such a change lands.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import attrs
from support import ROOT, Specimen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest

COSTS = ROOT / "tests" / "seconds.json"
KILLS, PASSES = "::test_dies_by_its_own_rule[", "::test_passes_everything["
REFERENCES = f"{ROOT / 'reference_plugins'}/"
PARTS = 300
LONG = 1.2
SAMPLE, EVERYTHING = "sample", "all"

_DAY = 24 * 60 * 60
_KEPT = 1.0  #: seconds; which tests take less changes from run to run
_PART = re.compile(r"([1-9]\d*)/([1-9]\d*)")


@attrs.frozen
class Choice:
    """What ``--tests`` asks for."""

    said: str
    day: int = 0
    number: int = 1  #: the part, from 1 on
    parts: int = 1


def choice(said: str, day: int) -> Choice:
    """Read ``--tests``: ``sample``, ``all``, or a part as in ``2/5``.

    Raises:
        ValueError: it is none of them.
    """
    if said in (SAMPLE, EVERYTHING):
        return Choice(said, day)
    found = _PART.fullmatch(said)
    if found is None or int(found[1]) > int(found[2]):
        raise ValueError(f"--tests is 'sample', 'all' or a part such as 2/5, not {said!r}")
    return Choice(said, day, int(found[1]), int(found[2]))


def day_of_commit() -> int:
    """Return the day of the commit, counted from 1970 on."""
    asked = ["git", "log", "-1", "--format=%ct"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return int(done.stdout) // _DAY if done.returncode == 0 else 0


def specimen_of(item: pytest.Item) -> Specimen | None:
    """Return the plugin that a test is about, if it has it from a gallery."""
    callspec = getattr(item, "callspec", None)
    specimen = callspec.params.get("specimen") if callspec else None
    return specimen if isinstance(specimen, Specimen) else None


@cache
def shares(module: str) -> bool:
    """Tell whether tests of a module share a fixture, so that one worker must run them."""
    path = ROOT / module  # none where plugins are certified
    return path.is_file() and 'scope="module"' in path.read_text(encoding="utf-8")


def left_out(items: Sequence[pytest.Item], wanted: Choice) -> set[str]:
    """Return the ids of the tests that a run does not take."""
    if wanted.said == EVERYTHING:
        return set()
    costs: dict[str, float] = json.loads(COSTS.read_text(encoding="utf-8"))
    units = _units(items)
    seconds = {unit: sum(costs.get(item.nodeid, 0.0) for item in of) for unit, of in units.items()}
    if wanted.said == SAMPLE:
        always = _always(items, costs)
        taken = {
            unit
            for unit, of in units.items()
            if (seconds[unit] < LONG and not of[0].get_closest_marker("gallery"))
            or any(item.nodeid in always for item in of)
        }
        rest = {unit: seconds[unit] for unit in units if unit not in taken}
        taken |= _part(rest, wanted.day % PARTS, PARTS)
    else:
        taken = _part(seconds, wanted.number - 1, wanted.parts)
    return {item.nodeid for unit, of in units.items() if unit not in taken for item in of}


def _units(items: Iterable[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """Return the tests by what is taken as a whole: a test, or those that share a fixture."""
    units = defaultdict(list)
    for item in items:
        found = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
        shared = "+".join(sorted(name for name, of in found.items() if of[-1].scope == "module"))
        module = item.nodeid.partition("::")[0]
        units[f"{module}::{shared}" if shared else item.nodeid].append(item)
    return units


def _always(items: Iterable[pytest.Item], costs: dict[str, float]) -> set[str]:
    taken = {item.nodeid for item in items if item.get_closest_marker("smoke")}
    alike: defaultdict[object, list[str]] = defaultdict(list)
    for item in items:
        plugin = specimen_of(item)
        if plugin is not None and KILLS in item.nodeid:
            alike[plugin.rule].append(item.nodeid)
        elif plugin is not None and PASSES in item.nodeid and REFERENCES in plugin.target:
            alike[plugin.generation, plugin.target].append(item.nodeid)
    return taken | {min(ids, key=lambda nodeid: costs.get(nodeid, 0)) for ids in alike.values()}


def _part(seconds: dict[str, float], wanted: int, parts: int) -> set[str]:
    """Return one of several parts that take about the same time: the longest units go first."""
    shared: list[tuple[float, int, list[str]]] = [(0.0, n, []) for n in range(parts)]
    for unit in sorted(seconds, key=lambda unit: (-seconds[unit], unit)):
        total, number, mine = min(shared)
        shared[number] = (total + max(seconds[unit], 0.1), number, [*mine, unit])
    return set(shared[wanted][2])


def keep(report: Path) -> dict[str, float]:
    """Put the seconds of the tests in a report of pytest in place of those that are kept."""
    costs: dict[str, float] = (
        json.loads(COSTS.read_text(encoding="utf-8")) if COSTS.exists() else {}
    )
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - our own report
        nodeid = f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}"
        costs[nodeid] = round(float(case.attrib["time"]), 1)
    costs = {nodeid: seconds for nodeid, seconds in costs.items() if seconds >= _KEPT}
    COSTS.write_text(json.dumps(costs, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    return costs


if __name__ == "__main__":
    kept = keep(Path(sys.argv[1]))
    sys.stdout.write(
        f"{COSTS.relative_to(ROOT)}: {len(kept)} tests, {sum(kept.values()) / 60:.0f} min\n"
    )
