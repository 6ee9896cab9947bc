# SPDX-License-Identifier: Apache-2.0
"""Checks that every generation has: effects, their steadiness, and admission."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import torch
from vllm.exceptions import VLLMValidationError

from conformance.findings import Finding, failed, passed, unjudged
from conformance.inputs.history import Choice, label
from conformance.inputs.words import Words
from conformance.logits import reasons
from conformance.logits.calls import PluginRaised, call
from conformance.logits.findings import may_act, unknown_tokens, unreached
from conformance.logits.keywords import admissible, sampling_params
from conformance.logits.played import Kind
from conformance.logits.processes import served
from conformance.logits.rows import alike, differing
from conformance.logits.sweeps import Example
from conformance.logits.trial import Trial
from conformance.verdict import Verdict
from conformance.watching.interruption import limited
from conformance.watching.process_facts import generator_states

#: Logits of one request before and after, ``[1, vocabulary]`` each, step by step.
_Rows = list[tuple[torch.Tensor, torch.Tensor]]

#: How often, and for how many steps, a request is repeated.
REPETITIONS = 3
STEPS = 6

#: Steps of a request in whose first ones nothing is changed: its outputs repeat themselves by then.
#: More would be past vLLM's default of ``max_tokens``.
MORE_STEPS = 16


def loads(trial: Trial, loader: Callable[[list[str]], list[type]]) -> Finding:
    """vLLM's own loader finds the class."""
    try:
        (found,) = loader([trial.fqcn])
    except Exception as error:  # noqa: BLE001 - whatever vLLM's loader says is the finding
        cause = error.__cause__ or error
        return failed(f"vLLM's loader refuses {trial.fqcn!r}: {type(cause).__name__}: {cause}")
    # A module may make the class anew whenever it is asked for it.
    wanted = trial.plugin.__module__, trial.plugin.__qualname__
    if (found.__module__, found.__qualname__) != wanted:
        return failed(f"{trial.fqcn!r} names {found!r}, not the class under test")
    return Finding(Verdict.PASS, 1, 1)


def constructs(trial: Trial, make: Callable[[], object]) -> Finding:
    """Instances are made more than once, and share nothing."""
    for count in ("first", "second", "third"):
        try:
            with limited():
                make()
        except PluginRaised as error:
            return failed(f"making the {count} instance: {error}")
    return trial.sharing()


def acts(trial: Trial) -> Finding:
    """Each declared ``on`` changes a row somewhere."""
    examples = trial.examples()
    seen = frozenset[object]().union(*(example.played.acted for example in examples))
    acted = sum(bool(example.played.acted) for example in examples)
    if not trial.parameters.on:
        why = reasons.blocked(trial) if reasons.blocking(trial) else trial.unknown_switch()
        return unjudged(why, len(examples))
    played = [choice for choice in trial.bench.parameters if choice[0] == "on"]
    idle = [choice for choice in played if choice not in seen]
    if not idle:
        return Finding(Verdict.PASS, len(examples), acted)
    entries = ", ".join(f"on[{index}] = {trial.parameters.on[index]}" for _, index in idle)
    sentence = f"{entries} changed no row in {len(examples)} examples"
    if reasons.blocking(trial):
        return unjudged(reasons.blocked(trial), len(examples), acted)
    if _raised_for(examples, idle):
        # What it does to a row comes after what raised.
        return unjudged(reasons.waits(trial, [trial.contract.raises]), len(examples), acted)
    waits, late = trial.parameters.waits, unreached(trial.bench)
    if trial.parameters.declared and (waits.declared or not waits.reads) and not late:
        return failed(sentence, len(examples), case={"choice": idle[0]})
    if late := late or unknown_tokens(waits, trial.bench.vocabulary):
        sentence += f"; {late}"
    elif waits.reads:
        sentence += f"; {_said(trial.bench.words)}"
    return unjudged(sentence, len(examples), acted)


def _said(words: Words) -> str:
    """Say which tokens a plugin was shown that reads tokens, and how to name those it waits for."""
    phrases = [*words.phrases, *words.prompts]
    after = f", and {', '.join(str(list(phrase)) for phrase in phrases)}" if phrases else ""
    tokens = ", ".join(map(str, words.tokens))
    return (
        f"the plugin looks at tokens, and was shown {tokens}{after}: name what it waits for as "
        "tokens, outputs or prompts of the profile"
    )


def _raised_for(examples: Iterable[Example], idle: Iterable[Choice]) -> bool:
    """Tell whether something was raised in a history with one of these parameter sets."""
    return any(
        trouble.kind is Kind.RAISED
        for example in examples
        if any(request.choice in idle for step in example.history for request in step.join)
        for trouble in example.played.troubles
    )


def deterministic(trial: Trial) -> Finding:
    """The same request alone gives the same rows again, and draws no global randomness."""
    bench = trial.bench
    examples = acted = 0
    counted = may_act(bench)
    for choice in bench.parameters:
        before = generator_states()
        runs = _runs(trial, choice, STEPS)
        changed = _changed(runs[0])
        if choice[0] == "on" and not changed:
            runs = _runs(trial, choice, MORE_STEPS)
            changed = _changed(runs[0])
        if choice in counted:
            examples += len(runs[0])
            acted += changed
        for again in runs[1:]:
            for step, ((_, first), (_, second)) in enumerate(zip(runs[0], again, strict=True)):
                if not torch.equal(first, second) and not alike(first, second):
                    token, got, expected = differing(second[0], first[0])[0]
                    return failed(
                        f"{label(choice)}, step {step}: token {token} got {expected:.6g} the "
                        f"first time and {got:.6g} again, for the same request",
                        examples,
                        case={"choice": choice, "draws": False, "steps": len(runs[0])},
                    )
        after = generator_states()
        for name in [name for name in before if after[name] != before[name]]:
            if trial.once(served).harms:
                return unjudged(reasons.waits(trial, [trial.contract.leaves]), examples)
            return failed(
                f"{label(choice)} changes the global random state of {name}",
                examples,
                case={"choice": choice, "draws": name, "steps": len(runs[0])},
            )
    return passed(examples, acted)


def _runs(trial: Trial, choice: Choice, steps: int) -> list[_Rows]:
    """Return the logits before and after of the same request, several times."""
    runs = []
    steps = trial.bench.behind(steps, choice)
    for _ in range(REPETITIONS):
        with limited():
            runs.append(list(trial.contract.rows_alone(trial.bench, choice, steps)))
    return runs


def _changed(rows: _Rows) -> int:
    return sum(not torch.equal(before, after) for before, after in rows)


def refuses(trial: Trial) -> Finding:
    """``validate_params`` accepts what is good and refuses what is not."""
    validate = trial.plugin.validate_params
    valid = trial.parameters.simulated()
    for choice, said in valid.items():
        try:
            with limited():
                call("validate_params", validate, sampling_params(said, label(choice)))
        except PluginRaised as error:
            return failed(f"a request that is valid by the profile ({label(choice)}): {error}")
    invalid = trial.parameters.invalid
    for tried, (name, keywords, params) in enumerate(admissible(invalid), 1):
        try:
            with limited():
                call("validate_params", validate, params)
        except PluginRaised as error:
            if not isinstance(error.error, ValueError | VLLMValidationError):
                return failed(
                    f"{name} = {keywords} is refused with {type(error.error).__name__} "
                    f"({error.error}): only ValueError and VLLMValidationError become HTTP 400"
                )
        else:
            return failed(f"{name} = {keywords} is accepted by validate_params", tried)
    if not invalid:
        return Finding(
            Verdict.NOT_APPLICABLE,
            len(valid),
            message="the profile names no invalid requests",
        )
    return Finding(Verdict.PASS, len(invalid), len(invalid))


def answers_nothing(trial: Trial) -> Finding:
    """``validate_params`` returns None for what it admits."""
    admitted = 0
    for choice, keywords in trial.parameters.simulated().items():
        name = label(choice)
        params = sampling_params(keywords, name)
        with suppress(PluginRaised), limited():  # whom it must admit is another rule's
            answer = call("validate_params", trial.plugin.validate_params, params)
            admitted += 1
            if answer is not None:
                kind = type(answer).__name__
                return failed(
                    f"validate_params returned a {kind} for {name}, not None",
                    admitted,
                    case={"choice": choice},
                )
    if not admitted:
        return unjudged("validate_params admits none of the requests that are known")
    return Finding(Verdict.PASS, admitted, admitted)
