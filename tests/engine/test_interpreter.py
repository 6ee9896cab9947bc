# SPDX-License-Identifier: Apache-2.0
"""Triton's interpreter, and the stand-ins for vLLM's kernels beside the kernels themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import interpreter
import pytest

from conformance.engine.environment import host_environment
from conformance.engine.kernels import KERNELS
from conformance.engine.models import tiny_llama
from conformance.worker import Zygote

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PRELOAD = (
    "vllm.engine.arg_utils",
    "vllm.v1.worker.cpu.shm",  # before anything of vllm.v1.worker.gpu
    "vllm.v1.worker.gpu.model_runner",
)
LIMIT = 240.0


@pytest.fixture(scope="module")
def interpreted() -> interpreter.Interpreter:
    """Return the interpreter, where it is installed."""
    try:
        return interpreter.find()
    except interpreter.NoInterpreter as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def interpreter_zygote(
    interpreted: interpreter.Interpreter, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Zygote]:
    """One process that has imported vLLM with Triton, for all tests here."""
    environment = host_environment(
        python_path=[ROOT, *interpreted.python_path], extra=interpreted.environment
    )
    log = tmp_path_factory.mktemp("zygote") / "zygote.log"
    with Zygote(preload=PRELOAD, environment=environment, log=log) as process:
        process.wait_ready()
        yield process


def test_an_interpreter_that_is_not_there_is_missed_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence names the variable and the folder."""
    monkeypatch.setenv(interpreter.VARIABLE, str(tmp_path))

    with pytest.raises(interpreter.NoInterpreter) as raised:
        interpreter.find()

    assert str(raised.value) == f"$VLLM_CONFORMANCE_INTERPRETER names no Triton in {tmp_path}"


def test_the_folder_with_triton_is_found_by_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder goes last, after the backend that Triton lacks."""
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").touch()
    monkeypatch.setenv(interpreter.VARIABLE, str(tmp_path))

    assert interpreter.find().python_path[-1] == str(tmp_path)


@pytest.mark.engine
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda name: name.rpartition(".")[2])
def test_a_stand_in_does_what_its_kernel_does(
    interpreter_zygote: Zygote, tmp_path: Path, kernel: str
) -> None:
    """What the kernel writes in Triton's interpreter, the stand-in writes bit for bit."""
    job = interpreter_zygote.fork(
        "interpreter_job:compare",
        {"kernel": kernel},
        log=tmp_path / "job.log",
        directory=tmp_path,
        python_path=[str(Path(__file__).parent)],
    )

    compared, difference = job.ask("compare", limit=LIMIT)
    job.close()

    assert compared >= 8, difference
    assert difference is None


@pytest.mark.engine
@pytest.mark.parametrize(
    ("job", "arguments"),
    [
        ("greedy", {"runner": "v2"}),
        ("mixed", {}),
        ("recorded", {"target": "forcing:Slots"}),
    ],
    ids=["greedy", "every parameter", "what a plugin is sent"],
)
def test_an_engine_is_the_same_with_stand_ins_and_with_kernels(
    zygote: Zygote,
    interpreter_zygote: Zygote,
    tmp_path: Path,
    job: str,
    arguments: dict[str, Any],
) -> None:
    """Without Triton, and with vLLM's own kernels interpreted, engines do exactly the same."""
    answers = [
        _ask(process, tmp_path, f"model_runner_job:{job}", interpreted=interpreted, **arguments)
        for process, interpreted in ((zygote, False), (interpreter_zygote, True))
    ]

    assert answers[0] == answers[1]


@pytest.mark.server
@pytest.mark.slow
def test_a_server_runs_in_the_interpreter(
    zygote: Zygote, interpreted: interpreter.Interpreter, tmp_path: Path
) -> None:
    """A server that is given the interpreter starts and lets a plugin act."""
    _, forced = _ask(
        zygote,
        tmp_path,
        "model_runner_job:served",
        target="forcing:Slots",
        python_path=interpreted.python_path,
    )

    assert set(forced) == {101}


def _ask(process: Zygote, folder: Path, function: str, **arguments: object) -> Any:  # noqa: ANN401 - what jobs answer
    job = process.fork(
        function,
        {"model": str(tiny_llama()), **arguments},
        log=folder / "job.log",
        directory=folder,
        python_path=[str(Path(__file__).parent)],
    )
    answer = job.ask("run", limit=LIMIT)
    job.close()
    return answer
