# SPDX-License-Identifier: Apache-2.0
"""Plugins that load the tokenizer of their model, and want more of it than a made-up one has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import Specimen, certify

from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

PLUGIN = """\
from transformers import AutoTokenizer
from vllm.v1.sample.logits_processor import LogitsProcessor


def bytes_of(tokenizer):
    return {{each.encode(): token for each, token in tokenizer.get_vocab().items()}}[b""]


def misspelt(tokenizer):
    return tokenizer_.get_vocab()


class Loads(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        tokenizer = AutoTokenizer.from_pretrained(vllm_config.model_config.tokenizer)
        self.rows, self.tokenizer = {{}}, tokenizer
        vocabulary = tokenizer.get_vocab()
        {asks}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        pass

    def apply(self, logits):
        return logits
"""


def _made(zygote: Zygote, folder: Path, asks: str) -> RuleResult:
    path = folder / "loads.py"
    path.write_text(PLUGIN.format(asks=asks), encoding="utf-8")
    return certify(zygote, Specimen(f"{path}:Loads", None, {}), folder, rules={"LB-02"})["LB-02"]


@pytest.mark.parametrize(
    "asks",
    [
        "self.first = bytes_of(tokenizer)",
        'self.end = vocabulary["</think>"]',
        'self.end = self.tokenizer.get_vocab()["</think>"]',
    ],
)
def test_a_tokenizer_that_lacks_a_token_is_named(zygote: Zygote, tmp_path: Path, asks: str) -> None:
    """Nothing is said of a plugin that wants a token of its model, but how to name that."""
    found = _made(zygote, tmp_path, asks)

    assert found.verdict is Verdict.NOT_VERIFIED, found.message
    assert '[logits-processor] tokenizer = "path/to/model"' in str(found.message)


@pytest.mark.parametrize("asks", ['self.rows["first"]', "misspelt(tokenizer)"])
def test_what_raises_with_any_tokenizer_fails(zygote: Zygote, tmp_path: Path, asks: str) -> None:
    """A mistake in the constructor is one, whatever else the plugin has loaded."""
    found = _made(zygote, tmp_path, asks)

    assert found.verdict is Verdict.FAIL, found.message
