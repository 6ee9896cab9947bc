# SPDX-License-Identifier: Apache-2.0
"""Plugins in real engines and servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import DEFECTIVE, DEFECTIVE_SLOT, FIXTURES, GOOD, ROOT, Specimen, certify, gallery

from conformance.engine.models import tiny_llama
from conformance.engine.server import Server
from conformance.rules import Evidence
from conformance.running.runner import LIMITS, Certification
from conformance.settings import Settings
from conformance.verdict import Verdict
from conformance.worker import client

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

REFERENCE = ROOT / "reference_plugins" / "logits_batch" / "target_token.py"
TARGET = {
    "on": [{"extra_args": {"target_token": 67}}, {"extra_args": {"target_token": 5}}],
    "off": [{}, {"extra_args": {"unrelated": 1}}],
    "invalid": [{"extra_args": {"target_token": "x"}}, {"extra_args": {"target_token": True}}],
}
#: In one instruction that no signal interrupts.
STUCK = """\
from vllm.v1.sample.logits_processor import LogitsProcessor


class Stuck(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        pass

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        pass

    def apply(self, logits):
        return sum(iter(int, 1)) and logits
"""
#: Each of its calls returns, after a tenth of a second.
SLOW = """\
import time

from reference_plugins.logits_batch.target_token import TargetTokenLogitsProcessor


class Slow(TargetTokenLogitsProcessor):
    def apply(self, logits):
        time.sleep(0.1)
        return super().apply(logits)
"""
#: A plugin whose engines are ordered, before every fifth step, to compute nothing.
IDLE = """\
from vllm.v1.core.sched.output import SchedulerOutput
from {runner} import GPUModelRunner

from {module} import {name}


class Plugin({name}):
    pass


steps = 0
execute = GPUModelRunner.execute_model


def execute_model(self, order, *others, **named):
    global steps
    steps += bool(order.total_num_scheduled_tokens)
    if steps % 5 == 4:
        execute(self, SchedulerOutput.make_empty())
    return execute(self, order, *others, **named)


GPUModelRunner.execute_model = execute_model
"""
IDLING = {
    "logits/batch": (
        "vllm.v1.worker.gpu_model_runner",
        "reference_plugins.logits_batch.target_token",
        "TargetTokenLogitsProcessor",
    ),
    "logits/slot": (
        "vllm.v1.worker.gpu.model_runner",
        "reference_plugins.logits_slot.target_token",
        "TargetTokenSlotLogitsProcessor",
    ),
}
#: A plugin beside which vLLM's own runner refuses the longest prompt, whoever sends it.
FRAIL = """\
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from reference_plugins.logits_batch.target_token import TargetTokenLogitsProcessor

execute = GPUModelRunner.execute_model


def execute_model(self, order, *others, **named):
    if any(len(new.prompt_token_ids) == 127 for new in order.scheduled_new_reqs):
        raise RuntimeError("no kernel for so many tokens")
    return execute(self, order, *others, **named)


GPUModelRunner.execute_model = execute_model


class Plugin(TargetTokenLogitsProcessor):
    pass
"""


def _broken(results: dict[str, RuleResult]) -> dict[str, str | None]:
    return {rule: found.message for rule, found in results.items() if found.verdict not in GOOD}


def _failing(results: dict[str, RuleResult]) -> set[str]:
    return {rule for rule, found in results.items() if found.verdict is Verdict.FAIL}


def _defective(name: str) -> Specimen:
    return next(specimen for specimen in gallery(DEFECTIVE) if specimen.name == name)


@pytest.mark.smoke
@pytest.mark.engine
def test_embeddings_fail_by_one_rule(zygote: Zygote, tmp_path: Path) -> None:
    """What fails for want of prompt token ids, as LB-25 says, is not found again as LB-39."""
    evidence = (Evidence.SIMULATOR, Evidence.OFFLINE)
    specimen = _defective("requires_prompt_ids")
    results = certify(zygote, specimen, tmp_path, evidence=evidence)

    assert results["LB-25"].verdict is Verdict.FAIL
    assert results["LB-39"].verdict is Verdict.PASS, results["LB-39"].message


@pytest.mark.engine
def test_reference_passes_in_an_engine(zygote: Zygote, tmp_path: Path) -> None:
    """The reference plugin passes every rule that an engine shows, with rows of every kind."""
    specimen = Specimen(f"{REFERENCE}:TargetTokenLogitsProcessor", None, TARGET)
    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))

    assert not _broken(results)
    seen = ("LB-06", "LB-07", "LB-09", "LB-11", "LB-18", "LB-31", "LB-32")
    assert all(results[rule].acted for rule in seen)


@pytest.mark.engine
def test_a_slow_machine_is_no_fault_of_the_plugin(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing of the plugin runs when the time is over, nothing is verified or broken."""
    specimen = Specimen(f"{REFERENCE}:TargetTokenLogitsProcessor", None, TARGET)
    results = {}
    monkeypatch.setattr(client, "CALL_RETURNS", 0.05)  # nobody waits for the next of its calls
    # Long before an engine is there; the plugin is imported at one of these moments at the most.
    for limit in (0.2, 0.3, 0.45):
        monkeypatch.setitem(LIMITS, Evidence.OFFLINE, limit)
        results = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))
        if {found.verdict for found in results.values()} == {Verdict.NOT_VERIFIED}:
            break

    assert {found.verdict for found in results.values()} == {Verdict.NOT_VERIFIED}
    (said,) = {found.message for found in results.values()}
    assert said == (
        "this machine is too slow: a trial did not answer within 0 s, with nothing of the plugin "
        "running"
    )


@pytest.mark.engine
def test_a_plugin_that_nothing_interrupts_is_named(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that computes on in C for ever fails the rule about it, at its line."""
    (tmp_path / "stuck.py").write_text(STUCK)
    specimen = Specimen(f"{tmp_path / 'stuck.py'}:Stuck", None, {"on": [{}]})
    results = {}
    # Short, for this waits until it is over; on a busy machine the engine starts no sooner than
    # in the longest.
    for limit in (20.0, 60.0, 300.0):
        monkeypatch.setitem(LIMITS, Evidence.OFFLINE, limit)
        results = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))
        if results["LB-24"].verdict is not Verdict.NOT_VERIFIED:
            break

    assert results["LB-24"].verdict is Verdict.FAIL
    assert "s (at stuck.py:" in str(results["LB-24"].message)


def test_a_plugin_whose_calls_are_slow_does_not_hang(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its histories take too long to wait for, which says nothing about any rule."""
    (tmp_path / "slow.py").write_text(SLOW)
    specimen = Specimen(f"{tmp_path / 'slow.py'}:Slow", None, TARGET)
    monkeypatch.setitem(LIMITS, Evidence.SIMULATOR, 8.0)
    results = certify(zygote, specimen, tmp_path)

    assert not _failing(results)
    assert results["LB-24"].verdict is Verdict.NOT_VERIFIED
    assert results["LB-24"].message == (
        "the plugin is too slow: each of its calls returned, but there were too many of them to "
        "wait for; the trial did not answer within 8 s"
    )


@pytest.mark.engine
@pytest.mark.parametrize("generation", ["logits/batch", "logits/slot"])
def test_steps_that_compute_nothing_are_followed(
    zygote: Zygote, generation: str, tmp_path: Path
) -> None:
    """Asynchronous scheduling, which needs a GPU, orders them while requests are running.

    Each takes all requests out of the batch, so that no row need ever move to fill a hole.
    """
    runner, module, name = IDLING[generation]
    (tmp_path / "idling.py").write_text(IDLE.format(runner=runner, module=module, name=name))
    specimen = Specimen(f"{tmp_path / 'idling.py'}:Plugin", None, TARGET, generation=generation)
    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))

    broken = _broken(results)
    assert broken.keys() <= {"LB-07"}
    assert all(results[rule].verdict is Verdict.NOT_VERIFIED for rule in broken)


@pytest.mark.engine
def test_what_ends_an_engine_without_the_plugin_is_no_fault_of_it(
    zygote: Zygote, tmp_path: Path
) -> None:
    """Nothing more can be seen, and nobody is blamed."""
    (tmp_path / "frail.py").write_text(FRAIL)
    specimen = Specimen(f"{tmp_path / 'frail.py'}:Plugin", None, TARGET)
    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))

    assert not _failing(results)
    assert results["LB-39"].verdict is Verdict.NOT_VERIFIED
    assert str(results["LB-39"].message).endswith("; so it does without the plugin")


@pytest.mark.engine
def test_an_engine_hands_out_a_view_of_padded_rows(zygote: Zygote, tmp_path: Path) -> None:
    """Logits of the tiny model are not contiguous, so a plugin that packs them by row is found."""
    good = Specimen(f"{REFERENCE}:TargetTokenLogitsProcessor", None, TARGET)
    bad = next(s for s in gallery(DEFECTIVE) if s.rule == "LB-29")
    offline = (Evidence.OFFLINE,)

    right = certify(zygote, good, tmp_path, evidence=offline, rules={"LB-29"})["LB-29"]
    wrong = certify(zygote, bad, tmp_path, evidence=offline)

    assert right.verdict is Verdict.PASS
    assert right.acted
    assert Verdict.FAIL in {result.verdict for result in wrong.values()}


@pytest.mark.engine
@pytest.mark.parametrize("name", ["MinP", "LogitBias", "MinTokens"])
def test_built_ins_pass_in_an_engine(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """A built-in is judged where the engine holds it, with the stop tokens the engine adds."""
    target = f"vllm.v1.sample.logits_processor:{name}LogitsProcessor"
    results = certify(zygote, Specimen(target, None, {}), tmp_path, evidence=(Evidence.OFFLINE,))

    assert not _broken(results)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("keeps_replaced_occupant", "LB-06"),
        ("asserts_no_outputs", "LB-16"),
        ("counts_apply_calls", "LB-18"),
        ("forgets_to_return", "LB-16"),
        ("exits_process", "LB-24"),
    ],
)
def test_defects_show_in_an_engine(zygote: Zygote, name: str, rule: str, tmp_path: Path) -> None:
    """What the simulator finds, the live engine's own rows show too."""
    results = certify(zygote, _defective(name), tmp_path, evidence=(Evidence.OFFLINE,))

    assert results[rule].verdict is Verdict.FAIL


#: Plugins that serve whatever their profiles name, and harm others by something else.
HARM = [
    ("takes_vocabulary_size_for_token", "LB-38", "ended the engine"),
    ("counts_back_into_previous_row", "LB-38", "got other tokens"),
    ("picks_best_of_allowed", "LB-39", "ends the engine"),
    ("takes_vocabulary_size_for_token", "LS-35", "ended the engine"),
    ("writes_level_of_previous_slot", "LS-35", "got other tokens"),
    ("picks_best_of_allowed", "LS-36", "ends the engine"),
]


def _killer(name: str, rule: str) -> Specimen:
    both = [*gallery(DEFECTIVE), *gallery(DEFECTIVE_SLOT)]
    return next(each for each in both if each.name == name and each.rule == rule)


@pytest.mark.engine
@pytest.mark.parametrize(("name", "rule", "said"), HARM)
def test_harm_to_others_shows_in_an_engine(
    zygote: Zygote, name: str, rule: str, said: str, tmp_path: Path
) -> None:
    """A request that ends the engine or reaches into another row does so in a real one."""
    specimen = _killer(name, rule)
    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))

    assert results[rule].verdict is Verdict.FAIL
    assert said in str(results[rule].message)
    assert _failing(results) == {rule}


@pytest.mark.server
@pytest.mark.parametrize(
    ("name", "rule", "said"),
    [
        ("takes_vocabulary_size_for_token", "LB-38", "ended"),
        ("counts_back_into_previous_row", "LB-38", "a neighbour got"),
        ("writes_level_of_previous_slot", "LS-35", "a neighbour got"),
    ],
)
def test_harm_to_others_shows_on_servers(
    zygote: Zygote, name: str, rule: str, said: str, tmp_path: Path
) -> None:
    """So it does on a server, where it comes last, with the command that sends it."""
    specimen = _killer(name, rule)
    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.SERVER,))

    assert results[rule].verdict is Verdict.FAIL
    assert said in str(results[rule].message)
    assert "curl http" in str(results[rule].message)
    assert _failing(results) == {rule}


@pytest.mark.smoke
@pytest.mark.server
def test_reference_passes_on_servers(zygote: Zygote, tmp_path: Path) -> None:
    """The reference plugin passes on a server that names it and one that finds its entry point."""
    specimen = Specimen(f"{REFERENCE}:TargetTokenLogitsProcessor", None, TARGET)
    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.SERVER,))

    assert not _broken(results)
    assert {"LB-01", "LB-05", "LB-15"} <= set(results)
    logs = {path.name for path in (tmp_path / "report").rglob("server*.log")}
    assert {"server.log", "server-entry-point.log"} <= logs


@pytest.mark.server
def test_a_plugin_that_ends_the_server_is_found(zygote: Zygote, tmp_path: Path) -> None:
    """A plugin that raises for valid requests ends the server, and one sentence says so."""
    specimen = _defective("callable_returns_nothing")
    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.SERVER,))

    assert results["LB-16"].verdict is Verdict.FAIL
    assert "ended the server" in str(results["LB-16"].message)


@pytest.mark.server
def test_a_running_server_is_used(zygote: Zygote, tmp_path: Path) -> None:
    """With a URL nothing is started, the key is used and kept, and no odd request is sent."""
    server = Server.start(
        tiny_llama(),
        log=tmp_path / "server.log",
        logits_processors=["mended_example:DummyLogitsProcessor"],
        python_path=[FIXTURES],
        arguments=["--api-key=a-secret"],
    )
    with server:
        server.wait_healthy()
        settings = Settings(
            targets=(f"{FIXTURES / 'mended_example.py'}:DummyLogitsProcessor",),
            evidence=(Evidence.SERVER,),
            server_url=server.url,
            server_headers=(("Authorization", "Bearer a-secret"),),
            report=tmp_path / "report",
        )
        with Certification(settings, zygote=zygote) as certification:
            certification.load()
            checks = certification.checks()
            certification.select(checks)
            results = {check.rule: certification.run(check) for check in checks}
        assert server.healthy()

    spared = {"LB-38", "LB-42"}
    assert _broken(results).keys() == spared
    assert all(results[rule].out_of_reach for rule in spared)
    assert "a-secret" not in f"{settings} {results}"
