# SPDX-License-Identifier: Apache-2.0
"""Profiles may say which scores texts must get."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from specimens import hook_references
from support import DEFECTIVE_HOOK, UNUSUAL_HOOK, certify, gallery
from user import CLI, run

from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote

MEANT = [each for each in gallery(DEFECTIVE_HOOK) if each.rule == "CH-39"]
SAYS = {"scores", "expected"}

HOOK = """
class Store:
    name, blocking, timeout_ms = "store", False, 500

    async def score(self, ctx):
        return {"letters": len(ctx.generated_text)}
"""


@pytest.mark.parametrize("specimen", MEANT, ids=lambda each: each.name)
def test_nothing_else_shows_a_wrong_score(
    zygote: Zygote, specimen: Specimen, tmp_path: Path
) -> None:
    """Without the author's word every rule holds."""
    profile = {key: value for key, value in specimen.profile.items() if key not in SAYS}
    results = certify(
        zygote, attrs.evolve(specimen, profile=profile), tmp_path, budget=Budget.QUICK
    )

    assert not {rule for rule, each in results.items() if each.verdict is Verdict.FAIL}
    assert results["CH-39"].verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize("specimen", hook_references(), ids=lambda each: each.label)
def test_references_give_the_scores_of_their_profiles(
    zygote: Zygote, specimen: Specimen, tmp_path: Path
) -> None:
    """Every reference says what some texts must get."""
    result = certify(zygote, specimen, tmp_path, rules={"CH-39"})["CH-39"]

    assert result.verdict is Verdict.PASS
    assert result.examples == len(specimen.profile["scores"])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def letters(ctx):\n    return ctx.text\n", "raised AttributeError"),
        ("def letters(ctx):\n    return 3\n", "returned no scores"),
        (
            "N = iter(range(99))\n\n\ndef letters(ctx):\n    return {'letters': next(N)}\n",
            "when it was asked again",
        ),
    ],
)
def test_a_function_that_does_not_answer_judges_nobody(
    source: str, said: str, zygote: Zygote, tmp_path: Path
) -> None:
    """What it does not say is not verified."""
    (tmp_path / "store.py").write_text(HOOK, encoding="utf-8")
    (tmp_path / "store_scores.py").write_text(source, encoding="utf-8")
    specimen = attrs.evolve(
        MEANT[0],
        target=f"{tmp_path / 'store.py'}:Store",
        profile={"expected": "store_scores:letters"},
    )
    result = certify(zygote, specimen, tmp_path, rules={"CH-39"})["CH-39"]

    assert result.verdict is Verdict.NOT_VERIFIED
    assert said in str(result.message)


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ('scores = [{ text = "a" }]', "scores must hold tables such as"),
        ("scores = [{ text = 3, scores = { a = 1 } }]", "scores must hold tables such as"),
        ('expected = "nowhere_to_be_found:it"', "no module 'nowhere_to_be_found'"),
        ("arguments = [3]", "arguments must hold tables of keywords"),
    ],
)
def test_a_mistake_in_the_profile_is_told(profile: str, said: str, tmp_path: Path) -> None:
    """One sentence, and status 4."""
    (tmp_path / "store.py").write_text(HOOK, encoding="utf-8")
    text = f"[classifier-hook]\n{profile}\n"
    (tmp_path / "store.conformance.toml").write_text(text, encoding="utf-8")
    status, told = run(*CLI, "certify", "store.py", "--evidence", "simulator", folder=tmp_path)

    assert status == 4, told
    assert said in " ".join(told.split())


@pytest.mark.parametrize(
    ("blocked", "said"),
    [("That is an idiot.", "no blocked text begins with what is blocked"), ("Idiot! Go.", None)],
)
def test_blocked_texts_show_where_a_search_starts(
    blocked: str, said: str | None, zygote: Zygote, tmp_path: Path
) -> None:
    """Where every blocked text has something harmless before it, a sentence says so."""
    specimen = next(each for each in gallery(UNUSUAL_HOOK) if each.name == "takes_its_words")
    texts = {**specimen.profile, "arguments": specimen.profile["arguments"][:1]}
    specimen = attrs.evolve(specimen, profile={**texts, "blocked": [blocked]})
    result = certify(zygote, specimen, tmp_path, rules={"CH-12"})["CH-12"]

    assert result.verdict is Verdict.PASS
    assert result.message is None if said is None else said in str(result.message)


def test_what_a_limit_of_tokens_lets_through_is_told(zygote: Zygote, tmp_path: Path) -> None:
    """A hook may judge what was cut off otherwise; a sentence asks its author."""
    named = "blocks_what_does_not_close"
    specimen = next(each for each in gallery(UNUSUAL_HOOK) if each.name == named)
    result = certify(zygote, specimen, tmp_path, rules={"CH-12"})["CH-12"]

    assert result.verdict is Verdict.PASS
    assert "is let through where its finish_reason is 'length'" in str(result.message)
