# SPDX-License-Identifier: Apache-2.0
"""Findings: each program shows its fault on the installed vLLM and prints what the page says."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
import tutorial
from families import FAMILIES
from support import ROOT
from torchvision_site import NoTorchvision, python_path

from conformance.configuration import variants
from conformance.engine.environment import host_environment
from conformance.engine.models import tiny_llama
from conformance.engine.multimodal_models import TINY_LLAVA
from conformance.engine.pooling_models import tiny_embedding

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = ROOT / "docs" / "findings.md"
FOLDER = ROOT / "docs" / "findings"

#: Seconds; a server on a busy machine takes a minute to start.
PATIENCE = 280


@attrs.frozen
class Program:
    """A program of the page."""

    name: str
    model: Callable[[], Path] | None = None  #: makes the folder that it takes
    torchvision: bool = False
    marks: tuple[pytest.MarkDecorator, ...] = ()
    shown: str = attrs.field()  #: the title of what it prints, on the page

    @shown.default
    def _its_own_name(self) -> str:
        return self.name


_ENGINE = (pytest.mark.engine,)
_SERVER = (pytest.mark.server,)


def _family(name: str) -> Callable[[], Path]:
    """Return what makes the folder of one of vLLM's families."""
    return lambda: FAMILIES[name].write(Path(tempfile.mkdtemp(prefix="vllm-conformance-")))


def _experts() -> Path:
    """Return the folder of a tiny Mixtral."""
    return Path(variants.experts(str(tiny_llama())))


PROGRAMS = (
    Program("entry_point_output_ids.py"),
    Program("applied_twice.py"),
    Program("dropped_by_drafts.py"),
    Program("slot_entry_point.py"),
    Program("padded_lengths.py"),
    Program("one_row_for_all.py"),
    Program("ngram_processor.py", torchvision=True),
    Program("missing_placeholder.py", TINY_LLAVA.folder, torchvision=True, marks=_ENGINE),
    Program("films_of_two_lengths.py", _family("llava-onevision"), True, _ENGINE),
    Program("rows_of_two_lengths.py", TINY_LLAVA.folder, torchvision=True, marks=_ENGINE),
    Program("sounds_side_by_side.py", _family("qwen3-asr"), True, _ENGINE),
    Program("more_than_the_most.py", _family("lfm2-vl"), True, _ENGINE),
    Program("more_than_the_most.py", _family("glm-4.1v"), True, _ENGINE, "with wide pictures"),
    Program("pictures_in_company.py", _family("deepseek-vl2"), True),
    Program("two_sounds.py", _family("glm-asr")),
    Program("documented_example.py", tiny_llama, marks=_ENGINE),
    Program("seeded_in_parts.py", tiny_llama, marks=_ENGINE),
    Program("adapters_for_everybody.py", tiny_llama, marks=_ENGINE),
    Program("experts_on_two_ranks.py", _experts, marks=_ENGINE),
    Program("streamed_refusal.py", tiny_llama, marks=_SERVER),
    Program("blocked_event_loop.py", tiny_embedding, marks=_SERVER),
    Program("undecodable_request.py", tiny_embedding, marks=_ENGINE),
)


def test_the_page_names_every_program() -> None:
    """It links to each and shows what each prints, and there is no other; all of them are run."""
    there = {path.name for path in FOLDER.glob("*.py")}
    linked = set(re.findall(r"\]\(findings/([^)]+)\)", PAGE.read_text(encoding="utf-8")))
    shown = {block.name for block in tutorial.blocks(PAGE) if block.kind == "text"}

    assert there == linked == {program.name for program in PROGRAMS}
    assert shown == {program.shown for program in PROGRAMS}


@pytest.mark.slow  # each imports vLLM
@pytest.mark.parametrize(
    "program",
    [pytest.param(each, id=each.shown, marks=each.marks) for each in PROGRAMS],
)
def test_the_fault_is_there(program: Program) -> None:
    """The program finds it, and prints the lines of the page, whose times may be others."""
    (block,) = (block for block in tutorial.blocks(PAGE) if block.name == program.shown)
    path: list[str] = []
    if program.torchvision:
        try:
            path = python_path()
        except NoTorchvision as error:
            pytest.skip(str(error))
    arguments = [str(program.model())] if program.model else []

    status, said = _run([str(FOLDER / program.name), *arguments], path)

    lines = said.splitlines()
    assert lines, "it said nothing"
    assert lines[-1].startswith("FOUND: "), f"mended, or never seen; the page must say so:\n{said}"
    assert status == 1
    printed = [_timeless(line) for line in lines]
    assert [line for line in map(_timeless, block.text.splitlines()) if line not in printed] == []


def _timeless(line: str) -> str:
    """Return a line without what a clock said."""
    return re.sub(r"\d+\.\d+ s\b", "... s", line.rstrip())


def _run(arguments: list[str], path: list[str]) -> tuple[int, str]:
    """Run a program; return its exit status and what it prints, and leave nothing behind."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env=host_environment(python_path=path),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # A server that outlives its program is of the same session.
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=PATIENCE)
    finally:
        # The processes of an engine or server, if any are left.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode, said
