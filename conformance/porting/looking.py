# SPDX-License-Identifier: Apache-2.0
"""A job: what a batch logits processor is made of, and what stands in the way of a port."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.worker.jobs import class_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from conformance.plugin.target import Plugin


#: The line of a template that imports the class, and the name that stands for the written one.
_IMPORT = re.compile(r"^from vllm\.v1\.sample\.logits_processor import \w+ as Batch$", re.MULTILINE)
_NAME = "Ported"


class Kind(StrEnum):
    """What a batch logits processor is made of: the template for it has this name."""

    CALLABLES = "callables"  #: a callable for each request, wrapped
    ROWS = "rows"  #: state by row, kept by the class itself


def name_of(plugin: Plugin) -> str:
    """Return the name of the class that is written for a plugin."""
    return f"{_NAME}{plugin.qualname}"


def written(plugin: Plugin, kind: Kind) -> str:
    """Return the source of the module that is written for a plugin."""
    text = Path(__file__).with_name(f"{kind}.py").read_text(encoding="utf-8")
    _, rest = re.split(r'^""".*"""\n', text, maxsplit=1, flags=re.MULTILINE)
    rest = _IMPORT.sub(f"from {plugin.module} import {plugin.qualname} as Batch", rest)
    rest = rest.replace(f"class {_NAME}(", f"class {name_of(plugin)}(")
    rest = rest.replace("``Batch``", f"``{plugin.qualname}``")
    rest = rest.replace('"Batch has', f'"{plugin.qualname} has')
    return _DOCSTRING.format(name=plugin.qualname) + rest


_DOCSTRING = '''\
"""``{name}`` for both model runners of vLLM.

Written by ``vllm-conformance port`` as a start: it keeps the promises of both interfaces, at the
cost of a copy to the host in every step. What is left to do is marked below.
"""
'''


#: What ``AdapterLogitsProcessor`` does with the callables: a class that does it differently has
#: more to it than what it makes for a request.
_OF_THE_WRAPPER = ("_new_state", "update_state", "apply")


def look(connection: Connection, plugin: Plugin) -> None:
    """Answer with the kind of a plugin's class, and with what is in the way if something is."""
    connection.recv()
    cls = class_of(plugin)
    connection.send((_kind(cls), _hindrance(cls)))


def _hindrance(cls: type) -> str | None:
    try:
        from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor
    except ImportError:
        return "the installed vLLM has no logits processors for Model Runner V2"
    if issubclass(cls, LogitsProcessor):
        return "it serves Model Runner V2 already"
    if "." in cls.__qualname__:
        return "it is no class that a module can import by its name"
    if getattr(cls, "__final__", False):
        return "it is final, and the class that is written derives from it"
    return None


def _kind(cls: type) -> Kind:
    from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

    own = [name for name in _OF_THE_WRAPPER if _defined(cls, name) is not AdapterLogitsProcessor]
    return Kind.CALLABLES if issubclass(cls, AdapterLogitsProcessor) and not own else Kind.ROWS


def _defined(cls: type, name: str) -> type | None:
    """Return the class that defines a method of another one."""
    return next((base for base in cls.__mro__ if name in vars(base)), None)
