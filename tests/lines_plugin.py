# SPDX-License-Identifier: Apache-2.0
"""A plugin that embeds lines, of both generations, and what is wrong with it now and then."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import attrs
import cases
from support import Specimen, certify

from conformance.settings import Budget

if TYPE_CHECKING:
    from pathlib import Path

    from cases import Case

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

#: A correct plugin.
DATA_SOURCE = """\
import asyncio
import functools
import threading
import time

import torch
from vllm.plugins.io_processors.interface import IOProcessor
from vllm.pooling_params import PoolingParams


class Lines(IOProcessor):
    def __init__(self, vllm_config, renderer=None):
        super().__init__(vllm_config, renderer)
        self.names = {}

    def parse_data(self, data):
        lines = data.get("lines") if isinstance(data, dict) else None
        if not isinstance(lines, list) or not lines or len(lines) > 16:
            raise ValueError("data must be an object with lines")
        if not all(isinstance(line, str) and line.strip() for line in lines):
            raise ValueError("a line must be a text that is not blank")
        if any("forbidden" in line for line in lines):
            raise ValueError("a line must not hold what is forbidden")
        return lines

    def merge_pooling_params(self, params=None):
        params = PoolingParams() if params is None else params
        params.task = "embed"
        return params

    def pre_process(self, prompt, request_id=None, **kwargs):
        return list(prompt)

    def post_process(self, model_output, request_id=None, **kwargs):
        return {"firsts": [output.outputs.data[0].item() for output in model_output]}
"""

_PARSING = """\
    def parse_request(self, request):
        data = getattr(request, "data", request)
        data = data["data"] if isinstance(data, dict) and "data" in data else data
"""

_RESPONDING = """
    def output_to_response(self, plugin_output):
        return IOProcessorResponse(data=plugin_output)
"""

_IMPORTS = "from vllm.entrypoints.pooling.pooling.protocol import IOProcessorResponse\n"

#: The same as the document of the interface describes it.
REQUEST_SOURCE = (
    DATA_SOURCE.replace("    def parse_data(self, data):\n", _PARSING)
    .replace("merge_pooling_params", "validate_or_generate_params")
    .replace("from vllm.plugins", _IMPORTS + "from vllm.plugins", 1)
    + _RESPONDING
)

PROFILE = """\
[io-processor]
valid = [ { lines = ["the hounds sleep", "a fox runs"] }, { lines = ["red"] } ]
invalid = [ {}, { lines = ["forbidden"] } ]
"""


@attrs.frozen
class Fault:
    """What is wrong with the plugin."""

    rule: str
    #: Texts of the correct plugin, and what is there instead.
    changes: tuple[tuple[str, str], ...] = ()
    more: str = ""  #: what is added to the end of the class
    documented: bool = False  #: whether it is a fault of the documented generation

    def applied(self) -> tuple[str, str]:
        """Return the source of the correct plugin, and that of the faulty one."""
        correct = source = REQUEST_SOURCE if self.documented else DATA_SOURCE
        for old, new in self.changes:
            assert old in source
            source = source.replace(old, new)
        return correct, source + self.more


def failing(zygote: Zygote, fault: Fault, folder: Path, *, profile: str = PROFILE) -> Case:
    """Write a faulty plugin, certify it, and write the case of its failure."""
    correct, faulty = fault.applied()
    plugin = folder / "lines.py"
    plugin.write_text(faulty, encoding="utf-8")
    generation = "io/request" if fault.documented else "io/data"
    specimen = specimen_of(plugin, fault.rule, profile, generation)
    return cases.failing(zygote, specimen, plugin, budget=Budget.QUICK, correct=correct)


def certified(zygote: Zygote, plugin: Path, rule: str) -> RuleResult:
    """Judge one rule of a plugin that has ``parse_data`` in the simulator."""
    specimen = specimen_of(plugin, rule)
    return certify(zygote, specimen, plugin.parent, rules={rule}, budget=Budget.QUICK)[rule]


def specimen_of(
    plugin: Path, rule: str, profile: str = PROFILE, generation: str = "io/data"
) -> Specimen:
    """Return the plugin in a file, and how it is tried."""
    section = tomllib.loads(profile)["io-processor"]
    return Specimen(f"{plugin}:Lines", rule, section, generation=generation)
