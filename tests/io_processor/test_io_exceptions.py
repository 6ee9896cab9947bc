# SPDX-License-Identifier: Apache-2.0
"""What plugins raise where nothing is expected: theirs, told with the place, and played again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cases import Case
from lines_plugin import DATA_SOURCE, Fault, certified, specimen_of
from programs import write
from support import certify

from conformance.running.replay import Outcome
from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

PARAMS = "        params = PoolingParams() if params is None else params\n"
PRE = "        return list(prompt)\n"
POST = '        return {"firsts": [output.outputs.data[0].item() for output in model_output]}\n'
INIT = "        self.names = {}\n"

#: What is wrong, by the rule that fails of it, each an ``assert`` that says nothing.
SILENT = {
    "IO-02": (INIT, "        assert renderer is None\n"),
    "IO-07": (PRE, "        assert len(prompt) > 99\n"),
    "IO-14": (PARAMS, "        assert params is not None\n"),
    "IO-31": (POST, "        assert threading.current_thread() is threading.main_thread()\n"),
}


@pytest.mark.parametrize("rule", SILENT)
def test_a_silent_exception_is_told_with_its_place(
    zygote: Zygote, rule: str, tmp_path: Path
) -> None:
    """The innermost line of the plugin, where the exception itself says nothing."""
    statement, wrong = SILENT[rule]
    plugin = tmp_path / "lines.py"
    source = Fault(rule, ((statement, wrong + statement),)).applied()[1]
    plugin.write_text(source, encoding="utf-8")
    line = source.splitlines().index(wrong.rstrip("\n")) + 1

    found = certified(zygote, plugin, rule)

    assert found.verdict is Verdict.FAIL
    assert f"AssertionError at lines.py:{line}" in (found.message or "")


def test_parameters_that_raise_are_no_error_of_the_harness(zygote: Zygote, tmp_path: Path) -> None:
    """Whatever asks for parameters waits for the rule about them."""
    plugin = tmp_path / "lines.py"
    wrong = "        params.task = params.task or None\n"
    plugin.write_text(DATA_SOURCE.replace(PARAMS, wrong + PARAMS), encoding="utf-8")

    results = certify(
        zygote,
        specimen_of(plugin, "IO-14"),
        tmp_path,
        rules={"IO-14", "IO-16"},
        budget=Budget.QUICK,
    )

    assert results["IO-14"].verdict is Verdict.FAIL
    assert results["IO-16"].verdict is Verdict.NOT_VERIFIED
    assert results["IO-16"].waits_for == ("IO-14",)


#: A default that all instances have; answers are the same until there is no room in it any more.
KEEPING = """\
        seen.append(prompt)
        if len(seen) > 200:
            {then}
"""
OUTLIVING = {"raises": "raise OSError('full')", "the tokenizer raises": "return [{}]"}


@pytest.mark.gallery
@pytest.mark.parametrize("name", OUTLIVING)
def test_what_outlives_instances_fails_and_is_played_again(
    zygote: Zygote, name: str, tmp_path: Path
) -> None:
    """It breaks the plugin in the end, which is no error, and its case is not mended by itself."""
    plugin = tmp_path / "lines.py"
    hook = "request_id=None, **kwargs):\n" + PRE
    correct = DATA_SOURCE.replace(hook, hook.replace("=None", "=None, seen=[]"))
    wrong = KEEPING.format(then=OUTLIVING[name])
    plugin.write_text(correct.replace(PRE, wrong + PRE), encoding="utf-8")
    specimen = specimen_of(plugin, "IO-26")

    results = certify(zygote, specimen, tmp_path, budget=Budget.QUICK)

    assert Verdict.ERROR not in {result.verdict for result in results.values()}
    found = results["IO-26"]
    assert found.verdict is Verdict.FAIL, {r: (f.verdict, f.message) for r, f in results.items()}
    assert "outlives the instance" in (found.message or "")
    case = Case(plugin, found, write(specimen, found, tmp_path), correct)
    assert case.replay()[0] is Outcome.STILL_FAILS
    case.mend()
    assert case.replay()[0] is Outcome.FIXED
