# SPDX-License-Identifier: Apache-2.0
"""What workers ask of a family of plugins: is a class one of them, its trial, and its replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import attrs

from conformance.verdict import Cause, RuleResult, Verdict, must_wait, unjudged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Literal

    from conformance.plugin.target import Plugin, Target
    from conformance.rules import Evidence
    from conformance.settings import Settings
    from conformance.watching.elsewhere import Elsewhere
    from conformance.watching.loading import Observer
    from conformance.watching.loading_process import Maker

#: What playing a counterexample again shows: the kinds of trouble there are now, and a message.
Replayed = tuple[list[str], str]


def unreadable(why: object) -> Replayed:
    """Return the result for a counterexample that this version cannot read, with the reason."""
    return ["unreadable"], str(why).rstrip(".")


def replayed(result: RuleResult) -> Replayed:
    """Say what a check shows that was made again."""
    if result.verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE):
        return [], ""
    # Where another fault stands in the way, nothing was shown to be mended.
    kind = "check" if result.verdict is Verdict.FAIL else result.verdict.value
    return [kind], result.message or ""


class Trial(Protocol):
    """One plugin on one kind of evidence, judged rule by rule."""

    def check(self, rule: str) -> RuleResult:
        """Judge one rule; asked once for each rule, in any order."""

    def context(self) -> Mapping[str, Any]:
        """Return what a certificate says about where and with what the rules were tried."""

    def close(self) -> None:
        """End what the trial has started: processes, engines, servers, temporary files."""


#: As many rules, at most, are few: what only others need is not done beforehand.
FEW_RULES = 3


@attrs.frozen(kw_only=True, eq=False)
class Opening:
    """What a trial is opened with."""

    evidence: Evidence
    cls: type[Any]
    plugin: Plugin
    section: Mapping[str, Any]  #: of the profile, for the interface; empty without a profile
    origin: str | None  #: file or object that the profile was read from
    model: str  #: folder of the tiny model
    settings: Settings
    folder: str  #: where logs go
    rules: frozenset[str]  #: the trial is asked for these, and no others
    #: The process that loads the plugin by itself, in the simulator.
    observer: Observer | None = None
    #: What simulates for a live trial whose own process may use a GPU.
    elsewhere: Elsewhere | None = None
    #: Is told in a sentence what is waited for, and how long that took.
    progress: Callable[[str], None] = lambda _: None

    @property
    def qualname(self) -> str:
        """The dotted name of the class, as an entry point's function returns it."""
        return f"{self.plugin.module}.{self.plugin.qualname}"

    def python_path(self) -> list[str]:
        """Return the folders that the plugin is imported from."""
        root = self.plugin.root or str(self.settings.directory)
        return [root, *self.settings.python_path]


@attrs.frozen
class Unopened:
    """A trial in which nothing can be tried.

    One rule is broken and the others wait for it, or all of them have the same verdict.
    """

    message: str
    evidence: Evidence
    broken: str | None = None
    verdict: Verdict = Verdict.NOT_VERIFIED  #: where no rule is broken
    cause: Cause | None = None  #: by which it is known, where it is known elsewhere

    def check(self, rule: str) -> RuleResult:
        """Say why a rule is not judged, or that it is the broken one."""
        if self.broken is None:
            cause = self.cause or Cause(f"not opened: {self.evidence}", self.message)
            result = unjudged(rule, self.evidence, cause)
            return attrs.evolve(result, verdict=self.verdict)
        if rule == self.broken:
            return RuleResult(rule, Verdict.FAIL, self.evidence, 1, 1, message=self.message)
        return unjudged(rule, self.evidence, must_wait([self.broken]))

    def context(self) -> Mapping[str, Any]:
        """Return nothing: there is none."""
        return {}

    def close(self) -> None:
        """Do nothing: nothing was started."""


def _as_it_is(target: Target) -> Target:
    return target


def _nothing() -> None:
    pass


@attrs.frozen
class OwnHost:
    """A host without the plugin, which needs another model than the usual one."""

    model: str
    arguments: tuple[str, ...] = ()  #: of ``vllm serve``
    #: Whether the model is of the plugin's own package, whose entry points then stay.
    of_plugin: bool = False


def _no_own_host(_: Mapping[str, Any]) -> OwnHost | None:
    return None


@attrs.frozen(kw_only=True)
class Suite:
    """A family's answers."""

    base: str  #: what a plugin derives from, for messages
    recognises: Callable[[type], bool]  #: whether a class is one of these
    #: Whether the author plainly meant one of these, though it is none.
    meant: Callable[[type], bool]
    #: Whether a class may be one of these where nobody can tell, and the author says that it is.
    possible: Callable[[type], bool] = attrs.field(kw_only=True, default=lambda _: False)
    #: Opens a trial; raises ``UsageError`` where the profile is wrong.
    open_trial: Callable[[Opening], Trial]
    #: Plays a counterexample again, on a class with a model folder.  An error about a missing key
    #: or a value of another type means that this version cannot read the case.
    replay: Callable[[type, Mapping[str, Any], str], Replayed]
    #: The model runner of engines that serve these, where not both do.
    runner: Literal["v1", "v2"] | None = None
    #: Whether a server of a trial's own has to import the plugin by itself.
    imports_in_server: bool = False
    #: Whether vLLM calls the plugin in a simulator by itself, beside the calls of the harness.
    called_by_host: bool = False
    #: Finds the class that a target stands for, if it is not one already.
    resolved: Callable[[Target], Target] = _as_it_is
    #: Imports once what the processes of a simulator's trial all need.
    prepare: Callable[[], None] = _nothing
    #: Returns what makes instances as the host does, for a folder of a model and the section of
    #: the profile; None where the plugin is imported, and that is all.
    maker: Callable[[str, Mapping[str, Any]], Maker] | None = None
    #: The rule about what loading leaves to others, where the trial itself does not judge that, and
    #: the rule that a plugin breaks of which no instance can be made.
    shares: tuple[str, str] | None = None
    #: What a program about loading takes to make instances, for a folder of a model and the section
    #: of the profile; None where there is no such program.
    loading: Callable[[str, Mapping[str, Any]], Mapping[str, Any]] | None = None
    #: Whether the trial has a check of that rule for what serving does.
    serves: bool = False
    #: Returns the host without the plugin that a section of a profile calls for, if not the usual.
    own_host: Callable[[Mapping[str, Any]], OwnHost | None] = _no_own_host
    #: Has what was kept of vLLM made anew: a plugin has replaced parts of it.
    forget: Callable[[], None] = _nothing
