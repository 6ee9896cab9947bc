# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance init``: a profile and a CI file to start from."""

from __future__ import annotations

import shutil
import tomllib
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from samples import PLUGIN
from support import FIXTURES, ROOT
from user import CLI, run

from conformance.commands.init import profile
from conformance.generations import sections
from conformance.plugin.profile import Profile, check

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.plugin.target import Plugin

LABELS = ROOT / "reference_plugins" / "io_processor" / "labels.py"


READS_LEVEL = """
from vllm.v1.sample.logits_processor import LogitsProcessor

class Plugin(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.on = set()
    def is_argmax_invariant(self): return False
    def update_state(self, batch_update):
        for index, params, _, _ in batch_update.added if batch_update else ():
            arguments = params.extra_args or {}
            by = (arguments.get("guard") or {}).get("by")
            if arguments.get("level") == "strict" and by == "me":
                self.on.add(index)
    def apply(self, logits):
        for row in self.on:
            logits[row, 5] += 1.0
        return logits
"""


BANS_TEXTS = """
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

class Plugin(LogitsProcessor):
    @classmethod
    def validate_params(cls, params):
        texts = (params.extra_args or {}).get("banned", ["x"])
        if not isinstance(texts, list) or not all(isinstance(t, str) and t for t in texts):
            raise ValueError("banned must be a list of texts")
    def __init__(self, vllm_config, device, is_pin_memory):
        self.banned = {}
    def is_argmax_invariant(self): return False
    def update_state(self, batch_update):
        process_dict_updates(self.banned, batch_update, self.tokens)
    @staticmethod
    def tokens(params, prompt_ids, output_ids):
        return [ord(text[0]) for text in (params.extra_args or {}).get("banned", ())]
    def apply(self, logits):
        for row, tokens in self.banned.items():
            logits[row, tokens] -= 9.0
        return logits
"""

WANTS_A_NUMBER = """
from pydantic import BaseModel, Field
from vllm.plugins.io_processors.interface import IOProcessor

class Request(BaseModel):
    passport: str = Field(pattern=r"^[A-Z]{2}\\d{6}$")

class Plugin(IOProcessor):
    def parse_data(self, data):
        return Request.model_validate(data)
    def pre_process(self, prompt, request_id=None, **kwargs):
        return prompt.passport
    def post_process(self, model_output, request_id=None, **kwargs):
        return {"vector": model_output[0].outputs.data.tolist()}
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with plugins of two interfaces."""
    shutil.copy(FIXTURES / "mended_example.py", tmp_path / "mine.py")
    shutil.copy(LABELS, tmp_path)
    return tmp_path


@pytest.mark.parametrize("interface", sections())
def test_examples_are_profiles(interface: str) -> None:
    """Each comment that stands for a value is a profile once it is none."""
    lines = [f"{key} = {field.template(['a key'])}" for key, field in sections()[interface].items()]
    check("an example", tomllib.loads("\n".join([f"[{interface}]", *lines])))


def test_values_are_written_as_toml() -> None:
    """What was found is in the profile; what TOML cannot say is left out."""
    found = {"on": [{"extra_args": {"a": None, "b": [1, 0.5, 'x"y']}}], "off": [{}]}
    document = tomllib.loads(profile([(PLUGIN, found)]))

    assert document == {
        "logits-processor": {"on": [{"extra_args": {"b": [1, 0.5, 'x"y']}}], "off": [{}]}
    }


def test_what_is_not_known_is_a_comment_with_what_is() -> None:
    """The keys that the plugin reads are there to complete; nothing is said to be found."""
    text = profile([(PLUGIN, {"on": [], "off": [{}], "keys": ["level", "a.b"]})])

    assert '# on = [{ extra_args = { level = "...", "a.b" = "..." } }]' in text
    assert "Found by trying it" not in text
    assert "your_key" not in text
    tables = {"a.b": ["low", "high"]}
    text = profile([(PLUGIN, {"on": [], "off": [{}], "keys": ["a.b"], "tables": tables})])
    assert '# on = [{ extra_args = { "a.b" = { low = "...", high = "..." } } }]' in text
    assert tomllib.loads(text) == {"logits-processor": {}}


def test_a_plugin_for_all_requests_has_a_profile() -> None:
    """All requests are on, and none is off."""
    document = tomllib.loads(profile([(PLUGIN, {"on": [{}], "off": []})]))

    assert document == {"logits-processor": {"on": [{}], "off": []}}


def test_each_class_of_a_file_has_its_own_sections() -> None:
    """What is read back is what was found of each."""
    other = attrs.evolve(PLUGIN, qualname="Outer.Other")
    both: list[tuple[Plugin, dict[str, Any]]] = [
        (PLUGIN, {"on": [{"min_p": 0.5}]}),
        (other, {"on": [{"top_k": 3}]}),
    ]
    found = Profile("both.toml", check("both.toml", tomllib.loads(profile(both))))
    sections = [found.of_class(each.qualname).section("logits-processor") for each, _ in both]

    assert [section["on"] for section in sections] == [[{"min_p": 0.5}], [{"top_k": 3}]]


def test_a_folder_without_ci_gets_no_file_for_it(here: Path) -> None:
    """It is told how to have one; a key that was tried in vain is there to complete."""
    (here / "own.py").write_text(READS_LEVEL)
    status, said = run(*CLI, "init", "own.py", folder=here)

    assert status == 0, said
    assert "no file for CI: no service has one here (--ci github|gitlab)" in said
    assert not (here / ".github").exists()
    written = (here / "own.conformance.toml").read_text()
    assert '# on = [{ extra_args = { guard = { by = "..." }, level = "..." } }]' in written
    assert "own.py:Plugin: nothing switched the plugin on (it reads extra_args guard, level" in said
    assert "Complete the profile, then:" in said


def test_a_profile_is_found_out(here: Path) -> None:
    """What watching the plugins tells is written beside them, and certifies them."""
    (here / ".github").mkdir()
    status, said = run(*CLI, "init", "mine.py", "labels.py@io/data", folder=here)
    lines = said.splitlines()
    mine = tomllib.loads((here / "mine.conformance.toml").read_text())
    labels = tomllib.loads((here / "labels.conformance.toml").read_text())

    assert status == 0, said
    assert mine["logits-processor"]["on"][0] == {"extra_args": {"target_token": 67}}
    assert labels["io-processor"]["valid"]
    assert "wrote .github/workflows/conformance.yml" in lines
    command = lines[-1].split()
    assert command[:2] == ["vllm-conformance", "certify"]
    assert run(*CLI, *command[1:], "--budget", "quick", folder=here)[0] == 0
    assert f"run: {' '.join(command)} --evidence all" in (
        here / ".github" / "workflows" / "conformance.yml"
    ).read_text().replace("\n", " ")


def test_a_list_of_texts_is_found_out(tmp_path: Path) -> None:
    """Token ids, alone and in lists, are refused: what is left is texts."""
    (tmp_path / "bans.py").write_text(BANS_TEXTS)
    status, said = run(*CLI, "init", "bans.py", folder=tmp_path)
    written = tomllib.loads((tmp_path / "bans.conformance.toml").read_text())

    assert status == 0, said
    assert written["logits-processor"]["on"] == [{"extra_args": {"banned": ["a"]}}]


def test_what_a_model_of_requests_asks_for_is_found_out(tmp_path: Path) -> None:
    """A pydantic model names what is missing, and the profile has what it takes and refuses."""
    shutil.copy(FIXTURES / "unusual" / "io_data" / "describes_its_requests.py", tmp_path)
    name = "describes_its_requests"
    status, said = run(*CLI, "init", f"{name}.py", folder=tmp_path)
    written = tomllib.loads((tmp_path / f"{name}.conformance.toml").read_text())["io-processor"]

    assert status == 0, said
    assert {"query", "documents", "options", "kind"} == set(written["valid"][0])
    assert written["valid"][0]["options"] == {"mode": "dot", "top": 4}
    assert {} in written["invalid"]
    assert run(*CLI, "certify", f"{name}.py", "--budget", "quick", folder=tmp_path)[0] == 0


def test_a_key_whose_value_is_not_found_is_named(tmp_path: Path) -> None:
    """Where no value is taken, the profile to complete names the field that is missing."""
    (tmp_path / "own.py").write_text(WANTS_A_NUMBER)
    status, said = run(*CLI, "init", "own.py", folder=tmp_path)

    assert status == 0, said
    written = (tmp_path / "own.conformance.toml").read_text()
    assert '# valid = [{ passport = "..." }]' in written


def test_arguments_of_a_hook_are_named(tmp_path: Path) -> None:
    """What the constructor of a hook requires is there to fill in, and a certification says so."""
    shutil.copy(FIXTURES / "defective" / "hook_rfc" / "asks_for_url.py", tmp_path)
    status, said = run(*CLI, "init", "asks_for_url.py", folder=tmp_path)
    written = (tmp_path / "asks_for_url.conformance.toml").read_text()

    assert status == 0, said
    assert '# arguments = [{url = "..."}]' in written
    (tmp_path / "asks_for_url.conformance.toml").unlink()
    told = run(*CLI, "certify", "asks_for_url.py", "--budget", "quick", folder=tmp_path)[1]
    assert '[classifier-hook] arguments = [ { url = "..." } ]' in " ".join(told.split())


def test_the_format_of_a_parser_is_found_out(tmp_path: Path) -> None:
    """Of a parser the profile names the format that it reads, and certifies it."""
    shutil.copy(ROOT / "reference_plugins" / "parser" / "tagged_calls.py", tmp_path / "mine.py")
    status, said = run(*CLI, "init", "mine.py", folder=tmp_path)
    written = tomllib.loads((tmp_path / "mine.conformance.toml").read_text())

    assert status == 0, said
    assert written == {"parser": {"format": "hermes"}}
    assert "Look through the profile, then:" in said
    command = said.splitlines()[-1].split()
    assert run(*CLI, *command[1:], "--budget", "quick", folder=tmp_path)[0] == 0
    # Nothing is left in the author's folder that nobody asked for.
    made = {path.name for path in tmp_path.iterdir()} - {"__pycache__"}
    assert made == {"mine.py", "mine.conformance.toml", "reports"}


def test_of_formats_that_fit_equally_well_none_is_chosen() -> None:
    """A parser may read several: that of its model is the author's to say."""
    plugin = attrs.evolve(PLUGIN, interface="parser", generation="parser/reasoning")
    found = {"format": "think", "alike": {"format": ["think", "think-in-prompt"]}}
    text = profile([(plugin, found)])

    assert "# Found by trying it, and no more than one of these is right: think, think-in" in text
    assert tomllib.loads(text) == {"parser": {}}


def test_tokens_of_the_source_are_proposed() -> None:
    """Where no format is known, what the parser looks for is there to complete."""
    plugin = attrs.evolve(PLUGIN, interface="parser", generation="parser/tool")
    text = profile([(plugin, {"likely": {"special_tokens": ["<TOOL>", "</TOOL>"]}})])

    assert '# From the plugin\'s source:\n# special_tokens = ["<TOOL>", "</TOOL>"]' in text


def test_what_is_there_stays(here: Path) -> None:
    """Nothing is written over, and where GitLab's file is, GitHub's is not written."""
    (here / "mine.conformance.toml").write_text("[logits-processor]\n")
    (here / ".gitlab-ci.yml").write_text("# mine\n")
    status, said = run(*CLI, "init", "mine.py", folder=here)

    assert status == 0, said
    assert "kept mine.conformance.toml: it is there already (--force writes over it)" in said
    assert (here / "mine.conformance.toml").read_text() == "[logits-processor]\n"
    assert (here / ".gitlab-ci.yml").read_text() == "# mine\n"
    assert not (here / ".github").exists()


def test_a_target_that_is_not_there_is_told(tmp_path: Path) -> None:
    """A mistake is one sentence, and nothing is written."""
    status, said = run(*CLI, "init", "nothing.py", folder=tmp_path)

    assert status == 4
    assert "there is no file nothing.py" in said
    assert list(tmp_path.iterdir()) == []


def test_a_plugin_that_cannot_be_imported_has_no_profile(tmp_path: Path) -> None:
    """There was nothing to look at: an empty profile would hide why."""
    (tmp_path / "broken.py").write_text("import a_missing_module\n")
    status, said = run(*CLI, "init", "broken.py", folder=tmp_path)

    assert status == 4
    assert "no profile for broken.py: importing broken raised ModuleNotFoundError" in said
    assert not (tmp_path / "broken.conformance.toml").exists()
