# SPDX-License-Identifier: Apache-2.0
"""The compiler of the backend, which is never asked to compile."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn

from triton.backends.compiler import BaseBackend

_MESSAGE = "this backend compiles nothing: set TRITON_INTERPRET=1 before Triton is imported"


class InterpretedOnly(BaseBackend):
    """What Triton requires of a compiler."""

    binary_ext = "none"

    @staticmethod
    def supports_target(target: Any) -> bool:  # noqa: ANN401 - triton's GPUTarget
        """Tell whether a target is a CPU."""
        return bool(target.backend == "cpu")

    def hash(self) -> str:
        """Return a name for what is compiled."""
        return "interpreted"

    def parse_options(self, options: dict[str, Any]) -> NoReturn:
        """Refuse."""
        raise NotImplementedError(_MESSAGE)

    def add_stages(self, *_: object) -> NoReturn:
        """Refuse."""
        raise NotImplementedError(_MESSAGE)

    def load_dialects(self, context: object) -> None:
        """Load nothing."""

    def get_module_map(self) -> dict[str, ModuleType]:
        """Return no module."""
        return {}
