# SPDX-License-Identifier: Apache-2.0
"""IO processors in real engines and behind ``POST /pooling`` of a real server."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from old_hosts import certified, failures
from support import DEFECTIVE_IO, ROOT, Specimen, certify, gallery

from conformance.engine.pooling_models import tiny_embedding
from conformance.engine.server import Server
from conformance.io_processor.answers import Kind
from conformance.io_processor.clients import Client, crowd, curl, leave, over_rest, through_sdk
from conformance.plugin.target import IO_PROCESSORS
from conformance.rules import Evidence
from conformance.verdict import ExitStatus, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.worker import Zygote

HERE = Path(__file__).parent
REFERENCES = ROOT / "reference_plugins" / "io_processor"

#: Requests at the same time.
CROWD = 30


@pytest.mark.server
@pytest.mark.parametrize(
    "name",
    [
        "long_document.py",
        "image_filter.py",
        pytest.param("labels.py@io/data", marks=pytest.mark.smoke),
    ],
)
def test_references_are_conformant_live(name: str, tmp_path: Path) -> None:
    """Every reference passes with all evidence, and the certificate says where."""
    status, certificate = certified(f"{REFERENCES / name}", tmp_path, "--evidence", "all")

    assert status == ExitStatus.CONFORMANT, failures(certificate)
    shown = {rule["id"]: rule["evidence"] for rule in certificate["rules"]}
    assert shown["IO-01"] == ["simulator", "offline", "server"]
    assert shown["IO-04"] == ["offline"]
    assert shown["IO-28"] == ["simulator", "server"]
    assert shown["IO-38"] == ["simulator", "offline", "server"]


#: What does harm in the simulator does it to a server, too; the last one does it there alone.
HARM = [
    ("exits_on_bad_lines", "ended"),
    ("steps_backwards", "no longer healthy"),
    ("keeps_negative_weight", "the valid request"),
]


@pytest.mark.server
@pytest.mark.parametrize(("name", "said"), HARM)
def test_harm_to_others_shows_on_a_server(
    zygote: Zygote, name: str, said: str, tmp_path: Path
) -> None:
    """What any client may send is sent beside others, and the message has the command for it."""
    specimen = next(each for each in gallery(DEFECTIVE_IO[0]) if each.name == name)
    # What a profile names as invalid is sent before, for another rule.
    profile = {key: said for key, said in specimen.profile.items() if key != "invalid"}
    specimen = attrs.evolve(specimen, profile=profile)
    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.SERVER,))
    failing = {rule for rule, found in results.items() if found.verdict is Verdict.FAIL}

    assert failing == {"IO-38"}
    assert said in str(results["IO-38"].message)
    assert "curl http" in str(results["IO-38"].message)


@pytest.mark.engine
def test_a_plugin_that_is_not_installed_is_named(zygote: Zygote, tmp_path: Path) -> None:
    """vLLM says which plugin is missing and which are there; the argument outranks config.json."""
    job = zygote.fork(
        "io_live_job:selection",
        {"folder": tmp_path},
        log=tmp_path / "job.log",
        directory=tmp_path,
        python_path=[str(HERE)],
    )
    told: dict[str, str] = job.ask("go", limit=240)
    job.close()

    missing = "The model requires the 'nope' IO Processor plugin but it is not installed."
    assert told["argument"].startswith(missing)
    assert told["config"].startswith(missing)
    assert "Available plugins: ['conformance-plugin']" in told["argument"]
    assert told["argument first"].startswith("[")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the server's output goes."""
    return tmp_path_factory.mktemp("server") / "server.log"


@pytest.fixture(scope="module")
def client(log: Path) -> Iterator[Client]:
    """Serve a plugin that does what it is asked for."""
    with Server.start(
        tiny_embedding(),
        log=log,
        python_path=[HERE],
        entry_points={IO_PROCESSORS: {"moody": "moody_plugin:register"}},
        arguments=["--runner=pooling", "--io-processor-plugin=moody"],
    ) as server:
        server.wait_healthy(240)
        yield Client(server.url, server.model_name)
        assert server.healthy()


VALID: dict[str, Any] = {"texts": ["a", "two words", "three of them"]}


@pytest.mark.server
def test_both_clients_get_the_answer(client: Client) -> None:
    """The OpenAI client's raw request and plain REST are answered alike."""
    answers = [through_sdk(client, VALID), over_rest(client, VALID, "an-id")]

    assert [answer.kind for answer in answers] == [Kind.ANSWERED] * 2
    assert answers[0] == answers[1]
    assert len(answers[0].data) == len(VALID["texts"])


@pytest.mark.server
@pytest.mark.parametrize(
    ("error", "status"),
    [("ValueError", 400), ("RuntimeError", 500), ("KeyError", 500), ("NotImplementedError", 501)],
)
@pytest.mark.parametrize("where", ["parse_data", "pre_process", "post_process"])
def test_what_a_hook_raises_ends_its_request_alone(
    client: Client, where: str, error: str, status: int
) -> None:
    """The client gets the status that the exception means, and the next request is answered."""
    asked = {**VALID, "where": where, "error": error}

    answers = [through_sdk(client, asked), over_rest(client, asked)]

    assert [answer.status for answer in answers] == [status] * 2
    assert all(where in answer.error for answer in answers)
    assert over_rest(client, VALID).kind is Kind.ANSWERED


@pytest.mark.server
def test_many_requests_with_one_id_each_get_their_own_answer(client: Client) -> None:
    """Thirty at once, all with the same X-Request-Id, a third of them refused."""
    asked = []
    for number in range(CROWD):
        data: dict[str, Any] = {"texts": ["word " * (1 + number % 7)] * (1 + number % 3)}
        if number % 3 == 0:
            data |= {"where": "pre_process", "error": "ValueError"}
        asked.append(data)
    alone = [over_rest(client, data) for data in asked]

    together = asyncio.run(crowd(client, [(data, "same") for data in asked]))

    assert together == alone
    assert {answer.status for answer in alone} == {200, 400}


@pytest.mark.server
def test_clients_that_disconnect_leave_the_server_as_it_was(client: Client) -> None:
    """After twenty of them everybody is answered as before."""
    before = over_rest(client, VALID)

    asyncio.run(leave(client, [{"texts": ["word " * 200] * 8}] * 20))

    assert over_rest(client, VALID) == before


@pytest.mark.server
def test_a_failure_comes_with_its_curl_line(client: Client, tmp_path: Path) -> None:
    """The command that a report shows asks the very question."""
    done = subprocess.run(
        ["/bin/sh", "-c", f"{curl(client, VALID)} --silent"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert '"data":[' in done.stdout


@pytest.mark.server
def test_a_running_server_gets_what_the_profile_names_alone(
    zygote: Zygote, client: Client, log: Path, tmp_path: Path
) -> None:
    """It may be in use: variations of valid requests, and odd ones, are for servers of our own."""
    invalid = {**VALID, "where": "parse_data", "error": "ValueError"}
    profile = {"valid": [VALID], "invalid": [invalid]}
    moody = Specimen(f"{HERE / 'moody_plugin.py'}:Moody", None, profile, generation="io/data")
    before = len(log.read_text("utf-8"))

    results = certify(zygote, moody, tmp_path, evidence=(Evidence.SERVER,), server_url=client.url)

    parsed = [
        json.loads(line.split("parse_data:")[1])
        for line in log.read_text("utf-8")[before:].splitlines()
        if "parse_data:" in line
    ]
    assert VALID in parsed
    assert [data for data in parsed if data not in (VALID, invalid)] == []
    assert results["IO-07"].verdict is Verdict.PASS, results["IO-07"].message
    assert results["IO-38"].out_of_reach
