# SPDX-License-Identifier: Apache-2.0
"""A plugin that fails, in a folder of its own, with the case and the program of its failure."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
from programs import write
from support import certify

from conformance.running.replay import Outcome, replay_case
from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from support import Specimen

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote


@attrs.frozen
class Case:
    """A case file, and the plugin that it is about."""

    plugin: Path
    result: RuleResult
    program: Path  #: where the program lies, if there is one
    correct: str = ""  #: the source of a correct plugin, where one is known

    @property
    def path(self) -> Path:
        """The case file."""
        return self.program.with_suffix(".json")

    @property
    def message(self) -> str:
        """What was said of the failure."""
        return str(self.result.message)

    def mend(self) -> None:
        """Put the correct plugin in the place of the faulty one."""
        assert self.correct
        self.plugin.write_text(self.correct, encoding="utf-8")

    def replace(self, old: str, new: str) -> None:
        """Change the plugin as it is now."""
        source = self.plugin.read_text(encoding="utf-8")
        assert old in source
        self.plugin.write_text(source.replace(old, new), encoding="utf-8")

    def replay(self) -> tuple[Outcome, str]:
        """Play the case again."""
        return replay_case(self.path, python_path=())


def failing_copy(
    zygote: Zygote,
    original: Specimen,
    folder: Path,
    *,
    budget: Budget = Budget.STANDARD,
    correct: str = "",
) -> Case:
    """Certify a copy of a defective plugin, and write the case of its failure."""
    source, _, qualname = original.target.rpartition(":")
    plugin = folder / Path(source).name
    shutil.copy(source, plugin)
    specimen = attrs.evolve(original, target=f"{plugin}:{qualname}")
    return failing(zygote, specimen, plugin, budget=budget, correct=correct)


def failing(
    zygote: Zygote, specimen: Specimen, plugin: Path, *, budget: Budget, correct: str
) -> Case:
    """Certify a defective plugin where it lies, and write the case of its failure beside it."""
    rule, folder = str(specimen.rule), plugin.parent
    result = certify(zygote, specimen, folder, rules={rule}, budget=budget)[rule]
    assert result.verdict is Verdict.FAIL, result.message
    return Case(plugin, result, write(specimen, result, folder), correct)
