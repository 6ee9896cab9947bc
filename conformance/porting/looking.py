# SPDX-License-Identifier: Apache-2.0
"""A job: what a batch logits processor is made of, and what stands in the way of a port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.porting.writing import Kind
from conformance.worker.jobs import class_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from conformance.plugin.target import Plugin

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
