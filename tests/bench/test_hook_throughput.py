# SPDX-License-Identifier: Apache-2.0
"""What four annotation hooks cost in token throughput, against the same server with none.

Run with ``./run bench tests/bench/test_hook_throughput.py``; it prints a line.
Two servers take turns with the same streams, so that a busy machine slows both; the median of the
paired ratios is judged.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import ROOT

from conformance.classifier_hook.clients import WAYS, Question, together
from conformance.engine.models import tiny_llama
from conformance.engine.server import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.bench, pytest.mark.server]

PLUGIN = {"vllm.general_plugins": {"classifier_hook": "reference_plugins.classifier_hook:install"}}

#: With four hooks a server writes at least this share of the tokens that it writes without.
LEAST = 0.9

#: Pairs of rounds; requests at once in a round, half of them streams; tokens of each.
PAIRS, CROWD, TOKENS = 40, 32, 64

HOOKS_FILE = "\n".join(
    f'[[hook]]\nclass = "unruly_hooks:Quick"\narguments = {{ name = "quick-{n}" }}'
    for n in range(4)
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Start a server with four hooks, and one with none."""
    folder = tmp_path_factory.mktemp("servers")
    hooks = folder / "hooks.toml"
    hooks.write_text(HOOKS_FILE, encoding="utf-8")
    path = [ROOT, Path(__file__).parents[1] / "classifier_hook"]

    def start(name: str, environment: dict[str, str]) -> Server:
        return Server.start(
            tiny_llama(),
            log=folder / name,
            python_path=path,
            entry_points=PLUGIN,
            environment=environment,
            arguments=["--max-num-seqs=32"],
        )

    with start("hooked", {"CLASSIFIER_HOOKS": str(hooks)}) as hooked, start("plain", {}) as plain:
        for server in (hooked, plain):
            server.wait_healthy()
        yield hooked, plain


def _round(server: Server) -> float:
    """Return the tokens per second of one round."""
    questions = [Question(None, WAYS[n % len(WAYS)], max_tokens=TOKENS) for n in range(CROWD)]
    began = time.perf_counter()
    answers = asyncio.run(together(server.url, server.model_name, questions))
    seconds = time.perf_counter() - began
    assert not any(answer.error for answer in answers)
    # Tokens and their log probabilities are counted.
    return sum(answer.tokens for answer in answers) / 2 / seconds


@pytest.mark.timeout(900)
def test_four_annotations_cost_little(
    request: pytest.FixtureRequest, servers: tuple[Server, Server]
) -> None:
    """The median of the paired ratios is at least nine tenths."""
    hooked, plain = servers
    for server in servers:
        _round(server)  # the first is slower for both
    ratios = []
    for pair in range(PAIRS):
        order = (hooked, plain) if pair % 2 else (plain, hooked)
        found = {server.port: _round(server) for server in order}
        ratios.append(found[hooked.port] / found[plain.port])
    median = statistics.median(ratios)
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"throughput with four hooks: {median:.3f} of that without ({spread})")  # noqa: T201 - who measures wants to see it

    assert median >= LEAST
