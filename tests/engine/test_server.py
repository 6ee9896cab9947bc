# SPDX-License-Identifier: Apache-2.0
"""Real ``vllm serve`` processes: their lives, and the sentences about their deaths."""

from __future__ import annotations

import errno
import itertools
import os
import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from textwrap import dedent
from threading import Thread
from typing import TYPE_CHECKING

import openai
import psutil
import pytest

from conformance.engine.access import Access
from conformance.engine.models import tiny_llama
from conformance.engine.server import Server, ServerFailed, external

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE = 30.0  # seconds in which processes must be gone

PLUGINS = """
from vllm.v1.sample.logits_processor import LogitsProcessor

class CrashesOnDemand(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.crashes = False

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        for _, params, _, _ in batch_update.added if batch_update else ():
            self.crashes = "crash" in (params.extra_args or {})

    def apply(self, logits):
        if self.crashes:
            raise ZeroDivisionError("as demanded")
        return logits
"""
RAISES_AT_IMPORT = 'raise LookupError("no dictionary for this language")\n'

PROMPTS = [
    *("Hello", "The capital of France is", "a", "b", "1 2 3 4", "def main():", "Once upon a time"),
    *("user: hi\nassistant: ", "xyzzy", "The quick brown fox", "the quick brown fox", "Ünïcödé"),
    *('{"key": 1}', "zzzzzzzzzzzz", "What is the answer?", "vLLM plugin"),
]


def group(server_pid: int) -> list[psutil.Process]:
    """Return the processes in the group of the API server *server_pid*."""
    members = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == server_pid:
                members.append(process)
        except ProcessLookupError:
            continue
    return members


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the plugins into a folder that only the servers have on their path."""
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "on_demand.py").write_text(PLUGINS)
    (folder / "raises_at_import.py").write_text(RAISES_AT_IMPORT)
    return folder


@pytest.fixture(scope="module")
def started(
    plugins: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, int]]:
    """Start a server, and take its port from it before it is up."""
    server = Server.start(
        tiny_llama(),
        log=tmp_path_factory.mktemp("logs") / "shared.log",
        python_path=[plugins],
        logits_processors=["on_demand:CrashesOnDemand"],
        # The plugin is one of the batch interface; and compiling the computation of logprobs
        # takes longer than everything else here together.
        environment={"VLLM_USE_V2_MODEL_RUNNER": "0", "TORCHDYNAMO_DISABLE": "1"},
    )
    with server:
        taken = server.port
        with socket.create_server(("127.0.0.1", taken)):
            server.wait_healthy()
        yield server, taken


@pytest.fixture
def server(started: tuple[Server, int]) -> Server:
    """Return the server that the tests share."""
    return started[0]


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    """Connect the OpenAI SDK to the server."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.server
def test_lost_port_is_replaced(started: tuple[Server, int]) -> None:
    """A server whose port was taken while it started is up on another one."""
    server, taken = started

    assert server.port != taken
    assert server.healthy()
    assert server.failure() is None


@pytest.mark.server
def test_group_holds_the_engine(server: Server) -> None:
    """API server and engine are one process group, so one signal ends them all."""
    names = {process.name() for process in group(server.pid)}

    assert any("EngineCore" in name for name in names)
    assert server.pid in {process.pid for process in group(server.pid)}


@pytest.mark.server
def test_answers_depend_on_the_prompt(client: openai.OpenAI) -> None:
    """Greedy answers differ by prompt, do not repeat themselves, and have clear winners."""
    answer = client.completions.create(
        model="tiny",
        prompt=PROMPTS,
        max_tokens=24,
        temperature=0,
        logprobs=2,
        extra_body={"return_tokens_as_token_ids": True},
    )

    answers, margins = [], []
    for choice in answer.choices:
        assert choice.finish_reason == "length"
        assert choice.logprobs is not None
        answers.append(tuple(choice.logprobs.tokens or ()))
        for top in choice.logprobs.top_logprobs or ():
            first, second = sorted(top.values(), reverse=True)[:2]
            margins.append(first - second)
    assert [len(one) for one in answers] == [24] * 16
    assert len(set(answers)) == 16
    assert min(len(set(one)) for one in answers) >= 16
    assert len(set(itertools.chain(*answers))) >= 150
    assert min(margins) > 0.02


@pytest.mark.server
def test_chat(client: openai.OpenAI) -> None:
    """The chat route applies the template and answers."""
    answer = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}],
        max_tokens=8,
        temperature=0,
    )
    plain = client.completions.create(
        model="tiny",
        prompt="system: be brief\nuser: hello\nassistant: ",
        max_tokens=8,
        temperature=0,
    )

    assert answer.choices[0].message.content == plain.choices[0].text
    assert answer.usage == plain.usage


@pytest.mark.server
def test_used_port_is_refused_at_once(server: Server, tmp_path: Path) -> None:
    """A fixed port that is in use is refused in a sentence before anything is started."""
    log = tmp_path / "never.log"

    with pytest.raises(ServerFailed) as failed:
        Server.start(tiny_llama(), log=log, port=server.port)

    assert str(failed.value) == (
        f"port {server.port} of 127.0.0.1 cannot be used for the vLLM server:"
        " Address already in use"
    )
    assert not log.exists()


@pytest.mark.server
@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_external_server(server: Server, suffix: str) -> None:
    """A server that runs already has the same surface, and is left running."""
    with external(server.url + suffix) as other:
        other.wait_healthy()

        assert (other.url, other.model_name) == (server.url, "tiny")
        assert other.failure() is None

    assert server.healthy()


@pytest.mark.server
def test_crash_names_its_cause(server: Server, client: openai.OpenAI) -> None:
    """A plugin that brings the engine down is in the sentence, and nothing is left running.

    The last test of the shared server.
    """
    members = group(server.pid)

    with pytest.raises(openai.InternalServerError):
        client.completions.create(
            model="tiny", prompt="x", max_tokens=2, extra_body={"vllm_xargs": {"crash": 1}}
        )

    assert server.failure(within=PATIENCE) == (
        "vLLM ended with exit status 0 while it served: ZeroDivisionError: as demanded"
        f" (log: {server.log})"
    )
    assert not server.alive()
    assert not server.healthy()
    assert not psutil.wait_procs(members, timeout=PATIENCE)[1]


@pytest.mark.server
def test_plugin_that_raises_at_import(plugins: Path, tmp_path: Path) -> None:
    """A server that cannot load its plugin says which and why, in one sentence."""
    log = tmp_path / "server.log"
    with Server.start(
        tiny_llama(),
        log=log,
        python_path=[plugins],
        entry_points={"vllm.logits_processors": {"probe": "raises_at_import:Anything"}},
    ) as server:
        with pytest.raises(ServerFailed) as failed:
            server.wait_healthy()

        members = group(server.pid)

    sentence = str(failed.value)
    assert sentence.startswith("vLLM ended with exit status 1 before it was healthy: ")
    assert "raises_at_import:Anything" in sentence
    assert "(from LookupError: no dictionary for this language)" in sentence
    assert sentence.endswith(f" (log: {log})")
    assert "\n" not in sentence
    assert not members


@pytest.mark.server
def test_stop_leaves_no_process(tmp_path: Path) -> None:
    """When stop returns, API server, engine and helpers are gone; stopping again is harmless."""
    server = Server.start(tiny_llama(), log=tmp_path / "server.log")
    server.wait_healthy()
    members = group(server.pid)

    server.stop()
    server.stop()

    assert len(members) >= 2
    assert not [process for process in members if process.is_running()]
    assert not server.alive()
    assert server.failure() is None


@pytest.mark.server
def test_killed_parent_leaves_no_server(tmp_path: Path) -> None:
    """A process that is killed takes its server along, engine and all."""
    program = dedent("""\
        import pathlib, sys, time
        from conformance.engine.models import tiny_llama
        from conformance.engine.server import Server
        server = Server.start(tiny_llama(), log=pathlib.Path(sys.argv[1]))
        server.wait_healthy()
        print(server.pid, flush=True)
        time.sleep(600)
        """)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "server.log")],
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        members = group(int(parent.stdout.readline()))
        supervisors = psutil.Process(parent.pid).children()

        parent.kill()

    assert len(members) >= 2
    assert len(supervisors) == 1
    assert not psutil.wait_procs([*members, *supervisors], timeout=PATIENCE)[1]


def test_stopped_while_starting(tmp_path: Path) -> None:
    """A server can be stopped at any moment, and whoever waits for it is told."""
    server = Server.start(tiny_llama(tmp_path), log=tmp_path / "server.log")
    process = psutil.Process(server.pid)

    server.stop()

    assert not process.is_running()
    with pytest.raises(ServerFailed, match=r"^the vLLM server on port \d+ was stopped before"):
        server.wait_healthy()


def test_killed_from_outside(tmp_path: Path) -> None:
    """A server that was killed before it said anything is reported with the signal."""
    with Server.start(tiny_llama(tmp_path), log=tmp_path / "server.log") as server:
        psutil.Process(server.pid).kill()

        sentence = server.failure(within=PATIENCE)

    assert sentence is not None
    assert sentence.startswith("vLLM was killed by SIGKILL before it was healthy, and its log ")
    assert "\n" not in sentence


def test_too_late(tmp_path: Path) -> None:
    """A server that is not healthy in time is reported with the last line of its log."""
    with (
        Server.start(tiny_llama(tmp_path), log=tmp_path / "server.log") as server,
        pytest.raises(ServerFailed) as failed,
    ):
        server.wait_healthy(timeout=0)

    assert str(failed.value) == (
        f"vLLM did not become healthy within 0 s, and its log is empty (log: {server.log})"
    )


def test_server_that_is_not_there() -> None:
    """An address at which nobody listens is reported in a sentence."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    other = external(url)

    with pytest.raises(ServerFailed) as failed:
        other.wait_healthy(timeout=0.2)

    assert str(failed.value) == (
        f"no healthy vLLM server at {url} within 0.2 s:"
        f" [Errno {errno.ECONNREFUSED}] Connection refused"
    )
    assert not other.healthy()


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://127.0.0.1", "http://[", ""])
def test_address_that_is_none(url: str) -> None:
    """What is no address of a web server is reported the same way."""
    with pytest.raises(ServerFailed, match="no healthy vLLM server at"):
        external(url).wait_healthy(timeout=0)


class Gateway(BaseHTTPRequestHandler):
    """A gateway that lets only the models route through, and only with the key."""

    def do_GET(self) -> None:
        """Answer one request."""
        if self.path == "/v1/models":
            allowed = self.headers["Authorization"] == "Bearer key"
            self.send_response(200 if allowed else 401)
        else:
            self.send_response(404)
        self.end_headers()
        self.wfile.write(b'{"data": [{"id": "behind-a-gateway"}]}')

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def gateway() -> Iterator[str]:
    """Run the gateway and return its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as gateway:
        thread = Thread(target=gateway.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{gateway.server_port}"
        gateway.shutdown()
        thread.join()


def test_gateway_without_the_health_route(gateway: str) -> None:
    """A deployment behind a gateway is healthy when it lists its models."""
    other = external(f"{gateway}/v1", Access({"Authorization": "Bearer key"}))
    other.wait_healthy(timeout=0)

    assert other.model_name == "behind-a-gateway"


def test_gateway_that_refuses(gateway: str) -> None:
    """A server that wants another key says so in the sentence."""
    other = external(gateway)

    with pytest.raises(ServerFailed, match="it answered with status 401"):
        other.wait_healthy(timeout=0)
    with pytest.raises(ServerFailed, match=r"no model name could be read from .*401"):
        _ = other.model_name


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [(None, None), ("", ["", "one", "two"]), ("mine", ["mine", "one", "two"])],
)
def test_its_own_entry_points_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: str | None, expected: list[str] | None
) -> None:
    """Who allows some plugins of vLLM alone allows those that a server is started with."""
    if allowed is None:
        monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    else:
        monkeypatch.setenv("VLLM_PLUGINS", allowed)
    seen: list[str | None] = []

    def launch(server: Server) -> None:
        seen.append(server._environment.get("VLLM_PLUGINS"))
        raise ServerFailed("nothing is started here")

    monkeypatch.setattr(Server, "_launch", launch)
    entries = {"vllm.general_plugins": {"one": "a:b"}, "vllm.io_processor_plugins": {"two": "c:d"}}

    with pytest.raises(ServerFailed):
        Server.start(tiny_llama(), log=tmp_path / "log", entry_points=entries)

    assert [names and names.split(",")[:3] for names in seen] == [expected]
