# SPDX-License-Identifier: Apache-2.0
"""Checks of what a hook answers."""

from __future__ import annotations

import copy
import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from conformance.classifier_hook.bench import plain, runtime
from conformance.classifier_hook.calls import one, run
from conformance.comparison import first_line, shortened
from conformance.findings import Finding, failed, passed
from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.classifier_hook.bench import Bench
    from conformance.classifier_hook.trial import Trial

DRAWN = {Budget.QUICK: 20, Budget.STANDARD: 60, Budget.DEEP: 300}

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
    "<|im_start|>assistant",
)


def json_values(trial: Trial) -> Finding:
    """The runtime takes the scores of every ordinary text."""
    bench = trial.bench
    if why := invalid(bench):
        return failed(why)
    return passed(len(bench.texts), len(bench.texts))


def invalid(bench: Bench) -> str | None:
    """Say which scores the runtime refuses, or return None."""
    scores = runtime("scores")
    for text in bench.texts:
        call = bench.call(text)
        if call.error is None:
            try:
                scores.copied(call.value)
            except scores.InvalidScores as error:
                return f"for {shortened(text)} {error}"
    return None


def raises(bench: Bench) -> str | None:
    """Say which ordinary text makes ``score`` raise, or return None."""
    for text in bench.texts:
        call = bench.call(text)
        if call.error is not None:
            return f"score of {shortened(text)} raised {_told(call.error)}"
    return None


def allows(trial: Trial) -> Finding:
    """Allowed texts are let through."""
    return _decides(trial, trial.bench.allowed, blocks=False)


def blocks(trial: Trial) -> Finding:
    """Blocked texts are blocked."""
    return _decides(trial, trial.bench.blocked, blocks=True)


def _decides(trial: Trial, texts: tuple[str, ...], *, blocks: bool) -> Finding:
    bench = trial.bench
    if not bench.make().blocking:
        return Finding(Verdict.NOT_APPLICABLE, message="the hook annotates, and blocks nothing")
    if not texts:
        key = "blocked" if blocks else "allowed"
        wanted = "block" if blocks else "let through"
        why = f'give a text that it must {wanted}: [classifier-hook] {key} = [ "..." ]'
        return Finding(Verdict.NOT_VERIFIED, message=why)
    for text in texts:
        value = plain(bench.call(text).value)
        if bool(isinstance(value, dict) and value.get("block")) is not blocks:
            what = "was let through" if blocks else "was blocked"
            return failed(f"{shortened(text)} {what}, with the scores {shortened(value)}")
    return passed(len(texts), len(texts))


def replaces(trial: Trial) -> Finding:
    """A replacement is a text that is not empty."""
    bench = trial.bench
    seen = 0
    for text in bench.texts:
        value = plain(bench.call(text).value)
        if isinstance(value, dict) and value.get("block") and "replacement" in value:
            seen += 1
            if not isinstance(value["replacement"], str) or not value["replacement"]:
                return failed(
                    f"for {shortened(text)} the replacement was {shortened(value['replacement'])}"
                )
    if not seen:
        return Finding(Verdict.NOT_APPLICABLE, message="no text that was tried got a replacement")
    return passed(len(bench.texts), seen)


def annotates(trial: Trial) -> Finding:
    """A hook that annotates does not ask to block."""
    bench = trial.bench
    if bench.make().blocking:
        return Finding(Verdict.NOT_APPLICABLE, message="the hook blocks")
    for text in bench.texts:
        value = plain(bench.call(text).value)
        if isinstance(value, dict) and value.get("block"):
            return failed(f"for {shortened(text)} the scores were {shortened(value)}")
    return passed(len(bench.texts), len(bench.texts))


class _Broken(Exception):
    """The example breaks the rule."""


def any_text(trial: Trial) -> Finding:
    """Whatever the model wrote gets scores."""
    bench = trial.bench
    if why := raises(bench):
        return failed(why)
    worst: list[tuple[str, BaseException]] = []
    count = 0

    @hypothesis.seed(bench.seed)
    @hypothesis.settings(
        max_examples=DRAWN[trial.budget],
        database=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(
        st.one_of(
            st.sampled_from(ODD),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
        )
    )
    def body(text: str) -> None:
        nonlocal count
        count += 1
        call = bench.call(text)
        if call.error is not None:
            worst.append((text, call.error))
            raise _Broken

    try:
        body()
    except (_Broken, hypothesis.errors.HypothesisException):
        if not worst:
            raise
    if worst:
        text, error = min(worst, key=lambda entry: len(entry[0]))
        return failed(f"score of {shortened(text)} raised {_told(error)}", count)
    return passed(count, count)


def any_context(trial: Trial) -> Finding:
    """Contexts of every kind get scores."""
    bench = trial.bench
    count = 0
    for what, changes in _contexts():
        for text in bench.texts[:2]:
            call = bench.call(text, **changes)
            count += 1
            if call.error is not None:
                return failed(f"score of a context with {what} raised {_told(call.error)}", count)
    return passed(count, count)


def _contexts() -> list[tuple[str, dict[str, Any]]]:
    contract = runtime("contract")
    token = contract.TokenLogprob(-0.5, 1, "a")
    positions = (MappingProxyType({5: token}), None)
    return [
        ("the finish reason 'length'", {"finish_reason": "length"}),
        ("the finish reason 'tool_calls'", {"finish_reason": "tool_calls"}),
        ("a stop reason that is a token", {"stop_reason": 7}),
        ("no output tokens", {"output_token_ids": ()}),
        ("no prompt", {"prompt": "", "prompt_token_ids": ()}),
        ("logprobs", {"logprobs": positions, "cumulative_logprob": -1.5}),
        ("prompt logprobs", {"prompt_logprobs": (None, *positions)}),
        ("an index of 3", {"index": 3}),
        ("extra fields", {"extra_fields": MappingProxyType({"tenant": "a", "tags": ("x",)})}),
        ("metadata", {"request_metadata": MappingProxyType({"lora": "one", "priority": 2})}),
    ]


def reads_only(trial: Trial) -> Finding:
    """The context is the same afterwards, and nobody tried to change it."""
    if why := changes(trial.bench):
        return failed(why)
    return passed(len(trial.bench.texts), len(trial.bench.texts))


def changes(bench: Bench) -> str | None:
    """Say how ``score`` changed, or tried to change, its context, or return None."""
    for text in bench.texts:
        hook = bench.make()
        extra = MappingProxyType({"tenant": "a"})
        context = bench.context(text, extra_fields=extra, request_metadata=extra)
        before = copy.copy(context)
        call = run(one(hook, context))
        if isinstance(call.error, dataclasses.FrozenInstanceError):
            return f"score of {shortened(text)} tried to change the context: {call.error}"
        if isinstance(call.error, TypeError) and "mappingproxy" in str(call.error):
            return f"score of {shortened(text)} tried to change a mapping: {call.error}"
        if context != before:
            return f"score of {shortened(text)} changed its context"
    return None


def steady(trial: Trial) -> Finding:
    """The same completion gets the same scores again."""
    if places := trial.bench.unsteady():
        where = ", ".join(
            "".join(f"[{part}]" for part in place) or "the scores" for place in sorted(places)[:3]
        )
        return failed(f"the same completion, scored again, got another value at {where}")
    return passed(len(trial.bench.texts), len(trial.bench.texts))


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(str(error))}"
