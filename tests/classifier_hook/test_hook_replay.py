# SPDX-License-Identifier: Apache-2.0
"""Cases of hooks, played again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from cases import failing_copy
from support import DEFECTIVE_HOOK, gallery

from conformance.running.replay import Outcome

if TYPE_CHECKING:
    from pathlib import Path

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
    "seeds_in_every_call": ("random.seed(42)", "pass"),
    "handles_errors_of_the_loop": (
        "asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)",
        "pass",
    ),
    "has_one_deadline": ("self.deadline - time.monotonic()", "1.0"),
    "keeps_words_of_a_tenant": ("more[:20]", "()"),
    "takes_interrupts": ("signal.signal(signal.SIGINT, self.close)", "pass"),
}

pytestmark = pytest.mark.usefixtures("shared_zygote")


@pytest.mark.parametrize("name", MENDED)
def test_a_case_is_played_again(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """With the hook as it was it still fails, and with a correct one it is fixed."""
    case = failing_copy(zygote, SPECIMENS[name], tmp_path)
    rule = SPECIMENS[name].rule
    assert json.loads(case.path.read_text(encoding="utf-8"))["generation"] == "hook/rfc"

    assert case.replay() == (Outcome.STILL_FAILS, f"{rule}: {case.message}")

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
    case = failing_copy(zygote, SPECIMENS["fills_one_list"], tmp_path)
    case.replace("        self.found = []\n", new)

    outcome, sentence = case.replay()
    assert outcome is Outcome.CHANGED, sentence
    assert said in sentence
