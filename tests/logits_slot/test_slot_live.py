# SPDX-License-Identifier: Apache-2.0
"""Slot plugins in real engines and servers with Model Runner V2."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from specimens import slot_references
from support import DEFECTIVE_SLOT, GOOD, ROOT, Specimen, certify, gallery

from conformance.generations import named
from conformance.reporting.session import write_reports
from conformance.rules import Evidence
from conformance.running.runner import Certification
from conformance.settings import Budget, Settings
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

GENERATION = named("logits/slot")
#: Without the one that configurations are for.
RULES = {rule.id: rule for rule in GENERATION.rules if rule.id != GENERATION.configured}
REFERENCE = ROOT / "reference_plugins" / "logits_slot" / "target_token.py"
REFERENCES = [
    specimen.target + ("@logits/slot" if "Dual" in specimen.target else "")
    for specimen in slot_references()
]
#: Seconds for three plugins in six engines and two servers each, on a busy machine.
PATIENCE = 1800
TARGET = {
    "on": [{"extra_args": {"target_token": 67}}, {"extra_args": {"target_token": 5}}],
    "off": [{}, {"extra_args": {"unrelated": 1}}],
}
NGRAM = {
    "on": [{"extra_args": {"no_repeat_ngram": size}} for size in (2, 3)],
    "off": [{}, {"extra_args": {"unrelated": 1}}],
}


@pytest.fixture(scope="module")
def certificates(
    zygote: Zygote, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """Certify every reference plugin once, with all evidence."""
    settings = Settings(
        targets=tuple(REFERENCES),
        evidence=tuple(Evidence),
        budget=Budget.QUICK,
        report=tmp_path_factory.mktemp("live") / "report",
    )
    started = time.monotonic()
    with Certification(settings, zygote=zygote) as certification:
        plugins = certification.load()
        checks = certification.checks()
        certification.select(checks)
        for check in checks:
            certification.run(check)
        by_target = {
            plugin.target: [
                result for check, result in certification.results.items() if check.plugin == plugin
            ]
            for plugin in plugins
        }
        documents = write_reports(
            settings, plugins, by_target, certification.contexts, started=started
        )
    return {document["plugin"]["target"]: document for document in documents}


@pytest.mark.server
@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("target", REFERENCES, ids=lambda target: target.rpartition(":")[2])
def test_references_are_conformant(certificates: dict[str, dict[str, Any]], target: str) -> None:
    """Everything is shown by every kind of evidence that its rules name."""
    document = certificates[target]
    broken = {
        rule["id"]: (rule["verdict"], rule["message"])
        for rule in document["rules"]
        if Verdict(rule["verdict"]) not in GOOD
    }

    assert not broken
    assert document["verdict"] == "conformant"
    assert document["run"]["evidence"] == [evidence.value for evidence in Evidence]
    assert {rule["id"]: rule["evidence"] for rule in document["rules"]} == {
        name: [evidence.value for evidence in Evidence if evidence in rule.evidence]
        for name, rule in RULES.items()
    }


@pytest.mark.server
@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("target", REFERENCES, ids=lambda target: target.rpartition(":")[2])
def test_certificates_say_what_was_replaced(
    certificates: dict[str, dict[str, Any]], target: str
) -> None:
    """Where no GPU ran Triton kernels, a certificate does not look as though one had."""
    environment = certificates[target]["environment"]

    assert environment["device"] == "cpu"
    assert environment["runner"] == (
        "V2 on a CPU: its Triton kernels were replaced, since no GPU ran them"
    )


@pytest.mark.smoke
@pytest.mark.engine
def test_what_an_engine_alone_shows(zygote: Zygote, tmp_path: Path) -> None:
    """A plugin that goes by how it was listed passes in the simulator, where nothing lists it."""
    (specimen,) = (s for s in gallery(DEFECTIVE_SLOT) if s.name == "is_stronger_by_name")
    simulated = certify(zygote, specimen, tmp_path, budget=Budget.QUICK)
    live = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))

    assert {result.verdict for result in simulated.values()} <= GOOD
    assert "LS-30" not in simulated
    failing = {rule for rule, result in live.items() if result.verdict is Verdict.FAIL}
    assert failing == {"LS-30"}
    assert "loaded by name" in str(live["LS-30"].message)


#: What CUDA graphs change, without a GPU: lengths of a batch that is padded,
#: and slots in another order, since engines that capture graphs warm up with requests.
GRAPHS = """

from inspect import signature

import numpy as np
from vllm.v1.worker.cpu_worker import CPUWorker
from vllm.v1.worker.gpu.sample.sampler import Sampler

_sample, _names = Sampler.sample, signature(Sampler.sample)


def sample(*args, **kwargs):
    bound = _names.bind(*args, **kwargs).arguments
    lengths = bound["seq_lens_upper_bound_np"]
    return _sample(**{**bound, "seq_lens_upper_bound_np": np.append(lengths, np.int32(0))})


_warm_up = CPUWorker.compile_or_warm_up_model


def warm_up(self):
    self.model_runner.req_states.free_indices.reverse()
    return _warm_up(self)


Sampler.sample, CPUWorker.compile_or_warm_up_model = sample, warm_up
"""


@pytest.mark.engine
def test_engines_with_graphs_are_followed(zygote: Zygote, tmp_path: Path) -> None:
    """A reference that reads lengths passes where a batch is padded and slots are in any order."""
    reference = ROOT / "reference_plugins" / "logits_slot" / "no_repeat_ngram.py"
    plugin = tmp_path / "in_graphs.py"
    plugin.write_text(reference.read_text(encoding="utf-8") + GRAPHS, encoding="utf-8")
    target = f"{plugin}:NoRepeatNgramSlotLogitsProcessor"
    specimen = Specimen(target, None, NGRAM, generation="logits/slot")

    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))

    assert {rule: r.message for rule, r in results.items() if r.verdict not in GOOD} == {}
    assert Verdict.PASS in {result.verdict for result in results.values()}


@pytest.mark.server
def test_what_raises_in_an_engine_is_the_plugins_fault(zygote: Zygote, tmp_path: Path) -> None:
    """An exception of ``apply`` ends engines and servers; that is a failure, and no error."""
    source = REFERENCE.read_text(encoding="utf-8")
    line = "        target = self._on_device[ctx.expanded_idx_mapping].unsqueeze(1)\n"
    assert source.count(line) == 1
    plugin = tmp_path / "raises_in_apply.py"
    # After the early return: warm-up does not get here.
    plugin.write_text(source.replace(line, '        raise OSError("the table is gone")\n'))
    specimen = Specimen(
        f"{plugin}:TargetTokenSlotLogitsProcessor", None, TARGET, generation="logits/slot"
    )

    for evidence in (Evidence.OFFLINE, Evidence.SERVER):
        results = certify(zygote, specimen, tmp_path, evidence=(evidence,))
        failing = {rule for rule, found in results.items() if found.verdict is Verdict.FAIL}
        assert failing, evidence
        assert failing <= {"LS-22", "LS-24"}
        assert Verdict.ERROR not in {found.verdict for found in results.values()}
        said = " ".join(str(results[rule].message) for rule in failing)
        assert "the table is gone" in said or "ended the server" in said
