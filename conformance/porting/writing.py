# SPDX-License-Identifier: Apache-2.0
"""The source of a class for both model runners: a template, and the name of what it derives from.

Imports neither vLLM nor torch.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
