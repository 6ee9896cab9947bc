# SPDX-License-Identifier: Apache-2.0
"""A run without arguments takes what is short, what must not be missing, and some of the rest."""

from __future__ import annotations

import json
import subprocess
import sys
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import sampling
from specimens import references
from support import DEFECTIVE, ROOT, UNUSUAL, gallery

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from support import Specimen

KILLERS, CORRECT = gallery(DEFECTIVE), [*references(), *gallery(UNUSUAL)]


def _item(
    nodeid: str,
    *,
    specimen: Specimen | None = None,
    smoke: bool = False,
    fixtures: Mapping[str, str] = MappingProxyType({}),
) -> pytest.Item:
    item = SimpleNamespace(nodeid=nodeid, callspec=SimpleNamespace(params={"specimen": specimen}))
    known = {name: [SimpleNamespace(scope=scope)] for name, scope in fixtures.items()}
    item._fixtureinfo = SimpleNamespace(name2fixturedefs=known)
    marks = {"smoke": smoke, "gallery": specimen is not None}
    item.get_closest_marker = lambda name: marks[name] or None
    return cast("pytest.Item", item)


def _kill(specimen: Specimen) -> pytest.Item:
    nodeid = f"tests/test_it.py{sampling.KILLS}{specimen.name}]"
    return _item(nodeid, specimen=specimen)


def _correct(specimen: Specimen) -> pytest.Item:
    nodeid = f"tests/test_it.py{sampling.PASSES}{specimen.label}{specimen.name}]"
    return _item(nodeid, specimen=specimen)


ITEMS = [
    *map(_kill, KILLERS),
    *map(_correct, CORRECT),
    *(_item(f"tests/test_it.py::test_short[{number}]") for number in range(9)),
    *(_item(f"tests/test_it.py::test_long[{number}]") for number in range(99)),
]


@pytest.fixture(autouse=True)
def costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The seconds of tests; those that are called short have none."""
    path = tmp_path / "seconds.json"
    long = {item.nodeid: 9.0 for item in ITEMS if "short" not in item.nodeid}
    path.write_text(json.dumps(long))
    monkeypatch.setattr(sampling, "COSTS", path)
    return path


def _taken(said: str, day: int = 0, items: Iterable[pytest.Item] = ITEMS) -> set[str]:
    items = list(items)
    return {item.nodeid for item in items} - sampling.left_out(items, sampling.choice(said, day))


def test_a_sample_has_every_rule_and_every_reference() -> None:
    """What is left out is a second killer of a rule, an unusual plugin, or long."""
    taken = _taken("sample")

    killers = [specimen for specimen in KILLERS if _kill(specimen).nodeid in taken]
    assert {specimen.rule for specimen in killers} == {specimen.rule for specimen in KILLERS}
    correct = {specimen.target for specimen in references() if _correct(specimen).nodeid in taken}
    assert correct == {specimen.target for specimen in references()}
    assert sum("short" in nodeid for nodeid in taken) == 9
    assert sum("long" in nodeid for nodeid in taken) < 9
    assert len(taken) < 0.6 * len(ITEMS)


def test_every_test_has_its_day() -> None:
    """Each is taken in one day of some; the same day takes the same."""
    days = [_taken("sample", day) for day in range(sampling.PARTS)]

    assert set.union(*days) == {item.nodeid for item in ITEMS}
    assert all(sum(item.nodeid in day for day in days) == 1 for item in ITEMS[-99:])
    assert _taken("sample", sampling.PARTS) == days[0]


def test_what_is_marked_is_always_taken() -> None:
    """However long it takes."""
    item = _item(ITEMS[-1].nodeid, smoke=True)

    assert all(item.nodeid in _taken("sample", day, [item]) for day in range(sampling.PARTS))


def test_tests_that_share_a_fixture_are_taken_together(costs: Path) -> None:
    """The first of them takes the time of all."""
    fixtures: tuple[dict[str, str], ...] = (
        {"engine": "module", "tmp_path": "function"},
        {"server": "module"},
        {},
    )
    items = [
        _item(f"tests/test_it.py::test_{name}[{number}]", fixtures=of)
        for number, of in enumerate(fixtures)
        for name in "abc"
    ]
    costs.write_text(json.dumps({item.nodeid: 50.0 for item in items[:4]}))
    taken = [_taken("sample", day, items) for day in range(sampling.PARTS)]

    several = [{item.nodeid for item in items[first : first + 3]} for first in (0, 3, 6)]
    assert all(of <= each or not of & each for each in taken for of in several)
    assert [sum(of <= each for each in taken) for of in several] == [1, 1, sampling.PARTS]


def test_the_cheapest_killer_is_tried(costs: Path) -> None:
    """As far as it was measured; one that is new comes first."""
    rule = KILLERS[0].rule
    ours = [_kill(specimen) for specimen in KILLERS if specimen.rule == rule][:2]
    first, second = (item.nodeid for item in ours)
    for seconds, cheapest in (((9.5, 7.5), second), ((7.5, 9.5), first)):
        costs.write_text(json.dumps(dict(zip((first, second), seconds, strict=True))))
        taken = [_taken("sample", day, ours) for day in range(sampling.PARTS)]

        assert all(cheapest in each for each in taken)
        assert not all({first, second} <= each for each in taken)


def test_parts_make_up_everything() -> None:
    """Each test is in exactly one part."""
    parts = [_taken(f"{number}/3") for number in (1, 2, 3)]

    assert set.union(*parts) == {item.nodeid for item in ITEMS}
    assert sum(map(len, parts)) == len(ITEMS)
    assert max(map(len, parts)) < 0.6 * len(ITEMS)
    assert _taken("all") == set.union(*parts)


@pytest.mark.parametrize("said", ["", "some", "0/3", "4/3", "2/0", "-1/3"])
def test_a_part_that_there_is_not_is_refused(said: str) -> None:
    """The sentence says what may be written."""
    with pytest.raises(ValueError, match="'sample', 'all' or a part such as 2/5"):
        sampling.choice(said, 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "the sample of --day 7"),
        (("tests/test_waiting.py",), "all"),
        (("-k", "waiting"), "all"),
        (("tests/test_waiting.py", "--tests", "sample"), "the sample of --day 7"),
        (("--tests", "2/5"), "2/5"),
    ],
)
def test_what_is_named_is_run(arguments: tuple[str, ...], said: str) -> None:
    """A sample is taken where nothing is named, or where it is asked for."""
    asked = [sys.executable, "-m", "pytest", "--collect-only", "-o", "testpaths=tests/bench"]
    asked += ["--day", "7", *arguments]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)

    assert f"\ntests: {said}" in done.stdout


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_sample_names_its_tests(tmp_path: Path, workers: str) -> None:
    """In a file beside the report, whoever has collected them."""
    asked = [sys.executable, "-m", "pytest", "tests/test_leaks.py", "--tests", "sample"]
    asked += ["--day", "7", "-n", workers, "--junitxml", str(tmp_path / "junit.xml")]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)

    names = (tmp_path / "taken.txt").read_text(encoding="utf-8").splitlines()
    assert f"--day 7 takes {len(names)}, named in {tmp_path / 'taken.txt'}" in done.stdout
    assert f"{len(names)} passed" in done.stdout
    assert all(name.startswith("tests/test_leaks.py::test_") for name in names)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_snapshots_of_what_is_not_taken_are_not_unused(workers: str) -> None:
    """Unused snapshots end a run that passed with status 1."""
    asked = [sys.executable, "-m", "pytest", "--tests", "1/2", "-n", workers]
    asked += ["-o", "testpaths=tests/test_cli.py", "-o", "python_functions=test_help"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
    assert "snapshots unused" not in done.stdout


def test_seconds_are_kept(costs: Path, tmp_path: Path) -> None:
    """Beside those that were kept before, but for tests that take no time."""
    costs.write_text('{"tests/a/test_b.py::old[x]": 1.0, "tests/a/test_b.py::quicker": 3.0}')
    report = tmp_path / "junit.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="tests.a.test_b" name="new[y]" time="2.34"/>'
        '<testcase classname="tests.a.test_b" name="quicker" time="0.5"/>'
        '<testcase classname="tests.test_c" name="other" time="0.9"/></testsuite></testsuites>'
    )

    kept = sampling.keep(report)

    assert kept == {"tests/a/test_b.py::old[x]": 1.0, "tests/a/test_b.py::new[y]": 2.3}
