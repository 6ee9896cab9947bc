# SPDX-License-Identifier: Apache-2.0
"""The tiny models on disk; what they answer is in `test_server`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from conformance.engine.models import CONTEXT, VOCABULARY, tiny_llama

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the model in a cache of its own."""
    return tiny_llama(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def tokenizer(model: Path) -> Tokenizer:
    """Read the model's tokenizer as vLLM will."""
    return Tokenizer.from_file(str(model / "tokenizer.json"))


def test_imports_no_host(tmp_path: Path) -> None:
    """A model is made without torch, transformers or vLLM."""
    program = (
        "import pathlib, sys\n"
        "from conformance.engine.models import tiny_llama\n"
        "tiny_llama(pathlib.Path(sys.argv[1]))\n"
        "print(sorted({'torch', 'transformers', 'vllm'} & set(sys.modules)))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"


def test_all_files_are_there(model: Path) -> None:
    """Whatever vLLM needs to serve text and chat lies in one folder."""
    names = {path.name for path in model.iterdir()}

    assert names == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_shape(model: Path) -> None:
    """Configuration, tokenizer and weights agree on the sizes."""
    config = json.loads((model / "config.json").read_text())
    weights = load_file(model / "model.safetensors")

    assert [VOCABULARY, CONTEXT] == [500, 512]
    assert (config["vocab_size"], config["max_position_embeddings"]) == (VOCABULARY, CONTEXT)
    assert weights["lm_head.weight"].shape == (VOCABULARY, config["hidden_size"])
    assert {str(tensor.dtype) for tensor in weights.values()} == {"float32"}


def test_vocabulary_is_padded_by_the_host() -> None:
    """The vocabulary is no multiple of 64, so logits are a view of padded rows."""
    assert VOCABULARY % 64


def test_special_tokens_are_never_greedy(model: Path) -> None:
    """The output rows of the special tokens are zero, so no answer ends by itself."""
    head = load_file(model / "model.safetensors")["lm_head.weight"]

    assert not head[:3].any()
    assert head[3:].any(axis=1).all()


def test_every_token_decodes(tokenizer: Tokenizer) -> None:
    """Each of the 500 ids stands for some text, and the special ones come first."""
    texts = [tokenizer.decode([token], skip_special_tokens=False) for token in range(VOCABULARY)]

    assert tokenizer.get_vocab_size() == VOCABULARY
    assert all(texts)
    assert texts[:3] == ["<s>", "</s>", "<pad>"]


@given(text=st.text())
def test_any_text_survives(tokenizer: Tokenizer, text: str) -> None:
    """What is encoded is decoded to the same text."""
    tokens = tokenizer.encode(text).ids

    assert tokenizer.decode(tokens, skip_special_tokens=False) == text


def test_same_model_everywhere(model: Path, tmp_path: Path) -> None:
    """Made again in another cache, it is the same model byte for byte."""
    again = tiny_llama(tmp_path)

    assert again.name == model.name
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in model.iterdir()
    }


def test_made_once(model: Path) -> None:
    """A model that is there is not written again."""
    before = (model / "model.safetensors").stat()

    assert tiny_llama(model.parent) == model
    assert (model / "model.safetensors").stat() == before


def test_what_its_configuration_says(tmp_path: Path) -> None:
    """Keys of ``config.json`` are added and replaced; it is another model then."""
    plain, told = tiny_llama(tmp_path), tiny_llama(tmp_path, config={"eos_token_id": 7, "kind": 1})

    written = json.loads((told / "config.json").read_text(encoding="utf-8"))

    assert (written["eos_token_id"], written["kind"], written["vocab_size"]) == (7, 1, VOCABULARY)
    assert plain != told


def test_made_by_many_at_once(tmp_path: Path) -> None:
    """Processes that ask for it at the same moment all get the one complete model."""
    program = (
        "import pathlib, sys\n"
        "import safetensors.numpy\n"
        "from conformance.engine.models import tiny_llama\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "made = tiny_llama(pathlib.Path(sys.argv[1]))\n"
        "safetensors.numpy.load_file(made / 'model.safetensors')\n"
        "print(made)\n"
    )
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for maker in makers:
        assert maker.stdout is not None
        assert maker.stdout.readline() == "ready\n"

    answers = {maker.communicate("go\n")[0].strip() for maker in makers}

    assert [maker.returncode for maker in makers] == [0, 0, 0, 0]
    assert answers == {str(path) for path in tmp_path.iterdir()}
    assert len(answers) == 1


def test_default_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a folder the harness's own cache is used."""
    monkeypatch.setenv("VLLM_CONFORMANCE_CACHE", str(tmp_path / "cache"))

    assert tiny_llama().parent == tmp_path / "cache"


def test_cache_that_is_no_folder(tmp_path: Path) -> None:
    """A cache that cannot be written is the caller's trouble, and nothing is left behind."""
    (tmp_path / "cache").write_text("a file")

    with pytest.raises(OSError, match="cache"):
        tiny_llama(tmp_path / "cache")

    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
