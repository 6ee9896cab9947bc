# SPDX-License-Identifier: Apache-2.0
"""Several plugins judged at the same time: whose results are whose, and when they come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from conformance.commands.certify import _closing
from conformance.rules import Evidence
from conformance.running.runner import Certification
from conformance.running.trials import Check
from conformance.running.validation import AT_ONCE, affordable
from conformance.settings import Budget, Device, Settings, UsageError
from conformance.verdict import RuleResult, Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

RULES = ("LB-01", "LB-02", "LB-13", "LB-22")

GOOD = """\
from vllm.v1.sample.logits_processor import LogitsProcessor


class Good(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        pass

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        pass

    def apply(self, logits):
        return logits


class Ends(Good):
    def is_argmax_invariant(self):
        import os

        os._exit(3)


class Spoils(Good):
    def apply(self, logits):
        return logits * float("nan")
"""
NAMES = ("Ends", "Good", "Spoils")


def judged(zygote: Zygote, folder: Path, at_once: int) -> dict[tuple[str, str], RuleResult]:
    """Return the results of all three plugins, by class and rule."""
    folder.mkdir()
    (folder / "plugins.py").write_text(GOOD)
    settings = Settings(
        targets=tuple(f"{folder / 'plugins.py'}:{name}" for name in NAMES),
        budget=Budget.QUICK,
        report=folder / "report",
    )
    results = {}
    with Certification(settings, zygote=zygote, at_once=at_once) as certification:
        certification.load()
        checks = [check for check in certification.checks() if check.rule in RULES]
        certification.select(checks)
        for number, check in enumerate(checks, 1):
            results[check.plugin.qualname, check.rule] = certification.run(check)
            left = {later.plugin.qualname for later in checks[number:]}

            assert certification.finished(check.plugin) is (check.plugin.qualname not in left)
    return results


def told(results: dict[tuple[str, str], RuleResult]) -> dict[tuple[str, str], object]:
    """Return what does not depend on the time of day."""
    return {
        key: (found.verdict, found.message, found.examples, found.acted)
        for key, found in results.items()
    }


@pytest.fixture(scope="module")
def alone(
    zygote: Zygote, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], object]:
    """Judge one plugin after the other."""
    return told(judged(zygote, tmp_path_factory.mktemp("alone") / "run", 1))


@pytest.mark.parametrize("at_once", [2, 3])
def test_results_do_not_depend_on_how_many_are_judged(
    zygote: Zygote, tmp_path: Path, alone: dict[tuple[str, str], object], at_once: int
) -> None:
    """A plugin that ends its process costs itself its verdicts, and nobody else."""
    found = judged(zygote, tmp_path / "run", at_once)
    verdicts = {key: result.verdict for key, result in found.items()}

    assert told(found) == alone
    assert Verdict.FAIL in {verdicts["Ends", rule] for rule in RULES}
    assert verdicts["Spoils", "LB-22"] is Verdict.FAIL
    assert {verdicts["Good", rule] for rule in RULES} <= {Verdict.PASS, Verdict.NOT_VERIFIED}


def test_the_next_plugin_is_judged_meanwhile(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one plugin is asked about a rule, another one is, and none is asked about two."""
    crowds = []
    begin = Certification._begin

    def watched(self: Certification, check: Check) -> None:
        begin(self, check)
        crowds.append([asked.plugin.qualname for asked in self._asked])

    monkeypatch.setattr(Certification, "_begin", watched)
    judged(zygote, tmp_path / "run", 2)

    assert max(map(len, crowds)) == 2
    assert all(len(set(crowd)) == len(crowd) for crowd in crowds)


@pytest.mark.parametrize(
    ("cores", "gigabytes", "expected"),
    [(1, 64, 1), (2, 64, 2), (64, 64, 4), (8, 7, 2), (8, 1, 1)],
)
def test_each_core_has_a_plugin(
    monkeypatch: pytest.MonkeyPatch, cores: int, gigabytes: int, expected: int
) -> None:
    """Some, at most: engines and servers of all of them take memory."""
    monkeypatch.delenv(AT_ONCE, raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    memory = SimpleNamespace(available=gigabytes << 30)
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)

    assert affordable(Settings(targets=(), device=Device.CPU)) == expected


def test_a_variable_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that does other work, too, is told by its owner."""
    monkeypatch.setenv(AT_ONCE, "3")
    assert affordable(Settings(targets=())) == 3

    for wrong in ("0", "many", "-1"):
        monkeypatch.setenv(AT_ONCE, wrong)
        with pytest.raises(UsageError, match=f"'{wrong}' is no number of plugins"):
            affordable(Settings(targets=()))


def test_the_last_line_tells_how_long_the_run_took() -> None:
    """Not how long the first plugin took, which may be done before the others."""
    runs = [{"seed": 1, "budget": "quick", "seconds": seconds} for seconds in (6.2, 12.94, 9.0)]

    assert _closing(runs) == "seed 1, budget quick, 12.9 s"


def test_what_does_not_load_any_more_is_not_opened_in_advance(
    zygote: Zygote, tmp_path: Path
) -> None:
    """Another plugin's end opens the next trial, which has nothing to say where it cannot load."""
    for name in ("good", "bad"):
        (tmp_path / f"{name}.py").write_text(GOOD)
    settings = Settings(
        targets=tuple(f"{tmp_path / name}.py:Good" for name in ("bad", "good")),
        budget=Budget.QUICK,
        report=tmp_path / "report",
    )
    with Certification(settings, zygote=zygote) as certification:
        bad, good = certification.load()
        (tmp_path / "bad.py").write_text("import no_such_package\n")
        first, last = (Check(bad, rule, Evidence.SIMULATOR) for rule in ("LB-01", "LB-02"))
        between = Check(good, "LB-01", Evidence.SIMULATOR)
        certification.select([first, between, last])
        found = [certification.run(check) for check in (first, between, last)]

    assert [each.verdict for each in found] == [
        Verdict.NOT_VERIFIED,
        Verdict.PASS,
        Verdict.NOT_VERIFIED,
    ]
    assert found[0].cause is not None
    assert "no_such_package" in found[0].cause.says
    assert found[2].waits_for == ("LB-01",)
