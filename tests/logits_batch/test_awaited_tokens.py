# SPDX-License-Identifier: Apache-2.0
"""Plugins that wait for tokens: what nobody can find, a profile names."""

from __future__ import annotations

import json
import shutil
import tomllib
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from support import GOOD, UNUSUAL, Specimen, certify, gallery

from conformance.engine.models import tiny_llama
from conformance.rules import Evidence
from conformance.settings import UsageError
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote


#: Waits for token 347, which no attribute, constant or comparison tells.
HIDDEN = """\
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates


class Hidden(LogitsProcessor):
    @classmethod
    def validate_params(cls, sampling_params):
        strength = (sampling_params.extra_args or {}).get("calm", 1.0)
        if type(strength) not in (int, float) or not 0 < strength <= 100:
            raise ValueError("calm must be a number above 0, up to 100")

    def __init__(self, vllm_config, device, is_pin_memory):
        self.requests = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        process_dict_updates(self.requests, batch_update, self.request_of)

    @staticmethod
    def request_of(params, prompt_ids, output_ids):
        strength = (params.extra_args or {}).get("calm")
        return None if strength is None else (strength, output_ids)

    def apply(self, logits):
        for row, (strength, output_ids) in self.requests.items():
            if any(token * 7919 % 500 == 393 for token in output_ids):
                logits[row] /= 1 + strength
        return logits
"""
ON = {"on": [{"extra_args": {"calm": 2.0}}], "off": [{}]}

#: Waits for 347 and then 351: the first alone changes nothing that could be seen.
DEEPLY = HIDDEN.replace(
    "any(token * 7919 % 500 == 393 for token in output_ids)",
    "any(a * 7919 % 500 == 393 and b * 7919 % 500 == 69 "
    "for a, b in zip(output_ids, output_ids[1:]))",
)

#: Takes a list that is as long as the answer, and says so only of lists.
DEMANDING = (
    HIDDEN.partition("class Hidden")[0]
    + """\
class Demanding(LogitsProcessor):
    @classmethod
    def validate_params(cls, sampling_params):
        script = (sampling_params.extra_args or {}).get("script")
        if script is None:
            return
        if not isinstance(script, list) or any(type(token) is not int for token in script):
            raise ValueError("script must be a list of token ids")
        if len(script) != sampling_params.max_tokens:
            raise ValueError(f"script must have max_tokens ({sampling_params.max_tokens}) tokens")

    def __init__(self, vllm_config, device, is_pin_memory):
        pass

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        pass

    def apply(self, logits):
        return logits
"""
)

#: Takes a table, says of each value in it what it wants, and of all else the same.
DEMANDING_A_TABLE = DEMANDING.replace(
    """\
        if not isinstance(script, list) or any(type(token) is not int for token in script):
            raise ValueError("script must be a list of token ids")
        if len(script) != sampling_params.max_tokens:
            raise ValueError(f"script must have max_tokens ({sampling_params.max_tokens}) tokens")
""",
    """\
        if not isinstance(script, dict):
            raise ValueError(f"script must be a mapping (got {script!r})")
        if script.get("kind") not in ("verse", "prose"):
            raise ValueError("kind must be verse or prose")
""",
)

#: Refuses nothing, and says what it wants as it serves a request.
DEMANDING_LATE = (
    DEMANDING.partition("    @classmethod")[0]
    + """\
    def __init__(self, vllm_config, device, is_pin_memory):
        pass

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        for _, params, _, _ in batch_update.added if batch_update else ():
            if (params.extra_args or {}).get("script", "verse") not in ("verse", "prose"):
                raise ValueError("script must be verse or prose")

    def apply(self, logits):
        return logits
"""
)

#: Does nothing without a variable, and bans a token that the deployment and the model name.
DEPLOYED = """\
import os

from vllm.v1.sample.logits_processor import LogitsProcessor

FLAVOUR = os.environ["FLAVOUR"]


class Deployed(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.token = vllm_config.additional_config["banned"][FLAVOUR]
        self.token += vllm_config.model_config.hf_config.shift

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        pass

    def apply(self, logits):
        logits[:, self.token] = -float("inf")
        return logits
"""


def _broken(results: dict[str, RuleResult]) -> dict[str, str | None]:
    return {rule: found.message for rule, found in results.items() if found.verdict not in GOOD}


def _hidden(folder: Path, source: str = HIDDEN, **more: Any) -> Specimen:  # noqa: ANN401 - of the profile
    (folder / "hidden.py").write_text(source, encoding="utf-8")
    return Specimen(f"{folder / 'hidden.py'}:Hidden", None, ON | more)


#: Acts behind two tokens of a vocabulary that the simulator does not have.
FOREIGN = """\
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

TRIGGER = [200007, 200005]


class Foreign(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.outputs = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        process_dict_updates(self.outputs, batch_update, self.outputs_of)

    @staticmethod
    def outputs_of(params, prompt_ids, output_ids):
        return output_ids if (params.extra_args or {}).get("forced") else None

    def apply(self, logits):
        for row, outputs in self.outputs.items():
            if outputs[-2:] == TRIGGER:
                logits[row, 5] += 9
        return logits
"""


def test_tokens_of_a_larger_vocabulary_are_told(zygote: Zygote, tmp_path: Path) -> None:
    """What no output can hold here is named, with a profile that has room for it, which works."""
    path = tmp_path / "foreign.py"
    path.write_text(FOREIGN, encoding="utf-8")
    specimen = Specimen(f"{path}:Foreign", None, {"on": [{"extra_args": {"forced": True}}]})
    rules = {"LB-03", "LB-05"}
    results = certify(zygote, specimen, tmp_path, rules=rules)

    for rule in rules:
        assert results[rule].verdict is Verdict.NOT_VERIFIED
        assert str(results[rule].message).endswith(
            "it names 200007, 200005, which the vocabulary of 500 tokens here does not have: if "
            "it waits for them, give the profile a larger one, such as "
            "config = { vocab_size = 200008 }"
        )
    profile = {**specimen.profile, "config": {"vocab_size": 200008}}
    results = certify(zygote, attrs.evolve(specimen, profile=profile), tmp_path, rules={"LB-05"})
    assert results["LB-05"].verdict is Verdict.PASS


def test_what_was_said_to_a_plugin_that_never_acted_is_told(zygote: Zygote, tmp_path: Path) -> None:
    """Never having acted is no failure of a plugin that looks at tokens."""
    acts = certify(zygote, _hidden(tmp_path, DEEPLY), tmp_path, rules={"LB-05"})["LB-05"]

    assert acts.verdict is Verdict.NOT_VERIFIED
    assert acts.message
    assert acts.message.endswith(
        "; the plugin looks at tokens, and was shown 7, 11, 13: name what it waits for as tokens, "
        "outputs or prompts of the profile"
    )


@pytest.mark.parametrize(
    ("source", "quoted", "wanted"),
    [
        (
            DEMANDING,
            "extra_args={'script': [5, 67]} is refused: ",
            "script must have max_tokens (16) tokens",
        ),
        (
            DEMANDING_A_TABLE,
            "extra_args={'script': {'kind': 67}} is refused: ",
            "kind must be verse or prose",
        ),
        (
            DEMANDING_LATE,
            "with extra_args={'script': 67}, update_state(batch_update) raised ",
            "script must be verse or prose",
        ),
    ],
    ids=["value", "table", "late"],
)
def test_the_refusal_that_came_furthest_is_quoted(
    zygote: Zygote, source: str, quoted: str, wanted: str, tmp_path: Path
) -> None:
    """Where nothing switches a plugin on, what it says of the likeliest value is told."""
    path = tmp_path / "demands.py"
    path.write_text(source, encoding="utf-8")

    found = certify(zygote, Specimen(f"{path}:Demanding", None, {}), tmp_path)["LB-05"]

    message = found.message
    assert found.verdict is Verdict.NOT_VERIFIED
    assert message is not None
    assert quoted in message
    assert wanted in message


@pytest.mark.parametrize(
    "named",
    [{"tokens": [347]}, {"outputs": [[9, 347]]}],
    ids=["tokens", "outputs"],
)
def test_a_profile_names_what_it_waits_for(
    zygote: Zygote, tmp_path: Path, named: dict[str, Any]
) -> None:
    """With the token in its profile the plugin is judged by every rule."""
    assert not _broken(certify(zygote, _hidden(tmp_path, **named), tmp_path))


def test_outputs_of_a_profile_say_what_no_search_finds(zygote: Zygote, tmp_path: Path) -> None:
    """Two tokens in a row, neither of which does anything alone."""
    named = _hidden(tmp_path, DEEPLY, outputs=[[9, 347, 351]])

    assert certify(zygote, named, tmp_path, rules={"LB-05"})["LB-05"].verdict is Verdict.PASS


def test_what_a_profile_names_has_to_work(zygote: Zygote, tmp_path: Path) -> None:
    """A plugin that does nothing with what its author says it waits for is broken."""
    wrong = _hidden(tmp_path, DEEPLY, tokens=[348])

    assert certify(zygote, wrong, tmp_path, rules={"LB-05"})["LB-05"].verdict is Verdict.FAIL


def test_a_token_of_another_model_is_refused(zygote: Zygote, tmp_path: Path) -> None:
    """One sentence says what is wrong, and what to name."""
    with pytest.raises(UsageError) as refused:
        certify(zygote, _hidden(tmp_path, tokens=[151_668]), tmp_path, rules={"LB-05"})

    assert str(refused.value) == (
        "profile: tokens[0]: the model has 500 tokens, and no token 151668; name the folder of "
        'the model that the plugin is for: tokenizer = "path/to/model".'
    )


def _thinking_model(folder: Path) -> Path:
    """Write the tokenizer of a model that has tokens of its own for thinking."""
    shutil.copytree(tiny_llama(), folder, ignore=shutil.ignore_patterns("*.safetensors"))
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    like = document["added_tokens"][0] | {"special": False}
    document["added_tokens"] += [
        like | {"id": 600 + number, "content": text}
        for number, text in enumerate(("<think>", "</think>"))
    ]
    path.write_text(json.dumps(document), encoding="utf-8")
    config = folder / "config.json"
    sizes = json.loads(config.read_text(encoding="utf-8")) | {"vocab_size": 640}
    config.write_text(json.dumps(sizes), encoding="utf-8")
    return folder


@pytest.mark.engine
def test_a_profile_names_the_tokenizer_of_a_real_model(zygote: Zygote, tmp_path: Path) -> None:
    """The simulator and engines have its vocabulary, and the plugin finds its tokens in it."""
    _thinking_model(tmp_path / "model")
    specimen = next(each for each in gallery(UNUSUAL) if each.name == "bans_token_while_thinking")
    named = {"tokenizer": "model", "outputs": ["<think>hm</think>"]}
    specimen = attrs.evolve(specimen, profile={**specimen.profile, **named})

    simulated = certify(zygote, specimen, tmp_path)
    offline = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))

    assert not _broken(simulated)
    # What the tiny model says is not what the plugin waits for.
    assert Verdict.FAIL not in {result.verdict for result in offline.values()}


#: Does nothing before the operator sets a variable.
BIASED = """
import os
from vllm.v1.sample.logits_processor import LogitsProcessor


class Biased(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        pass

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        pass

    def apply(self, logits):
        logits[:, 7] += float(os.environ.get("BIAS_OF_A_TEST", "0"))
        return logits
"""


def test_a_variable_that_is_not_set_is_named(zygote: Zygote, tmp_path: Path) -> None:
    """The advice of a plugin that never acted is a profile that sets what it asks for."""
    (tmp_path / "biased.py").write_text(BIASED, encoding="utf-8")
    specimen = Specimen(f"{tmp_path / 'biased.py'}:Biased", None, {})
    acts = certify(zygote, specimen, tmp_path, rules={"LB-05"})["LB-05"]

    assert acts.verdict is Verdict.NOT_VERIFIED
    assert acts.message
    _, _, profile = acts.message.partition("such as\n")
    assert tomllib.loads(profile)["logits-processor"] == {
        "on": [{}],
        "off": [],
        "environment": {"BIAS_OF_A_TEST": "..."},
    }


@pytest.mark.engine
def test_a_profile_names_the_deployment(zygote: Zygote, tmp_path: Path) -> None:
    """Variables are set before the import; engines and models have the configuration."""
    (tmp_path / "deployed.py").write_text(DEPLOYED, encoding="utf-8")
    profile = {
        "on": [{}],
        "off": [],
        "environment": {"FLAVOUR": "sour"},
        "additional_config": {"banned": {"sour": 67}},
        "config": {"shift": 3},
    }
    specimen = Specimen(f"{tmp_path / 'deployed.py'}:Deployed", None, profile)

    simulated = certify(zygote, specimen, tmp_path)
    offline = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))

    assert not _broken(simulated)
    assert offline["LB-05"].verdict is Verdict.PASS
    assert Verdict.FAIL not in {result.verdict for result in offline.values()}
