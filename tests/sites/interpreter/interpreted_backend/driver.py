# SPDX-License-Identifier: Apache-2.0
"""The driver of the backend: a CPU that is always there."""

from __future__ import annotations

from typing import Any, NoReturn

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase


class InterpreterDriver(DriverBase):
    """What Triton and vLLM ask a driver."""

    @classmethod
    def is_active(cls) -> bool:
        """Tell whether there is such a device."""
        return True

    def map_python_to_cpp_type(self, ty: str) -> NoReturn:
        """Refuse: nothing is launched."""
        raise NotImplementedError(f"no launcher is compiled, so {ty!r} has no C++ type")

    def get_current_target(self) -> Any:  # noqa: ANN401 - triton's GPUTarget
        """Return the CPU as a target."""
        return GPUTarget("cpu", 0, 0)

    def get_active_torch_device(self) -> Any:  # noqa: ANN401 - torch's device
        """Return the CPU as a torch device."""
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> Any:  # noqa: ANN401 - a module of torch
        """Return what has streams and events."""
        import torch

        return torch.cpu

    def get_current_device(self) -> int:
        """Return the number of the only device."""
        return 0

    def get_current_stream(self, _device: int | None = None) -> int:
        """Return the number of the only stream."""
        return 0

    def get_benchmarker(self) -> NoReturn:
        """Refuse: in the interpreter no configuration is better than another."""
        raise NotImplementedError("kernels are not tuned in the interpreter")
