# SPDX-License-Identifier: Apache-2.0
"""What several test modules share: the galleries, and one certification in a few words."""

from __future__ import annotations

import configparser
import importlib.util
import json
import shutil
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from conformance.reporting import certificate
from conformance.rules import Evidence
from conformance.running.runner import Certification
from conformance.settings import DEFAULT_SEED, Budget, Device, Settings
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from _pytest.mark import ParameterSet
    from survey import Survey

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures"
#: Profiles that several plugins share, and the functions that these name.
PROFILES = FIXTURES / "profiles"
DEFECTIVE = FIXTURES / "defective" / "logits_batch"
UNUSUAL = FIXTURES / "unusual" / "logits_batch"
DEFECTIVE_SLOT = FIXTURES / "defective" / "logits_slot"
UNUSUAL_SLOT = FIXTURES / "unusual" / "logits_slot"
DEFECTIVE_IO = tuple(FIXTURES / "defective" / name for name in ("io_data", "io_request"))
UNUSUAL_IO = tuple(FIXTURES / "unusual" / name for name in ("io_data", "io_request"))
DEFECTIVE_HOOK = FIXTURES / "defective" / "hook_rfc"
UNUSUAL_HOOK = FIXTURES / "unusual" / "hook_rfc"
DEFECTIVE_MODALITY = FIXTURES / "defective" / "mm_modality"
UNUSUAL_MODALITY = FIXTURES / "unusual" / "mm_modality"
DEFECTIVE_PROCESSOR = FIXTURES / "defective" / "mm_processor"
UNUSUAL_PROCESSOR = FIXTURES / "unusual" / "mm_processor"
DEFECTIVE_PARSER = tuple(
    FIXTURES / "defective" / name for name in ("parser_tool", "parser_reasoning")
)
UNUSUAL_PARSER = tuple(FIXTURES / "unusual" / name for name in ("parser_tool", "parser_reasoning"))

#: What rules come to for a correct plugin.
GOOD = frozenset((Verdict.PASS, Verdict.NOT_APPLICABLE))

needs_uv = pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not on PATH: ./run test")

#: Generations by the folder of their galleries.
GENERATIONS = {
    "logits_batch": "logits/batch",
    "logits_slot": "logits/slot",
    "io_data": "io/data",
    "io_request": "io/request",
    "hook_rfc": "hook/rfc",
    "mm_modality": "mm/modality",
    "mm_processor": "mm/processor",
    "parser_tool": "parser/tool",
    "parser_reasoning": "parser/reasoning",
}

#: Sections of profiles by the interface of a generation.
SECTIONS = {
    "logits": "logits-processor",
    "io": "io-processor",
    "hook": "classifier-hook",
    "mm": "multimodal",
    "parser": "parser",
}


@attrs.frozen
class Specimen:
    """One plugin of a gallery."""

    target: str
    rule: str | None  #: the rule it must fail by; None for one that must pass
    profile: Mapping[str, Any]
    kind: str = ""  #: what sort of processor it is
    evidence: Evidence = Evidence.SIMULATOR  #: the cheapest that shows its fault
    advice: tuple[str, ...] = ()  #: each SHOULD that it breaks knowingly
    generation: str = "logits/batch"  #: the generation of its gallery
    found: tuple[str, ...] = ()  #: each MUST that a plugin of vLLM's own is known to break

    @property
    def name(self) -> str:
        """A short name for test ids."""
        return Path(self.target.partition(":")[0]).stem

    @property
    def section(self) -> str:
        """The section of a profile that is about it."""
        return section_of(self.generation)

    @property
    def label(self) -> str:
        """The class, and whether the harness has to find out how it is switched on."""
        return self.target.rpartition(":")[2] + ("" if self.profile else "-discovered")


def section_of(generation: str) -> str:
    """Return the section of a profile that is about a generation."""
    return SECTIONS[generation.partition("/")[0]]


def references(which: str = "targets") -> list[str]:
    """Return one of the lists of reference plugins, as the lanes certify them."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    return tox["reference"][which].split()


def gallery(folder: Path) -> list[Specimen]:
    """Read the index of a gallery."""
    index = tomllib.loads((folder / "index.toml").read_text(encoding="utf-8"))
    generation = GENERATIONS[folder.name]
    specimens = []
    for entry in index["plugin"]:
        profile = entry.get("profile", {})
        if isinstance(profile, str):
            document = tomllib.loads((folder / profile).read_text(encoding="utf-8"))
            profile = document[section_of(generation)]
        target = f"{folder / entry['file']}:{entry['class']}"
        specimens.append(
            Specimen(
                target,
                entry.get("rule"),
                profile,
                entry.get("kind", ""),
                Evidence(entry.get("evidence", "simulator")),
                tuple(entry.get("advice", ())),
                generation,
            )
        )
    return specimens


def of_surveys(
    galleries: Mapping[Survey, Iterable[Specimen]], name: Callable[[Specimen], str]
) -> list[ParameterSet]:
    """Return the parameters of a test of each specimen, under the survey that it is of."""
    return [
        pytest.param(about, specimen, id=f"{about.name}-{name(specimen)}")
        for about, specimens in galleries.items()
        for specimen in specimens
    ]


def of_configurations() -> set[str]:
    """Return the rules by which the plugins of the gallery of configurations fail."""
    index = FIXTURES / "defective" / "configurations" / "index.toml"
    return {entry["rule"] for entry in tomllib.loads(index.read_text("utf-8"))["plugin"]}


def lasting(zygote: Zygote) -> SimpleNamespace:
    """Return a zygote that outlives the runs that close it."""
    return SimpleNamespace(
        fork=zygote.fork, wait_ready=zygote.wait_ready, on_cpu=zygote.on_cpu, close=lambda: None
    )


def certify(
    zygote: Zygote,
    specimen: Specimen,
    folder: Path,
    *,
    seed: int = DEFAULT_SEED,
    budget: Budget = Budget.STANDARD,
    evidence: tuple[Evidence, ...] = (Evidence.SIMULATOR,),
    device: Device = Device.AUTO,
    rules: Collection[str] | None = None,
    server_url: str | None = None,
    only: Evidence | None = None,
) -> dict[str, RuleResult]:
    """Certify one plugin and return its results by rule, in which no count exceeds its whole.

    With ``only``, the checks of one kind of evidence alone are run of those that were asked for.
    """
    profile = folder / "profile.toml"
    profile.write_text(as_toml(specimen.profile, specimen.section), encoding="utf-8")
    settings = Settings(
        targets=(specimen.target,),
        profile=str(profile),
        evidence=evidence,
        device=device,
        budget=budget,
        seed=seed,
        report=folder / "report",
        server_url=server_url,
        python_path=(str(PROFILES),),  # functions that profiles name
    )
    with Certification(settings, zygote=zygote) as certification:
        certification.load()
        checks = [c for c in certification.checks() if rules is None or c.rule in rules]
        if only is not None:
            checks = [c for c in checks if c.evidence is only]
        # A class of several generations is one plugin of each.
        if len(certification.plugins) > 1:
            checks = [c for c in checks if c.plugin.generation == specimen.generation]
        certification.select(checks)
        found = {check.rule: certification.run(check) for check in checks}
    miscounted = [rule for rule, each in found.items() if each.acted > each.examples]
    assert not miscounted, f"more examples acted than there were: {miscounted}"
    return found


def good(rule: str) -> frozenset[Verdict]:
    """Return what a rule may come to for a correct plugin, on this machine."""
    # Some of vLLM's own models resample with it.
    lacks = rule == "MM-88" and importlib.util.find_spec("torchaudio") is None
    return GOOD | {Verdict.NOT_VERIFIED} if lacks else GOOD


def certificate_of(zygote: Zygote, settings: Settings) -> dict[str, Any]:
    """Return the certificate of the one plugin that settings name."""
    with Certification(settings, zygote=zygote) as certification:
        (plugin,) = certification.load()
        checks = certification.checks()
        certification.select(checks)
        results = [certification.run(check) for check in checks]
        context = certification.contexts[plugin.target]
    return certificate.build(plugin, results, settings=settings, context=context)


def timeless(zygote: Zygote, specimen: Specimen, folder: Path, seed: int) -> dict[str, Any]:
    """Return the certificate of a specimen without the seconds that its rules took."""
    profile = folder / "profile.toml"
    profile.write_text(as_toml(specimen.profile), encoding="utf-8")
    settings = Settings(
        targets=(specimen.target,),
        profile=str(profile),
        budget=Budget.QUICK,
        seed=seed,
        report=folder,
    )
    document = certificate_of(zygote, settings)
    for rule in document["rules"]:
        rule.pop("seconds")
    return document


def ask_job(
    zygote: Zygote,
    function: str,
    arguments: Mapping[str, object],
    folder: Path,
    *,
    beside: str,
    limit: float = 60.0,
) -> Any:  # noqa: ANN401 - what jobs answer
    """Return what a job answers, a function ``module:function`` of a module beside a test.

    Args:
        zygote: forks the job.
        function: what it runs; it is asked once.
        arguments: of the function.
        folder: where it works and writes its log.
        beside: the file of the test.
        limit: seconds that it may take.

    """
    job = zygote.fork(
        function,
        arguments,
        log=folder / "job.log",
        directory=folder,
        python_path=[str(Path(beside).parent), str(ROOT)],
    )
    try:
        return job.ask(function, limit=limit)
    finally:
        job.close()


def caught(
    zygote: Zygote,
    specimen: Specimen,
    folder: Path,
    *,
    short: Callable[[RuleResult], bool] = lambda _: True,
) -> RuleResult:
    """Return what the rule of a defective plugin comes to, at the first budget that shows it.

    Most faults need few histories. That more of them show it as well, whatever the seed, is what
    the survey of the gallery is about.
    """
    assert specimen.rule is not None
    rule, evidence = specimen.rule, (specimen.evidence,)

    def judged(budget: Budget) -> RuleResult:
        return certify(zygote, specimen, folder, budget=budget, evidence=evidence, rules={rule})[
            rule
        ]

    if specimen.evidence is Evidence.SIMULATOR:
        result = judged(Budget.QUICK)
        if result.verdict is Verdict.FAIL and short(result):
            return result
    return judged(Budget.STANDARD)


def as_toml(section: Mapping[str, Any], name: str = "logits-processor") -> str:
    """Return a section of a profile as TOML."""
    lines = [f"{key} = {_value(value)}" for key, value in section.items()]
    return "\n".join([f"[{name}]", *lines]) + "\n"


def _value(value: Any) -> str:  # noqa: ANN401 - any TOML value
    if isinstance(value, dict):
        items = ", ".join(f'"{key}" = {_value(item)}' for key, item in value.items())
        return f"{{ {items} }}"
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)
