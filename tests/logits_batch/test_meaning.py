# SPDX-License-Identifier: Apache-2.0
"""Profiles may say what a logits processor means, and rows are held to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import torch
from specimens import references, slot_references
from support import DEFECTIVE, DEFECTIVE_SLOT, GOOD, certify, gallery
from user import CLI, certificates, run, verdicts

from conformance.logits.meaning import Meaning
from conformance.plugin.expectation import located
from conformance.rules import Evidence
from conformance.settings import Budget, UsageError
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote

RULES = {"LB-46", "LS-43"}
MEANT = [each for each in (*gallery(DEFECTIVE), *gallery(DEFECTIVE_SLOT)) if each.rule in RULES]
SIMULATOR = ("--evidence", "simulator")

PLUGIN = """
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor


def ban(token, output_ids, logits):
    if output_ids and token < len(logits):
        logits[token] = -1000.0
    return logits


class Ban(AdapterLogitsProcessor):
    @classmethod
    def validate_params(cls, sampling_params):
        token = (sampling_params.extra_args or {}).get("ban", 0)
        if type(token) is not int or not 0 <= token < 2**31:
            raise ValueError("ban must be a token id")

    def is_argmax_invariant(self):
        return False

    def new_req_logits_processor(self, params):
        token = (params.extra_args or {}).get("ban")
        return None if token is None else lambda outputs, logits: ban(token, outputs, logits)
"""

FORMS = {
    "four arguments": "def meant(params, prompt, output, logits):\n"
    "    return ban((params.extra_args or {}).get('ban', 9999), output, logits)\n",
    "a class": "class meant:\n"
    "    def __init__(self, ban):\n"
    "        self.token = ban\n"
    "    def __call__(self, output, logits):\n"
    "        return ban(self.token, output, logits)\n",
}


def _of(folder: Path, source: str, **tolerance: float) -> Meaning:
    (folder / f"{folder.name}_meant.py").write_text("import torch\n" + source, encoding="utf-8")
    section = {"expected": f"{folder.name}_meant:meant", "tolerance": tolerance}
    found = Meaning.of(located(section, folder, "profile.toml"))
    assert found is not None
    return found


def _write_profile(folder: Path, expected: str) -> None:
    lines = ["[logits-processor]", f'expected = "{expected}"', "on = [{ extra_args.ban = 7 }]"]
    (folder / "banning.conformance.toml").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.parametrize("specimen", MEANT, ids=lambda each: f"{each.generation}-{each.name}")
def test_nothing_else_shows_a_consistent_mistake(
    zygote: Zygote, specimen: Specimen, tmp_path: Path
) -> None:
    """Without the function every rule holds: nobody else knows what a plugin is for."""
    profile = {key: value for key, value in specimen.profile.items() if key != "expected"}
    results = certify(
        zygote, attrs.evolve(specimen, profile=profile), tmp_path, budget=Budget.QUICK
    )

    failed = {rule for rule, result in results.items() if result.verdict is Verdict.FAIL}
    assert not failed
    assert results[str(specimen.rule)].verdict is Verdict.NOT_APPLICABLE
    assert results[str(specimen.rule)].message == "the profile has no `expected`"


@pytest.mark.parametrize("specimen", [*references(), *slot_references()], ids=lambda e: e.label)
def test_references_do_what_their_functions_say(
    zygote: Zygote, specimen: Specimen, tmp_path: Path
) -> None:
    """Every reference has a function, and agrees with it."""
    assert "expected" in specimen.profile
    results = certify(zygote, specimen, tmp_path, rules=RULES)

    assert {result.verdict for result in results.values()} == {Verdict.PASS}


@pytest.mark.parametrize("folder", [DEFECTIVE, DEFECTIVE_SLOT], ids=["batch", "slot"])
def test_no_other_rule_waits_for_it(zygote: Zygote, folder: Path, tmp_path: Path) -> None:
    """What a plugin does is known, whatever its author wanted."""
    specimen = next(each for each in gallery(folder) if each.name == "adds_bias_twice")
    results = certify(zygote, specimen, tmp_path, budget=Budget.QUICK)

    assert {rule for rule, each in results.items() if each.verdict not in GOOD} == {specimen.rule}


@pytest.mark.engine
@pytest.mark.parametrize("folder", [DEFECTIVE, DEFECTIVE_SLOT], ids=["batch", "slot"])
def test_rows_of_an_engine_are_held_to_it(zygote: Zygote, folder: Path, tmp_path: Path) -> None:
    """What an engine sends a plugin is judged as well, and no other rule waits for it."""
    specimen = next(each for each in gallery(folder) if each.name == "adds_bias_twice")
    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))

    result = results[str(specimen.rule)]
    assert result.verdict is Verdict.FAIL
    assert "is not what meant:bias of the profile returns" in str(result.message)
    others = {rule for rule, each in results.items() if each.verdict not in GOOD}
    assert others == {specimen.rule}


@pytest.mark.parametrize("form", FORMS)
def test_a_function_may_have_several_forms(form: str, tmp_path: Path) -> None:
    """A request-level processor of old says what the one that takes its place must do."""
    (tmp_path / "banning.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "meant.py").write_text(f"from banning import ban\n{FORMS[form]}", encoding="utf-8")
    _write_profile(tmp_path, "meant:meant")
    status, said = run(*CLI, "certify", "banning.py", *SIMULATOR, folder=tmp_path)

    assert status == 0, said
    (document,) = certificates(tmp_path).values()
    assert verdicts(document)["LB-46"] == "pass"
    assert document["profile"]["expected"]["function"] == "meant:meant"


@pytest.mark.parametrize(
    ("expected", "source", "said"),
    [
        ("meant", "", "names no function that can be imported"),
        ("absent_module:meant", "", "no module 'absent_module'"),
        ("meaning:meent", "def meant(p, q, o, l): return l\n", "Did you mean 'meant'?"),
        ("meaning:meant", "meant = 3\n", "is not callable (got int)"),
        ("meaning:meant", "def meant(row): return row\n", "must take (params, prompt, output"),
        ("meaning:meant", "def meant(p, q, o, l): return o[9]\n", "raised IndexError"),
        ("meaning:meant", "def meant(p, q, o, l): pass\n", "returned NoneType"),
        (
            "meaning:meant",
            "import torch\ndef meant(p, q, o, l): return l + torch.rand(1)\n",
            "returns another row when it is asked again",
        ),
    ],
)
def test_what_is_wrong_with_the_function_is_the_profiles_fault(
    expected: str, source: str, said: str, tmp_path: Path
) -> None:
    """One sentence, status 4, and no verdict on the plugin."""
    (tmp_path / "banning.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "meaning.py").write_text(source, encoding="utf-8")
    _write_profile(tmp_path, expected)
    status, told = run(*CLI, "certify", "banning.py", *SIMULATOR, folder=tmp_path)

    assert status == 4, told
    assert said in " ".join(told.split())
    assert "Traceback" not in told


def test_a_function_that_raises_in_a_history_judges_nobody(zygote: Zygote, tmp_path: Path) -> None:
    """What it does not say is not verified; no rule fails by it."""
    (tmp_path / "banning.py").write_text(PLUGIN, encoding="utf-8")
    source = (
        "def late(params, prompt, output, logits):\n    assert len(output) < 4\n    return logits\n"
    )
    (tmp_path / "late_meaning.py").write_text(source, encoding="utf-8")
    specimen = attrs.evolve(
        MEANT[0],
        target=f"{tmp_path / 'banning.py'}:Ban",
        profile={"expected": "late_meaning:late", "on": [{"extra_args": {"ban": 7}}]},
    )
    result = certify(zygote, specimen, tmp_path, rules={"LB-46"})["LB-46"]

    # Its first rows are wrong as well, but nobody knows what it would have said of others.
    assert result.verdict is Verdict.NOT_VERIFIED
    assert "late_meaning:late of the profile raised AssertionError at late_meaning.py:2" in str(
        result.message
    )


def test_only_the_likeliest_tokens_may_count(tmp_path: Path) -> None:
    """With ``top_k`` the order of those is what must agree, ties in any order."""
    meaning = _of(tmp_path, "def meant(output, logits): return logits\n", top_k=2)
    expected = torch.tensor([5.0, 4.0, 4.0, 1.0])

    assert meaning.agrees(torch.tensor([9.0, 2.0, 3.0, -7.0]), expected)
    assert meaning.agrees(torch.tensor([9.0, 3.0, 2.0, -7.0]), expected)
    assert not meaning.agrees(torch.tensor([9.0, 2.0, 3.0, 4.0]), expected)
    assert not meaning.agrees(torch.tensor([2.0, 9.0, 3.0, 4.0]), expected)


def test_rows_may_be_near_enough(tmp_path: Path) -> None:
    """``rtol`` says how near; masked tokens are equal to masked tokens alone."""
    meaning = _of(tmp_path, "def meant(output, logits): return logits\n", rtol=0.1)
    expected = torch.tensor([5.0, -torch.inf])

    assert meaning.agrees(torch.tensor([5.3, -torch.inf]), expected)
    assert not meaning.agrees(torch.tensor([5.9, -torch.inf]), expected)
    assert not meaning.agrees(torch.tensor([5.0, -1e30]), expected)


@pytest.mark.parametrize(
    ("tolerance", "said"),
    [
        ({"atol": 0.1}, "has no 'atol'; it takes rtol and top_k"),
        ({"rtol": "near"}, "rtol must be a number"),
        ({"top_k": 0}, "top_k must be a whole number from 1 on"),
        ({"top_k": 2.5}, "top_k must be a whole number from 1 on"),
    ],
)
def test_a_tolerance_that_means_nothing_is_told(
    tolerance: dict[str, float], said: str, tmp_path: Path
) -> None:
    """One sentence names the key."""
    with pytest.raises(UsageError, match=said):
        _of(tmp_path, "def meant(output, logits): return logits\n", **tolerance)
