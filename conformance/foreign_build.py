# SPDX-License-Identifier: Apache-2.0
"""A build of vLLM for accelerators on a machine that has none, such as a plugin's own CI.

`pip install vllm` brings the build for CUDA.  Where no driver is, it finds no platform, and nothing
of it that asks for one works.  Its Python code is the same as that of the build for a CPU, and
vLLM has a variable that asks for this platform by name; so the processes of a run set it, for
themselves and for those that they start.
What is compiled is not the same: operations for a CPU are not there.  Those that the host of a
simulator needs are given to it (:data:`OPERATIONS`), each by what vLLM itself computes where no
kernel is; engines need more than that and do not start.

Everything is found by trying, nothing by the name or the version of what is installed.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import torch

#: The variable in which vLLM looks for the name of a platform before it looks at the machine.
VARIABLE = "VLLM_TARGET_DEVICE"

#: How torch says that it has an operation, and not for tensors of a CPU.
_NO_KERNEL = re.compile(
    r"Could not run '(?P<name>[\w:]+)\S*' with arguments from the 'CPU' backend"
)

#: What the build is called, once this process runs it on a CPU.
_PREPARED: list[str] = []


def prepare() -> None:
    """Have vLLM in this process take the CPU, if it would take no platform at all.

    To be called before anything asks for vLLM's current platform.
    """
    if _PREPARED or not _knows_no_platform():
        return
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "cpu"
    if _knows_no_platform():
        _restore(before)
        return
    _PREPARED.append(_build())
    complete()


def described() -> str | None:
    """Return what certificates call the build, if this process runs it without its device."""
    return _PREPARED[0] if _PREPARED else None


def complete() -> tuple[str, ...]:
    """Give vLLM the operations that its code for a CPU calls, and its build does not have.

    Returns:
        Their names.

    """
    import torch
    import vllm._custom_ops  # noqa: F401 - imports the kernels that there are

    lacking = [name for name in OPERATIONS if not hasattr(torch.ops._C, name)]  # noqa: SLF001
    for name in lacking:
        schema, function = OPERATIONS[name]
        torch.library.define(f"_C::{name}", schema)
        torch.library.impl(f"_C::{name}", "CPU", function)
    return tuple(lacking)


def variables() -> dict[str, str]:
    """Return the variables that another process needs to run vLLM as this one does."""
    return {VARIABLE: "cpu"} if described() else {}


def engine_arguments() -> dict[str, Any]:
    """Return what ``EngineArgs`` needs so that models run with the operations that there are."""
    # vLLM's layers then compute with torch, as where nothing is compiled for them.
    return {"compilation_config": {"custom_ops": ["none"]}} if described() else {}


def lacks(error: BaseException) -> str | None:
    """Say that an error comes of an operation that the build has for its own device alone, if so.

    Args:
        error: what was raised, by whomever.

    """
    if (build := described()) is None:
        return None
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


def _knows_no_platform() -> bool:
    """Tell whether vLLM finds nothing here that it could run on."""
    from vllm import platforms

    # A function that keeps nothing: asking for the platform itself would settle it.
    resolve: Callable[[], str] | None = getattr(
        platforms, "resolve_current_platform_cls_qualname", None
    )
    return resolve is not None and resolve().endswith(".UnspecifiedPlatform")


def _restore(before: str | None) -> None:
    if before is None:
        del os.environ[VARIABLE]
    else:
        os.environ[VARIABLE] = before


def _build() -> str:
    """Return what the installed vLLM was built for, by the torch that it was built with."""
    import torch

    for name, label in (("cuda", "CUDA"), ("hip", "ROCm"), ("xpu", "XPU")):
        if getattr(torch.version, name, None):
            return f"{label} build"
    return "build for another device"


def _greedy_argmax(logits: torch.Tensor) -> torch.Tensor:
    """Take the first of the highest logits, as ``Sampler.greedy_sample`` does elsewhere."""
    return logits.argmax(dim=-1).view(-1)


def _fused_gumbel_argmax(logits: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
    """Draw a token of each row as ``TopKTopPSampler.forward_native`` does, with the row's seed.

    The kernel has a generator of its own: it draws other tokens of the same distribution.
    """
    import torch

    probabilities = logits.softmax(dim=-1, dtype=torch.float32)
    noise = torch.empty_like(probabilities)
    for row, seed in zip(noise, seeds.tolist(), strict=True):
        row.exponential_(generator=torch.Generator().manual_seed(seed))
    return (probabilities / noise).argmax(dim=-1).view(-1)


#: What simulators call on a CPU, by name: the schema of the operation, and what it computes.
OPERATIONS: Mapping[str, tuple[str, Callable[..., torch.Tensor]]] = {
    "greedy_argmax": ("(Tensor logits) -> Tensor", _greedy_argmax),
    "fused_gumbel_argmax": ("(Tensor logits, Tensor seeds) -> Tensor", _fused_gumbel_argmax),
}
