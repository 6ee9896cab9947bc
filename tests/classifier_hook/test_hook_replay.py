# SPDX-License-Identifier: Apache-2.0
"""Cases of hooks, played again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
from programs import write
from support import DEFECTIVE_HOOK, certify, gallery

from conformance.replay import Outcome, replay_case
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from support import Specimen

    from conformance.worker import Zygote

SPECIMENS = {specimen.name: specimen for specimen in gallery(DEFECTIVE_HOOK)}

#: How to mend some of the gallery: what is there, and what should be.
MENDED = {
    "gives_seconds": ("timeout_ms = 0.5", "timeout_ms = 500"),
    "misses_capitals": ("ctx.generated_text)", "ctx.generated_text.lower())"),
    "expects_a_tenant": ('ctx.extra_fields["tenant"]', 'ctx.extra_fields.get("tenant")'),
    "calls_it_an_error": ("except BaseException", "except OSError"),
    "exits_on_empty_text": ('sys.exit("nothing to score")', "return {}"),
    "fills_one_list": ("self.found", "found"),
    "counts_calls_in_progress": ("self.calls >= 50", "False"),
}

pytestmark = pytest.mark.usefixtures("shared_zygote")


@attrs.frozen
class Case:
    """A case file, and the hook that it is about, in a folder of their own."""

    path: Path
    plugin: Path

    def replace(self, old: str, new: str) -> None:
        """Write something else into the hook."""
        source = self.plugin.read_text(encoding="utf-8")
        assert old in source
        self.plugin.write_text(source.replace(old, new), encoding="utf-8")

    def replay(self) -> tuple[Outcome, str]:
        """Play the case again."""
        return replay_case(self.path, python_path=())


def _case(zygote: Zygote, original: Specimen, folder: Path) -> tuple[Case, str]:
    """Certify a copy of a defective hook; return the case of its failure, and what was said."""
    source, _, qualname = original.target.rpartition(":")
    plugin = folder / Path(source).name
    shutil.copy(source, plugin)
    specimen = attrs.evolve(original, target=f"{plugin}:{qualname}")
    rule = str(specimen.rule)
    result = certify(zygote, specimen, folder, rules={rule})[rule]
    assert result.verdict is Verdict.FAIL, result.message
    return Case(write(specimen, result, folder).with_suffix(".json"), plugin), str(result.message)


@pytest.mark.parametrize("name", MENDED)
def test_a_case_is_played_again(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """With the hook as it was it still fails, and with a correct one it is fixed."""
    case, message = _case(zygote, SPECIMENS[name], tmp_path)
    rule = SPECIMENS[name].rule
    assert json.loads(case.path.read_text(encoding="utf-8"))["generation"] == "hook/rfc"

    assert case.replay() == (Outcome.STILL_FAILS, f"{rule}: {message}")

    case.replace(*MENDED[name])
    outcome, sentence = case.replay()
    assert outcome is Outcome.FIXED, sentence
    assert sentence == f"{rule} holds in its check now"


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("        raise OSError('disk')\n", "OSError: disk"),
        ("        raise SystemExit(3)\n", "SystemExit(3)"),
        ("        return {'found': nothing_of_that_name}\n", "nothing_of_that_name"),
    ],
    ids=["raises", "exits", "names nothing"],
)
def test_another_fault_is_no_mending(zygote: Zygote, new: str, said: str, tmp_path: Path) -> None:
    """A hook that fails in another way by now is not fixed."""
    case, _ = _case(zygote, SPECIMENS["fills_one_list"], tmp_path)
    case.replace("        self.found = []\n", new)

    outcome, sentence = case.replay()
    assert outcome is Outcome.CHANGED, sentence
    assert said in sentence
