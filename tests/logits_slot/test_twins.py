# SPDX-License-Identifier: Apache-2.0
"""A reference plugin and its twin for the other model runner give the same tokens."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import ROOT

from conformance.engine.models import tiny_llama
from conformance.plugin import target as targets

if TYPE_CHECKING:
    from conformance.engine.model_runner import Runner
    from conformance.worker import Zygote

REFERENCE = ROOT / "reference_plugins"

TWINS = {
    "target_token": ("TargetTokenLogitsProcessor", "TargetTokenSlotLogitsProcessor"),
    "no_repeat_ngram": ("NoRepeatNgramLogitsProcessor", "NoRepeatNgramSlotLogitsProcessor"),
    "dual_target_token": ("DualTargetTokenLogitsProcessor",) * 2,
}


@pytest.mark.engine
@pytest.mark.parametrize("name", TWINS)
def test_both_runners_give_the_same_tokens(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """The same requests, chunked and preempted, get the same tokens through both runners."""
    batch, slot = TWINS[name]
    profile = REFERENCE / "logits_slot" / f"{name}.conformance.toml"
    section = tomllib.loads(profile.read_text(encoding="utf-8"))["logits-processor"]
    parameters = {
        (kind, index): keywords
        for kind in ("on", "off")
        for index, keywords in enumerate(section[kind])
    }
    folder = "logits_slot" if batch == slot else "logits_batch"
    v1, first = _ask(zygote, f"{folder}/{name}.py:{batch}", parameters, "v1", tmp_path)
    v2, second = _ask(zygote, f"logits_slot/{name}.py:{slot}", parameters, "v2", tmp_path)

    assert v1 == v2
    assert first
    assert second
    assert len({tokens for (kind, _), tokens in v1 if kind == "on"}) > 1


def _ask(
    zygote: Zygote, target: str, parameters: dict[Any, Any], runner: Runner, folder: Path
) -> Any:  # noqa: ANN401 - the answer of the job
    (parsed,) = targets.parse(str(REFERENCE / target), folder)
    arguments = {
        "target": parsed,
        "parameters": parameters,
        "model": str(tiny_llama()),
        "runner": runner,
    }
    job = zygote.fork(
        "twin_job:ask",
        arguments,
        log=folder / f"{runner}.log",
        directory=folder,
        python_path=[str(Path(__file__).parent), str(parsed.root)],
    )
    answer = job.ask("ask", limit=240)
    job.close()
    return answer
