# SPDX-License-Identifier: Apache-2.0
"""What any client may send: killers without a profile, the values, and how they reach an engine."""

from __future__ import annotations

import functools
import math
import shutil
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from programs import execute_apart, write
from sight import seeing_zygote
from specimens import OF_CLIENTS
from support import DEFECTIVE, DEFECTIVE_SLOT, ROOT, Specimen, certify, gallery
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.sampling_params import SamplingParams

from conformance.counterexample import logits_checks
from conformance.counterexample.source import expression
from conformance.engine.model_runner import python_path
from conformance.logits.fuzzing import carriers
from conformance.logits.fuzzing.values import (
    DEEP,
    HUGE,
    edges,
    nested,
    positions,
    removed,
    replaced,
    requests,
)
from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.worker import Zygote

VOCABULARY = 500
KILLERS = [
    specimen
    for folder in (DEFECTIVE, DEFECTIVE_SLOT)
    for specimen in gallery(folder)
    if specimen.rule in OF_CLIENTS
]

#: Killers of engines and servers, and those of them with which one waits for ever.
ENDING = [specimen for specimen in KILLERS if specimen.rule in ("LB-38", "LS-35")]
HANGING = {"backtracks_at_admission", "repeats_as_often_as_told", "builds_schedule_step_by_step"}

#: What a new process needs for Model Runner V2, where nothing else gives it one.
WITH_V2 = python_path("v2", "cpu") if shutil.which("nvidia-smi") is None else []

LISTS = {"extra_args": {"ban": [67, [5, 7]], "style": {"mode": "calm"}}}


@pytest.mark.parametrize("specimen", KILLERS, ids=lambda specimen: specimen.name)
def test_no_profile_is_needed(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A plugin that a client can kill fails by the same rule, though nobody says what it reads."""
    bare = attrs.evolve(specimen, profile={})
    results = certify(zygote, bare, tmp_path, budget=Budget.STANDARD, rules={str(specimen.rule)})
    result = results[str(specimen.rule)]

    assert result.verdict is Verdict.FAIL, result.message


def test_a_table_that_does_harm_is_made_small(zygote: Zygote, tmp_path: Path) -> None:
    """Of a thousand entries the one that does harm is shown."""
    named = next(each for each in KILLERS if each.name == "trusts_entries_of_a_table")
    bare = attrs.evolve(named, profile={})
    message = certify(zygote, bare, tmp_path, rules={"LB-38"})["LB-38"].message

    assert message
    assert '{"after_prompt": {"' in message
    assert message.index("}}") < len('a request with extra_args={"after_prompt": {"499": 1234567')


#: A table can come from a program alone, and its text from any client.
TABLE_OR_TEXT = """
import json

from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates


class TakesTableOrText(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.bonuses = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        process_dict_updates(self.bonuses, batch_update, self.bonus_of)

    @staticmethod
    def bonus_of(params, prompt_ids, output_ids):
        style = (params.extra_args or {}).get("style")
        if not style:
            return None
        return float((json.loads(style) if isinstance(style, str) else style)["bonus"])

    def apply(self, logits):
        for row, bonus in self.bonuses.items():
            logits[row, 5] += bonus
        return logits
"""


def test_a_request_by_http_is_told_first(zygote: Zygote, tmp_path: Path) -> None:
    """Where programs and clients can do harm, the failure is what a client sends."""
    path = tmp_path / "takes_table_or_text.py"
    path.write_text(TABLE_OR_TEXT, encoding="utf-8")
    specimen = Specimen(
        f"{path}:TakesTableOrText",
        "LB-38",
        {"on": [{"extra_args": {"style": {"bonus": 2.0}}}], "off": [{}]},
    )
    result = certify(zygote, specimen, tmp_path, rules={"LB-38"})["LB-38"]

    assert result.verdict is Verdict.FAIL
    assert result.message
    assert f"(by {carriers.REST}" in result.message


#: Takes its keys together only, and does nothing with those that a guess gives it.
TAKES_BOTH = """
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates


class TakesBoth(LogitsProcessor):
    @classmethod
    def validate_params(cls, sampling_params):
        arguments = sampling_params.extra_args or {}
        low, high = arguments.get("low"), arguments.get("high")
        if low is high is None:
            return
        if type(low) is not int or type(high) is not int or not 0 <= low < 500 or high < low:
            raise ValueError("low and high must be token ids in that order")

    def __init__(self, vllm_config, device, is_pin_memory):
        self.spans = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        process_dict_updates(self.spans, batch_update, self.span_of)

    @staticmethod
    def span_of(params, prompt_ids, output_ids):
        arguments = params.extra_args or {}
        low, high = arguments.get("low"), arguments.get("high")
        return None if low is None else (low, high)

    def apply(self, logits):
        for row, (low, high) in self.spans.items():
            logits[row, low] = logits[row, high]
        return logits
"""


def test_keys_that_come_together_need_no_profile(zygote: Zygote, tmp_path: Path) -> None:
    """Two keys that a plugin is seen to read, and takes together only, are tried together."""
    path = tmp_path / "takes_both.py"
    path.write_text(TAKES_BOTH, encoding="utf-8")
    result = certify(zygote, Specimen(f"{path}:TakesBoth", None, {}), tmp_path, rules={"LB-38"})

    assert result["LB-38"].verdict is Verdict.FAIL
    assert "IndexError" in str(result["LB-38"].message)


#: Looks at one key of requests that have another one, and at no other time.
LOOKS_FURTHER = """
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates


class LooksFurther(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.scales = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        process_dict_updates(self.scales, batch_update, self.scale_of)

    @staticmethod
    def scale_of(params, prompt_ids, output_ids):
        arguments = params.extra_args or {}
        return arguments.get("scale", 2) if arguments.get("on") else None

    def apply(self, logits):
        for row, scale in self.scales.items():
            logits[row] *= scale
        return logits
"""


def test_keys_of_those_who_opt_in_need_no_profile(zygote: Zygote, tmp_path: Path) -> None:
    """A key that a plugin reads only of requests that it acts on is seen, and tried with them."""
    path = tmp_path / "looks_further.py"
    path.write_text(LOOKS_FURTHER, encoding="utf-8")
    result = certify(zygote, Specimen(f"{path}:LooksFurther", None, {}), tmp_path, rules={"LB-38"})

    assert result["LB-38"].verdict is Verdict.FAIL
    assert '"scale": ' in str(result["LB-38"].message)


#: What comes with vLLM for DeepSeek-OCR, with values that anybody would send.
NGRAM = Specimen(
    "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor",
    "LB-38",
    {"on": [{"extra_args": {"ngram_size": 2, "window_size": 20, "whitelist_token_ids": [67]}}]},
)


@pytest.mark.parametrize("profile", [NGRAM.profile, {}], ids=["ordinary", "none"])
def test_a_processor_of_vllm_is_found(profile: dict[str, Any], tmp_path: Path) -> None:
    """DeepSeek-OCR's processor admits what ends the engine, and a profile need not say so."""
    specimen = attrs.evolve(NGRAM, profile=profile)
    with seeing_zygote(tmp_path) as process:
        result = certify(process, specimen, tmp_path, rules={"LB-38"})["LB-38"]

    assert result.verdict is Verdict.FAIL, result.message
    assert "unhashable type" in str(result.message)


def test_there_are_many_killers() -> None:
    """At least half of them have no profile, or one that names no request to refuse."""
    assert len(KILLERS) >= 36
    told = [specimen for specimen in KILLERS if "invalid" in specimen.profile]
    assert 2 * len(told) <= len(KILLERS)


def _program(zygote: Zygote, specimen: Specimen, folder: Path) -> Path:
    rule = str(specimen.rule)
    result = certify(zygote, specimen, folder, rules={rule})[rule]
    return write(specimen, result, folder)


def _engine_ends(zygote: Zygote, specimen: Specimen, folder: Path) -> None:
    path = _program(zygote, specimen, folder)
    slots = specimen.generation == "logits/slot"
    done = execute_apart(path, arguments=("--engine",), python_path=WITH_V2 if slots else ())
    said = done.stdout + done.stderr

    assert done.returncode == 1, said
    assert "expected: " in done.stdout
    if specimen.name in HANGING:
        assert "Timeout (" in done.stderr, said
        assert Path(specimen.target.rpartition(":")[0]).name in done.stderr
    else:
        assert "FAILS: " in done.stdout, said


def _killer(name: str, rule: str) -> Specimen:
    return next(each for each in KILLERS if each.name == name and each.rule == rule)


@pytest.mark.engine
@pytest.mark.parametrize("rule", ["LB-38", "LS-35"])
def test_a_real_engine_ends(zygote: Zygote, rule: str, tmp_path: Path) -> None:
    """The program of a failure sends the request to an engine, which raises."""
    _engine_ends(zygote, _killer("takes_vocabulary_size_for_token", rule), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("specimen", ENDING, ids=lambda each: f"{each.rule}-{each.name}")
def test_every_real_engine_ends(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """So does the program of each killer: the engine raises, hangs, or serves others wrongly."""
    _engine_ends(zygote, specimen, tmp_path)


@pytest.mark.engine
@pytest.mark.skipif(not WITH_V2, reason="here Model Runner V2 runs by itself")
def test_slots_need_a_gpu_or_a_preparation(zygote: Zygote, tmp_path: Path) -> None:
    """By itself the program of a slot plugin says on a CPU what it needs, and shows nothing."""
    path = _program(zygote, _killer("takes_vocabulary_size_for_token", "LS-35"), tmp_path)
    done = execute_apart(path, arguments=("--engine",))

    assert done.returncode == logits_checks.NOTHING_SHOWN
    assert done.stdout.splitlines() == [
        "run this program on a machine with a GPU: Model Runner V2 requires Triton"
    ]


#: Asks an engine as programs do.
SERVE = """
from conformance.counterexample.engine_player import serve
from reference_plugins.{module} import {plugin} as Plugin

if __name__ == "__main__":
    target = {{"extra_args": {{"target_token": 67}}}}
    serve(Plugin, target, target, runner="{runner}")
"""


@pytest.mark.engine
@pytest.mark.parametrize(
    ("runner", "module", "plugin"),
    [
        ("V1", "logits_batch.target_token", "TargetTokenLogitsProcessor"),
        ("V2", "logits_slot.target_token", "TargetTokenSlotLogitsProcessor"),
    ],
)
def test_an_engine_goes_on(runner: str, module: str, plugin: str, tmp_path: Path) -> None:
    """Beside the request of a correct plugin each neighbour gets what it gets alone."""
    path = tmp_path / "serve.py"
    path.write_text(SERVE.format(module=module, plugin=plugin, runner=runner), encoding="utf-8")
    done = execute_apart(path, python_path=[str(ROOT), *(WITH_V2 if runner == "V2" else ())])

    assert done.returncode == 0, done.stdout + done.stderr
    assert "OK: the engine served the request" in done.stdout


@pytest.mark.parametrize("like", ["int", "float", "str", "list", "dict", "NoneType"])
def test_every_value_comes_once(like: str) -> None:
    """Values like the one that works come first, and no value is left out or comes twice."""
    drawn = [expression(value) for value in edges(VOCABULARY, like)]

    assert len(drawn) == len(set(drawn))
    assert set(drawn) == {expression(value) for value in edges(VOCABULARY)}


def test_values_reach_every_position() -> None:
    """Each place of a request gets each kind of value within the first requests."""
    reached: dict[tuple[Any, ...], set[str]] = {}
    for keywords, path in islice(requests([LISTS], ("ban", "style", "new"), VOCABULARY), 600):
        value: Any = keywords
        for step in path:
            value = value[step] if value is not None and step in _steps(value) else None
        reached.setdefault(path, set()).add(type(value).__name__)

    assert {*positions(LISTS), ("extra_args", "new")} <= set(reached)
    kinds = {"NoneType", "int", "bool", "float", "str", "list", "dict"}
    assert {path: kinds - found for path, found in reached.items() if len(path) > 1} == {
        path: set() for path in reached if len(path) > 1
    }


def _steps(value: object) -> range | set[Any]:
    if isinstance(value, list):
        return range(len(value))
    return set(value) if isinstance(value, dict) else set()


def test_a_place_may_be_missing() -> None:
    """A value is put where there was none, and a key is taken away; what is there stays."""
    assert replaced({}, ("extra_args", "a"), 1) == {"extra_args": {"a": 1}}
    inner = replaced(LISTS, ("extra_args", "ban", 1, 0), None)
    assert inner["extra_args"]["ban"] == [67, [None, 7]]
    assert removed(LISTS, ("extra_args", "style", "mode"))["extra_args"]["style"] == {}
    assert LISTS["extra_args"]["ban"] == [67, [5, 7]]


def test_values_are_written_as_python() -> None:
    """What a person reads is the value: long and deep ones are products."""
    for value in edges(VOCABULARY):
        written = expression(value)
        again = eval(written, {"functools": functools})  # noqa: S307 - our own

        assert repr(again) == repr(value), written
    assert len(expression([1] * HUGE)) < 20
    assert len(expression(nested(DEEP))) < 80


@pytest.mark.parametrize(
    ("value", "ways"),
    [
        (VOCABULARY, ("REST", "the OpenAI SDK", "LLM and AsyncLLM")),
        ([1, 2.5, "x"], ("REST", "the OpenAI SDK", "LLM and AsyncLLM")),
        ("é中😀", ("REST", "the OpenAI SDK", "LLM and AsyncLLM")),
        (math.nan, ("REST", "LLM and AsyncLLM")),
        (True, ("LLM and AsyncLLM",)),
        (None, ("LLM and AsyncLLM",)),
        ([None], ("LLM and AsyncLLM",)),
        ({"mode": "calm"}, ("LLM and AsyncLLM",)),
        (nested(DEEP), ("LLM and AsyncLLM",)),
        ("\ud800", ()),
        (nested(5_000), ()),
    ],
    ids=lambda value: expression(value)[:20] if not isinstance(value, tuple) else "",
)
def test_ways_to_an_engine(value: object, ways: tuple[str, ...]) -> None:
    """REST and the SDK carry strings, numbers and lists of them; the encoder nearly everything."""
    keywords = {"extra_args": {"key": value}}
    arrived = carriers.carried(SamplingParams(**keywords)) is not None

    found = carriers.ways(keywords, carried=arrived)
    assert (found if arrived else ()) == ways


def test_fields_beside_arguments_are_sent_too() -> None:
    """A body has them as they are; what is none of its fields is for Python alone."""
    sent = {"max_tokens": 3, "extra_args": {"key": 5}}
    unsent = {"thinking_token_budget": 3, "extra_args": {"key": 5}}

    assert carriers.ways(sent, carried=True)[0] == carriers.REST
    assert '"max_tokens": 3, "vllm_xargs": {"key": 5}' in str(carriers.curl(sent))
    assert carriers.ways(unsent, carried=True) == (carriers.PYTHON,)
    assert carriers.curl(unsent) is None


def test_no_arguments_are_carried_as_each_route_makes_them() -> None:
    """Completions make None of an empty ``vllm_xargs``, and responses an empty table of none."""
    empty: dict[str, Any] = {"extra_args": {}}
    made = ResponsesRequest(model="m", input="x").to_sampling_params(9, {}).extra_args
    route = carriers.ordinary(empty)

    assert CompletionRequest(model="m", prompt="x").to_sampling_params(9, {}).extra_args is None
    assert made in (None, {})
    assert (route is not None) == (made == {})
    if route is not None:
        assert route.path == "/v1/responses"
        assert carriers.ways(empty, carried=True)[0] == carriers.REST
        assert carriers.curl(empty) == (
            "curl http://localhost:8000/v1/responses -H 'Content-Type: application/json' "
            """-d '{"model": "MODEL", "input": "Hello", "max_output_tokens": 12}'"""
        )
    assert carriers.ordinary({}) is carriers.ordinary({"extra_args": {"boost": 1}}) is None
    assert "/v1/completions" in str(carriers.curl({}))
    assert "vllm_xargs" not in str(carriers.curl({}))


#: Takes any table of arguments for one with its keys.
TAKES_ANY_TABLE = """
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates


class TakesAnyTable(LogitsProcessor):
    @classmethod
    def validate_params(cls, sampling_params):
        token = (sampling_params.extra_args or {}).get("answer", 0)
        if type(token) is not int or not 0 <= token < 500:
            raise ValueError("answer is a token id")

    def __init__(self, vllm_config, device, is_pin_memory):
        self.tokens = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        process_dict_updates(self.tokens, batch_update, self.token_of)

    @staticmethod
    def token_of(params, prompt_ids, output_ids):
        arguments = params.extra_args
        if arguments is None or arguments and "answer" not in arguments:
            return None
        return arguments["answer"]

    def apply(self, logits):
        for row, token in self.tokens.items():
            logits[row, token] += 9
        return logits
"""


def test_a_request_without_arguments_is_sent_where_it_harms(zygote: Zygote, tmp_path: Path) -> None:
    """The command of a table of nothing is no completion, and the failure says who sends it."""
    path = tmp_path / "takes_any_table.py"
    path.write_text(TAKES_ANY_TABLE, encoding="utf-8")
    specimen = Specimen(
        f"{path}:TakesAnyTable", "LB-38", {"on": [{"extra_args": {"answer": 5}}], "off": [{}]}
    )
    result = certify(zygote, specimen, tmp_path, rules={"LB-38"})["LB-38"]

    assert result.verdict is Verdict.FAIL
    assert "with extra_args={} (by " in str(result.message)
    if carriers.ordinary({"extra_args": {}}) is not None:
        assert "as every request to /v1/responses without vllm_xargs has it" in str(result.message)
        assert result.counterexample
        assert "/v1/responses" in result.counterexample["request"]["curl"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("boost must be a token id"), 400),
        (TypeError("'<' not supported"), 500),
        (OverflowError("cannot convert float infinity to integer"), 500),
        (KeyError("mode"), 500),
        (AttributeError("lower"), 500),
        (IndexError("list index out of range"), 500),
        (ZeroDivisionError("integer modulo by zero"), 500),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_status_of_a_refusal(error: Exception, status: int) -> None:
    """A ValueError of validate_params becomes status 400, and what AsyncLLM wraps does not."""
    assert carriers.status(error) == status


def test_what_a_client_would_type() -> None:
    """The command holds the request as JSON; a long one is made by Python; some have none."""
    short = carriers.curl({"extra_args": {"boost": VOCABULARY}})
    long = carriers.curl({"extra_args": {"boost": "x" * HUGE}})

    assert short is not None
    assert '"vllm_xargs": {"boost": 500}' in short
    assert long is not None
    assert f'"x" * {HUGE}' in long
    assert carriers.curl({"extra_args": {"boost": None}}) is None
