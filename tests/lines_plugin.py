# SPDX-License-Identifier: Apache-2.0
"""A plugin that embeds lines, of both generations, and what is wrong with it now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from conformance.reporting.folder import write_case
from conformance.runner import Certification
from conformance.settings import Budget, Settings
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

#: A correct plugin.
DATA_SOURCE = """\
import asyncio
import functools
import threading
import time

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


@attrs.frozen
class Case:
    """A case file, and the plugin that it is about."""

    plugin: Path
    result: RuleResult
    program: Path  #: where the program lies, if there is one
    correct: str

    @property
    def path(self) -> Path:
        """The case file."""
        return self.program.with_suffix(".json")

    def mend(self) -> None:
        """Put the correct plugin in the place of the faulty one."""
        self.plugin.write_text(self.correct, encoding="utf-8")

    def replace(self, old: str, new: str) -> None:
        """Change the plugin as it is now."""
        source = self.plugin.read_text(encoding="utf-8")
        assert old in source
        self.plugin.write_text(source.replace(old, new), encoding="utf-8")


def failing(zygote: Zygote, fault: Fault, folder: Path, *, profile: str = PROFILE) -> Case:
    """Write a faulty plugin, certify it, and write the case of its failure."""
    correct, faulty = fault.applied()
    plugin = folder / "lines.py"
    plugin.write_text(faulty, encoding="utf-8")
    result = certified(zygote, plugin, fault.rule, profile)
    assert result.verdict is Verdict.FAIL, result.message
    case = {
        "schema": 1,
        "rule": fault.rule,
        "target": f"{plugin}:Lines",
        "generation": "io/request" if fault.documented else "io/data",
        "message": result.message,
        "plugin": {"module": plugin.stem, "qualname": "Lines", "root": str(folder)},
        "counterexample": result.counterexample,
    }
    write_case(case, folder)
    return Case(plugin, result, folder / f"{fault.rule}.py", correct)


def certified(zygote: Zygote, plugin: Path, rule: str, profile: str = PROFILE) -> RuleResult:
    """Judge one rule in the simulator."""
    chosen = plugin.with_name("profile.toml")
    chosen.write_text(profile, encoding="utf-8")
    settings = Settings(
        targets=(f"{plugin}:Lines",),
        profile=str(chosen),
        budget=Budget.QUICK,
        report=plugin.parent / "report",
    )
    with Certification(settings, zygote=zygote) as certification:
        certification.load()
        checks = [check for check in certification.checks() if check.rule == rule]
        certification.select(checks)
        return certification.run(checks[0])
