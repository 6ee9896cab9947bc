# SPDX-License-Identifier: Apache-2.0
"""Multi-modal models in real engines and behind the chat route of a real server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from old_hosts import certified, failures
from PIL import Image
from support import ROOT, Specimen, certify

from conformance.engine.multimodal_models import TINY_LLAVA, TINY_QWEN2_AUDIO, TINY_QWEN2_VL
from conformance.engine.server import Server
from conformance.multimodal.processor.clients import Client, ask, crowd, curl, part
from conformance.rules import Evidence
from conformance.verdict import ExitStatus, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.engine.multimodal_models import TinyModel
    from conformance.worker import Zygote

HERE = Path(__file__).parent
REFERENCE = ROOT / "reference_plugins" / "tiny_vlm" / "model.py"
MODEL = {"model": "reference_plugins.tiny_vlm.checkpoint:write"}

LIVE = (Evidence.OFFLINE, Evidence.SERVER)

#: What engines show, and what servers show.
OFFLINE_RULES = {"MM-01", "MM-09", "MM-10", "MM-17", "MM-18", "MM-20", "MM-21", "MM-22", "MM-23"}
OFFLINE_RULES |= {"MM-26", "MM-34", "MM-04", "MM-06"}
SERVER_RULES = {"MM-01", "MM-09", "MM-10", "MM-16", "MM-18", "MM-21", "MM-26", "MM-34"}
SERVER_RULES |= {"MM-04", "MM-06"}

#: Shown where the profile has options that the processor does not take in every form.
OPTIONS = "MM-83"

#: Shown in an engine where the profile says how many places an item has.
MEANT = "MM-81"


@pytest.mark.smoke
@pytest.mark.server
def test_the_reference_is_conformant_live(tmp_path: Path) -> None:
    """It passes with all evidence, and the certificate says where."""
    status, certificate = certified(f"{REFERENCE}:TinyVlm", tmp_path, "--evidence", "all")

    assert status == ExitStatus.CONFORMANT, failures(certificate)
    shown = {rule["id"]: set(rule["evidence"]) for rule in certificate["rules"]}
    assert {rule for rule, where in shown.items() if "offline" in where} == {
        *OFFLINE_RULES,
        OPTIONS,
        MEANT,
    }
    assert {rule for rule, where in shown.items() if "server" in where} == {
        *SERVER_RULES,
        OPTIONS,
    }


def live(zygote: Zygote, target: str, profile: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Certify with live evidence alone."""
    specimen = Specimen(target, None, profile, generation="mm/processor")
    return dict(certify(zygote, specimen, folder, evidence=LIVE))


def passes(results: dict[str, Any]) -> None:
    """Demand that everything that is shown live was shown."""
    wrong = {
        rule: (result.verdict.value, result.message)
        for rule, result in results.items()
        if result.verdict is not Verdict.PASS and rule in OFFLINE_RULES | SERVER_RULES
    }
    assert not wrong


def failing(results: dict[str, Any]) -> dict[str, str]:
    """Return what fails, with its message."""
    found = results.values()
    return {each.rule: each.message or "" for each in found if each.verdict is Verdict.FAIL}


@pytest.mark.server
@pytest.mark.parametrize("model", [TINY_LLAVA, TINY_QWEN2_VL], ids=lambda model: model.name)
def test_models_of_vllm_that_see_are_conformant_live(
    seeing: Zygote, tmp_path: Path, model: TinyModel
) -> None:
    """Images and films of many sizes, in orders and mixtures, are where the simulator has them."""
    passes(live(seeing, model.model_class, {"model": model.name}, tmp_path))


@pytest.mark.server
def test_a_model_of_vllm_that_hears_is_conformant_live(zygote: Zygote, tmp_path: Path) -> None:
    """Sounds of many lengths are where the simulator has them."""
    model = TINY_QWEN2_AUDIO

    passes(live(zygote, model.model_class, {"model": model.name}, tmp_path))


@pytest.mark.server
@pytest.mark.parametrize("name", ["PoolingModel", "Means"])
def test_models_that_pool_are_conformant_live(zygote: Zygote, tmp_path: Path, name: str) -> None:
    """They are asked by the method, and by the route, of their kind."""
    passes(live(zygote, f"{HERE / 'pooling_models.py'}:{name}", MODEL, tmp_path))


@pytest.mark.engine
def test_what_is_pooled_is_compared(zygote: Zygote, tmp_path: Path) -> None:
    """An answer that depends on others is found, and the report says how far apart they are."""
    target = f"{HERE / 'pooling_models.py'}:MixesAnswers"
    specimen = Specimen(target, "MM-26", MODEL, generation="mm/processor")

    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))

    broken = failing(results)
    assert set(broken) == {"MM-26"}
    assert "is answered other values, up to " in broken["MM-26"]


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "rule", "told"),
    [
        (
            "TooManyPlaceholders",
            "MM-21",
            "image 120x90#4, has 36 placeholders and 35 rows: the engine ended: ValueError",
        ),
        ("TooFewPlaceholders", "MM-22", "34 placeholders and 35 rows: the engine drops the rest"),
        ("OneRow", "MM-23", "5 placeholders and 1 row: the engine repeats the row"),
        ("Neighbours", "MM-26", "item B of [1 token, image 28x28#1, image 84x28#2"),
    ],
    ids=["too few rows", "too many rows", "one row", "rows of neighbours"],
)
def test_what_an_engine_makes_of_wrong_rows(
    zygote: Zygote, tmp_path: Path, name: str, rule: str, told: str
) -> None:
    """It ends, or goes on without a word; the report names the item and both numbers."""
    specimen = Specimen(
        f"{HERE / 'miscounting_model.py'}:{name}", rule, MODEL, generation="mm/processor"
    )

    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))

    broken = failing(results)
    assert set(broken) == {rule}
    assert told in broken[rule]


@pytest.mark.server
@pytest.mark.engine
def test_what_a_processor_keeps_is_no_fault_of_the_harness(zygote: Zygote, tmp_path: Path) -> None:
    """An engine has processed other prompts than the simulator: live evidence waits for MM-36."""
    target = f"{HERE / 'miscounting_model.py'}:KeepsOptions"
    profile = {**MODEL, "options": [{"max_patches": 4}]}

    results = live(zygote, target, profile, tmp_path)

    assert {found.waits_for for found in results.values()} <= {("MM-36",), ()}
    assert {found.verdict for found in results.values()} == {Verdict.NOT_VERIFIED}


@pytest.mark.server
def test_a_row_too_few_ends_the_server(zygote: Zygote, tmp_path: Path) -> None:
    """The report says that it did, what it left in its log, and how to ask the same."""
    target = f"{HERE / 'miscounting_model.py'}:TooManyPlaceholders"
    specimen = Specimen(target, "MM-21", MODEL, generation="mm/processor")

    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.SERVER,))

    broken = failing(results)
    assert set(broken) == {"MM-21"}
    message = broken["MM-21"]
    assert "[2 tokens, image 120x90#4, 1 token] got HTTP 500" in message
    assert "vLLM ended with exit status 0 while it served: ValueError: Attempted to" in message
    assert "Item A has 36 placeholders and 35 rows; curl " in message
    body = json.loads(Path(message.rpartition("@")[2]).read_text(encoding="utf-8"))
    kinds = [one["type"] for one in body["messages"][0]["content"]]
    assert kinds == ["text", "image_url", "text"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Serve the reference model, by its entry point."""
    folder = tmp_path_factory.mktemp("server")
    made = folder / "model"
    program = "import sys, pathlib; from reference_plugins.tiny_vlm.checkpoint import write; "
    program += "write(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", program, str(made)], check=True, cwd=ROOT)
    with Server.start(
        made,
        log=folder / "server.log",
        python_path=[ROOT],
        entry_points={"vllm.general_plugins": {"tiny": "reference_plugins.tiny_vlm:register"}},
        arguments=["--max-model-len=1024", '--limit-mm-per-prompt={"image": 3}'],
    ) as server:
        server.wait_healthy(240)
        yield Client(server.url, server.model_name)
        assert server.healthy()


def image(width: int, height: int, shade: int = 0) -> dict[str, Any]:
    """Return the part of a message with a picture."""
    return part("image", Image.new("RGB", (width, height), (shade, 99, 9)))


def text(words: str) -> dict[str, Any]:
    """Return the part of a message with words."""
    return {"type": "text", "text": words}


#: Patches of pictures of these sizes, and the rows that they stand in.
SIZES = {(16, 16): (1, 1), (48, 32): (6, 2), (1, 1): (1, 1), (640, 480): (54, 6)}


@pytest.mark.server
def test_pictures_come_as_data_in_a_chat(client: Client) -> None:
    """Each takes its patches and the ends of its rows, where it stands among the words."""
    before = ask(client, [text("one two")], {})
    assert before.good

    for size, (patches, rows) in SIZES.items():
        got = ask(client, [text("one "), image(*size), text("two")], {})
        assert got.good
        assert (got.prompt.count(3), got.prompt.count(4)) == (patches, rows)
        assert len(got.prompt) == len(before.prompt) + patches + rows


@pytest.mark.server
def test_order_is_kept_among_many(client: Client) -> None:
    """Prompts with the same pictures in another order are other prompts, also all at once."""
    asked: list[tuple[list[Any], dict[str, Any]]] = []
    for number in range(12):
        pictures = [image(48, 16, 20 * number), image(16, 48, 20 * number)]
        parts = pictures if number % 2 else pictures[::-1]
        asked.append(([parts[0], text(" and "), parts[1]], {}))
    alone = [ask(client, *question) for question in asked]

    together = asyncio.run(crowd(client, asked))

    assert [one.prompt for one in together] == [one.prompt for one in alone]
    assert all(one.good for one in together)
    assert len({one.prompt for one in alone}) == 2


@pytest.mark.server
@pytest.mark.parametrize(
    ("content", "told"),
    [
        ([image(16, 16, shade) for shade in range(4)], "At most 3 image(s)"),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}], "image"),
        ([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}], "audio"),
    ],
    ids=["too many", "no picture", "another modality"],
)
def test_what_is_not_allowed_harms_nobody(client: Client, content: list[Any], told: str) -> None:
    """The client gets 400 with a reason, and the next request is answered as before."""
    valid = [text("what is "), image(64, 64), text("?")]
    before = ask(client, valid, {})

    refused = ask(client, content, {})

    assert (refused.status, told in refused.error) == (400, True), refused
    assert ask(client, valid, {}) == before


@pytest.mark.server
def test_a_failure_comes_with_its_curl_line(client: Client, tmp_path: Path) -> None:
    """The command that a report shows asks the very question."""
    command = curl(client, [image(640, 480)], {}, tmp_path)

    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} --silent"], capture_output=True, text=True, check=True
    )

    assert json.loads(done.stdout)["prompt_token_ids"].count(3) == 54
