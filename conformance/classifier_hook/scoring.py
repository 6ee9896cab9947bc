# SPDX-License-Identifier: Apache-2.0
"""Checks of what a hook answers."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Mapping
from itertools import product
from types import MappingProxyType
from typing import Any

import attrs
from hypothesis import strategies as st

from conformance.checking import checks
from conformance.classifier_hook import seams
from conformance.classifier_hook.bench import Bench, blocks, plain
from conformance.classifier_hook.calls import Call, runtime
from conformance.classifier_hook.trial import Trial
from conformance.findings import LEAST_ACTED, Finding, failed, inapplicable, passed, unjudged
from conformance.inputs import literals
from conformance.search import TEXTS, smallest
from conformance.watching import hash_seeds
from conformance.watching.comparison import shortened, told_places

#: Texts that a model can write: what cannot be decoded arrives as U+FFFD.
ODD = (
    "",
    " ",
    "\n" * 200,
    "x" * 100_000,
    "word " * 20_000,
    "\x00\x01\x7f",
    "\ufffd\ufffd",
    "\U0001f600\u200d\U0001f680",
    "\u202eright to left\u202c",
    "e\u0301" * 50,
    '{"json": [1, 2, {}]}',
    "[" * 2_000,
    "<|im_start|>assistant",
    "{x} {0} %s %(x)s $x \\1 \\g<x>",
)

#: What texts are put together from.
_PIECES = (
    "the", "a fox", "says", "no", "42", "3.5", "-1e9", ",", ".", "...", "\n", "{", '"x":', "}",
    "<b>", "</b>", "```", "jane@example.org", "https://example.org/?q=1", "\u00e9", "\u6f22\u5b57",
    "\U0001f600",
)  # fmt: skip


#: How long texts of the source of a hook are at most, and how many are put together.
_LONGEST, _RUN = 40, 4

#: How many texts of the source one text has at most.
_WORDS = 200


def drawn() -> st.SearchStrategy[str]:
    """Draw texts: of any characters, and longer ones of words, numbers, marks and markup."""
    characters = st.characters(exclude_categories=["Cs"])
    piece = st.sampled_from(_PIECES)
    pieces = st.lists(piece | st.text(characters, max_size=3), max_size=40)
    longer = st.lists(piece, min_size=10, max_size=80)
    joined = st.tuples(st.sampled_from((" ", "")), pieces | longer)
    return st.text(characters, max_size=200) | joined.map(lambda drawn: drawn[0].join(drawn[1]))


def looked_for(hook: type[Any]) -> list[str]:
    """Return what is made of texts in the source of a hook: some that follow each other.

    A hook that reads markup looks for its parts in their order, which chance seldom has.
    """
    known = [text for text in dict.fromkeys(literals.texts(hook)) if 0 < len(text) <= _LONGEST]
    runs = [known[at : at + n] for n in range(1, _RUN + 1) for at in range(len(known) + 1 - n)]
    return list(dict.fromkeys(mark.join(run) for run in runs for mark in ("", " ")))


@checks("CH-10")
def a_dict(trial: Trial) -> Finding:
    """The scores of every completion are a dictionary."""
    return _taken(trial.bench, typed=False)


@checks("CH-38")
def json_values(trial: Trial) -> Finding:
    """The runtime takes the scores of every completion."""
    return _taken(trial.bench, typed=True)


def _taken(bench: Bench, *, typed: bool) -> Finding:
    """Judge scores of ordinary texts, of ordinary ones in contexts of every kind, and of odd ones.

    The first call without scores ends it: other rules judge that.
    """
    completions: list[tuple[str, str, dict[str, Any]]] = [(text, "", {}) for text in bench.texts]
    completions += [
        (text, f" in a context with {what}", changes)
        for text in bench.texts[:2]
        for what, changes in contexts(bench, text)
    ]
    completions += [(text, "", {}) for text in ODD]
    for text, where, changes in completions:
        if found := _refused(bench, text, where, changes, typed=typed):
            return found
        if not bench.alone(text, **changes).good:
            break
    return passed(len(completions))


def no_dict(bench: Bench) -> Finding | None:
    """Return which scores of an ordinary text are no dictionary with texts for keys, or None."""
    return next(filter(None, (_refused(bench, text, typed=False) for text in bench.texts)), None)


def invalid(bench: Bench) -> Finding | None:
    """Return which dictionary of an ordinary text the runtime refuses, or None."""
    return next(filter(None, (_refused(bench, text, typed=True) for text in bench.texts)), None)


def _refused(
    bench: Bench,
    text: str,
    where: str = "",
    changes: Mapping[str, Any] = MappingProxyType({}),
    *,
    typed: bool,
) -> Finding | None:
    """Return which scores the runtime refuses, of the RFC's type or of others, or None."""
    scores, call = runtime("scores"), bench.alone(text, **changes)
    value = call.value
    if call.good and typed == (isinstance(value, dict) and all(map(_is_text, value))):
        try:
            scores.copied(value)
        except scores.InvalidScores as error:
            case = {"text": text, "changes": dict(changes)}
            return failed(f"for {shortened(text)}{where} {error}", case=case)
    return None


def _is_text(key: object) -> bool:
    return isinstance(key, str)


def raises(bench: Bench) -> Finding | None:
    """Return for which ordinary text there are no scores, or None."""
    return next(filter(None, (_scoreless(text, bench.alone(text)) for text in bench.texts)), None)


def _scoreless(text: str, call: Call) -> Finding | None:
    """Return the finding that a text got no scores, or None."""
    if call.good:
        return None
    return failed(f"score of {shortened(text)} {call.trouble()}", case={"text": text})


def needs(bench: Bench) -> Finding | None:
    """Return which text gets scores only where everything that may be missing is there, or None."""
    for text in bench.texts:
        call = bench.alone(text)
        if not call.good and bench.call(text, **_everything(bench, text)).good:
            without = "without logprobs, extra fields and metadata"
            why = f"score of {shortened(text)} {without} {call.trouble()}"
            return failed(why, case={"text": text})
    return None


#: Why a text that the profile blocks goes out, whatever the hook says of it.
ANNOTATES = "blocking = False, so it never blocks"


@checks("CH-11", after=("CH-03",))
def allows(trial: Trial) -> Finding:
    """Allowed texts are let through."""
    return _decides(trial, trial.bench.allowed, blocked=False)


@checks("CH-12", after=("CH-03",))
def refuses(trial: Trial) -> Finding:
    """Blocked texts are blocked."""
    return _decides(trial, trial.bench.blocked, blocked=True)


def _decides(trial: Trial, texts: tuple[str, ...], *, blocked: bool) -> Finding:
    bench = trial.bench
    if not bench.make().blocking:
        if blocked and texts:
            why = f"{shortened(texts[0])} was let through: the hook has {ANNOTATES}"
            return failed(why, case={"text": texts[0]})
        return inapplicable("the hook annotates, and blocks nothing")
    if not texts:
        key = "blocked" if blocked else "allowed"
        wanted = "block" if blocked else "let through"
        why = f'give a text that it must {wanted}: [classifier-hook] {key} = [ "..." ]'
        return unjudged(why)
    for text in texts:
        value = plain(bench.alone(text).value)
        if blocks(value) is not blocked:
            what = "was let through" if blocked else "was blocked"
            why = f"{shortened(text)} {what}, with the scores {shortened(value)}"
            return failed(why, case={"text": text})
    return _blocks(bench) if blocked else passed(len(texts))


def _blocks(bench: Bench) -> Finding:
    """Judge what is blocked behind other text, and what of it tells where it begins."""
    texts = bench.blocked
    if found := seams.later(bench):
        text, changes = found
        why = f"{shortened(text)} is blocked as completion 0 of a request, and let through as 3"
        return failed(why, case={"text": text, "changes": changes})
    if lost := seams.lost(bench):
        text, seam = lost
        return failed(f"{shortened(text)} {seam}", case={"text": seam.text})
    return attrs.evolve(passed(len(texts)), message=seams.doubts(bench))


@checks("CH-13")
def replaces(trial: Trial) -> Finding:
    """A replacement is a text that is not empty."""
    bench = trial.bench
    tried = seen = 0
    # Blocked texts among others as well, until there are enough replacements (LEAST_ACTED).
    around = product(bench.blocked, bench.texts, bench.texts)
    more = (" ".join(parts) for one, *two in around for parts in ((one, *two), (*two, one)))
    for text in (*bench.texts, *more):
        if tried >= len(bench.texts) and seen >= LEAST_ACTED[trial.budget]:
            break
        value = plain(bench.alone(text).value)
        tried += 1
        if blocks(value):
            replacement = value.get("replacement")
            seen += replacement is not None
            if replacement == "" or not isinstance(replacement, str | None):
                why = f"for {shortened(text)} the replacement was {shortened(replacement)}"
                return failed(why, case={"text": text})
    if not seen:
        return inapplicable("no text that was tried got a replacement")
    return passed(tried, seen)


@checks("CH-14", after=("CH-03",))
def annotates(trial: Trial) -> Finding:
    """A hook that annotates does not ask to block."""
    bench = trial.bench
    if bench.make().blocking:
        return inapplicable("the hook blocks")
    for text in bench.texts:
        value = plain(bench.alone(text).value)
        if blocks(value):
            why = f"for {shortened(text)} the scores were {shortened(value)}"
            return failed(why, case={"text": text})
    return passed(len(bench.texts))


@checks("CH-15")
def any_text(trial: Trial) -> Finding:
    """Whatever the model wrote gets scores."""
    bench = trial.bench
    if found := raises(bench):
        return found
    for text in (*ODD, *_beside(bench)):
        if found := _scoreless(text, bench.alone(text)):
            return found

    def judge(text: str) -> tuple[str, Finding] | None:
        found = _scoreless(text, bench.call(text))
        return None if found is None else (text, found)

    count, worst = smallest(
        drawn(),
        judge,
        TEXTS,
        budget=trial.budget,
        seed=bench.seed,
        first=looked_for(bench.cls)[: TEXTS.most(trial.budget)],
        size=lambda entry: len(entry[0]),
    )
    count += len(ODD) + len(_beside(bench))
    return passed(count) if worst is None else attrs.evolve(worst[1], examples=count, acted=count)


def _beside(bench: Bench) -> list[str]:
    """Return odd texts beside what is blocked, of which a hook may make a replacement."""
    return [
        text
        for bad in bench.blocked[:1]
        for odd in ODD
        for text in (f"{odd} {bad}", f"{bad} {odd}")
    ]


@checks("CH-16")
def any_context(trial: Trial) -> Finding:
    """Contexts of every kind get scores."""
    bench = trial.bench
    if found := needs(bench):
        return found
    count = 0
    for text in bench.texts[:2]:
        for what, changes in contexts(bench, text):
            call = bench.alone(text, **changes)
            count += 1
            if not call.good:
                why = f"score of a context with {what} {call.trouble()}"
                return failed(why, count, case={"text": text, "changes": changes})
    return passed(count)


def contexts(bench: Bench, text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return what vLLM may say of a completion, each with its name."""
    everything = _everything(bench, text)
    sampled = ("logprobs", "cumulative_logprob")
    return [
        ("the finish reason 'length'", {"finish_reason": "length"}),
        ("the finish reason 'repetition'", {"finish_reason": "repetition"}),
        ("a stop reason that is a token", {"stop_reason": 7}),
        ("a stop reason that is a text", {"stop_reason": "###"}),
        ("embeddings for a prompt", {"prompt": "", "prompt_token_ids": []}),
        ("logprobs", {key: everything[key] for key in sampled}),
        ("a log probability of minus infinity", {"logprobs": _masked(everything["logprobs"])}),
        ("prompt logprobs", {"prompt_logprobs": everything["prompt_logprobs"]}),
        ("an index of 3", {"index": 3}),
        ("extra fields", {"extra_fields": {"tenant": "a", "tags": ["x"]}}),
        ("metadata", {"request_metadata": {"lora": "one", "priority": 2}}),
        ("a request id of a server's", {"request_id": "chatcmpl-9f0be1c7a2d34e55"}),
        ("a request id of a client's", {"request_id": "a \u00e9/1"}),
    ]


def _everything(bench: Bench, text: str) -> dict[str, Any]:
    """Return all that may be missing in a context, also for hooks that look up unknown keys."""
    return {
        "request_id": "7",
        **logprobs(bench.context(text), -0.5),
        # Any key is found in them.
        "extra_fields": defaultdict(lambda: "a"),
        "request_metadata": defaultdict(lambda: "a"),
        "stop_reason": "###",
    }


def logprobs(context: Any, value: float) -> dict[str, Any]:  # noqa: ANN401 - a ScoringContext
    """Return the fields of a context in which each token has this log probability."""
    token = runtime("contract").TokenLogprob(value, 1, "a")

    def positions(tokens: list[int]) -> list[Any]:
        return [{each: token} for each in tokens]

    return {
        "logprobs": positions(context.output_token_ids),
        "cumulative_logprob": value * len(context.output_token_ids),
        "prompt_logprobs": [None, *positions(context.prompt_token_ids[1:])],
    }


def _masked(positions: list[Any]) -> list[Any]:
    """Return log probabilities in which each position also has a token that is not allowed.

    vLLM masks tokens that a grammar excludes before it takes the log probabilities.
    """
    token = runtime("contract").TokenLogprob(-math.inf, 2, "b")
    return [{**position, max(position) + 1: token} for position in positions]


@checks("CH-17")
def reads_only(trial: Trial) -> Finding:
    """The context is the same afterwards."""
    bench = trial.bench
    for text in bench.texts:
        extra = {"tenant": "a", "tags": ["x"]}
        context = bench.context(text, extra_fields=extra, request_metadata=copy.deepcopy(extra))
        before = vars(runtime("contract").own(context))
        bench.score(bench.make(), context)
        after = vars(context)
        changed = [name for name in {**before, **after} if _other(name, before, after)]
        if changed:
            why = f"score of {shortened(text)} changed {', '.join(changed)} of its context"
            return failed(why, case={"text": text})
    return passed(len(bench.texts))


def _other(name: str, before: dict[str, Any], after: dict[str, Any]) -> bool:
    return name not in before or name not in after or before[name] != after[name]


@checks("CH-18")
def steady(trial: Trial) -> Finding:
    """The same completion gets the same scores again."""
    if places := trial.bench.unsteady():
        where = told_places(places, "the scores")
        return failed(f"the same completion, scored again, got another value at {where}")
    bench = trial.bench
    if hash_seeds.may_depend(bench.cls):
        asked = Hashed(bench.cls, dict(bench.arguments), bench.seed, _wordy(bench))
        if found := hash_seeds.apart(f"{__name__}:hashed", asked):
            number, what = found
            why = (
                f"score of {shortened(asked.texts[number])} gave in two processes, with other "
                f"hashes of texts, {what}: the order of a set is another one in each server"
            )
            return failed(why, case={"hashed": asked.texts[number]})
    return passed(len(bench.texts))


@attrs.frozen
class Hashed:
    """What a process with other hashes of texts needs to score texts."""

    cls: type[Any]
    arguments: dict[str, Any]
    seed: int
    texts: tuple[str, ...]


def _wordy(bench: Bench) -> tuple[str, ...]:
    """Return the texts of a bench, and all at once with the words that the source looks for."""
    words = [text for text in dict.fromkeys(literals.texts(bench.cls)) if len(text) <= _LONGEST]
    return (*bench.texts, " ".join(bench.texts), " ".join(words[:_WORDS]))


def hashed(asked: Hashed) -> list[Any]:
    """Return the scores of texts; this is the process with other hashes."""
    bench = Bench.open(asked.cls, {}, origin=None, seed=asked.seed, arguments=asked.arguments)
    calls = [bench.call(text) for text in asked.texts]
    return [plain(call.value) if call.good else None for call in calls]
