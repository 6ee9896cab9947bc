# SPDX-License-Identifier: Apache-2.0
"""Plugins whose model has a pooler of its own: outputs are made up, and nobody knows them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import Specimen, certify

from conformance.engine.pooling_models import tiny_embedding
from conformance.io_processor.suites.shared import own_host
from conformance.rules import Evidence
from conformance.settings import UsageError
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Collection

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

#: Its model returns [n, byte 1 ... byte n], in UTF-8, for the task "plugin".
FRAMED = """\
import os
import time

from vllm.inputs import TokensPrompt
from vllm.plugins.io_processors.interface import IOProcessor
from vllm.pooling_params import PoolingParams


class Framed(IOProcessor):
    def parse_data(self, data):
        if not isinstance(data, dict) or not isinstance(data.get("text"), str) or not data["text"]:
            raise ValueError("'text' is required")
        return data["text"]

    def merge_pooling_params(self, params=None):
        params = params or PoolingParams()
        params.task = "plugin"
        return params

    def pre_process(self, prompt, request_id=None, **kwargs):
        return TokensPrompt(prompt_token_ids=[1 + ord(c) % 90 for c in prompt[:50]])

    def post_process(self, model_output, request_id=None, **kwargs):
        data = model_output[0].outputs.data.tolist()
        return bytes(int(b) for b in data[1 : int(data[0]) + 1]).decode("utf-8")
"""

#: Variations, each a class of its own that follows the first.
VARIATIONS = {
    # vLLM fixes what embeddings of tokens are.
    "EmbedsTokens": """
    def merge_pooling_params(self, params=None):
        params = params or PoolingParams()
        params.task = "token_embed"
        return params
""",
    # The task that hosts make "plugin".
    "AsksForNone": """
    def merge_pooling_params(self, params=None):
        return params or PoolingParams()
""",
    # What an identity pooler returns.
    "TakesStates": """
    def post_process(self, model_output, request_id=None, **kwargs):
        return model_output[0].outputs.data.mean(0).tolist()
""",
    "NeedsAnId": """
    def post_process(self, model_output, request_id=None, **kwargs):
        return [request_id.upper()[:2], *model_output[0].outputs.data.mean(0).tolist()]
""",
    "RaisesInPreProcess": """
    def pre_process(self, prompt, request_id=None, **kwargs):
        return {}["prompt"]
""",
    "Sleeps": """
    def pre_process(self, prompt, request_id=None, **kwargs):
        time.sleep(0.15)
        return super().pre_process(prompt)
""",
    "TakesTwoRows": """
    def post_process(self, model_output, request_id=None, **kwargs):
        return model_output[0].outputs.data[1].tolist()
""",
    "DividesByNone": """
    def post_process(self, model_output, request_id=None, **kwargs):
        data = model_output[0].outputs.data.mean(0)
        return (data / (data - data)).tolist()
""",
    "SendsANonce": """
    def pre_process(self, prompt, request_id=None, **kwargs):
        tokens = super().pre_process(prompt)["prompt_token_ids"]
        tokens = [*tokens, *(1 + byte % 90 for byte in os.urandom(4))]
        vars(self).setdefault("sent", {})[request_id] = tokens
        return TokensPrompt(prompt_token_ids=tokens)

    def post_process(self, model_output, request_id=None, **kwargs):
        if self.sent.pop(request_id) != list(model_output[0].prompt_token_ids):
            raise RuntimeError("this is not what was sent")
        return super().post_process(model_output)
""",
    "ReadsToTheEnd": """
    def post_process(self, model_output, request_id=None, **kwargs):
        data = model_output[0].outputs.data.flatten().tolist()
        place, found = 0, []
        while place < len(data):
            found.append(data[place])
            place += max(0, int(data[place]) // 100)
        return found
""",
}

#: Rules that need no request.
WITHOUT_DATA = {"IO-01", "IO-02", "IO-05", "IO-14", "IO-15", "IO-16", "IO-39", "IO-43"}

#: What the author says of that model, and below a mistake in it.
POOLED = """\
import torch


def pooled(prompt, params):
    text = bytes(64 + token % 60 for token in prompt["prompt_token_ids"])
    return torch.tensor([len(text), *text])
"""
#: The same where four tokens more stand at the end, which the model does not look at.
NONCE_LEFT_OUT = POOLED.replace('["prompt_token_ids"]', '["prompt_token_ids"][:-4]')

MISTAKEN = "def pooled(prompt, params):\n    return {}[prompt]\n"


def _certified(
    zygote: Zygote,
    folder: Path,
    name: str,
    rules: Collection[str] | None = None,
    *,
    model: str = "tiny-embedding",
) -> dict[str, RuleResult]:
    source = FRAMED
    if name in VARIATIONS:
        source += f"\n\nclass {name}(Framed):{VARIATIONS[name]}"
    path = folder / "framed.py"
    path.write_text(source, encoding="utf-8")
    profile = {
        "model": model,
        "valid": [{"text": "one"}, {"text": "another"}],
        "invalid": [{}],
    }
    specimen = Specimen(f"{path}:{name}", None, profile, generation="io/data")
    return certify(zygote, specimen, folder, rules=rules)


@pytest.mark.parametrize("name", ["Framed", "AsksForNone"])
def test_nothing_is_held_against_a_plugin(zygote: Zygote, tmp_path: Path, name: str) -> None:
    """It is not said to fail nor to pass, and what would show it is said."""
    results = _certified(zygote, tmp_path, name)

    answers = results["IO-07"]
    assert answers.verdict is Verdict.NOT_VERIFIED
    assert answers.message is not None
    assert "made up" in answers.message
    assert f"{Evidence.OFFLINE} evidence" in answers.message
    assert {rule for rule, r in results.items() if r.verdict is Verdict.PASS} == WITHOUT_DATA
    for rule in set(results) - WITHOUT_DATA - {"IO-06", "IO-07", "IO-40"}:
        assert results[rule].verdict is Verdict.NOT_VERIFIED, rule
        assert results[rule].waits_for == ("IO-07",), rule


def _model(folder: Path, pooled: str) -> str:
    """Return a folder of a model without weights, whose author says what its pooler returns."""
    model = folder / "model"
    model.mkdir()
    for path in tiny_embedding().glob("*.json"):
        shutil.copy(path, model)
    (model / "pooled.py").write_text(pooled, encoding="utf-8")
    return str(model)


def test_the_author_says_what_the_pooler_returns(zygote: Zygote, tmp_path: Path) -> None:
    """With ``pooled.py`` in the model's folder every rule is judged, and a replay has the same."""
    results = _certified(zygote, tmp_path, "Framed", model=_model(tmp_path, POOLED))

    bad = {
        rule: result.message
        for rule, result in results.items()
        if result.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE)
    }
    assert not bad
    assert results["IO-27"].acted


def test_outputs_are_of_the_prompts_that_were_sent(zygote: Zygote, tmp_path: Path) -> None:
    """Prompts that are never twice the same do not get outputs of earlier ones."""
    model = _model(tmp_path, NONCE_LEFT_OUT)
    results = _certified(zygote, tmp_path, "SendsANonce", {"IO-24", "IO-35"}, model=model)

    assert {found.verdict for found in results.values()} == {Verdict.PASS}, results


@pytest.mark.parametrize(("name", "rule"), [("TakesTwoRows", "IO-07"), ("DividesByNone", "IO-22")])
def test_what_is_wrong_with_known_outputs_fails(
    zygote: Zygote, tmp_path: Path, name: str, rule: str
) -> None:
    """Where outputs are known, nothing about them excuses a plugin."""
    model = _model(tmp_path, POOLED.replace("torch.tensor(", "torch.ones(1, 1) * len("))
    result = _certified(zygote, tmp_path, name, {rule}, model=model)[rule]

    assert result.verdict is Verdict.FAIL, result.message


def test_a_mistake_of_the_author_is_not_the_plugins(zygote: Zygote, tmp_path: Path) -> None:
    """A function that raises shows nothing, and is named."""
    model = _model(tmp_path, MISTAKEN)
    results = _certified(zygote, tmp_path, "Framed", {"IO-07", "IO-09", "IO-22"}, model=model)

    assert {result.verdict for result in results.values()} == {Verdict.NOT_VERIFIED}
    assert "pooled.py raised" in (results["IO-07"].message or "")


@pytest.mark.parametrize("name", ["TakesTwoRows", "DividesByNone"])
def test_luck_with_some_outputs_shows_nothing(zygote: Zygote, tmp_path: Path, name: str) -> None:
    """Outputs of one row, and numbers that JSON has not, may be due to what was made up."""
    results = _certified(zygote, tmp_path, name, {"IO-07", "IO-08", "IO-09", "IO-22"})

    assert Verdict.FAIL not in {result.verdict for result in results.values()}
    assert results["IO-09"].verdict is Verdict.NOT_VERIFIED
    assert "made up" in (results["IO-07" if name == "DividesByNone" else "IO-09"].message or "")


def test_outputs_that_are_taken_show_all(zygote: Zygote, tmp_path: Path) -> None:
    """A plugin that takes what was made up passes everything."""
    results = _certified(zygote, tmp_path, "TakesStates")

    bad = {
        rule: result.message
        for rule, result in results.items()
        if result.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE)
    }
    assert not bad
    assert results["IO-27"].acted


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("EmbedsTokens", "IO-07"),
        ("RaisesInPreProcess", "IO-07"),
        ("NeedsAnId", "IO-07"),
        ("Sleeps", "IO-32"),
    ],
)
def test_what_is_no_matter_of_outputs_fails(
    zygote: Zygote, tmp_path: Path, name: str, rule: str
) -> None:
    """Outputs of a fixed shape, other hooks and the request id are judged as ever."""
    result = _certified(zygote, tmp_path, name, {rule})[rule]

    assert result.verdict is Verdict.FAIL, result.message


def test_a_loop_may_end_on_outputs_of_the_model(zygote: Zygote, tmp_path: Path) -> None:
    """A ``post_process`` that does not return from an output made up is not said to hang."""
    results = _certified(zygote, tmp_path, "ReadsToTheEnd", {"IO-07", "IO-37"})

    assert results["IO-07"].verdict is Verdict.NOT_VERIFIED
    assert "did not return" in (results["IO-07"].message or "")
    assert results["IO-37"].verdict is Verdict.NOT_VERIFIED
    assert results["IO-37"].waits_for == ("IO-07",)


def test_a_model_that_vllm_does_not_take_is_the_profiles(zygote: Zygote, tmp_path: Path) -> None:
    """Nobody but who wrote the profile can mend it."""
    model = _model(tmp_path, POOLED)
    config = Path(model, "config.json")
    changed = config.read_text(encoding="utf-8").replace("LlamaForCausalLM", "NoSuchModel")
    config.write_text(changed, encoding="utf-8")

    with pytest.raises(UsageError, match="model 'model': vLLM does not take it: ValidationError"):
        _certified(zygote, tmp_path, "Framed", {"IO-01"}, model=model)


def test_a_model_without_a_tokenizer_needs_one(zygote: Zygote, tmp_path: Path) -> None:
    """What vLLM says of that names no file; the message does."""
    model = _model(tmp_path, POOLED)
    for path in Path(model).glob("*tok*"):
        path.unlink()

    with pytest.raises(UsageError, match=r"has no tokenizer, and needs one .*tokenizer\.json"):
        _certified(zygote, tmp_path, "Framed", {"IO-01"}, model=model)


def test_a_host_without_the_plugin_has_the_model_of_the_profile(tmp_path: Path) -> None:
    """What does not start with that model, whatever the plugin does, breaks no rule."""
    model = _model(tmp_path, POOLED)
    own = own_host({"model": model})

    assert own is not None
    assert own.model == model
    assert {"--runner=pooling", "--load-format=dummy"} <= set(own.arguments)
    assert not any("--io-processor-plugin" in each for each in own.arguments)
    assert own_host({"model": "tiny-embedding"}) is None
