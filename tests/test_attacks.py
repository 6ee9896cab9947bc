# SPDX-License-Identifier: Apache-2.0
"""Plugins that break the process that they run in: a verdict about them, never an error."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import attrs
import psutil
import pytest
from support import ROOT
from user import environment, verdicts

from conformance.plugin.likeness import likely
from conformance.plugin.target import Target
from conformance.reporting.session import write_reports
from conformance.running.runner import Certification
from conformance.settings import Budget, Settings
from conformance.verdict import Verdict
from conformance.worker import limits

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

REFERENCES = ROOT / "reference_plugins"

#: A correct plugin of each interface: its file, its class, the rule about survival.
PLUGINS = {
    "logits/batch": ("logits_batch/target_token", "TargetTokenLogitsProcessor", "LB-24"),
    "logits/slot": ("logits_slot/target_token", "TargetTokenSlotLogitsProcessor", "LS-24"),
    "io": ("io_processor/labels", "LineLabels", "IO-37"),
    "hook": ("classifier_hook/hooks/blocker", "PiiBlocker", "CH-29"),
}

ATTACK = """

def attack():
    def gone(*_, **__):
        raise RuntimeError("gone")
    {body}

"""

#: What only the harness needs; the plugin is as good as without it.
HARMLESS = {
    "process": "import json, os, pickle, signal, time; time.monotonic = os.fork = gone;"
    "os._exit = os.waitpid = lambda *_: None; pickle.dumps = pickle.loads = gone;"
    "signal.signal = signal.setitimer = gone",
    "clock": "import time; time.monotonic = lambda: 0.0",
    "tools": "import random, numpy, hypothesis, psutil; random.seed = numpy.random.seed = gone;"
    "hypothesis.given = hypothesis.settings = psutil.Process = gone",
    "pipes": "from multiprocessing.connection import Connection as C; C.send = C.recv = gone",
    "children": "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "output": "import builtins, sys, warnings; builtins.print = warnings.warn = gone;"
    "sys.stdout = sys.stderr = None",
}

#: What vLLM needs as well: no engine with the plugin would start or last.
HARMFUL = {
    "json": "import json; json.dumps = gone",
    "json-options": "import json; old = json.dumps; json.dumps = lambda value: old(value)",
    "open": "import builtins; builtins.open = gone",
    "logging": "import logging; logging.getLogger = gone",
}


def certified(
    folder: Path, zygote: Zygote, interface: str, body: str, *, constructed: bool = False
) -> dict[str, Any]:
    """Certify a correct plugin with an attack; return its certificate."""
    name, cls, _ = PLUGINS[interface]
    source = (REFERENCES / f"{name}.py").read_text() + ATTACK.format(body=body)
    if constructed:
        source += (
            f"class Attacker({cls}):\n"
            "    def __init__(self, *arguments, **options):\n"
            "        super().__init__(*arguments, **options)\n"
            "        attack()\n"
        )
    else:
        source += "attack()\n"
    (folder / "plugin.py").write_text(source)
    profile = (REFERENCES / f"{name}.conformance.toml").read_text()
    (folder / "plugin.conformance.toml").write_text(profile)
    suffix = "@io/data" if interface == "io" else ""  # the class serves two generations
    settings = Settings(
        targets=(f"plugin.py:{'Attacker' if constructed else cls}{suffix}",),
        budget=Budget.QUICK,
        directory=folder,
        python_path=(str(ROOT),),
    )
    with Certification(settings, zygote=zygote) as certification:
        plugins = certification.load()
        results = _run(certification)
        (document,) = write_reports(
            settings, plugins, {plugins[0].target: results}, certification.contexts, started=0.0
        )
    return document


def _run(certification: Certification) -> list[RuleResult]:
    checks = certification.checks()
    certification.select(checks)
    return [certification.run(check) for check in checks]


@pytest.mark.parametrize("body", HARMLESS.values(), ids=HARMLESS)
def test_what_only_the_harness_needs_changes_no_verdict(
    tmp_path: Path, zygote: Zygote, body: str
) -> None:
    """A correct plugin that takes away what only the harness calls is judged as without it."""
    document = certified(tmp_path, zygote, "logits/batch", body)

    doubtful = {
        rule["id"]: rule["message"]
        for rule in document["rules"]
        if rule["verdict"] not in {"pass", "not-applicable"}
    }
    assert not doubtful


@pytest.mark.parametrize("body", HARMFUL.values(), ids=HARMFUL)
@pytest.mark.parametrize("interface", ["logits/batch", "logits/slot"])
def test_what_vllm_needs_fails_the_rule_about_survival(
    tmp_path: Path, zygote: Zygote, interface: str, body: str
) -> None:
    """One that takes away what vLLM calls, too, is told what it replaced and what came of it."""
    document = certified(tmp_path, zygote, interface, body)
    broken = {
        rule["id"]: rule["message"] for rule in document["rules"] if rule["verdict"] == "fail"
    }

    assert document["verdict"] == "non-conformant"
    assert list(broken) == [PLUGINS[interface][2]]
    (message,) = broken.values()
    assert message.startswith("the plugin replaced ")
    assert " in its process: code of vLLM then raised " in message


@pytest.mark.parametrize("interface", PLUGINS)
def test_no_interface_ends_with_an_error(tmp_path: Path, zygote: Zygote, interface: str) -> None:
    """Whatever the interface, and whenever it happens, the harness itself does not fail."""
    document = certified(
        tmp_path, zygote, interface, HARMLESS["process"], constructed=interface != "hook"
    )

    assert "error" not in verdicts(document).values(), document["rules"]
    assert document["verdict"] != "error"


#: What asks for far too much memory, where an ordinary exception comes of it.
GREED = {
    "torch": "import torch; kept.append(torch.empty(1 << 40, dtype=torch.uint8))",
    "bytes": "kept.append(bytearray(1 << 40))",
    "numpy": "import numpy; kept.append(numpy.zeros(1 << 40, dtype=numpy.uint8))",
}


@pytest.mark.parametrize("what", GREED)
@pytest.mark.parametrize(("interface", "rule"), [("logits/batch", "LB-02"), ("io", "IO-02")])
def test_a_constructor_that_asks_for_too_much_memory_is_told(
    tmp_path: Path, zygote: Zygote, interface: str, rule: str, what: str
) -> None:
    """It gets none, and nothing else happens: the rule about constructors names the call."""
    body = f"kept = []; {GREED[what]}"
    document = certified(tmp_path, zygote, interface, body, constructed=True)
    broken = {
        rule["id"]: rule["message"] for rule in document["rules"] if rule["verdict"] == "fail"
    }

    assert document["verdict"] == "non-conformant"
    assert "asked for more memory than a trial may have (" in broken[rule]
    assert "error" not in verdicts(document).values()


#: Starts processes in sessions of their own, once, and writes down who they are.
MANY_CHILDREN = (
    "import pathlib, subprocess; path = pathlib.Path(__file__).with_name('children');"
    "path.exists() or path.write_text(' '.join(str(subprocess.Popen(['sleep', '600'], "
    "start_new_session=True).pid) for _ in range(300)))"
)


@pytest.mark.parametrize("constructed", [False, True], ids=["imported", "constructed"])
def test_hundreds_of_children_end_with_the_trial(
    tmp_path: Path, zygote: Zygote, constructed: bool
) -> None:
    """Whenever a plugin starts them, and in whatever sessions, none outlives its certification."""
    document = certified(tmp_path, zygote, "logits/batch", MANY_CHILDREN, constructed=constructed)
    children = [int(pid) for pid in (tmp_path / "children").read_text().split()]
    alive = [psutil.Process(pid) for pid in children if psutil.pid_exists(pid)]

    assert len(set(children)) == 300
    assert not psutil.wait_procs(alive, timeout=30)[1]
    assert "error" not in verdicts(document).values()


def test_a_process_may_have_half_of_the_memory() -> None:
    """A limited process still starts threads and has what torch reserves and does not use."""
    assert limits.memory() >= 4 << 30
    program = (
        "from conformance.worker import limits; limits.limit_memory()\n"
        "import threading, torch\n"
        "kept = torch.ones(1 << 28, dtype=torch.uint8)\n"
        "threads = [threading.Thread(target=torch.ones, args=(1 << 20,)) for _ in range(20)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "try: torch.empty(limits.memory(), dtype=torch.uint8)\n"
        "except RuntimeError as error: print(limits.explained(error), end='')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env=environment(),
    )
    size = f"{limits.memory() / 2**30:.0f} GiB"

    assert done.stdout == f"RuntimeError: asked for more memory than a trial may have ({size})"


#: Files that cannot be imported, and the generation that they plainly are of.
SOURCES = {
    "logits/batch": "from vllm.v1.sample.logits_processor import LogitsProcessor\n"
    "class Plugin(LogitsProcessor): ...",
    "logits/slot": "from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor\n"
    "class Plugin(LogitsProcessor): ...",
    "io/data": "from vllm.plugins.io_processors import interface\n"
    "class Plugin(interface.IOProcessor[str, str]):\n    def parse_data(self, data): ...",
    "io/request": "from vllm.plugins.io_processors.interface import IOProcessor\n"
    "class Plugin(IOProcessor):\n    def parse_request(self, request): ...",
    "hook/rfc": "class Plugin:\n    blocking = True\n    async def score(self, ctx): ...",
    "mm/modality": "class Plugin:\n    def parse_input(self, data): ...\n"
    "    def validate(self, item): ...\n    def get_max_per_prompt(self): ...",
    "parser/tool": "from vllm.tool_parsers import ToolParser\nclass Plugin(ToolParser): ...",
    "parser/reasoning": "from vllm.reasoning import ReasoningParser\n"
    "class Plugin(ReasoningParser): ...",
    "mm/processor": "from vllm.multimodal import MULTIMODAL_REGISTRY\n"
    "@MULTIMODAL_REGISTRY.register_processor(None, info=None, dummy_inputs=None)\n"
    "class Plugin: ...",
}


@pytest.mark.parametrize("generation", SOURCES)
def test_what_cannot_be_imported_is_of_the_interface_that_its_source_is_for(
    tmp_path: Path, generation: str
) -> None:
    """The generation is told from bases, decorators and methods; one that is asked for wins."""
    source = tmp_path / "plugin.py"
    source.write_text("class Helper: ...\n" + SOURCES[generation])
    named = Target("plugin.py:Plugin", "plugin", "Plugin")

    assert likely(named, str(source)) == generation
    assert likely(attrs.evolve(named, qualname=None), str(source)) == generation
    assert likely(attrs.evolve(named, generation="mm/processor"), str(source)) == "mm/processor"
    source.write_text("class Plugin(")
    assert likely(named, str(source)) == "logits/batch"


HANGS = """
import threading

{base}

threading.Event().wait(600)
"""


def test_an_import_that_hangs_is_told_with_its_line(
    tmp_path: Path, zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails the loading rule of its own interface; until then the user hears of it."""
    monkeypatch.setattr(limits, "IDLE_SECONDS", 3.0)
    monkeypatch.setattr(limits, "TELL_SECONDS", 1.0)
    monkeypatch.setattr(limits, "PLACE_SECONDS", 2.0)
    (tmp_path / "plugin.py").write_text(HANGS.format(base=SOURCES["io/data"]))
    heard: list[str] = []
    settings = Settings(targets=("plugin.py:Plugin",), directory=tmp_path)
    with Certification(settings, heard.append, zygote=zygote) as certification:
        (plugin,) = certification.load()
        results = _run(certification)
    line = HANGS.format(base=SOURCES["io/data"]).splitlines().index("threading.Event().wait(600)")

    assert plugin.generation == "io/data"
    assert plugin.broken == f"importing plugin did nothing for 3 s (at plugin.py:{line + 1})"
    assert [r.rule for r in results if r.verdict is Verdict.FAIL] == ["IO-01"]
    assert "importing plugin.py: 1 s so far" in heard
    assert f"importing plugin.py: 2 s so far (at plugin.py:{line + 1})" in heard


def test_an_import_that_works_may_take_its_time(
    tmp_path: Path, zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What computes or reads is not given up for being slow, until nothing takes that long."""
    monkeypatch.setattr(limits, "IDLE_SECONDS", 1.5)
    monkeypatch.setattr(limits, "_WORKED", 0.05)
    busy = "import time\nend = time.monotonic() + 4\nwhile time.monotonic() < end: pass\n"
    (tmp_path / "plugin.py").write_text(busy + SOURCES["logits/batch"])
    settings = Settings(targets=("plugin.py:Plugin",), directory=tmp_path)
    with Certification(settings, zygote=zygote) as certification:
        assert certification.load()[0].broken is None

    monkeypatch.setattr(limits, "LIMIT_SECONDS", 2.0)
    with Certification(settings, zygote=zygote) as certification:
        broken = certification.load()[0].broken
    assert broken == "importing plugin did not end within 2 s (at plugin.py:3)"
