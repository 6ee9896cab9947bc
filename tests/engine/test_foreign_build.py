# SPDX-License-Identifier: Apache-2.0
"""A build of vLLM that finds none of its devices: how it is found out, and what it is given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance import foreign_build
from conformance.engine.entry_points import write_distribution
from conformance.foreign_build.operations import OPERATIONS

if TYPE_CHECKING:
    from conformance.worker import Zygote

ROOT = Path(__file__).parents[2]


def _asked(zygote: Zygote, folder: Path, what: str, **arguments: object) -> Any:  # noqa: ANN401
    job = zygote.fork(
        f"foreign_build_job:{what}",
        arguments,
        log=folder / "job.log",
        directory=folder,
        python_path=[str(Path(__file__).parent), str(ROOT)],
    )
    try:
        return job.ask("", limit=120)
    finally:
        job.close()


def _said(program: str, *paths: Path) -> Any:  # noqa: ANN401 - what it printed, as JSON
    """Execute a program where folders come first on the path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT)))}
    environment.pop(foreign_build.VARIABLE, None)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


#: Says what was found, and what vLLM runs on then.
FOUND = """
import json, os
from conformance.worker import hindrances
from conformance import foreign_build

BEFORE
from vllm.platforms import current_platform

print(json.dumps({
    "cpu": current_platform.is_cpu(),
    "variable": os.environ.get(foreign_build.VARIABLE),
    "variables": foreign_build.variables(),
    "path": foreign_build.python_path(),
    "build": foreign_build.described(),
    "no device": hindrances.no_device(),
}))
"""


@pytest.mark.parametrize(
    "name", ["greedy_argmax", "compute_slot_mapping_kernel_impl", "fused_gumbel_argmax"]
)
def test_an_operation_gives_what_the_compiled_one_gives(
    zygote: Zygote, tmp_path: Path, name: str
) -> None:
    """The same numbers; of tokens that are drawn, as many of each."""
    theirs, ours = _asked(zygote, tmp_path, "compare", name=name)

    assert ours == theirs


def test_tokens_attend_to_what_they_attend_to_in_vllm(zygote: Zygote, tmp_path: Path) -> None:
    """Prefills, decodes and chunks, whole or within a window, capped or not, up to rounding."""
    theirs, ours = _asked(zygote, tmp_path, "compare", name="cpu_attention_with_kv_cache")

    for expected, got in zip(theirs, ours, strict=True):
        assert _flat(got) == pytest.approx(_flat(expected), abs=1e-5)


def _flat(rows: Any) -> list[float]:  # noqa: ANN401 - nested lists of numbers
    return [number for row in rows for number in _flat(row)] if isinstance(rows, list) else [rows]


def test_operations_take_what_the_compiled_ones_take(zygote: Zygote, tmp_path: Path) -> None:
    """A release that calls one of them otherwise is seen here."""
    theirs, ours = _asked(zygote, tmp_path, "schemas", names=sorted(OPERATIONS))

    assert ours == theirs


def test_a_build_for_this_machine_is_left_alone() -> None:
    """Nothing is set, nothing is said, and no operation is replaced."""
    found = _said(FOUND.replace("BEFORE", "foreign_build.prepare()"))

    assert found == {
        "cpu": True,
        "variable": None,
        "variables": {},
        "path": [],
        "build": None,
        "no device": None,
    }


def test_a_build_that_finds_no_device_is_told_to_take_the_cpu(tmp_path: Path) -> None:
    """Its own variable says so, to this process and to those that it starts.

    The metadata are those of a build for CUDA; the operations for a CPU are there all the same,
    so nobody is told of another build.
    """
    write_distribution(tmp_path, name="vllm", version="0.0.1")
    found = _said(FOUND.replace("BEFORE", "foreign_build.prepare()"), tmp_path)

    assert found["cpu"]
    assert found["variable"] == "cpu"
    assert found["variables"] == {foreign_build.VARIABLE: "cpu"}
    assert found["path"] == []
    assert found["build"] is found["no device"] is None


def test_without_that_no_engine_would_start(tmp_path: Path) -> None:
    """The sentence about it names what is installed."""
    write_distribution(tmp_path, name="vllm", version="0.0.1")
    found = _said(FOUND.replace("BEFORE", ""), tmp_path)

    assert not found["cpu"]
    assert str(found["no device"]).startswith("vLLM knows no device here: vllm 0.0.1 ")


#: Asks for an operation that there is not, once vLLM takes the CPU.
LACKING = """
import json
from conformance import foreign_build

foreign_build.prepare()
import torch

said = []
for what in ("torch.ops._C.no_such_operation", "torch.nothing"):
    try:
        eval(what)
    except AttributeError as error:
        said.append(foreign_build.lacks(RuntimeError(what)) or foreign_build.lacks(error))
print(json.dumps(said))
"""


def test_an_operation_that_is_not_there_is_the_hosts(tmp_path: Path) -> None:
    """What else is not there is somebody else's; on a build for this machine everything is."""
    write_distribution(tmp_path, name="vllm", version="0.0.1")
    named, other = _said(LACKING, tmp_path)

    assert named.endswith("is without its device here, and has no operation _C.no_such_operation "
                          "for a CPU")  # fmt: skip
    assert other is None
    assert _said(LACKING) == [None, None]
