# SPDX-License-Identifier: Apache-2.0
"""What hosts call is what the catalogue says: the installed vLLM's, and the documented one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import DEFECTIVE_IO, ROOT, ask_job

from conformance.plugin import target as targets
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.worker import Zygote

ID = ("request_id",)
PROMPT = ("prompt",)
PROMPT_AND_ID = ("prompt", "request_id")
OUTPUTS_AND_ID = ("model_output", "request_id")
PROMPTS = 2


@pytest.fixture(scope="module")
def told(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Serve one request of two prompts with every host; return what was called, by generation."""
    folder = tmp_path_factory.mktemp("hosts")
    found = {}
    for generation in ("io/data", "io/request"):
        job = zygote.fork(
            "io_host_job:serve",
            {"generation": generation},
            log=folder / "job.log",
            directory=folder,
            python_path=[str(Path(__file__).parent), str(ROOT)],
        )
        found[generation] = job.ask("serve", limit=60)
        job.close()
    return found


def test_the_installed_server_calls_the_plain_hooks(told: dict[str, Any]) -> None:
    """Parsing, prompts and parameters on the event loop, and post_process on another thread."""
    online = told["io/data"]["online"]

    assert online["calls"] == [
        ("parse_data", ()),
        ("pre_process", PROMPT_AND_ID),
        ("merge_pooling_params", ()),
        ("post_process", ID),
    ]
    assert online["on_loop"] == [True, True, True, False]


def test_the_installed_server_gives_no_params_and_one_id(told: dict[str, Any]) -> None:
    """Parameters are made from nothing, and both hooks get the same id, which the client chose."""
    parse, pre, merge, post = told["io/data"]["online"]["given"]

    assert parse["data"] == {"lines": ["red", "green"]}
    assert merge["none"]
    assert pre["request_id"] == post["request_id"] == "pooling-id-0"


def test_post_process_gets_outputs_of_the_task_in_inference_mode(told: dict[str, Any]) -> None:
    """There is one output for each prompt, of the shape that the task says."""
    for generation, host in (("io/data", "online"), ("io/data", "offline")):
        post = told[generation][host]["given"][-1]

        assert post["shapes"] == [[64]] * PROMPTS
        assert post["inference"] == (host == "online")


def test_the_installed_llm_gives_no_id(told: dict[str, Any]) -> None:
    """Offline there is no request id, and parameters are asked for once for each prompt."""
    offline = told["io/data"]["offline"]

    assert offline["calls"] == [
        ("parse_data", ()),
        ("pre_process", PROMPT),
        *[("merge_pooling_params", ())] * PROMPTS,
        ("post_process", ()),
    ]
    assert [each["none"] for each in offline["given"] if "none" in each] == [False] * PROMPTS
    assert [each["request_id"] for each in offline["given"] if "request_id" in each] == [None] * 2


def test_releases_that_await_give_outputs_by_position(told: dict[str, Any]) -> None:
    """With parse_data, the outputs are the first argument of post_process_async."""
    awaited = told["io/data"]["awaited"]

    assert awaited["calls"] == [
        ("parse_data", ()),
        ("merge_pooling_params", ()),
        ("pre_process_async", PROMPT_AND_ID),
        ("post_process_async", ID),
    ]
    assert all(awaited["on_loop"])


def test_the_documented_server_gives_outputs_by_name(told: dict[str, Any]) -> None:
    """The request itself is parsed, the hooks are awaited, and the plugin makes the response."""
    online = told["io/request"]["online"]

    assert online["calls"] == [
        ("parse_request", ()),
        ("validate_or_generate_params", ()),
        ("pre_process_async", PROMPT_AND_ID),
        ("post_process_async", OUTPUTS_AND_ID),
        ("output_to_response", ()),
    ]
    assert all(online["on_loop"])
    assert online["given"][0]["type"] == "IOProcessorRequest"
    assert online["given"][1]["none"]


def test_the_documented_llm_gives_a_dictionary(told: dict[str, Any]) -> None:
    """Offline, parse_request gets the dictionary, and nothing makes a response."""
    offline = told["io/request"]["offline"]

    assert [name for name, _ in offline["calls"]] == [
        "parse_request",
        "validate_or_generate_params",
        "pre_process",
        "post_process",
    ]
    assert offline["calls"][2][1] == PROMPT
    assert offline["given"][0]["type"] == "dict"
    assert not offline["given"][1]["none"]


def test_every_host_gives_the_same_answer(told: dict[str, Any]) -> None:
    """Whoever serves a request, its outputs are the same."""
    answers = [host["answer"] for hosts in told.values() for host in hosts.values()]

    assert len(answers) == 6
    assert answers[0] == [2, 3]
    assert all(answer == answers[0] for answer in answers)


SKIPS_BASE = """\
from reference_plugins.io_processor.labels import LineLabels
from vllm.plugins.io_processors.interface import IOProcessor


class HandsOnNoRenderer(LineLabels):
    def __init__(self, vllm_config, renderer=None):
        IOProcessor.__init__(self, vllm_config)
"""


@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        (f"{ROOT / 'reference_plugins/io_processor/labels.py'}:LineLabels", Verdict.PASS),
        (f"{DEFECTIVE_IO[1] / 'takes_no_renderer.py'}:TakesNoRenderer", Verdict.FAIL),
        ("hands_on_no_renderer.py:HandsOnNoRenderer", Verdict.FAIL),
    ],
    ids=["takes-one", "takes-none", "hands-on-none"],
)
def test_what_the_installed_host_cannot_make_does_not_load(
    zygote: Zygote, target: str, verdict: Verdict, tmp_path: Path
) -> None:
    """Releases that serve the documented generation with a renderer make no other plugins."""
    (tmp_path / "hands_on_no_renderer.py").write_text(SKIPS_BASE, encoding="utf-8")
    arguments = {"target": targets.parse(target, tmp_path)[0], "model": "tiny-classification"}
    (found, message, _), (takes, said, waits_for) = ask_job(
        zygote, "io_simulator_job:loads_in_an_old_host", arguments, tmp_path, beside=__file__
    )

    assert found == verdict.value, message
    assert verdict is Verdict.PASS or "cannot make it: TypeError: " in message
    # Whether the constructor takes a renderer is not told a second time.
    once = Verdict.NOT_VERIFIED if target.endswith("TakesNoRenderer") else Verdict.PASS
    assert takes == once.value, said
    assert waits_for == (("IO-01",) if once is Verdict.NOT_VERIFIED else ())
