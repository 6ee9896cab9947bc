# SPDX-License-Identifier: Apache-2.0
"""One run of ``vllm-conformance matrix``: every release, side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from conformance.matrix import environments
from conformance.matrix.environments import Release
from conformance.matrix.indexes import configured, uv_settings
from conformance.matrix.processes import Processes
from conformance.running.validation import AT_ONCE
from conformance.verdict import ExitStatus, worst

#: Called with the name of a release and what is being done for it.
Say = Callable[[str, str], None]

#: How the command line begins its sentences.
_PREFIX = "vllm-conformance: "


@attrs.frozen(kw_only=True)
class Request:
    """What a run is asked to do."""

    releases: tuple[Release, ...]
    targets: tuple[str, ...]
    options: tuple[str, ...]  #: of ``certify``, for every release
    distributions: tuple[str, ...]  #: wheels that vLLM may come in, from the one liked best
    extra: tuple[str, ...]  #: what else the environments hold
    report: Path  #: the folder for what is written
    environments: Path  #: the folder for environments
    jobs: int
    fresh: bool = False


@attrs.frozen
class Unanswered:
    """A target that a release has no certificate of, and why, in one sentence."""

    target: str
    reason: str


@attrs.frozen
class Outcome:
    """What a release says."""

    release: Release
    status: ExitStatus
    certificates: tuple[dict[str, Any], ...] = ()
    unanswered: tuple[Unanswered, ...] = ()
    distribution: str | None = None  #: the wheel of vLLM; None where the environment is not ours


def folder_name(release: Release) -> str:
    """Return the name of the folder for a release's certificates."""
    return release.name if release.python is None else release.name.strip("./").replace("/", "-")


@attrs.frozen
class _Job:
    """A release, and what it takes to certify on it."""

    request: Request
    release: Release
    processes: Processes
    uv_settings: dict[str, str]
    say: Callable[[str], None]


def certify(request: Request, say: Say) -> list[Outcome]:
    """Certify on every release; return what each says, in the order asked for."""
    processes = Processes()
    if any(release.python is None for release in request.releases):
        environments.find_uv()  # said before anything takes minutes
    settings = uv_settings(configured())
    with ThreadPoolExecutor(request.jobs) as pool:
        try:
            futures = [
                pool.submit(
                    _certify,
                    _Job(request, release, processes, settings, partial(say, release.name)),
                )
                for release in request.releases
            ]
            return [future.result() for future in futures]
        except BaseException:
            processes.end()
            raise


def _certify(job: _Job) -> Outcome:
    distribution = None
    try:
        python = job.release.python
        if python is None:
            distribution, python = _made(job)
    except environments.NotMade as error:
        job.say(str(error))
        return _unanswered(job.release, ExitStatus.INCOMPLETE, job.request.targets, str(error))
    job.say("certifying")
    outcome = attrs.evolve(_certified(job, python), distribution=distribution)
    job.say(f"ready: {outcome.status.name.lower().replace('_', ' ')}")
    return outcome


def _certified(job: _Job, python: Path) -> Outcome:
    release, targets = job.release, job.request.targets
    outcome = _run(job, python, targets)
    if outcome.unanswered and len(targets) > 1:
        # One that cannot be certified here keeps no other from it.
        outcome = _together(release, [_run(job, python, [target]) for target in targets])
    return outcome


def _made(job: _Job) -> tuple[str, Path]:
    """Return the wheel that the release comes in, and an interpreter that has it."""
    request = job.request
    variables = environments.variables(job.uv_settings)
    recipes = {
        environments.recipe(job.release, each, request.extra): each
        for each in request.distributions
    }
    recipe = environments.choose([*recipes], request.environments, job.processes, variables)
    python = environments.make(
        recipe,
        request.environments / recipe.key,
        job.processes,
        variables=variables,
        fresh=request.fresh,
        say=job.say,
    )
    return recipes[recipe], python


def _run(job: _Job, python: Path, targets: Sequence[str]) -> Outcome:
    release = job.release
    report = job.request.report / folder_name(release)
    command = [str(python), "-m", "conformance.cli", "certify", *targets]
    command += ["--json", "--quiet"]
    command += [*job.request.options, "--conformance-report", str(report)]
    # Several environments certify at the same time: each has the cores for one plugin.
    done = job.processes.run(command, {**environments.variables({}), AT_ONCE: "1"})
    try:
        status = ExitStatus(done.status)
        certificates = tuple(json.loads(done.output))
    except ValueError:
        # What the command line refuses it says in a sentence; the release may not serve it.
        refused = done.status == ExitStatus.USAGE
        status = ExitStatus.INCOMPLETE if refused else ExitStatus.HARNESS_FAILED
        return _unanswered(release, status, targets, _last(done.errors))
    for certificate in certificates:
        found = certificate["environment"]["vllm"]
        if found is not None and not release.admits(found):
            reason = f"the environment for {release.name} runs vLLM {found}"
            return _unanswered(release, ExitStatus.HARNESS_FAILED, targets, reason)
    return Outcome(release, status, certificates)


def _unanswered(
    release: Release, status: ExitStatus, targets: Sequence[str], reason: str
) -> Outcome:
    return Outcome(release, status, (), tuple(Unanswered(target, reason) for target in targets))


def _together(release: Release, outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(
        release,
        worst(outcome.status for outcome in outcomes),
        tuple(document for outcome in outcomes for document in outcome.certificates),
        tuple(missing for outcome in outcomes for missing in outcome.unanswered),
    )


def _last(errors: str) -> str:
    """Return the last sentence that was written."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return lines[-1].removeprefix(_PREFIX) if lines else "it does not say why"
