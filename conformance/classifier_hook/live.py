# SPDX-License-Identifier: Apache-2.0
"""What live evidence of both kinds needs: the hook, the texts that engines say, judging answers.

What an engine tells the hook is told a witness as well (`witness`), so for every answer there is
the context, and what a fresh instance says of it in this process: live must equal the simulator.
"""

from __future__ import annotations

import abc
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import attrs

from conformance.classifier_hook import meaning, witness
from conformance.classifier_hook.bench import Bench, ConstructorRaised
from conformance.classifier_hook.calls import runtime
from conformance.classifier_hook.scoring import ANNOTATES
from conformance.ledger import Ledger
from conformance.live_trial import LiveTrial
from conformance.plugin.expectation import OracleFailed
from conformance.rules import Evidence
from conformance.settings import UsageError
from conformance.watching.comparison import Place, difference, shortened, unsteady
from conformance.watching.interruption import PluginExited, PluginHung

LOADS, SCORES, ALLOWS, BLOCKS, REPLACES, CONTEXTS, STEADY = (
    "CH-01", "CH-10", "CH-11", "CH-12", "CH-13", "CH-16", "CH-18",
)  # fmt: skip
WAITS, IN_TIME, ENDS, LEAVES_NOTHING, SURVIVES = "CH-20", "CH-22", "CH-23", "CH-24", "CH-29"
JSON, MEANS = "CH-38", "CH-39"
SEQUENCE, TOGETHER, SAME_IDS, HARMLESS = "CH-30", "CH-31", "CH-32", "CH-33"

#: Which rule a call breaks that gets no scores.
_RULE_OF = {"timeout": IN_TIME, "exception": CONTEXTS, "invalid": JSON}

#: Bytes of a text that a tiny model is made to say, and how many texts.
LONGEST, MOST = 300, 12

#: How often a text is asked for before its call is said to be late.
TIMES = 4


@attrs.frozen
class Answer:
    """What came of one completion: what its client got, and what the hooks said of it."""

    way: str  #: how it was asked for
    text: str = ""  #: all that went out of it
    reason: str | None = None
    #: by the names of the hooks; None where there were none
    scores: Mapping[str, Any] | None = None
    tokens: int = 0  #: token ids and log probabilities that went out
    whole: str = ""  #: everything that went out, but for the scores
    asked: str | None = None  #: the text that the model was made to say
    streamed: bool = False
    error: str = ""  #: why there is no answer

    def of(self, name: str) -> Any:  # noqa: ANN401 - scores
        """Return what a hook said of it, or None."""
        return (self.scores or {}).get(name)


def sayable(text: str) -> bool:
    """Tell whether a tiny model can be made to say a text."""
    return bool(text) and text.isprintable() and len(text.encode()) <= LONGEST


@attrs.define
class Judge:
    """Judges answers, each by what the simulator says of the same context."""

    bench: Bench
    ledger: Ledger
    #: Places of scores that differ from one time, or from one process, to the next.
    hidden: frozenset[Place] = frozenset()
    held: bool = True  #: whether nothing of a stream goes out before a blocking hook has decided
    entry: Any = None  #: the hook's attributes, as an engine reads them; None where it refuses
    _known: dict[str, Any] = attrs.field(factory=dict)

    def prepare(self) -> None:
        """Find out what does not apply, and what of the scores is not steady."""
        bench = self.bench
        if meaning.silent(bench):
            self.ledger.beside[MEANS] = meaning.SILENT
        try:
            self.entry = runtime("registry").checked(bench.make())
            self.hidden = bench.unsteady()
        except (ConstructorRaised, PluginHung, PluginExited, ValueError):
            return  # engines will say the same
        if not self.entry.blocking:
            why = "the hook annotates, and blocks nothing"
            self.ledger.beside |= dict.fromkeys((ALLOWS, BLOCKS, REPLACES), why)
        else:
            self.ledger.beside[REPLACES] = "no text that was tried got a replacement"

    def alone(self, answer: Answer) -> None:
        """Judge the answer to a request that nobody else was served with."""
        scores = self._scores(answer)
        if scores is None:
            return
        self._decides(answer, scores)
        wanted = self.expected(answer)
        if wanted is not None:
            if what := difference(scores, wanted, self.hidden):
                said = shortened(answer.text)
                self.ledger.advise(
                    STEADY, f"for {said} ({answer.way}) there was {what}, which it is elsewhere"
                )
                self.hidden |= unsteady((wanted, scores))
            else:
                self.ledger.saw(STEADY)
        self._sent(answer, scores)
        self._means(answer, scores)

    def among(self, answer: Answer, rule: str, when: str) -> bool:
        """Judge an answer to one of several requests; tell whether it showed anything."""
        scores = answer.of(self.entry.name)
        wanted = self.expected(answer)
        if scores is None or wanted is None:
            if scores is None:
                self._nothing(answer)
            return False
        if self._failure(scores) == "timeout":
            return False  # many calls share one processor here: it may not be the hook's fault
        if what := difference(scores, wanted, self.hidden):
            asked = shortened(answer.asked or answer.text)
            self.ledger.fail(rule, f"{when} {asked} got {what}")
            return False
        self._sent(answer, scores)
        self._means(answer, scores)
        self.ledger.saw(rule)
        return True

    def expected(self, answer: Answer) -> Any:  # noqa: ANN401 - scores
        """Return the scores that a fresh instance gives here for the same context, or None."""
        told = self._told(answer)
        if told is None:
            return None
        key = json.dumps(told, sort_keys=True)
        if key not in self._known:
            self._known[key] = None
            bench = self.bench
            with suppress(ConstructorRaised, PluginHung, PluginExited, ValueError):
                call = bench.score(bench.make(), witness.read(told))
                if call.good:
                    self._known[key] = runtime("scores").copied(call.value)
        return self._known[key]

    def _told(self, answer: Answer) -> Any:  # noqa: ANN401 - a context as JSON has it
        """Return what the hook was told of an answer, or None."""
        told = answer.of(witness.NAME)
        if told is None and answer.asked is not None:
            # Of a server that runs already all that is known is the text.
            return witness.written(self.bench.context(answer.asked))
        return told

    def _means(self, answer: Answer, scores: object) -> None:
        """Hold scores against what the author says of the same context."""
        told = self._told(answer)
        if told is None or MEANS in {*self.ledger.beside, *self.ledger.remarks}:
            return
        try:
            wanted = meaning.wanted(self.bench, witness.read(told))
        except OracleFailed as error:
            self.ledger.remarks[MEANS] = str(error)
            self.ledger.seen[MEANS] = 0
            return
        if not wanted or self._failure(scores):
            return
        if what := meaning.apart(scores, wanted):
            text = shortened(told["generated_text"])
            self.ledger.advise(MEANS, f"for {text} ({answer.way}) {what}")
        else:
            self.ledger.saw(MEANS)

    def _scores(self, answer: Answer) -> Any:  # noqa: ANN401 - a dictionary, or None
        scores = answer.of(self.entry.name)
        if scores is None:
            self._nothing(answer)
            return None
        kind = self._failure(scores)
        if kind is not None and scores != self.expected(answer):
            said = shortened(answer.asked or answer.text)
            message = scores["error"]["message"]
            self.ledger.fail(_RULE_OF[kind], f"for {said} ({answer.way}) {kind}: {message}")
            return None
        for rule in (SCORES, JSON, CONTEXTS, IN_TIME):
            self.ledger.saw(rule)
        return scores

    def _nothing(self, answer: Answer) -> None:
        why = answer.error or f"no scores arrived under the name {self.entry.name!r}"
        self.ledger.fault = f"{answer.way}: {why}"

    def _failure(self, scores: Any) -> str | None:  # noqa: ANN401 - a dictionary
        """Return the type of the error that stands in place of scores, or None."""
        error = scores.get("error") if set(scores) == {"error"} else None
        if not isinstance(error, dict) or set(error) != {"type", "message"}:
            return None
        return error["type"] if error["type"] in _RULE_OF else None

    def late(self, answer: Answer) -> bool:
        """Tell whether the hook was late: then it is asked again, since the machine may be."""
        scores = answer.of(self.entry.name)
        return scores is not None and self._failure(scores) == "timeout"

    def _decides(self, answer: Answer, scores: Mapping[str, Any]) -> None:
        """Judge the decision on a text of the profile."""
        bench = self.bench
        if answer.asked is None:
            return
        if not self.entry.blocking:
            if answer.asked in bench.blocked:
                said = f"{shortened(answer.asked)} ({answer.way}) was let through"
                self.ledger.advise(BLOCKS, f"{said}: the hook has {ANNOTATES}")
            return
        for texts, rule, blocks in ((bench.allowed, ALLOWS, False), (bench.blocked, BLOCKS, True)):
            if answer.asked not in texts:
                continue
            if bool(scores.get("block")) is blocks:
                self.ledger.saw(rule)
            else:
                what = "was let through" if blocks else "was blocked"
                said = f"{shortened(answer.asked)} ({answer.way}) {what}"
                self.ledger.fail(rule, f"{said}, with the scores {shortened(scores)}")

    def _sent(self, answer: Answer, scores: object) -> None:
        """Look whether what went out is what these scores ask for."""
        failed = self._failure(scores) is not None
        verdict = runtime("scores").decided([(self.entry, scores, failed)])
        if verdict.blocker is None:
            if answer.asked is not None and answer.text != answer.asked:
                self._wrong(answer, f"{shortened(answer.asked)} became {shortened(answer.text)}")
            return
        wanted = verdict.replacement or runtime("contract").DEFAULT_REFUSAL
        if not answer.text.endswith(wanted) or answer.reason != runtime("contract").REPLACED:
            self._wrong(answer, f"a blocked answer became {shortened(answer.text)}")
        elif not self.held and answer.streamed:
            if not (answer.asked or "").startswith(answer.text.removesuffix(wanted)):
                self._wrong(answer, f"a blocked stream became {shortened(answer.text)}")
        elif answer.text != wanted or answer.tokens or _leaks(answer, wanted):
            self._wrong(answer, f"of a blocked answer there was left {shortened(answer.whole)}")
        elif verdict.replacement:
            self.ledger.saw(REPLACES)

    def _wrong(self, answer: Answer, what: str) -> None:
        self.ledger.fault = f"{answer.way}: {what}, which is not what the scores ask for"

    def finish(self) -> None:
        """Note what could not be tried."""
        bench = self.bench
        for texts, rule, key in (
            (bench.allowed, ALLOWS, "allowed"),
            (bench.blocked, BLOCKS, "blocked"),
        ):
            if not any(map(sayable, texts)):
                self.ledger.remarks[rule] = (
                    f'give a short text that can be printed: [classifier-hook] {key} = [ "..." ]'
                )
        if bench.expected is None and not any(sayable(each.text) for each in bench.said):
            self.ledger.out_of_reach[MEANS] = "no text of `scores` is short and can be printed"


@attrs.define(eq=False)
class HookTrial(LiveTrial):
    """The trial of one hook on live evidence of either kind."""

    arguments: Mapping[str, Any] = attrs.field(factory=dict)  #: of the constructor
    #: Whether it starts when it is opened; others wait until they are asked.
    first: bool = attrs.field(kw_only=True, default=True)
    bench: Bench = attrs.field(init=False)
    judge: Judge = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Read the profile, start what is asked, and find out meanwhile what does not apply."""
        opening, settings = self.opening, self.opening.settings
        self.bench = Bench.open(
            opening.cls,
            opening.section,
            origin=opening.origin,
            seed=settings.seed,
            arguments=self.arguments,
        )
        # A fork of this process, which has not touched the hook yet.
        self.start()
        ours = opening.evidence is Evidence.OFFLINE or not settings.server_url
        self.judge = Judge(self.bench, self.ledger, held=ours)
        if self.first:
            self.judge.prepare()

    @abc.abstractmethod
    def start(self) -> None:
        """Start an engine or a server with the hook, or have it ready to be started."""

    def texts(self) -> list[str]:
        """Return what engines are made to say: the texts of the profile, and a few others."""
        mine = [*self.bench.allowed, *self.bench.blocked]
        others = [text for text in self.bench.texts if text not in mine]
        return [text for text in (*mine[: MOST - len(others)], *others) if sayable(text)]

    def document(self) -> Mapping[str, Any]:
        """Return what the hook is tried with."""
        return self.bench.document()


def _leaks(answer: Answer, wanted: str) -> bool:
    """Tell whether anything of what the model said went out beside the replacement."""
    if not answer.asked:
        return False
    left = answer.whole.replace(_escaped(wanted), "")
    return _escaped(answer.asked) in left


def _escaped(text: str) -> str:
    """Return a text as it stands in JSON."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def runtime_folder() -> str:
    """Return the folder that the runtime is imported from.

    Raises:
        UsageError: it is not installed.

    """
    path = runtime("contract").__file__
    if path is None:
        raise UsageError("the runtime of classifier hooks is no file")
    return str(path).rpartition("/reference_plugins/")[0]
