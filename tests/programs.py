# SPDX-License-Identifier: Apache-2.0
"""Writing and executing the stand-alone program of a failure."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from user import CACHE

from conformance.counterexample import FIELDS, logits_checks
from conformance.engine.environment import host_environment
from conformance.plugin import target as targets
from conformance.reporting import folder
from conformance.worker import JobDied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support import Specimen

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

#: Whatever a program may import beside the plugin and the standard library.
ALLOWED = {"numpy", "starlette", "torch", "vllm"}

#: Plugins of which there is no program: what it is made of ends with their process, or keeps the
#: parameters that CPython would make others in place of.
WITHOUT = {
    "copies_from_null_pointer",
    "exits_process",
    "knows_requests_by_their_parameters",
}


def shows_nothing(rule: str, status: int, said: str) -> bool:
    """Tell whether a program has said that it takes a GPU, on a machine without one."""
    nothing = status == logits_checks.NOTHING_SHOWN and logits_checks.NEEDS_GPU in said
    return rule in logits_checks.ON_GPU and shutil.which("nvidia-smi") is None and nothing


def has_one(result: RuleResult) -> bool:
    """Tell whether there is a program of a failure."""
    return bool(FIELDS & (result.counterexample or {}).keys())


def write(specimen: Specimen, result: RuleResult, place: Path) -> Path:
    """Write the case and the program of a failure; return the path of the program."""
    assert result.counterexample is not None, result.message
    (parsed,) = targets.parse(specimen.target, place)
    case = {
        "schema": 1,
        "rule": result.rule,
        "target": specimen.target,
        "generation": specimen.generation,
        "message": result.message,
        "plugin": {"module": parsed.module, "qualname": parsed.qualname, "root": parsed.root},
        "counterexample": result.counterexample,
    }
    folder.write_case(case, place)
    return place / f"{result.rule}.py"


def execute(zygote: Zygote, path: Path) -> tuple[int, str]:
    """Execute a program in a process that has imported vLLM; return its exit status and words."""
    log = path.with_suffix(".log")
    job = zygote.fork(
        "program_job:execute",
        {"path": str(path)},
        log=log,
        directory=path.parent,
        python_path=[str(Path(__file__).parent / "logits_batch")],
    )
    try:
        status = job.ask("execute", limit=120)
    except JobDied as error:
        status = error.exit_status
    finally:
        job.close()
    return status, log.read_text(encoding="utf-8")


def execute_apart(
    path: Path, *options: str, arguments: Sequence[str] = (), python_path: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Execute a program in an empty folder; its environment knows nothing of this harness."""
    place = path.parent / "elsewhere"
    place.mkdir(exist_ok=True)
    prepared = host_environment(extra={"VLLM_CONFORMANCE_CACHE": CACHE})
    kept = ("PATH", "HOME", "LD_LIBRARY_PATH", "LD_PRELOAD")
    environment = {key: os.environ[key] for key in kept if key in os.environ}
    # Where vLLM keeps what it has learnt about model classes; learning it again takes long.
    environment["VLLM_CACHE_ROOT"] = prepared["VLLM_CACHE_ROOT"]
    if python_path:
        environment["PYTHONPATH"] = os.pathsep.join(python_path)
    return subprocess.run(
        [sys.executable, *options, str(path), *arguments],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def imported(source: str) -> set[str]:
    """Return the packages that a program imports, but for the standard library."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(str(node.module))
    return {module.partition(".")[0] for module in modules} - sys.stdlib_module_names
