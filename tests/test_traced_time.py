# SPDX-License-Identifier: Apache-2.0
"""Limits of time are for a plugin alone: watching its lines may take longer than it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from specimens import hook_references, io_references, modality_references
from support import Specimen, certify

from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

#: A plugin of which each call takes longer than any limit while its lines are watched.
SLOW = """\
import sys
import time

from {module} import {name}


def wait():
    end = time.thread_time() + 1.0
    while sys.gettrace() is not None and time.thread_time() < end:
        pass


class Traced({name}):
{body}
"""

HOOK = """\
    async def score(self, context):
        wait()
        return await super().score(context)
"""

IO_PROCESSOR = """\
    def pre_process(self, prompt, request_id=None, **kwargs):
        wait()
        return super().pre_process(prompt, request_id, **kwargs)
"""

MODALITY = """\
    def get_max_per_prompt(self, *arguments, **keywords):
        wait()
        return super().get_max_per_prompt(*arguments, **keywords)
"""


@pytest.mark.parametrize(
    ("specimen", "body", "rule"),
    [
        (hook_references()[0], HOOK, "CH-21"),
        (io_references()[0], IO_PROCESSOR, "IO-33"),
        (modality_references()[0], MODALITY, "MM-46"),
    ],
    ids=["hook", "io", "modality"],
)
def test_time_is_that_of_the_plugin_alone(
    zygote: Zygote, specimen: Specimen, body: str, rule: str, tmp_path: Path
) -> None:
    """A generator costs many times as much while its steps are watched."""
    file, _, name = specimen.target.rpartition(":")
    module = file[file.index("reference_plugins/") : -3].replace("/", ".")
    path = tmp_path / "traced.py"
    path.write_text(SLOW.format(module=module, name=name, body=body), encoding="utf-8")
    traced: dict[str, Any] = {"profile": specimen.profile, "generation": specimen.generation}

    results = certify(zygote, Specimen(f"{path}:Traced", None, **traced), tmp_path, rules={rule})

    assert results[rule].verdict is Verdict.PASS, results[rule].message
