# SPDX-License-Identifier: Apache-2.0
"""How operators name hooks, and what they are told of mistakes."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support import ROOT

from reference_plugins.classifier_hook import configuration, plugin
from reference_plugins.classifier_hook.configuration import (
    ConfigurationRefused,
    Policy,
    configured,
)
from reference_plugins.classifier_hook.contract import DEFAULT_REFUSAL
from reference_plugins.classifier_hook.hooks.annotator import PatternAnnotator
from reference_plugins.classifier_hook.hooks.blocker import PiiBlocker
from reference_plugins.classifier_hook.mount import MountRefused
from reference_plugins.classifier_hook.plugin import add_default_hook, install

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

ANNOTATOR = "reference_plugins.classifier_hook.hooks.annotator:PatternAnnotator"
BLOCKER = "reference_plugins.classifier_hook.hooks.blocker:PiiBlocker"
MODULE = "pretended_async_llm"


@pytest.fixture
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ModuleType]]:
    """Let a module of the test stand where vLLM has its engine; return what is mounted."""
    mounted: list[ModuleType] = []
    (tmp_path / f"{MODULE}.py").write_text("class AsyncLLM:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugin, "MODULES", {MODULE: "AsyncLLM"})
    monkeypatch.setattr(plugin, "_mount", mounted.append)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    monkeypatch.setattr(configuration, "added", [])
    for name in ("CLASSIFIER_HOOKS", "VLLM_USE_RUST_FRONTEND"):
        monkeypatch.delenv(name, raising=False)
    yield mounted
    sys.modules.pop(MODULE, None)


def write(folder: Path, text: str) -> dict[str, str]:
    """Write a file, and return the environment that names it."""
    (folder / "hooks.toml").write_text(text)
    return {"CLASSIFIER_HOOKS": str(folder / "hooks.toml")}


def test_a_process_without_a_front_end_imports_nothing_more() -> None:
    """Engine cores and workers load the plugin as well; the reference hooks need no vLLM either."""
    program = """if True:
        import sys
        from reference_plugins.classifier_hook import install
        import reference_plugins.classifier_hook.hooks.annotator
        install()
        print(sorted({"httpx", "openai", "prometheus_client", "torch", "vllm"} & set(sys.modules)))
    """
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_nothing_is_configured_by_default() -> None:
    """No hook, and the policy of the documentation."""
    configuration = configured({})

    assert configuration.factories == ()
    assert configuration.policy == Policy("final", DEFAULT_REFUSAL)


def test_names_are_hooks_in_their_order() -> None:
    """Separated by commas, with spaces or without."""
    hooks = configured({"CLASSIFIER_HOOKS": f"{BLOCKER}, {ANNOTATOR},"}).hooks()

    assert [type(hook) for hook in hooks] == [PiiBlocker, PatternAnnotator]


def test_each_engine_has_hooks_of_its_own() -> None:
    """They are made anew for each."""
    configuration = configured({"CLASSIFIER_HOOKS": BLOCKER})

    assert configuration.hooks()[0] is not configuration.hooks()[0]


def test_a_file_gives_arguments(tmp_path: Path) -> None:
    """And the policy; variables go before it."""
    environment = write(
        tmp_path,
        f"""
        streaming = "hold"
        refusal = "No."
        [[hook]]
        class = "{ANNOTATOR}"
        arguments = {{ name = "words", words = ["x"], timeout_ms = 7 }}
        [[hook]]
        class = "{BLOCKER}"
        """,
    )
    configuration = configured(environment)
    first, second = configuration.hooks()

    assert configuration.policy == Policy("hold", "No.")
    assert (first.name, first.timeout_ms, second.name) == ("words", 7, "pii")
    assert configured(environment | {"CLASSIFIER_HOOKS_STREAMING": "final"}).policy == Policy(
        "final", "No."
    )


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"CLASSIFIER_HOOKS": "Hook"}, "names hooks as 'package.module:Class'"),
        ({"CLASSIFIER_HOOKS": "module:"}, "names hooks as 'package.module:Class'"),
        ({"CLASSIFIER_HOOKS": "/nowhere/hooks.toml"}, "/nowhere/hooks.toml, which cannot be read"),
        ({"CLASSIFIER_HOOKS_STREAMING": "keep"}, "streaming must be 'final' or 'hold'"),
    ],
)
def test_mistakes_are_refused(environment: dict[str, str], sentence: str) -> None:
    """Before anything is imported."""
    with pytest.raises(ConfigurationRefused, match=sentence):
        configured(environment)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("hook =", "is not TOML"),
        ("stream = 'hold'", "has 'stream'; it may have"),
        ("hook = 'x'", r"hooks are written as \[\[hook\]\]"),
        ("[[hook]]\nname = 'x'", "each .*hook.* has `class`"),
        ("[[hook]]\nclass = 'a:B'\ntimeout = 5", "each .*hook.* has `class`"),
        ("refusal = ''", "hooks.toml: refusal must be a text"),
    ],
)
def test_mistakes_in_a_file_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    """With the name of the file."""
    with pytest.raises(ConfigurationRefused, match=sentence):
        configured(write(tmp_path, text))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere.at_all:Hook", "'nowhere.at_all:Hook', which cannot be imported"),
        (f"{BLOCKER}er", "which cannot be imported"),
        ("math:sqrt", "the classifier hook 'math:sqrt' cannot be made: TypeError"),
    ],
)
def test_hooks_that_cannot_be_made_are_refused(name: str, sentence: str) -> None:
    """With what went wrong."""
    with pytest.raises(ConfigurationRefused, match=sentence):
        configured({"CLASSIFIER_HOOKS": name}).hooks()


def test_the_engine_is_given_hooks_when_it_is_imported(pretended: list[ModuleType]) -> None:
    """Not before: a process without a front end imports nothing."""
    install()
    install()
    assert pretended == []
    assert MODULE not in sys.modules
    module = __import__(MODULE)

    assert pretended == [module]
    assert not [finder for finder in sys.meta_path if isinstance(finder, plugin._Watcher)]


def test_an_engine_that_is_imported_is_given_hooks_at_once(pretended: list[ModuleType]) -> None:
    """As in a program that imports it before vLLM loads its plugins."""
    module = __import__(MODULE)
    install()

    assert pretended == [module]


@pytest.mark.usefixtures("pretended")
def test_plugins_of_authors_add_hooks() -> None:
    """Each once, however often vLLM loads the plugin."""
    add_default_hook(PiiBlocker)
    add_default_hook(PiiBlocker)

    assert [type(hook) for hook in configured({}).hooks()] == [PiiBlocker]


@pytest.mark.usefixtures("pretended")
def test_a_front_end_without_an_engine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where hooks are configured, and only there."""
    monkeypatch.setenv("VLLM_USE_RUST_FRONTEND", "1")
    install()
    monkeypatch.setenv("CLASSIFIER_HOOKS", BLOCKER)

    with pytest.raises(MountRefused, match="VLLM_USE_RUST_FRONTEND is set"):
        install()
