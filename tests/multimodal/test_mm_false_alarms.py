# SPDX-License-Identifier: Apache-2.0
"""Correct processors pass everything: ours, unusual ones, and vLLM's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from specimens import builtin_processors, processor_references
from support import UNUSUAL_PROCESSOR, Specimen, certify, gallery, good

from conformance.settings import UsageError
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote


NEEDY = """\
from fixtures.multimodal.small_model import SmallModel, SmallProcessor, registered


class NeedyProcessor(SmallProcessor):
    def audio(self, *arguments):
        import no_such_package


@registered(NeedyProcessor)
class Needy(SmallModel):
    def __init__(self, *, vllm_config, prefix=""):
        import no_such_package
"""


def _passes(zygote: Zygote, specimen: Specimen, folder: Path) -> None:
    results = certify(zygote, specimen, folder)

    broken = {rule: one.message for rule, one in results.items() if one.verdict not in good(rule)}
    assert set(broken) == set(specimen.advice), broken
    rules = {"MM-10", "MM-12", "MM-21", "MM-34", "MM-40", "MM-29"}
    if specimen.name == "runs_on_raw_items":  # which have no places in a prompt
        rules -= {"MM-21", "MM-29"}
    for rule in rules:
        assert results[rule].acted, rule


@pytest.mark.parametrize(
    "specimen",
    [*processor_references(), *gallery(UNUSUAL_PROCESSOR)],
    ids=lambda specimen: specimen.label,
)
def test_passes_everything(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A correct processor passes every rule that applies to it."""
    _passes(zygote, specimen, tmp_path)


def test_a_model_that_needs_a_package_of_its_own(zygote: Zygote, tmp_path: Path) -> None:
    """What its author has and this machine has not is said, and is no fault."""
    (tmp_path / "needy.py").write_text(NEEDY, encoding="utf-8")
    specimen = Specimen(
        f"{tmp_path / 'needy.py'}:Needy",
        None,
        {"model": "fixtures.multimodal.small_model:write_checkpoint"},
        generation="mm/processor",
    )

    results = certify(zygote, specimen, tmp_path, rules={"MM-02", "MM-11"})

    made, served = results["MM-02"], results["MM-11"]
    assert (made.verdict, served.verdict) == (Verdict.NOT_VERIFIED, Verdict.NOT_VERIFIED)
    assert "install no_such_package" in str(made.message)
    assert str(served.message).endswith(
        "No module named 'no_such_package': install no_such_package, or put the folder that has it "
        "on PYTHONPATH)"
    )


def test_rows_that_the_engine_is_not_to_take(zygote: Zygote, tmp_path: Path) -> None:
    """The argument of the engine that is missing is said, and is no fault."""
    (of_rows,) = (each for each in gallery(UNUSUAL_PROCESSOR) if "rows_of_its_own" in each.target)
    assert isinstance(of_rows.profile, dict)
    profile = {key: value for key, value in of_rows.profile.items() if key != "engine"}

    specimen = attrs.evolve(of_rows, profile=profile)
    results = certify(zygote, specimen, tmp_path, rules={"MM-11", "MM-85"})

    for result in results.values():
        assert result.verdict is Verdict.NOT_VERIFIED, result.message
        assert "set [multimodal] engine = { enable_mm_embeds = true }" in str(result.message)
    assert results.keys() == {"MM-11", "MM-85"}


#: Works in no engine but one that is told so.
TOLD = """\
from fixtures.multimodal.small_model import SmallModel, registered

@registered()
class Told(SmallModel):
    def __init__(self, *, vllm_config, prefix=""):
        if vllm_config.model_config.multimodal_config.enable_mm_embeds is False:
            raise ValueError("serve it with --enable-mm-embeds")
        super().__init__(vllm_config=vllm_config, prefix=prefix)
"""


@pytest.mark.parametrize(
    ("engine", "verdict", "refusal"),
    [
        ({"enable_mm_embeds": True}, Verdict.PASS, None),
        ({}, Verdict.FAIL, None),
        (
            {"mm_encoder_tp_mod": "data"},
            None,
            "no such argument. Did you mean 'mm_encoder_tp_mode'",
        ),
        ({"dtype": "half"}, None, "engine.dtype is for the harness to say"),
    ],
)
def test_a_model_that_needs_an_argument_of_the_engine(
    zygote: Zygote,
    tmp_path: Path,
    engine: dict[str, object],
    verdict: Verdict | None,
    refusal: str | None,
) -> None:
    """The profile names it, and a wrong one is told."""
    (tmp_path / "told.py").write_text(TOLD, encoding="utf-8")
    profile = {"model": "fixtures.multimodal.small_model:write_checkpoint", "engine": engine}
    specimen = Specimen(f"{tmp_path / 'told.py'}:Told", None, profile, generation="mm/processor")

    if refusal is not None:
        with pytest.raises(UsageError, match=refusal):
            certify(zygote, specimen, tmp_path, rules={"MM-02"})
        return
    results = certify(zygote, specimen, tmp_path, rules={"MM-02", "MM-20"})
    assert results["MM-02"].verdict is verdict, results["MM-02"].message
    assert (results["MM-20"].verdict is Verdict.PASS) == (verdict is Verdict.PASS)


@pytest.mark.slow
@pytest.mark.parametrize("specimen", builtin_processors(), ids=lambda specimen: specimen.label)
def test_models_of_vllm_pass_everything(seeing: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """LLaVA, Qwen2-VL and Qwen2-Audio pass every rule that applies to them."""
    _passes(seeing, specimen, tmp_path)
