# SPDX-License-Identifier: Apache-2.0
"""The oracle of all configurations: the tokens of every request are those of the plain engine.

A plugin is blamed only where an engine without it, in the same configuration, does what the plain
one does.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from conformance.configuration.asked import Answers, Workload
from conformance.configuration.table import Configuration
from conformance.logits.ways import difference
from conformance.verdict import Verdict


@attrs.frozen(kw_only=True)
class Row:
    """What one configuration has shown of one plugin."""

    name: str
    about: str
    verdict: Verdict
    requests: int = 0  #: whose tokens were compared
    acted: int = 0  #: of these, those in which the plugin changed what the model says
    seconds: float = 0.0
    message: str | None = None


@attrs.frozen(kw_only=True)
class Controls:
    """Engines that tell whose fault something is; started only when they are asked."""

    #: An engine of the configuration without the plugin.
    bare: Callable[[], Answers]
    #: One with a plugin that does nothing.
    idle: Callable[[], Answers]


def judge(
    configuration: Configuration,
    workload: Workload,
    plain: tuple[Answers, Answers],
    answers: Answers,
    controls: Controls,
) -> Row:
    """Judge one configuration.

    Args:
        configuration: how the engine ran.
        workload: what it was asked.
        plain: what the plain engine answers with the plugin, and without it.
        answers: what the engine of this configuration answered.
        controls: engines for comparison.

    """
    with_plugin, without = plain
    acted = [
        number
        for number, reply in with_plugin.replies.items()
        if workload.asks[number].on and reply.tokens != without.replies[number].tokens
    ]

    def row(verdict: Verdict, message: str | None = None) -> Row:
        compared = answers.passes[0] if answers.passes else {}
        return Row(
            name=configuration.name,
            about=configuration.about,
            verdict=verdict,
            requests=len(compared),
            acted=len([number for number in acted if number in compared]),
            seconds=answers.seconds,
            message=message,
        )

    if answers.absent:
        return row(Verdict.NOT_APPLICABLE, f"it cannot run here: {answers.absent}")
    if configuration.name in workload.unsupported:
        return row(*_refused(configuration, answers, controls))
    if answers.problem:
        return row(*_blamed(answers, answers.problem, controls))
    if not with_plugin.replies:
        return row(Verdict.NOT_VERIFIED, "the plain engine did not answer with the plugin")
    if problem := _difference(configuration, workload, with_plugin, answers, without):
        why = unequal(configuration, workload, without, controls.bare())
        return row(Verdict.NOT_APPLICABLE if why else Verdict.FAIL, why or problem)
    silent = None if acted else "the plugin did nothing in any request"
    return row(Verdict.NOT_VERIFIED if silent else Verdict.PASS, silent)


def unequal(
    configuration: Configuration, workload: Workload, plain: Answers, bare: Answers
) -> str | None:
    """Say why a configuration shows nothing of any plugin; None where it does.

    Args:
        configuration: how the engine ran.
        workload: what it was asked.
        plain: what the plain engine answers without a plugin.
        bare: what the engine of this configuration answers without one.

    """
    if why := _missing(bare):
        return why
    if problem := _difference(configuration, workload, plain, bare, plain):
        return f"vLLM itself is not equal to the plain engine: {problem}"
    return None


def _missing(bare: Answers) -> str | None:
    """Say why an engine without a plugin has not answered, if it has not."""
    if bare.absent:
        return f"it cannot run here: {bare.absent}"
    return bare.problem and f"vLLM fails without the plugin: {bare.problem}"


def _refused(
    configuration: Configuration, answers: Answers, controls: Controls
) -> tuple[Verdict, str]:
    """Judge a configuration that the plugin is said not to support."""
    if answers.started:
        said = answers.problem or f"the engine starts with {configuration.name}"
        what = f"declared as not supported, and yet it is not refused at the start: {said}"
        return Verdict.FAIL, f"{what}; the constructor is to raise"
    bare = controls.bare()
    if not bare.started:
        return Verdict.NOT_APPLICABLE, f"vLLM does not start without the plugin: {bare.problem}"
    return Verdict.PASS, f"refused at start, as declared: {answers.problem}"


def _blamed(answers: Answers, problem: str, controls: Controls) -> tuple[Verdict, str]:
    """Say whose fault it is that an engine did not start, or stopped."""
    if why := _missing(controls.bare()):
        return Verdict.NOT_APPLICABLE, why
    idle = controls.idle()
    if idle.problem and idle.started == answers.started:
        return Verdict.NOT_APPLICABLE, f"vLLM refuses every plugin of this kind: {idle.problem}"
    what = "the engine stopped" if answers.started else "the engine did not start"
    return Verdict.FAIL, f"{what}: {problem}"


def _difference(
    configuration: Configuration,
    workload: Workload,
    reference: Answers,
    answers: Answers,
    without: Answers,
) -> str | None:
    """Say in which request tokens first differ from the plain engine's."""
    for times, tokens in enumerate(answers.passes):
        for number, got in tokens.items():
            ask = workload.asks[number]
            # Who opts out gets what an engine without the plugin says.
            reply = (reference if ask.on else without).replies[number]
            where = "in the plain engine" if ask.on else "in the plain engine without the plugin"
            shown = got
            if configuration.fills_context:
                if ask.on:  # a plugin may act by how many tokens are asked for
                    continue
                shown = got[: len(reply.tokens)]
            if problem := difference(reply, shown, where):
                again = " when it was sent again" if times else ""
                return f"{ask.label} (request {number}) got other tokens{again}: {problem}"
    return None
