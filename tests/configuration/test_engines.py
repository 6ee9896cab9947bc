# SPDX-License-Identifier: Apache-2.0
"""Plugins in real engines of many configurations."""

from __future__ import annotations

import tomllib
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from sight import seeing_zygote
from support import ROOT, UNUSUAL

from conformance.configuration import rules
from conformance.configuration.table import named
from conformance.engine.models import tiny_llama
from conformance.running.runner import Certification
from conformance.settings import Device, Settings
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

GALLERY = ROOT / "fixtures" / "defective" / "configurations"
INDEX = tomllib.loads((GALLERY / "index.toml").read_text(encoding="utf-8"))["plugin"]
KILLERS = [
    pytest.param(entry, name, id=f"{name}-{entry['class']}")
    for entry in INDEX
    for name in entry["configurations"]
]
REFERENCE = ROOT / "reference_plugins" / "logits_batch" / "target_token.py"


def _rows(
    zygote: Zygote, folder: Path, target: str, profile: Path | None, names: tuple[str, ...]
) -> list[Verdict]:
    settings = Settings(
        targets=(target,),
        profile=None if profile is None else str(profile),
        device=Device.CPU,
        report=folder,
        configurations=names,
    )
    with Certification(settings, zygote=zygote) as certification:
        (plugin,) = certification.load()
        return [certification.configured(plugin, name).verdict for name in names]


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize(("entry", "name"), KILLERS)
def test_a_defect_shows_under_its_configuration_alone(
    zygote: Zygote, tmp_path: Path, entry: dict[str, Any], name: str
) -> None:
    """Each plugin of the gallery is right in the plain engine, and wrong under its own."""
    path = GALLERY / entry["file"]
    own = path.with_name(f"{path.stem}.conformance.toml")
    profile = own if own.exists() else GALLERY / entry.get("profile", "floor.toml")
    target = f"{path}:{entry['class']}"
    # What a front end runs has no plain engine to be right in.
    plain = "plain" if entry["rule"][:2] in {"LB", "LS"} else "server"

    with seeing_zygote(tmp_path) if entry.get("sees") else nullcontext(zygote) as process:
        verdicts = _rows(process, tmp_path, target, profile, (plain, name))

    assert verdicts == [Verdict.PASS, Verdict.FAIL]


@pytest.mark.engine
@pytest.mark.slow
def test_the_reference_passes(zygote: Zygote, tmp_path: Path) -> None:
    """A correct plugin is the same in another process and on two ranks."""
    names = ("plain", "own-process", "tensor-parallel-2", "preemption")

    verdicts = _rows(zygote, tmp_path, str(REFERENCE), None, names)

    assert verdicts == [Verdict.PASS] * len(names)


@pytest.mark.engine
@pytest.mark.slow
def test_engines_run_what_the_profile_deploys(zygote: Zygote, tmp_path: Path) -> None:
    """A plugin finds the ``additional_config`` of its profile, which it cannot do without."""
    source = (UNUSUAL / "claims_by_configuration.py").read_text(encoding="utf-8")
    plugin = tmp_path / "needs_configuration.py"
    plugin.write_text(source.replace('settings.get("banned", ())', 'settings["banned"]'))
    profile = tmp_path / "needs_configuration.conformance.toml"
    profile.write_text(
        "[logits-processor]\n"
        "on = [{ extra_args = { sharpen = 2.0 } }]\n"
        "off = [{}]\n"
        "additional_config = { banned = [5, 7] }\n"
    )

    verdicts = _rows(zygote, tmp_path, str(plugin), None, ("plain", "own-process"))

    assert verdicts == [Verdict.PASS] * 2


REFUSES = """
    def __init__(self, vllm_config, renderer):
        super().__init__(vllm_config, renderer)
        if vllm_config.parallel_config.data_parallel_size > 1:
            raise ValueError("two engines are not supported")
"""


@pytest.mark.engine
@pytest.mark.slow
def test_a_front_end_refuses_what_its_profile_names(zygote: Zygote, tmp_path: Path) -> None:
    """An IO processor whose constructor raises under what is declared has the rule on its side."""
    stem = "starts_on_two_engines_all_the_same"
    source = (GALLERY / f"{stem}.py").read_text(encoding="utf-8")
    head = "class StartsOnTwoEnginesAllTheSame(IOProcessor):\n"
    plugin = tmp_path / "refuses.py"
    plugin.write_text(source.replace(head, head + REFUSES))
    profile = (GALLERY / f"{stem}.conformance.toml").read_text(encoding="utf-8")
    plugin.with_name("refuses.conformance.toml").write_text(profile)

    assert _rows(zygote, tmp_path, str(plugin), None, ("data-parallel-2",)) == [Verdict.PASS]


@pytest.mark.engine
@pytest.mark.slow
def test_a_front_end_that_nobody_asked_shows_nothing(zygote: Zygote, tmp_path: Path) -> None:
    """Where fewer front ends had clients than there are to be, no answer speaks for the plugin."""
    target = str(ROOT / "reference_plugins" / "io_processor" / "labels.py@io/data")
    settings = Settings(targets=(target,), device=Device.CPU, report=tmp_path)
    with Certification(settings, zygote=zygote) as certification:
        (plugin,) = certification.load()
        row = rules.judged(
            plugin,
            settings,
            attrs.evolve(named("api-servers-2"), front_ends=3),
            fork=partial(certification.trials.fork, plugin),
            folder=tmp_path,
            model=str(tiny_llama()),
        )

    assert row.verdict is Verdict.NOT_APPLICABLE
    assert row.message == "it cannot run here: 2 of 3 front ends took every request"


def test_every_killer_is_of_a_configuration() -> None:
    """The index names configurations that there are, and files that are there."""
    for entry in INDEX:
        assert (GALLERY / entry["file"]).is_file()
        assert [named(name).name for name in entry["configurations"]] == entry["configurations"]
