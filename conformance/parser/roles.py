# SPDX-License-Identifier: Apache-2.0
"""What parsers are for, and what vLLM calls those of each kind."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs

TOOL, REASONING = "tool", "reasoning"

#: The name under which a class is registered that its file does not register.
NAME = "vllm_conformance"


@attrs.frozen
class Role:
    """The names of one kind of parsers."""

    prefix: str  #: of the ids of its rules
    base: str  #: the class that they derive from
    module: str  #: where that is
    whole: str  #: the method for whole answers
    option: str  #: the one of ``vllm serve`` that names a parser
    together: int  #: number of the rule about both parsers of a model
    cost: int  #: number of the rule about what a step costs
    shares: int  #: number of the rule about what loading leaves to others
    memory: int  #: number of the rule about what answers leave behind

    @property
    def streamed(self) -> str:
        """The method for streamed answers."""
        return f"{self.whole}_streaming"

    @property
    def package(self) -> str:
        """What the base class and its manager are imported from."""
        return self.module.rpartition(".")[0]

    def rule(self, number: int) -> str:
        """Return the id of a rule."""
        return f"{self.prefix}-{number:02}"


ROLES = {
    TOOL: Role(
        "TP",
        "ToolParser",
        "vllm.tool_parsers.abstract_tool_parser",
        "extract_tool_calls",
        "tool-call-parser",
        together=14,
        cost=16,
        shares=17,
        memory=20,
    ),
    REASONING: Role(
        "RP",
        "ReasoningParser",
        "vllm.reasoning.abs_reasoning_parsers",
        "extract_reasoning",
        "reasoning-parser",
        together=12,
        cost=13,
        shares=14,
        memory=21,
    ),
}


def other(role: str) -> str:
    """Return what the partner of a parser is for."""
    return REASONING if role == TOOL else TOOL


def base(role: str) -> type[Any]:
    """Return the class that parsers derive from."""
    found: type[Any] = getattr(import_module(ROLES[role].package), ROLES[role].base)
    return found


def plugin_file(folder: Path, role: str, imports: tuple[str, str]) -> str:
    """Write a file that registers a class, and return the option of servers that has it loaded.

    *imports* are statements, and the class behind them.
    """
    statements, cls = imports
    keeper = f"{ROLES[role].base}Manager"
    path = folder.absolute() / f"{role}_parser_plugin.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"from {ROLES[role].package} import {keeper}\n\n"
        f"{statements}\n\n"
        f'{keeper}.register_module("{NAME}", force=True, module={cls})\n',
        encoding="utf-8",
    )
    return f"--{role}-parser-plugin={path}"


def manager(role: str) -> Any:  # noqa: ANN401 - one of vLLM's managers
    """Return what knows parsers by their names.

    Raises:
        ImportError: this release has no such parsers.

    """
    return getattr(import_module(ROLES[role].package), f"{ROLES[role].base}Manager")


def name_of(cls: type[Any], role: str) -> str:
    """Return a name that vLLM itself knows a class by: some of them are composed in other ways."""
    if not cls.__module__.startswith("vllm."):
        return NAME
    for name, (module, known) in manager(role).lazy_parsers.items():
        # A few are defined in other modules, and under other names, than the manager has them.
        if getattr(sys.modules.get(module), known, None) is cls:
            return str(name)
    return NAME
