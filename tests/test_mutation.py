# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance mutate``: what is changed, in what copy, and what is said of it."""

from __future__ import annotations

import ast
import json
from textwrap import dedent
from typing import TYPE_CHECKING

import mutation
import pytest
from support import ROOT
from user import CLI, run

from conformance.mutation.copies import changed, root_of
from conformance.mutation.edits import edits, sample
from conformance.plugin.target import Plugin

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = dedent(
    '''\
    """A module."""

    LIMIT = 3


    def told(tokens: list[int], most: int = 2) -> int | None:
        """Return something."""
        count = 0
        for token in tokens:
            if token < most and not token == -1:
                count += 1
                continue
        if count > LIMIT:
            raise ValueError(f"more than {LIMIT - 0}")
        return count if tokens else None
    '''
)


def _plugin(path: Path, module: str) -> Plugin:
    return Plugin(
        target=f"{path}:P", interface="logits-processor", generation="logits/batch",
        module=module, qualname="P", root=str(path.parents[module.count(".")]), path=str(path),
        digest=None, version=None,
    )  # fmt: skip


def test_every_kind_of_change_is_made() -> None:
    """Once at each place that has one, and never in docstrings, annotations or messages."""
    found = {(each.operator, each.line) for each in edits(SOURCE, "told.py")}

    assert found == {
        ("constant off by one", 3),
        ("constant off by one", 6),
        ("returns at once", 8),
        ("statement removed", 8),
        ("constant off by one", 8),
        ("comparison replaced", 10),
        ("and, or exchanged", 10),
        ("not removed", 10),
        ("sign flipped", 10),
        ("constant off by one", 10),
        ("statement removed", 11),
        ("constant off by one", 11),
        ("statement removed", 12),
        ("break and continue exchanged", 12),
        ("comparison replaced", 13),
        ("statement removed", 14),
        ("returns None", 15),
        ("condition negated", 15),
    }


def test_a_change_is_one_line_of_another_program() -> None:
    """Its difference names the line, and what is around it stays as the author wrote it."""
    (one,) = [each for each in edits(SOURCE, "told.py") if each.operator == "and, or exchanged"]

    assert ast.dump(ast.parse(one.source)) != ast.dump(ast.parse(SOURCE))
    assert [line for line in one.diff.splitlines()[3:] if line[0] in "+-"] == [
        "-        if token < most and not token == -1:",
        "+        if ((token < most) or (not token == -1)):",
    ]


def test_text_beyond_ascii_is_changed_at_its_place() -> None:
    """Columns of a tree are bytes."""
    source = "def f(a):\n    return 'größer' if a > 1 else 'é'\n"
    found = {each.source for each in edits(source, "f.py")}

    assert "def f(a):\n    return 'größer' if (a >= 1) else 'é'\n" in found


def test_a_choice_is_the_same_for_a_seed() -> None:
    """And another for another one."""
    found = edits(SOURCE, "told.py")

    assert sample(found, 5, 1) == sample(found, 5, 1) != sample(found, 5, 2)
    assert sample(found, 99, 1) == found


def test_a_copy_has_everything_else_beside_it(tmp_path: Path) -> None:
    """The file keeps its place in its package, and the original is not touched."""
    package = tmp_path / "there" / "pack" / "inner"
    package.mkdir(parents=True)
    for path in (package, package.parent):
        (path / "__init__.py").write_text("")
    (package / "plugin.py").write_text("X = 1\n")
    (package / "plugin.conformance.toml").write_text("")
    (package / "__pycache__").mkdir()

    plugin = _plugin(package / "plugin.py", "pack.inner.plugin")
    copy = changed(plugin, package / "plugin.py", "X = 2\n", tmp_path / "here", "7")

    assert root_of(plugin) == tmp_path / "there"
    assert copy.root == str(tmp_path / "here")
    assert copy.path == str(tmp_path / "here" / "pack" / "inner" / "plugin.py")
    assert {each.name for each in (tmp_path / "here" / "pack" / "inner").iterdir()} == {
        "__init__.py",
        "plugin.py",
        "plugin.conformance.toml",
    }
    assert (package / "plugin.py").read_text() == "X = 1\n"


BANS = """\
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor


class BanOne(AdapterLogitsProcessor):
    @classmethod
    def validate_params(cls, params):
        token = (params.extra_args or {}).get("ban", 0)
        if type(token) is not int or not 0 <= token < 1000:
            raise ValueError(f"ban must be an int from 0 to 999 (got {token!r})")

    def is_argmax_invariant(self):
        return False

    def new_req_logits_processor(self, params):
        token = (params.extra_args or {}).get("ban")
        if token is None:
            return None

        def ban(output_ids, logits):
            if token < len(logits):
                logits[token] -= 100.0
            return logits

        return ban
"""

MEANS = """\
def banned(params, prompt, output, logits):
    token = (params.extra_args or {}).get("ban")
    if token is not None and token < len(logits):
        logits[token] -= 100.0
    return logits
"""

PROFILE = """\
[logits-processor]
expected = "means:banned"
on  = [ { extra_args = { ban = 3 } }, { extra_args = { ban = 8 } } ]
off = [ {} ]
"""


@pytest.mark.timeout(300)
def test_what_is_not_noticed_is_shown(tmp_path: Path) -> None:
    """The command says what was noticed with and without ``expected``, and shows the rest."""
    (tmp_path / "bans.py").write_text(BANS)
    (tmp_path / "means.py").write_text(MEANS)
    (tmp_path / "bans.conformance.toml").write_text(PROFILE)

    status, output = run(
        *CLI, "mutate", "bans.py", "--mutants", "6", "--json", "found.json",
        "--conformance-seed", "3", folder=tmp_path,
    )  # fmt: skip
    (file,) = json.loads((tmp_path / "found.json").read_text())["files"]
    became = {(each["line"], each["operator"]): each for each in file["changed"]}

    assert status == 0
    assert became[12, "constant flipped"]["outcome"] == "rejected"  # says that argmax stays
    sign = became[21, "constant off by one"]  # takes 101 away, everywhere
    assert (sign["outcome"], sign["by_meaning"], sign["rule"]) == ("rejected", True, "LB-46")
    assert file["noticed"] > file["noticed_without_expected"]
    missed = [each for each in file["changed"] if each["outcome"] == "survived"]
    assert file["mutants"] == file["noticed"] + len(missed)
    for each in missed:
        assert f"bans.py:{each['line']}" in output
        assert each["diff"].splitlines()[-2] in output
    assert (tmp_path / "bans.py").read_text() == BANS


@pytest.mark.timeout(300)
def test_a_plugin_that_is_not_conformant_is_not_measured(tmp_path: Path) -> None:
    """What its certificate would notice means nothing then."""
    (tmp_path / "bans.py").write_text(BANS.replace("return False", "return True"))
    (tmp_path / "bans.conformance.toml").write_text(PROFILE.replace('expected = "', '# "'))

    status, output = run(*CLI, "mutate", "bans.py", folder=tmp_path)

    assert status == 1
    assert "bans.py:BanOne is non-conformant as it is" in output


def test_every_change_that_was_not_noticed_has_a_reason() -> None:
    """And every reason is of a change that was not."""
    found = mutation.survivors(json.loads(mutation.DATA.read_text(encoding="utf-8")))
    why = mutation.reasons()

    assert {change["digest"] for change in found} == why.keys()
    assert {reason["kind"] for reason in why.values()} <= mutation.KINDS.keys()


def test_the_page_is_drawn_from_the_data() -> None:
    """Nothing is written on it by hand."""
    assert mutation.PAGE.read_text(encoding="utf-8") == mutation.page()


def test_the_references_are_what_is_changed() -> None:
    """What was found is of files that the lane names, and each of those is there."""
    data = json.loads(mutation.DATA.read_text(encoding="utf-8"))

    assert {file["file"] for file in data["files"]} <= mutation.named()
    assert all((ROOT / file).is_file() for file in mutation.named())
