# SPDX-License-Identifier: Apache-2.0
"""What all tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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
