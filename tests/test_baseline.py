# SPDX-License-Identifier: Apache-2.0
"""Baselines: known failures do not fail a run, and nothing else is let through."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import user
from samples import SETTINGS, sample
from support import DEFECTIVE, FIXTURES

from conformance.rules import Evidence, Level
from conformance.running import baseline
from conformance.settings import UsageError
from conformance.verdict import ExitStatus, RuleResult, Verdict, combine, must_wait, unjudged

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.settings import Settings
    from conformance.verdict import Reason

KNOWN = '[[known]]\nrule = "LB-06"\nreason = "rewritten in 2.0"\n'
STALE = '[[known]]\nrule = "LB-07"\nreason = "moves are next"\n'

CLEARS_NOT = f"{DEFECTIVE / 'keeps_replaced_occupant.py'}:KeepsReplacedOccupant"
PROFILE = str(FIXTURES / "profiles" / "target_token.toml")


def _settings(folder: Path, text: str) -> Settings:
    path = folder / "baseline.toml"
    path.write_text(text, encoding="utf-8")
    baseline.load.cache_clear()
    return attrs.evolve(SETTINGS, baseline=path)


def _certificate(settings: Settings, verdicts: dict[str, Verdict]) -> dict[str, Any]:
    document = sample(verdicts)
    document["baseline"] = baseline.marks(settings, document)
    return document


@pytest.mark.parametrize(
    ("text", "verdicts", "states", "status"),
    [
        (KNOWN, {"LB-06": Verdict.FAIL}, ["known"], ExitStatus.CONFORMANT),
        (KNOWN, {"LB-06": Verdict.FAIL, "LB-07": Verdict.FAIL}, ["known"], 1),
        (KNOWN, {}, ["stale"], ExitStatus.NON_CONFORMANT),
        (KNOWN, {"LB-06": Verdict.NOT_VERIFIED}, [], ExitStatus.INCOMPLETE),
        (KNOWN, {"LB-06": Verdict.FAIL, "LB-07": Verdict.NOT_VERIFIED}, ["known"], 2),
        (KNOWN, {"LB-06": Verdict.FAIL, "LB-07": Verdict.ERROR}, ["known"], 3),
        (KNOWN + "expires = 2024-02-29\n", {"LB-06": Verdict.FAIL}, ["expired"], 1),
        (KNOWN + "expires = 9999-12-31\n", {"LB-06": Verdict.FAIL}, ["known"], 0),
        (KNOWN + 'plugin = "other.module:*"\n', {"LB-06": Verdict.FAIL}, [], 1),
        (KNOWN + 'plugin = "*:Sample"\n', {"LB-06": Verdict.FAIL}, ["known"], 0),
        (KNOWN + STALE, {"LB-06": Verdict.FAIL}, ["known", "stale"], 1),
        ("", {"LB-06": Verdict.FAIL}, [], ExitStatus.NON_CONFORMANT),
    ],
)
def test_exit_status(
    tmp_path: Path, text: str, verdicts: dict[str, Verdict], states: list[str], status: int
) -> None:
    """Known failures end a run with 0; anything new, stale or expired does not."""
    document = _certificate(_settings(tmp_path, text), verdicts)

    assert [mark["state"] for mark in document["baseline"]] == states
    assert baseline.status(document) == status
    assert document["verdict"] == sample(verdicts)["verdict"]


def test_rules_that_wait_for_known_failures_are_excused(tmp_path: Path) -> None:
    """What cannot be judged before a known failure is mended does not fail the run either."""
    verdicts = {"LB-06": Verdict.FAIL, "LB-20": Verdict.NOT_VERIFIED}
    document = _certificate(_settings(tmp_path, KNOWN), verdicts)
    (waiting,) = [rule for rule in document["rules"] if rule["id"] == "LB-20"]

    waiting["waits_for"] = ["LB-06"]
    assert baseline.status(document) == ExitStatus.CONFORMANT
    waiting["waits_for"] = ["LB-06", "LB-03"]
    assert baseline.status(document) == ExitStatus.INCOMPLETE


def _not_verified(evidence: Evidence, why: Reason) -> RuleResult:
    return unjudged("LB-20", evidence, why)


def test_a_rule_that_waits_names_what_for() -> None:
    """What is waited for is a field of the result, whatever the sentence says."""
    waiting = _not_verified(Evidence.SIMULATOR, must_wait(["LB-03", "LB-16"], "why"))

    assert pickle.loads(pickle.dumps(waiting)) == waiting  # noqa: S301 - our own
    assert waiting.waits_for == ("LB-03", "LB-16")
    assert not _not_verified(Evidence.SIMULATOR, "cannot be judged before LB-03 holds").waits_for


@pytest.mark.parametrize("order", [1, -1], ids=["first", "last"])
def test_what_is_also_not_verified_for_another_reason_is_not_excused(
    tmp_path: Path, order: int
) -> None:
    """The order of the evidence decides nothing: a server that was not there is not known."""
    waiting = _not_verified(Evidence.SIMULATOR, must_wait(["LB-06"]))
    other = _not_verified(Evidence.SERVER, "no healthy vLLM server")
    verdicts = {"LB-06": Verdict.FAIL, "LB-20": Verdict.NOT_VERIFIED}
    document = _certificate(_settings(tmp_path, KNOWN), verdicts)
    (rule,) = [rule for rule in document["rules"] if rule["id"] == "LB-20"]
    both = combine("LB-20", Level.MUST, [waiting, other][::order])
    rule |= {"message": both.message, "waits_for": list(both.waits_for)}

    assert baseline.status(document) == ExitStatus.INCOMPLETE


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[known", "is no TOML"),
        ('[known]\nrule = "LB-06"\n', "one for each known failure"),
        ("[[know]]\n", "Did you mean 'known'?"),
        ('[[known]]\nrule = "LB-06"\n', "entry 1 has no reason"),
        ('[[known]]\nreason = "x"\n', "entry 1 has no rule"),
        ('[[known]]\nrule = "LB-6"\nreason = "x"\n', "there is no rule 'LB-6'"),
        (KNOWN + 'expire = "x"\n', "Did you mean 'expires'?"),
        (KNOWN + 'expires = "next year"\n', "expires must be a date such as 2027-03-01"),
        (KNOWN + "issue = 12\n", "issue must be a string, not 12"),
        (KNOWN + KNOWN, "LB-06 is there twice"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    """What a baseline cannot say is refused with what it can."""
    with pytest.raises(UsageError) as caught:
        baseline.entries(_settings(tmp_path, text))

    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A baseline that is not there is a usage error."""
    with pytest.raises(UsageError, match="No such file"):
        baseline.entries(attrs.evolve(SETTINGS, baseline=tmp_path / "none.toml"))


@pytest.mark.parametrize("command", [("conformance.cli", "certify"), user.PYTEST])
def test_a_known_failure_ends_with_zero(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Both commands end with 0, and the certificate is as red as without a baseline."""
    (tmp_path / "baseline.toml").write_text(KNOWN, encoding="utf-8")
    target = (CLEARS_NOT,) if command[0] == "conformance.cli" else ("--plugin-path", CLEARS_NOT)
    options = ("--plugin-profile", PROFILE, "--baseline", "baseline.toml", "--budget", "quick")
    status, said = user.run(*command, *target, *options, folder=tmp_path)

    assert status == ExitStatus.CONFORMANT, said
    assert "baseline: LB-06 is known to fail: rewritten in 2.0" in said
    (document,) = user.certificates(tmp_path).values()
    assert document["verdict"] == "non-conformant"
    assert document["baseline"][0]["state"] == "known"


def test_a_stale_entry_fails_the_run(tmp_path: Path) -> None:
    """A conformant plugin with an entry for a rule that holds ends with 1."""
    (tmp_path / "baseline.toml").write_text(STALE, encoding="utf-8")
    target = f"{FIXTURES / 'mended_example.py'}:DummyLogitsProcessor"
    options = ("--baseline", "baseline.toml", "--budget", "quick", "-q")
    status, said = user.run(*user.CLI, "certify", target, *options, folder=tmp_path)

    assert status == ExitStatus.NON_CONFORMANT, said
    (document,) = user.certificates(tmp_path).values()
    assert document["verdict"] == "conformant"
