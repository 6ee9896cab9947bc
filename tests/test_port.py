# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance port``: the class that it writes, and what it says where it cannot."""

from __future__ import annotations

import ast
import tomllib
from textwrap import dedent
from typing import TYPE_CHECKING

import attrs
import pytest
from specimens import references
from support import Specimen, certify
from user import CLI, run

from conformance.generations import named
from conformance.plugin import profile
from conformance.plugin.target import Plugin
from conformance.porting.writing import Kind, name_of, written
from conformance.rules import Level
from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

#: The only advice that a written class leaves to its author.
TO_DO = {Kind.CALLABLES: {"LS-28"}, Kind.ROWS: {"LS-28", "LS-29"}}

HEAD = """\
import torch
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor, LogitsProcessor


"""
COUNTS_CALLS = HEAD + dedent(
    '''\
    class Bans:
        """Bans a token from its third call on."""

        def __init__(self, token):
            self.token, self.calls = token, 0

        def __call__(self, output_ids, logits):
            self.calls += 1
            if self.calls > 2:
                logits[self.token] = -torch.inf
            return logits


    class BansLate(AdapterLogitsProcessor):
        @classmethod
        def validate_params(cls, params):
            token = (params.extra_args or {}).get("ban")
            if token is not None and (type(token) is not int or not 0 <= token < 128):
                raise ValueError("ban must be a token id below 128")

        def is_argmax_invariant(self):
            return False

        def new_req_logits_processor(self, params):
            token = (params.extra_args or {}).get("ban")
            return None if token is None else Bans(token)
    '''
)
PROFILE = """\
[logits-processor]
on = [{ extra_args = { ban = 3 } }, { extra_args = { ban = 8 } }]
off = [{}]
"""


def _plugin(module: str, name: str) -> Plugin:
    return Plugin(
        target=f"{module}:{name}", interface="logits-processor", generation="logits/batch",
        module=module, qualname=name, root=None, path=None, digest=None, version=None,
    )  # fmt: skip


@pytest.mark.parametrize("kind", Kind)
def test_what_is_written_needs_vllm_and_the_plugin_alone(kind: Kind) -> None:
    """The file is Python that names nothing of this project but who wrote it."""
    text = written(_plugin("my_module", "Mine"), kind)
    tree = ast.parse(text)
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}

    assert {str(name).partition(".")[0] for name in modules} <= {
        "__future__", "typing", "vllm", "my_module",
    }  # fmt: skip
    assert "PortedMine" in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert "from my_module import Mine as Batch" in text
    assert "``Batch``" not in text
    assert "conformance" not in text.replace("``vllm-conformance port``", "")


@pytest.mark.parametrize("specimen", references(), ids=lambda each: each.label)
def test_references_are_ported(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """Each is conformant in Model Runner V2, and gives the same rows there."""
    path, _, name = specimen.target.partition(":")
    module = "reference_plugins.logits_batch." + path.rpartition("/")[2].removesuffix(".py")
    plugin = _plugin(module, name)
    kind = Kind.CALLABLES if name == "TwoArgumentTargetToken" else Kind.ROWS
    (tmp_path / "ported.py").write_text(written(plugin, kind), encoding="utf-8")
    ported = attrs.evolve(
        specimen,
        target=f"{tmp_path / 'ported.py'}:{name_of(plugin)}",
        generation="logits/slot",
    )
    results = certify(zygote, ported, tmp_path, budget=Budget.QUICK)
    wrong = {rule for rule, each in results.items() if each.verdict is Verdict.FAIL}

    assert wrong <= TO_DO[kind], {rule: results[rule].message for rule in wrong}
    assert results["LS-31"].verdict is Verdict.PASS
    assert Verdict.ERROR not in {each.verdict for each in results.values()}


@pytest.mark.timeout(300)
def test_what_stands_in_the_way_is_shown(tmp_path: Path) -> None:
    """A callable that counts its calls counts drafts that are not taken, and the certificate says.

    The file stays for its author, with the profile of the class that it was made of.
    """
    (tmp_path / "late.py").write_text(COUNTS_CALLS)
    (tmp_path / "late.conformance.toml").write_text(PROFILE)
    status, said = run(*CLI, "port", "late.py", folder=tmp_path)

    assert status == 1
    assert said.startswith("wrote late_ported.py\nwrote late_ported.conformance.toml\n")
    assert "late_ported.py:PortedBansLate@logits/batch  CONFORMANT" in said
    assert "late_ported.py:PortedBansLate@logits/slot  NON-CONFORMANT" in said
    assert "LS-10" in said
    assert profile.load("late_ported.conformance.toml", tmp_path).sections == tomllib.loads(PROFILE)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("x = 1\n", "plugin.py"),
        (HEAD + "class A(LogitsProcessor): pass\nclass B(A): pass\n", "name one."),
    ],
)
def test_what_cannot_be_ported_is_told(tmp_path: Path, source: str, sentence: str) -> None:
    """One sentence, and nothing is written."""
    (tmp_path / "plugin.py").write_text(source)
    status, said = run(*CLI, "port", "plugin.py", folder=tmp_path)

    assert status == 4
    assert sentence in said
    assert "Traceback" not in said
    assert not (tmp_path / "plugin_ported.py").exists()


def test_levels_of_what_is_left_to_do() -> None:
    """What a written class leaves to its author is advice, never a MUST."""
    rules = {rule.id: rule for rule in named("logits/slot").rules}

    assert {rules[each].level for each in TO_DO[Kind.ROWS]} == {Level.SHOULD}
