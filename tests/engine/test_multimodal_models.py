# SPDX-License-Identifier: Apache-2.0
"""The tiny models that see and hear: what is on disk, and what vLLM makes of it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torchvision_site
from safetensors.numpy import load_file
from sight import seeing_zygote
from tokenizers import Tokenizer

from conformance.engine.multimodal_models import MODELS, of_class
from conformance.engine.vision_models import MERGED, MOST_EMBEDDINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.engine.multimodal_engine import Response
    from conformance.engine.multimodal_models import TinyModel
    from conformance.worker import Zygote

HERE = Path(__file__).parent

#: Of a request: modalities, and the arguments of what draws an item.
Items = list[tuple[str, tuple[int, ...]]]

SIZES = ((56, 56), (100, 30), (30, 100), (300, 200), (1, 1), (640, 480), (20, 400))


@pytest.fixture(params=list(MODELS.values()), ids=list(MODELS))
def model(request: pytest.FixtureRequest) -> TinyModel:
    """Take each model."""
    tiny: TinyModel = request.param
    return tiny


def test_imports_no_host(tmp_path: Path) -> None:
    """Models are made without torch, transformers or vLLM."""
    program = (
        "import pathlib, sys\n"
        "from conformance.engine.multimodal_models import MODELS\n"
        "for model in MODELS.values(): model.write(pathlib.Path(sys.argv[1], model.name))\n"
        "print(sorted({'torch', 'transformers', 'vllm'} & set(sys.modules)))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"
    assert {path.name for path in tmp_path.iterdir()} == set(MODELS)


def test_same_model_everywhere(model: TinyModel, tmp_path: Path) -> None:
    """Made in another folder, it is the same model byte for byte."""
    folders = [model.write(tmp_path / "new"), model.folder()]

    one, other = ({f.name: f.read_bytes() for f in folder.iterdir()} for folder in folders)

    assert one == other


def test_made_once(model: TinyModel, tmp_path: Path) -> None:
    """A model that is there is not written again, and nothing else is left behind."""
    folder = model.folder(tmp_path)
    before = (folder / "config.json").stat()

    assert model.folder(tmp_path) == folder
    assert (folder / "config.json").stat() == before
    assert list(tmp_path.iterdir()) == [folder]


def test_placeholders_are_tokens(model: TinyModel) -> None:
    """What stands for an item becomes the model's token once, and is never an answer."""
    folder = model.folder()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    weights = load_file(folder / "model.safetensors")
    head = next(rows for name, rows in weights.items() if name.endswith("lm_head.weight"))

    for placeholder in model.placeholders.values():
        ids = tokenizer.encode(f"a{placeholder.text}b").ids
        token = tokenizer.token_to_id(placeholder.token)
        assert ids.count(token) == 1
        assert not head[token].any()
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert len(head) == config["text_config"]["vocab_size"] == tokenizer.get_vocab_size()
    assert config["architectures"] == [model.architecture]


def test_models_are_found_by_class(model: TinyModel) -> None:
    """A class of vLLM has its model; one that takes no items has none."""
    assert of_class(model.architecture) is model
    assert of_class("LlamaForCausalLM") is None


def test_a_folder_without_torchvision_is_missed_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder that was looked into is named, with the variable that names another."""
    monkeypatch.setenv(torchvision_site.VARIABLE, str(tmp_path))

    with pytest.raises(torchvision_site.NoTorchvision) as raised:
        torchvision_site.python_path()

    assert str(raised.value) == f"$VLLM_CONFORMANCE_TORCHVISION names no torchvision in {tmp_path}"


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Return a process that has imported vLLM with torchvision."""
    with seeing_zygote(tmp_path_factory.mktemp("zygote")) as process:
        yield process


def generated(zygote: Zygote, folder: Path, model: str, requests: list[Items]) -> Any:  # noqa: ANN401
    """Return what an engine makes of requests."""
    job = zygote.fork(
        "multimodal_job:generate",
        {"model": model, "requests": requests},
        log=folder / "job.log",
        directory=folder,
        python_path=[str(HERE)],
    )
    try:
        return job.ask("go", limit=240)
    finally:
        job.close()


def check(made: Any, counts: list[list[int]]) -> None:  # noqa: ANN401
    """Compare what an engine made of requests with what it must be."""
    alone, together, refusal, after, rows = made
    places: list[list[int]] = [[place.count for place in one.places] for one in alone]
    assert places == counts
    for one, other in zip([*alone, alone[0]], [*together, after], strict=True):
        assert (one.prompt, one.places) == (other.prompt, other.places)
        decided = min(one.decided, other.decided)
        assert one.tokens[:decided] == other.tokens[:decided]
    assert "At most 3" in refusal
    for one in alone:
        for place in one.places:
            assert rows[place.identifier] == (place.count, 64)


def merged(width: int, height: int) -> int:
    """Return how many embeddings Qwen2-VL makes of an image."""
    high, wide = (max(MERGED, round(side / MERGED) * MERGED) for side in (height, width))
    most = MERGED * MERGED * MOST_EMBEDDINGS
    if high * wide > most:
        shrink = math.sqrt(height * width / most)
        high, wide = (
            max(MERGED, math.floor(side / shrink / MERGED) * MERGED) for side in (height, width)
        )
    return high // MERGED * (wide // MERGED)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "count"), [("tiny-llava", lambda *_: 16), ("tiny-qwen2-vl", merged)]
)
def test_images_of_many_sizes(seeing: Zygote, tmp_path: Path, name: str, count: Any) -> None:  # noqa: ANN401
    """Each becomes as many placeholders as the model says, alone and among others."""
    requests: list[Items] = [[("image", size)] for size in SIZES]
    requests += [[("image", (*size, 1)) for size in SIZES[start:][:3]] for start in (0, 3)]

    made = generated(seeing, tmp_path, name, requests)

    check(made, [[count(*item[1][:2]) for item in items] for items in requests])
    alone: list[Response] = made[0]
    assert len({one.tokens for one in alone}) == len(alone)


@pytest.mark.engine
def test_films_beside_images(seeing: Zygote, tmp_path: Path) -> None:
    """Qwen2-VL takes both in one prompt, in either order."""
    image, film = ("image", (56, 28)), ("video", (56, 56, 4))

    made = generated(seeing, tmp_path, "tiny-qwen2-vl", [[image, film], [film, image], [film]])

    check(made, [[2, 8], [8, 2], [8]])


@pytest.mark.engine
def test_sounds_of_many_lengths(zygote: Zygote, tmp_path: Path) -> None:
    """Qwen2-Audio makes 25 placeholders of a second, at most 750, and needs no torchvision."""
    lengths = {16_000: 25, 8_000: 12, 400: 1, 16_000 * 31: 750}
    requests: list[Items] = [[("audio", (samples,))] for samples in lengths]
    requests.append([("audio", (8_000, 1)), ("audio", (16_000, 2))])

    made = generated(zygote, tmp_path, "tiny-qwen2-audio", requests)

    check(made, [*([count] for count in lengths.values()), [12, 25]])
