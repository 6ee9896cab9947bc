# SPDX-License-Identifier: Apache-2.0
"""``pytest --plugin-path``, as the author of a plugin meets it."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest
from support import DEFECTIVE, FIXTURES, ROOT
from user import PYTEST, certificates, environment, run, verdicts

from conformance.engine.entry_points import synthetic_distribution
from conformance.generations import named
from conformance.rules import Evidence

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Certify = Callable[..., pytest.RunResult]

CORRECT = "example.py:DummyLogitsProcessor"
FAULTY = "faulty.py:KeepsReplacedOccupant"
QUICKLY = (*PYTEST[1:], "-p", "no:asyncio", "--budget", "quick")
RULES = [rule.id for rule in named("logits/batch").rules if Evidence.SIMULATOR in rule.evidence]


@pytest.fixture
def folder(pytester: pytest.Pytester) -> Path:
    """Make a folder with a correct plugin and a faulty one, and go there."""
    shutil.copy(FIXTURES / "mended_example.py", pytester.path / "example.py")
    shutil.copy(DEFECTIVE / "keeps_replaced_occupant.py", pytester.path / "faulty.py")
    return pytester.path


@pytest.fixture
def certify(pytester: pytest.Pytester, folder: Path, shared_zygote: None) -> Certify:  # noqa: ARG001 - fixtures
    """Return a function that runs pytest in this process, quickly."""

    def certify(*arguments: str) -> pytest.RunResult:
        return pytester.runpytest_inprocess(*QUICKLY, *arguments)

    return certify


def test_a_foreign_repository(pytester: pytest.Pytester, folder: Path) -> None:
    """With no test paths only the rules are collected, whatever the repository's own settings.

    The process of pytest imports neither vLLM nor torch, not even to show a failure.
    """
    pytester.makeini(
        "[pytest]\ntestpaths = checks\naddopts = -ra --strict-markers --strict-config\n"
        "filterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
    )
    pytester.makeconftest(
        "import sys\n"
        "def pytest_unconfigure():\n"
        "    print('heavy:', sorted({'torch', 'vllm'} & set(sys.modules)))\n"
    )
    (folder / "checks").mkdir()
    (folder / "checks" / "test_own.py").write_text("def test_own(): raise RuntimeError\n")
    pytester._monkeypatch.setattr("os.environ", environment())

    result = pytester.runpytest_subprocess(
        *PYTEST[1:], "--plugin-path", FAULTY, "--budget=quick", timeout=120
    )

    closing = next(line for line in reversed(result.stdout.lines) if line.startswith("==="))
    assert sum(int(count) for count in re.findall(r"(\d+) [a-z]", closing)) == len(RULES)
    result.stdout.fnmatch_lines(
        [
            "*LB-06[[]simulator]*",
            "LB-06 A request that takes over a row starts clean (MUST, simulator)",
            "*1   A finishes, B joins (off[[]0], 1 tokens)   added=[[]0]     [[]B]",
            "Replay    vllm-conformance replay reports/local/faulty.py-Keeps*/cases/LB-06.json",
            f"{FAULTY}  NON-CONFORMANT  * fail, *",
            f"FAILED {FAULTY}::LB-06[[]simulator] - LB-06*",
            "heavy: []",
        ]
    )
    assert result.ret == 1
    assert certificates(folder)[FAULTY]["verdict"] == "non-conformant"


def test_workers_share_the_targets(folder: Path) -> None:
    """With ``-n 2`` each target is certified by one worker, and each certificate is complete."""
    second = "example.py:WrappedPerReqLogitsProcessor"
    status, said = run(
        *PYTEST, "-n", "2", "-v", "--budget", "quick", "--plugin-path", CORRECT, "--plugin-path",
        second, folder=folder,
    )  # fmt: skip
    found = certificates(folder)
    lines = [line.split() for line in said.splitlines() if line.startswith("[gw")]
    workers = {(line[-1].partition("::")[0], line[0]) for line in lines}

    assert status == 0, said
    assert set(found) == {CORRECT, second}
    assert said.count("certificate: ") == 2
    assert len(workers) == 2, workers
    for document in found.values():
        assert set(verdicts(document).values()) <= {"pass", "not-applicable"}
        assert document["environment"]["vllm"]


def test_workers_tell_what_is_wrong_with_a_target(folder: Path) -> None:
    """A mistake that only a worker can see is still a sentence, and exit status 4."""
    status, said = run(*PYTEST, "-n", "1", "--plugin-path", "example:Nothing", folder=folder)

    assert status == 4, said
    assert "ERROR: target 'example:Nothing': example has no 'Nothing' (it defines" in said


def test_a_run_may_be_stopped_between_two_lines(pytester: pytest.Pytester, folder: Path) -> None:
    """CPython handles signals at instructions that belong to no line as well."""
    pytester.makeconftest(
        "def stop():\n"
        "    raise KeyboardInterrupt\n"
        "stop.__code__ = stop.__code__.replace(co_linetable=b'')\n"
        "def pytest_runtest_logstart():\n"
        "    stop()\n"
    )
    status, said = run(*PYTEST, "--budget=quick", "--plugin-path", CORRECT, folder=folder)

    assert status == pytest.ExitCode.INTERRUPTED, said
    assert certificates(folder)[CORRECT]["interrupted"] is True


def test_every_form_of_target(folder: Path) -> None:
    """A class is named by module, file, entry point or distribution, or found in what has it."""
    package = folder / "kit"
    package.mkdir()
    (package / "__init__.py").write_text("from kit.inner import Found\n")
    (package / "inner.py").write_text(
        "from example import DummyLogitsProcessor\nclass Found(DummyLogitsProcessor): ...\n"
    )
    synthetic_distribution(
        folder / "site",
        name="kit-of-plugins",
        group="vllm.logits_processors",
        entries={"one": "kit.inner:Found", "two": "example:DummyLogitsProcessor"},
    )
    forms = (
        "example:DummyLogitsProcessor",
        "kit/inner.py:Found",
        "example.py",
        "kit",
        "entry-point:vllm.logits_processors/one",
        "dist:kit-of-plugins",
    )
    options = [word for form in forms for word in ("--plugin-path", form)]
    status, said = run(
        *PYTEST, *options, "-k", "LB-01", folder=folder, paths=(folder / "site", folder)
    )
    found = certificates(folder)

    assert status == 2, said
    assert set(found) == {
        "example:DummyLogitsProcessor",
        "kit/inner.py:Found",
        "example.py:DummyLogitsProcessor",
        "example.py:WrappedPerReqLogitsProcessor",
        "kit:Found",
        "entry-point:vllm.logits_processors/one",
        "entry-point:vllm.logits_processors/two",
    }
    assert {verdicts(document)["LB-01"] for document in found.values()} == {"pass"}


def test_rules_are_items(certify: Certify, folder: Path) -> None:
    """``--collect-only`` lists an item for each rule, and writes nothing."""
    result = certify("--plugin-path", CORRECT, "--collect-only", "-q")
    items = [line for line in result.outlines if "::" in line]

    assert result.ret == 0
    assert items == [f"{CORRECT}::{rule}[simulator]" for rule in RULES]
    assert not (folder / "reports").exists()


def test_this_repository_itself() -> None:
    """The tests of this repository choose among themselves, never among the rules of a plugin."""
    target = "reference_plugins/logits_batch/token_bias.py"
    status, said = run(*PYTEST, "--plugin-path", target, "--collect-only", "-q", folder=ROOT)
    items = [line for line in said.splitlines() if "::" in line]

    assert status == 0, said
    assert [item.rpartition("::")[2] for item in items] == [f"{rule}[simulator]" for rule in RULES]


def test_time_limits_of_a_repository(certify: Certify, pytester: pytest.Pytester) -> None:
    """``timeout`` of pytest-timeout is about a repository's own tests: rules have limits."""
    pytester.makeini("[pytest]\ntimeout = 0.001\n")
    result = certify("--plugin-path", CORRECT, "-k", "LB-01 or LB-06")

    result.assert_outcomes(passed=2, deselected=len(RULES) - 2)


def test_items_are_not_forked(certify: Certify, pytester: pytest.Pytester) -> None:
    """``--forked`` of pytest-forked would ask for each rule in a process that has no trial."""
    option = "parser.addoption('--forked', action='store_true')"
    pytester.makeconftest(f"def pytest_addoption(parser): {option}")
    result = certify("--plugin-path", CORRECT, "--forked")

    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: --forked cannot be used with --plugin-path: *"])


def test_a_selected_rule(certify: Certify, folder: Path) -> None:
    """``-k`` runs one rule; the certificate says that the others were not run."""
    result = certify("--plugin-path", CORRECT, "-k", "LB-06", "-p", "no:randomly")
    (document,) = certificates(folder).values()
    others = set(verdicts(document)) - {"LB-06"}

    assert result.ret == 2
    assert document["verdict"] == "incomplete"
    assert verdicts(document)["LB-06"] == "pass"
    assert {verdicts(document)[rule] for rule in others} == {"not-verified"}


def test_the_first_failure_may_end_the_run(certify: Certify, folder: Path) -> None:
    """``-x`` stops; what was not reached is not verified."""
    result = certify("--plugin-path", FAULTY, "-x")
    (document,) = certificates(folder).values()
    found = list(verdicts(document).values())

    assert result.ret == 1
    assert found.count("fail") == 1
    assert set(found[found.index("fail") + 1 :]) == {"not-verified"}


def test_the_last_failures_run_again(certify: Certify, folder: Path) -> None:
    """``--lf`` runs the rules that failed, and no other."""
    certify("--plugin-path", FAULTY)
    (before,) = certificates(folder).values()
    result = certify("--plugin-path", FAULTY, "--lf")
    (after,) = certificates(folder).values()
    failed = [rule for rule, verdict in verdicts(before).items() if verdict == "fail"]

    assert "LB-06" in failed
    result.assert_outcomes(failed=len(failed))
    assert [rule for rule, verdict in verdicts(after).items() if verdict == "fail"] == failed
    assert result.ret == 1


@pytest.mark.parametrize(("body", "status"), [("pass", 0), ("raise RuntimeError", 1)])
def test_own_tests_run_beside_the_rules(
    certify: Certify, pytester: pytest.Pytester, folder: Path, body: str, status: int
) -> None:
    """Test paths that are given run too, and their failure is a failure of the run."""
    pytester.makepyfile(test_own=f"def test_own(): {body}")
    result = certify("test_own.py", "--plugin-path", CORRECT)

    result.stdout.fnmatch_lines([f"collected {len(RULES) + 1} items"])
    assert result.ret == status
    assert certificates(folder)[CORRECT]["verdict"] == "conformant"


def test_the_worst_of_several_plugins_speaks(certify: Certify, folder: Path) -> None:
    """``--plugin-path`` may be repeated; each plugin has its certificate."""
    result = certify("--plugin-path", CORRECT, "--plugin-path", FAULTY)
    found = {target: document["verdict"] for target, document in certificates(folder).items()}

    assert found == {CORRECT: "conformant", FAULTY: "non-conformant"}
    assert result.ret == 1


def test_options_reach_the_certificate(certify: Certify, folder: Path) -> None:
    """Report folder, seed and budget are what the command says, and the certificate tells them."""
    certify(
        "--plugin-path", CORRECT, "-k", "LB-01",
        "--conformance-report", "elsewhere", "--conformance-seed", "7",
    )  # fmt: skip
    document = certificates(folder, "elsewhere")[CORRECT]

    assert document["run"]["seed"] == 7
    assert document["run"]["budget"] == "quick"
    assert not (folder / "reports").exists()


ON = "on = [{ extra_args = { target_token = 67 } }]\n"


@pytest.mark.parametrize(
    ("file", "text", "options"),
    [
        ("example.conformance.toml", f"[logits-processor]\n{ON}", ()),
        ("pyproject.toml", f"[tool.vllm-conformance.logits-processor]\n{ON}", ()),
        ("mine.toml", f"[logits-processor]\n{ON}", ("--plugin-profile", "mine.toml")),
        (
            "mine.py",
            "on = [{'extra_args': {'target_token': 67}}]\nprofile = {'on': on}\n",
            ("--plugin-profile", "mine:profile"),
        ),
    ],
    ids=["beside", "project", "option", "object"],
)
def test_a_profile_is_found(
    certify: Certify, folder: Path, file: str, text: str, options: tuple[str, ...]
) -> None:
    """A profile beside the plugin, in the project, or named: the certificate tells which."""
    (folder / file).write_text(text)
    certify("--plugin-path", CORRECT, "-k", "LB-01", *options)
    document = certificates(folder)[CORRECT]

    assert document["profile"]["origin"] == (options[-1] if options else file)
    assert document["profile"]["on"] == [{"extra_args": {"target_token": 67}}]


def test_without_a_target_the_harness_keeps_quiet(
    certify: Certify, pytester: pytest.Pytester
) -> None:
    """A pytest that names no plugin is the pytest it was."""
    pytester.makepyfile(test_own="def test_own(): pass")
    result = certify()

    result.assert_outcomes(passed=1)
    assert "conformance" not in result.stdout.str().partition("collected")[2]
