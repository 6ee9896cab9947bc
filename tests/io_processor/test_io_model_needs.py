# SPDX-License-Identifier: Apache-2.0
"""Plugins whose model the harness does not have: it says which one they need, and blames nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest
from support import Specimen, certify
from user import CACHE

from conformance.engine.models import CONTEXT
from conformance.engine.pooling_models import tiny_embedding, with_options
from conformance.rules import Evidence
from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

#: A correct plugin; each variation follows it, a class of its own.
SOURCE = """\
import torch
from vllm.plugins.io_processors.interface import IOProcessor
from vllm.pooling_params import PoolingParams


class Embeds(IOProcessor):
    def parse_data(self, data):
        text = data.get("text") if isinstance(data, dict) else None
        if not isinstance(text, str) or not text.strip():
            raise ValueError("data must be an object with a text")
        return text

    def merge_pooling_params(self, params=None):
        params = PoolingParams() if params is None else params
        params.task = "embed"
        return params

    def pre_process(self, prompt, request_id=None, **kwargs):
        return prompt

    def post_process(self, model_output, request_id=None, **kwargs):
        return model_output[0].outputs.data.tolist()


class Variation(Embeds):
"""

PICTURE = '{"prompt": "what is it", "multi_modal_data": {"image": [[0, 1], [1, 0]]}}'

#: What ``pre_process`` returns, and what a model must be for that.
PROMPTS = {
    PICTURE: "a multi-modal model",
    f"[prompt, {PICTURE}]": "a multi-modal model",
    '{"encoder_prompt": prompt, "decoder_prompt": None}': "an encoder-decoder model",
    "[101, 2054, 102]": "a vocabulary of 2,055 tokens",
    '{"prompt_token_ids": [7] * 600}': "a model that takes 600 tokens",
    "prompt * 99": "a model that takes ",
    '""': "a model whose tokenizer makes tokens of an empty text",
}
UNSAID = "        return params or PoolingParams()\n"
FORGETFUL = "        return params or PoolingParams(task='embed')\n"


def _certified(
    zygote: Zygote,
    folder: Path,
    body: str,
    rules: Collection[str],
    *,
    model: str = "tiny-embedding",
    evidence: Evidence = Evidence.SIMULATOR,
) -> dict[str, RuleResult]:
    path = folder / "variation.py"
    path.write_text(SOURCE + body, encoding="utf-8")
    profile = {"model": model, "valid": [{"text": "a fox runs"}, {"text": "two hounds sleep"}]}
    specimen = Specimen(f"{path}:Variation", None, profile, generation="io/data")
    return certify(zygote, specimen, folder, rules=rules, evidence=(evidence,), budget=Budget.QUICK)


def _prompts(returned: str) -> str:
    hook = "    def pre_process(self, prompt, request_id=None, **kwargs):\n"
    return f"{hook}        return {returned}\n"


def _params(body: str) -> str:
    return f"    def merge_pooling_params(self, params=None):\n{body}"


@pytest.mark.parametrize(("returned", "need"), PROMPTS.items(), ids=lambda text: text[:20])
def test_prompts_that_need_another_model_are_no_fault(
    zygote: Zygote, tmp_path: Path, returned: str, need: str
) -> None:
    """The rule says which model takes them and where it is named, and all others wait for it."""
    results = _certified(zygote, tmp_path, _prompts(returned), {"IO-07", "IO-13", "IO-27"})

    assert {result.verdict for result in results.values()} == {Verdict.NOT_VERIFIED}
    said = results["IO-13"].message or ""
    assert need in said
    assert "tiny-embedding" in said
    assert "[io-processor] model" in said
    assert results["IO-27"].waits_for == ("IO-13",)


def test_a_model_is_asked_for_where_trying_found_data(zygote: Zygote, tmp_path: Path) -> None:
    """Without a profile, vLLM's refusal of the prompts is no lack of data that the plugin takes."""
    path = tmp_path / "variation.py"
    path.write_text(SOURCE + _prompts("[101, 2054, 102]"), encoding="utf-8")
    specimen = Specimen(f"{path}:Variation", None, {}, generation="io/data")

    said = str(certify(zygote, specimen, tmp_path, rules={"IO-07"})["IO-07"].message)

    assert "need a vocabulary of 2,055 tokens" in said
    assert "nobody knows" not in said
    profile = tomllib.loads(said[said.index("[io-processor]\n") :])["io-processor"]
    assert profile["model"] == "FOLDER"
    assert list(profile["valid"][0]) == ["text"]
    assert len(profile["valid"][0]["text"].split()) > 1


@pytest.mark.parametrize("returned", ["[101, 2054, 102]", "[7] * 600"])
def test_a_model_that_the_profile_names_by_its_folder_is_the_plugins_own(
    zygote: Zygote, tmp_path: Path, returned: str
) -> None:
    """What vLLM refuses with that model is the plugin's fault."""
    model = str(tmp_path / "mine")
    (tmp_path / "mine").symlink_to(tiny_embedding())
    found = _certified(zygote, tmp_path, _prompts(returned), {"IO-13"}, model=model)["IO-13"]

    assert found.verdict is Verdict.FAIL
    assert "vLLM does not take" in (found.message or "")


@pytest.mark.engine
@pytest.mark.parametrize("evidence", Evidence, ids=lambda each: each.value)
def test_prompts_are_as_long_as_the_plugins_own_model_takes_them(
    zygote: Zygote, tmp_path: Path, evidence: Evidence
) -> None:
    """They had to fit into the harness's own model, whichever the profile named."""
    longer = {"max_position_embeddings": 2 * CONTEXT}
    model = str(with_options(longer, tmp_path / "longer", tiny_embedding()))
    body = _prompts(f"[7] * {CONTEXT + 100}")
    rules = {"IO-13", "IO-01"}
    found = _certified(zygote, tmp_path, body, rules, model=model, evidence=evidence)

    assert {
        rule: each.message for rule, each in found.items() if each.verdict is Verdict.FAIL
    } == {}
    assert found["IO-13" if evidence is Evidence.SIMULATOR else "IO-01"].verdict is Verdict.PASS


@pytest.mark.engine
def test_a_certificate_names_a_folder_and_not_where_it_lies(tmp_path: Path) -> None:
    """The model of the profile is a folder of this machine, whose name says enough."""
    (tmp_path / "mine").symlink_to(tiny_embedding())
    (tmp_path / "variation.py").write_text(SOURCE + _params(FORGETFUL), encoding="utf-8")
    profile = '[io-processor]\nmodel = "mine"\nvalid = [{ text = "a fox runs" }]\n'
    (tmp_path / "variation.conformance.toml").write_text(profile)
    command = [sys.executable, "-m", "conformance.cli", "certify", "variation.py:Variation@io/data"]
    options = ["--evidence=offline", "--budget=quick", "--conformance-report=reports", "--quiet"]
    variables = os.environ | {"VLLM_CONFORMANCE_CACHE": CACHE}
    subprocess.run([*command, *options], cwd=tmp_path, check=False, env=variables)
    (path,) = (tmp_path / "reports").glob("*/certificate.json")
    written = path.read_text(encoding="utf-8")

    assert json.loads(written)["environment"]["model"] == "mine"
    assert str(tmp_path) not in written


@pytest.mark.engine
def test_a_task_that_nobody_set_is_named(zygote: Zygote, tmp_path: Path) -> None:
    """The model has no pooler for what vLLM makes of it; which line is missing is said."""
    found = _certified(zygote, tmp_path, _params(UNSAID), {"IO-07"}, evidence=Evidence.OFFLINE)[
        "IO-07"
    ]

    assert found.verdict is Verdict.NOT_VERIFIED
    for said in ("merge_pooling_params leaves params.task", "'plugin'", "set params.task"):
        assert said in (found.message or "")


@pytest.mark.engine
def test_a_task_that_is_dropped_offline_is_for_callers_to_name(
    zygote: Zygote, tmp_path: Path
) -> None:
    """An engine answers who names it; that they have to, a rule of its own says."""
    body = _params(FORGETFUL)
    offline = _certified(zygote, tmp_path, body, {"IO-07"}, evidence=Evidence.OFFLINE)["IO-07"]
    named = _certified(zygote, tmp_path, body, {"IO-43"})["IO-43"]

    assert offline.verdict is Verdict.PASS
    assert named.verdict is Verdict.FAIL
    assert "given PoolingParams() as offline, leaves params.task" in (named.message or "")


def test_the_error_is_told_where_no_data_are_answered(zygote: Zygote, tmp_path: Path) -> None:
    """Of what was tried the message has what got past the reading of data."""
    wants = """
    def pre_process(self, prompt, request_id=None, **kwargs):
        raise LookupError("the tokenizer has no token [SEP]")
"""
    path = tmp_path / "wants.py"
    path.write_text(SOURCE + wants, encoding="utf-8")
    found = certify(zygote, Specimen(f"{path}:Variation", None, {}, generation="io/data"), tmp_path)
    said = str(found["IO-26"].message)

    assert found["IO-26"].verdict is Verdict.NOT_VERIFIED
    assert "(it asks for text; {" in said
    assert "in pre_process (LookupError: the tokenizer has no token [SEP])); give a profile" in said


CONFIG = "vllm_config.model_config.hf_config"
FILE = "json.loads((Path(vllm_config.model_config.model) / 'config.json').read_text())"


def _constructor(expression: str) -> str:
    return f"""
    def __init__(self, vllm_config, renderer=None):
        import json
        from pathlib import Path

        super().__init__(vllm_config, renderer)
        self.prefix = {expression}
"""


@pytest.mark.parametrize(
    "expression",
    [f"{CONFIG}.own_prefix", f"{CONFIG}.to_dict()['own_prefix']['text']", f"{FILE}['own_prefix']"],
    ids=["attribute", "key", "file"],
)
def test_an_option_of_its_own_models_configuration_is_named(
    zygote: Zygote, tmp_path: Path, expression: str
) -> None:
    """A constructor that reads what the tiny model's config.json has not needs another model."""
    found = _certified(zygote, tmp_path, _constructor(expression), {"IO-02", "IO-07"})
    said = found["IO-02"].message or ""

    assert {result.verdict for result in found.values()} == {Verdict.NOT_VERIFIED}
    assert "the model that it is tried with has no 'own_prefix' in its config.json" in said
    assert '[io-processor] model = "FOLDER"' in said
    assert found["IO-07"].waits_for == ("IO-02",)


@pytest.mark.parametrize("expression", ["{}['own_prefix']", "self.own_prefix"])
def test_a_name_that_no_configuration_would_have_helped_with_is_a_fault(
    zygote: Zygote, tmp_path: Path, expression: str
) -> None:
    """What is looked for elsewhere stays missing in a model that has such an option."""
    found = _certified(zygote, tmp_path, _constructor(expression), {"IO-02"})["IO-02"]

    assert found.verdict is Verdict.FAIL
    assert "own_prefix" in (found.message or "")


#: What a constructor refuses of a model that it did not choose, or of its engine.
DEMANDS = {
    "tokens": "renderer.get_tokenizer().convert_tokens_to_ids('[Q]') in (None, 0)",
    "room": "vllm_config.model_config.max_model_len < 2048",
    "type": f"{CONFIG}.model_type != 'modernbert'",
    "argument": "vllm_config.cache_config.enable_prefix_caching",
}

DEMANDING = """
    def __init__(self, vllm_config, renderer=None):
        super().__init__(vllm_config, renderer)
        if {}:
            raise {}("this is for another one")
"""


@pytest.mark.parametrize("demand", DEMANDS)
def test_a_constructor_may_refuse_a_model_that_it_is_not_for(
    zygote: Zygote, tmp_path: Path, demand: str
) -> None:
    """What it raises by itself is quoted, and the profile's key for another model is named."""
    body = DEMANDING.format(DEMANDS[demand], "ValueError" if demand == "room" else "RuntimeError")
    found = _certified(zygote, tmp_path, body, {"IO-02", "IO-07"})
    said = found["IO-02"].message or ""

    assert {result.verdict for result in found.values()} == {Verdict.NOT_VERIFIED}
    assert "this is for another one" in said
    assert '[io-processor] model = "FOLDER"' in said
    assert found["IO-07"].waits_for == ("IO-02",)


def test_a_constructor_that_refuses_its_own_model_is_a_fault(
    zygote: Zygote, tmp_path: Path
) -> None:
    """The folder that the profile names is of the model that the plugin is for."""
    (tmp_path / "mine").symlink_to(tiny_embedding())
    body = DEMANDING.format(DEMANDS["type"], "ValueError")
    found = _certified(zygote, tmp_path, body, {"IO-02"}, model=str(tmp_path / "mine"))["IO-02"]

    assert found.verdict is Verdict.FAIL
    assert "this is for another one" in (found.message or "")


@pytest.mark.parametrize("error", ["NotImplementedError", "RuntimeError"])
def test_a_constructor_that_takes_nothing_is_a_fault(
    zygote: Zygote, tmp_path: Path, error: str
) -> None:
    """No other model helps where it raises whatever it is given, or is not written yet."""
    body = DEMANDING.format("True", error)
    if error == "RuntimeError":
        body = body.replace("        if True:\n    ", "")
    found = _certified(zygote, tmp_path, body, {"IO-02"})["IO-02"]

    assert found.verdict is Verdict.FAIL
