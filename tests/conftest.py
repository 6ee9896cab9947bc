# SPDX-License-Identifier: Apache-2.0
"""What all tests share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from user import CACHE

from conformance.runner import start_zygote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.worker import Zygote

pytest_plugins = ["pytester"]


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """One process that has imported vLLM, for all tests that certify."""
    with start_zygote() as process:
        process.wait_ready()
        yield process


@pytest.fixture
def shared_zygote(zygote: Zygote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs within this process share the zygote; each by itself would import vLLM again."""
    lasting = SimpleNamespace(fork=zygote.fork, wait_ready=zygote.wait_ready, close=lambda: None)
    monkeypatch.setattr("conformance.runner.start_zygote", lambda: lasting)
    # `pytester` moves the home folder, and with it the cache.
    monkeypatch.setenv("VLLM_CONFORMANCE_CACHE", CACHE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what is fast first, then engines, then servers."""
    items.sort(
        key=lambda item: [bool(item.get_closest_marker(name)) for name in ("server", "engine")]
    )
