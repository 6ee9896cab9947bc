# SPDX-License-Identifier: Apache-2.0
"""A failure of a hook comes with a program that shows it, or says that it has none."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from cases import failing_copy
from programs import execute, execute_apart, has_one, imported
from support import DEFECTIVE_HOOK, gallery, of_configurations

from conformance.classifier_hook.catalogue import RULES
from conformance.counterexample import hook_crowd_player, hook_player, program
from conformance.rules import Evidence
from conformance.settings import Budget

if TYPE_CHECKING:
    from pathlib import Path

    from cases import Case
    from support import Specimen

    from conformance.worker import Zygote

#: Rules without programs; ``classifier_hook.demonstrations`` says why.
WITHOUT = {"CH-29", "CH-37"}

#: What programs import beside the hook: those about what a process shares look at it.
SHARED = {"numpy", "torch"}

#: Hooks whose fault shows by chance: two threads must meet.
BY_CHANCE = {"scores_in_a_shared_buffer"}

#: A hook without a program, which is one process.
UNSHOWN = {"lists_topics_of_a_set"}

#: Hooks whose fault few histories show.
RARE = {"reads_links"}

SPECIMENS = [
    specimen
    for specimen in gallery(DEFECTIVE_HOOK)
    if specimen.rule not in WITHOUT
    and specimen.evidence is Evidence.SIMULATOR
    and specimen.name not in BY_CHANCE | UNSHOWN
]

#: A hook that does everything right, for each class and what it must block.
CORRECT = """\
import asyncio


class {name}:
    name = "correct"
    blocking = {blocking}
    timeout_ms = 5000
    on_error = "allow"

    def __init__(self, **arguments):
        pass

    async def score(self, ctx):
        await asyncio.sleep(0)
        found = {{"length": len(ctx.generated_text)}}
        return {{**found, "block": any(bad in ctx.generated_text for bad in {blocked!r})}}
"""


def _failing(zygote: Zygote, specimen: Specimen, folder: Path) -> Case:
    """Let a hook of the gallery fail, which comes with a program."""
    correct = _mended(specimen)
    budget = Budget.STANDARD if specimen.name in RARE else Budget.QUICK
    case = failing_copy(zygote, specimen, folder, budget=budget, correct=correct)
    assert has_one(case.result), f"no scene in demonstrations.py shows this: {case.message}"
    return case


#: Gives the scores that the profiles of hooks ask for which fail CH-39.
MEANT = """
class {name}:
    name, blocking, timeout_ms = "store", False, 500

    async def score(self, ctx):
        text = ctx.generated_text
        capitals = sum(map(str.isupper, text))
        return {{
            "letters": sum(not each.isspace() for each in text),
            "distinct": len(set(text.lower().split())),
            "sentences": sum(text.count(mark) for mark in ".!?"),
            "shouting": capitals / max(1, sum(map(str.isalpha, text))),
            "found": text.lower().split().count("it"),
            "words": len(text.split()),
            "masked": "idiot" if "idiot" in text else "",
        }}
"""


def _mended(specimen: Specimen) -> str:
    if specimen.rule == "CH-39":
        return MEANT.format(name=specimen.target.rpartition(":")[2])
    blocked = list(specimen.profile.get("blocked", ()))
    return CORRECT.format(
        name=specimen.target.rpartition(":")[2], blocking=bool(blocked), blocked=blocked
    )


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen.name)
def test_a_program_shows_what_was_found(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """It fails for the hook, and with a correct one in its place it says that the fault is gone.

    It imports nothing of this harness, and nothing of vLLM that the hook does not.
    """
    case = _failing(zygote, specimen, tmp_path)
    source = case.program.read_text(encoding="utf-8")
    shared = SHARED if specimen.rule in ("CH-40", "CH-42") else set()
    assert imported(source) <= {case.plugin.stem} | shared
    # What a message quotes is not broken.
    statements = source.split('"""', 2)[2].splitlines()
    assert max(len(line) for line in statements if "/" not in line) <= 100

    status, said = execute(zygote, case.program)
    assert status == 1, said
    assert "FAILS: " in said
    assert "expected" in said

    case.mend()
    status, said = execute(zygote, case.program)
    assert status == 0, said
    assert said.splitlines()[-1].startswith("OK: ")


def test_every_rule_has_a_program_or_is_named() -> None:
    """A rule that joins the catalogue needs a program, or a word about why there is none."""
    rules = {rule.id for rule in RULES}
    shown = {specimen.rule for specimen in SPECIMENS} | (of_configurations() & rules)

    assert shown | WITHOUT == rules


PLAYERS = {
    name: play
    for player in (hook_player, hook_crowd_player)
    for name, play in vars(player).items()
    if name.startswith("check_")
}


def _case(name: str) -> dict[str, Any]:
    """Return what a player takes."""
    text = 'a "text" with $new, {braces} and \\ ' + "x" * 30
    known: dict[str, Any] = {
        "text": text,
        "texts": [text, "word " * 20_000],
        "calls": [[text, "id-0", 2, 1, {}], [text, "id-1", 0, 0, {"stop_reason": 7}]],
        "seconds": 0.01,
        "scores": {"block": False, "length": len(text)},
        "hidden": ["scores['at'][*]"],
        "blocks": False,
        "names": ["torch", "logging.disable()", "the task factory of the event loop"],
        "what": "waited",
        "wait": 2,
        "turns": 3,
        "count": 16,
        "more": {"stop_reason": 7, "extra_fields": {"tags": ["x"]}},
        "changes": {"index": 3},
        "fields": {"tenant": "a", "tags": ["x"]},
    }
    _, *taken = inspect.signature(PLAYERS[name]).parameters
    found = {each: known[each] for each in taken}
    more = {**found.pop("more", {}), **found.pop("changes", {})}
    return {**found, **more}


@pytest.mark.parametrize("name", PLAYERS)
def test_every_program_is_python_of_100_columns(name: str) -> None:
    """Whatever it is given."""
    arguments = {"words": ["a", "b"], "url": "http://127.0.0.1/"}
    shown = {"is": name.removeprefix("check_"), "arguments": arguments, **_case(name)}
    case = {
        "rule": "CH-16",
        "generation": "hook/rfc",
        "target": "hooks:Hook",
        "plugin": {"module": "hooks", "qualname": "Hook", "root": None},
        "counterexample": {"program": shown},
    }
    source = program(case)

    assert max(map(len, source.splitlines())) <= 100
    assert imported(source) == {"hooks"} | (SHARED if name == "check_shares" else set())
    compile(source, name, "exec")


class Hook:
    """Does everything right."""

    name = "correct"
    blocking = True
    timeout_ms = 5000
    on_error = "allow"

    async def score(self, ctx: hook_player.ScoringContext) -> dict[str, Any]:
        """Return the length of a text."""
        await asyncio.sleep(0)
        return {"length": len(ctx.generated_text), "block": False}


@pytest.mark.parametrize("name", PLAYERS)
def test_a_player_finds_nothing_in_a_correct_hook(name: str) -> None:
    """What it returns is none, and what it prints of that is its docstring."""
    assert PLAYERS[name](Hook, **_case(name)) is None
    assert str(PLAYERS[name].__doc__).endswith(".")


def test_a_program_needs_nothing_but_python(zygote: Zygote, tmp_path: Path) -> None:
    """``python program.py`` in an empty folder, in an environment that knows nothing of us."""
    specimen = next(s for s in SPECIMENS if s.name == "keeps_context_on_self")
    case = _failing(zygote, specimen, tmp_path)

    broken = execute_apart(case.program, "-I")
    case.mend()
    fixed = execute_apart(case.program, "-I")

    assert broken.returncode == 1, broken.stderr
    assert "FAILS: " in broken.stdout
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    assert fixed.stdout.splitlines()[-1].startswith("OK: ")
