# SPDX-License-Identifier: Apache-2.0
"""A build of vLLM for accelerators on a machine that has none, such as a plugin's own CI.

`pip install vllm` brings the build for CUDA.  Where no driver is, it finds no platform, and nothing
of it that asks for one works.  Its Python code is the same as that of the build for a CPU, and
vLLM has a variable that asks for this platform by name; so the processes of a run set it, for
themselves and for those that they start.
What is compiled is not the same: operations for a CPU are not there.  vLLM computes with torch
where it has no kernel, and :mod:`conformance.foreign_build.operations` does for the few operations
of which it knows no other way.

Everything is found by trying, nothing by the name or the version of what is installed.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from conformance.rules import Evidence

#: The variable in which vLLM looks for the name of a platform before it looks at the machine.
VARIABLE = "VLLM_TARGET_DEVICE"

#: Set where a process is to simulate: on a CPU, whatever devices the machine has.
SIMULATES = "CONFORMANCE_SIMULATES"  # vLLM warns of names of its own that it does not know

#: A distribution whose ``vllm.general_plugins`` entry point is :func:`complete`.
_SITE = Path(__file__).with_name("site")
PLUGIN = "conformance-foreign-build"

#: How torch says that it has an operation, and not for tensors of a CPU.
_NO_KERNEL = re.compile(
    r"Could not run '(?P<name>[\w:]+)\S*' with arguments from the 'CPU' backend"
)

#: What vLLM runs on where that is the CPU, whichever class of vLLM's it is.
_CPU = "CPU"

#: Whether this process had to be told to take the CPU.
_told = False


def prepare() -> None:
    """Have vLLM in this process take the CPU, if it would take no platform at all.

    Or another one, where the process is to simulate.
    To be called before anything asks for vLLM's current platform.
    """
    global _told  # noqa: PLW0603 - what vLLM runs on is settled once in a process
    if _told:
        return
    found = _platform()  # asks drivers
    if found == _CPU or (found and SIMULATES not in os.environ):
        return
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "cpu"
    if _platform() != _CPU:
        _restore(before)
        return
    _told = True
    complete()


@functools.cache
def described() -> str | None:
    """Return what certificates call the build, if this process runs it without its device."""
    if not _told:
        return None
    import torch

    for name, label in (("cuda", "CUDA"), ("hip", "ROCm"), ("xpu", "XPU")):
        if getattr(torch.version, name, None):
            return f"{label} build"
    return None  # one for a CPU, whose metadata do not say so


def noted(evidence: Evidence) -> dict[str, str]:
    """Return what a certificate says of a vLLM that is not built for this machine."""
    build = described()
    if build is None:
        return {}
    if evidence is Evidence.SIMULATOR:
        return {"host_build": f"{build}, simulator on CPU"}
    return {"host_engines": f"{build}, on CPU: operations it lacks there were computed with torch"}


@functools.cache
def complete() -> tuple[str, ...]:
    """Give vLLM the operations that its code for a CPU calls, and its build does not have.

    Returns:
        Their names.

    """
    import torch
    import vllm._custom_ops  # noqa: F401 - imports the kernels that there are
    from vllm.platforms.cpu import CpuPlatform

    from conformance.foreign_build.operations import OPERATIONS

    lacking = [name for name in OPERATIONS if not hasattr(torch.ops._C, name)]  # noqa: SLF001 - how torch names the library of vLLM
    for name in lacking:
        schema, function = OPERATIONS[name]
        torch.library.define(f"_C::{name}", schema)
        torch.library.impl(f"_C::{name}", "CompositeExplicitAutograd", function)
    if lacking:
        choose = CpuPlatform.apply_config_platform_defaults
        CpuPlatform.apply_config_platform_defaults = staticmethod(_natively(choose))
    return tuple(lacking)


def _natively(choose: Callable[[Any], None]) -> Callable[[Any], None]:
    """Have layers compute with torch, as vLLM's do where nothing is compiled for them."""

    def choose_natively(config: Any) -> None:  # noqa: ANN401 - vLLM's
        choose(config)
        chosen = config.compilation_config.custom_ops
        if not {"all", "none"} & set(chosen):
            chosen.append("none")

    return choose_natively


def variables() -> dict[str, str]:
    """Return the variables that another process needs to run vLLM as this one does."""
    return {VARIABLE: "cpu"} if _told else {}


def python_path() -> list[str]:
    """Return what a new process needs on ``PYTHONPATH`` for its engines to have operations."""
    return [str(_SITE)] if _told and complete() else []


def lacks(error: BaseException) -> str | None:
    """Name the operation of an error that the build has for its own device alone, if it is one."""
    if not _told:
        return None
    build = described() or "build"
    for cause in _chain(error):
        if (operation := _operation(cause)) is not None:
            import vllm

            return (
                f"the {build} of vLLM {vllm.__version__} is without its device here, and has no "
                f"operation {operation} for a CPU"
            )
    return None


def _operation(error: BaseException) -> str | None:
    """Return the name of the operation that torch did not find, or not for a CPU."""
    import torch

    if isinstance(error, AttributeError) and isinstance(error.obj, torch._ops._OpNamespace):  # noqa: SLF001 - its one type
        return f"{error.obj.name}.{error.name}"
    if isinstance(error, NotImplementedError):
        # torch has no type for it.
        found = _NO_KERNEL.match(str(error))
        return found["name"].replace("::", ".") if found else None
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it was raised from, or while they were handled."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


def _platform() -> str | None:
    """Return what vLLM would run on here: ``_CPU``, another name, or None where it finds nothing.

    Where releases cannot be asked, it is another one.
    """
    from vllm import platforms

    # A function that keeps nothing: asking for the platform itself would settle it.
    resolve: Callable[[], str] | None = getattr(
        platforms, "resolve_current_platform_cls_qualname", None
    )
    if resolve is None:
        return "unknown"
    try:
        name = resolve()
    except RuntimeError:  # older releases take neither of two
        return "several"
    if name.endswith(".UnspecifiedPlatform"):
        return None
    return _CPU if name.endswith("CpuPlatform") else name


def _restore(before: str | None) -> None:
    if before is None:
        del os.environ[VARIABLE]
    else:
        os.environ[VARIABLE] = before
